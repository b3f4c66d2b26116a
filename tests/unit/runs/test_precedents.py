"""What a call is compared with: what people approved, and the caller may see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from caxton_host.core.log.events import Event
from caxton_host.core.log.runs import EVERY, RunRow
from caxton_host.runs.precedents import context_of
from caxton_host.runs.recording import Recording
from caxton_host.store.memory import MemoryStore
from caxton_host.testing import FakeClock, FakeEntropy
from tests.turns import asked, completed, decided, denied, failed, invoked, suspended
from tests.unit.store.fakes import run_started

CALLED = replace(invoked(), params={"to": "then"})
APPROVED = (asked(), decided(), CALLED, completed())
WAITING = (replace(asked(), params={"to": "now"}), suspended())


async def told(
    *before: Event, sees: Callable[[RunRow], bool] = lambda _: True, gone: bool = False
) -> Any:  # noqa: ANN401 -- a document
    """Return the last approved call, where an earlier run had these events."""
    store = MemoryStore(clock=FakeClock(), entropy=FakeEntropy())
    # A run is found by what its row says, which is written where its state changes.
    await store.create("run/0a").append(run_started(), *before, suspended())
    await store.create("run/0b").append(run_started("other"), *WAITING)
    if gone:
        store.streams["run/0a"].clear()
    recording = await Recording.load("0b", store.reader)
    found = await context_of(recording, 2, store.reader, EVERY, sees)
    assert (found["call"], found["before"], found["output_schema"]) == (1, [], None)
    return found["last_approved"]


async def test_the_difference_to_the_last_approved_call_is_told() -> None:
    last = await told(*APPROVED)

    assert (last["run_id"], last["seq"]) == ("0a", 4)
    assert last["differences"] == [{"path": "$.to", "a": "then", "b": "now"}]


async def test_a_call_that_nobody_approved_or_that_went_wrong_is_none() -> None:
    assert await told() is None
    assert await told(CALLED, completed()) is None
    assert await told(asked(), decided(verdict="deny"), CALLED, denied()) is None
    assert await told(asked(), decided(), CALLED, failed()) is None
    assert await told(asked(), decided(), CALLED, completed(is_error=True)) is None
    assert await told(asked(), decided(), invoked(tool="u"), completed()) is None


async def test_a_run_that_the_caller_may_not_see_is_none() -> None:
    # law 4
    assert await told(*APPROVED, sees=lambda row: row.agent == "other") is None


async def test_a_run_whose_events_are_gone_is_none() -> None:
    assert await told(*APPROVED, gone=True) is None


async def test_the_last_calls_before_it_are_told_and_an_approved_one_of_them() -> None:
    store = MemoryStore(clock=FakeClock(), entropy=FakeEntropy())
    others = [(invoked(n, "u"), completed(n)) for n in range(2, 8)]
    before = (*APPROVED, *(event for one in others for event in one))
    await store.create("run/0a").append(run_started(), *before, asked(8), suspended())
    recording = await Recording.load("0a", store.reader)

    for seq, last in ((18, 7), (16, 6), (6, 1)):
        found: Any = await context_of(
            recording, seq, store.reader, EVERY, lambda _: True
        )
        calls = [one["call"] for one in found["before"]]
        assert calls == [*range(max(last - 4, 1), last + 1)]
    found = await context_of(recording, 18, store.reader, EVERY, lambda _: True)
    assert (found["last_approved"]["run_id"], found["last_approved"]["seq"]) == (
        "0a",
        4,
    )
