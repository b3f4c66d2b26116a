"""The worker's socket and its turns: which thread reads, computes and is woken."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from caxton_host.sandbox import wire
from caxton_host.sandbox.worker import Channel, Turns, Waiter

SOON = 10


class Node:
    """A channel whose frames release the waiter of their number."""

    def __init__(self, sock: socket.socket) -> None:
        self.waiters = [Waiter() for _ in range(4)]
        self.readers: list[int] = []
        self.channel = Channel(sock, self._handle)

    def _handle(self, _kind: int, number: int, _body: bytes) -> None:
        self.readers.append(threading.get_ident())
        self.channel.release(self.waiters[number])

    def wait(self, number: int) -> threading.Thread:
        thread = threading.Thread(
            target=self.channel.wait, args=[self.waiters[number]], daemon=True
        )
        thread.start()
        return thread


@pytest.fixture
def pair() -> Iterator[tuple[Node, socket.socket]]:
    ours, theirs = socket.socketpair()
    # Closed last, and from here: a channel whose peer is gone ends its process.
    with ours, theirs:
        yield Node(ours), theirs


def _frame(number: int) -> bytes:
    return wire.frame(wire.STOP, number)


def _following(node: Node, count: int) -> None:
    while len(node.channel._following) != count:
        pass


def _joined(*threads: threading.Thread) -> bool:
    for thread in threads:
        thread.join(SOON)
    return not any(thread.is_alive() for thread in threads)


def test_one_who_waits_reads_its_own_answer(pair: tuple[Node, socket.socket]) -> None:
    node, peer = pair
    thread = node.wait(0)
    while node.channel._read_by is None:
        pass
    ident = thread.ident
    peer.sendall(_frame(0))
    assert _joined(thread)
    assert node.readers == [ident]


def test_reader_wakes_those_who_follow_and_hands_on(
    pair: tuple[Node, socket.socket],
) -> None:
    node, peer = pair
    threads = [node.wait(0)]
    while node.channel._read_by is None:
        pass
    threads += [node.wait(1), node.wait(2)]
    _following(node, 2)
    peer.sendall(_frame(1))
    assert _joined(threads[1])
    peer.sendall(_frame(0))
    assert _joined(threads[0])
    peer.sendall(_frame(2))
    assert _joined(threads[2])


def test_answer_that_came_first_is_not_waited_for(
    pair: tuple[Node, socket.socket],
) -> None:
    node, peer = pair
    peer.sendall(_frame(3))
    node.channel.listen()
    node.channel.wait(node.waiters[3])
    assert node.channel._read_by is None


def test_poll_takes_all_that_came_and_does_not_wait(
    pair: tuple[Node, socket.socket],
) -> None:
    node, peer = pair
    node.channel.poll()
    assert not node.readers
    peer.sendall(_frame(0) + _frame(1) + _frame(2))
    node.channel.poll()
    assert len(node.readers) == 3


def test_poll_leaves_a_socket_that_somebody_reads(
    pair: tuple[Node, socket.socket],
) -> None:
    node, peer = pair
    thread = node.wait(0)
    while node.channel._read_by is None:
        pass
    node.channel.poll()
    peer.sendall(_frame(0))
    assert _joined(thread)


def test_frames_are_sent_whole(pair: tuple[Node, socket.socket]) -> None:
    node, peer = pair
    node.channel.send(_frame(2))
    assert peer.recv(100) == _frame(2)


# -- turns to compute ----------------------------------------------------------


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
