from __future__ import annotations

import threading
from collections.abc import Callable

from caxton_host.sandbox.compute_slots import Turns

SOON = 10


class Taker(threading.Thread):
    """Asks for a turn in a thread of its own."""

    def __init__(self, turns: Turns, dismissed: Callable[[], object] = bool) -> None:
        super().__init__(daemon=True)
        self.turns = turns
        self.dismissed = dismissed
        self.got: bool | None = None
        self.start()

    def run(self) -> None:
        self.got = self.turns.take(self, self.dismissed)

    def queued(self) -> Taker:
        while self not in self.turns._queue:
            assert self.is_alive()
        return self

    def result(self) -> bool | None:
        self.join(SOON)
        return self.got


def test_turns_are_given_in_the_order_they_were_asked_for() -> None:
    turns = Turns(1)
    assert turns.take("first", bool)
    second = Taker(turns).queued()
    third = Taker(turns).queued()
    assert turns.wanted
    turns.give()
    assert second.result() is True
    assert third.got is None
    turns.give()
    assert third.result() is True
    assert not turns.wanted


def test_there_are_as_many_turns_as_were_given_back() -> None:
    turns = Turns(2)
    for _ in range(5):
        assert turns.take("a", bool)
        assert turns.take("b", bool)
        turns.give()
        turns.give()


def test_dismissed_one_waits_no_longer_and_takes_no_turn() -> None:
    turns = Turns(1)
    turns.take("first", bool)
    second = Taker(turns).queued()
    turns.dismiss(second)
    turns.dismiss(second)
    assert second.result() is False
    turns.give()
    assert turns.take("third", bool)


def test_one_dismissed_before_it_asks_does_not_wait() -> None:
    turns = Turns(1)
    turns.take("first", bool)
    assert turns.take("second", lambda: True) is False
