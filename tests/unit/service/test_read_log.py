"""Who read what of which run: once a minute, and bounded."""

from __future__ import annotations

import pytest

from caxton_host.core.log.events import Event, RunRead
from caxton_host.service import read_log
from caxton_host.service.read_log import EVERY, ReadLog
from tests.office import ANN, BOB
from tests.unit.store.fakes import FakeClock


def test_a_read_is_recorded_again_after_a_minute() -> None:
    clock, told = FakeClock(), list[Event]()
    log = ReadLog(queue=told.append, now=clock.monotonic)
    for seconds in (0, 30, 29, 1, 59):
        clock.time += seconds * 1_000_000
        log.note(ANN, "1", "events")

    assert EVERY == 60
    assert told == 2 * [RunRead(run="1", what="events", actor=ANN.actor)]


def test_others_other_runs_and_other_parts_are_recorded_each() -> None:
    told: list[Event] = []
    log = ReadLog(queue=told.append, now=FakeClock().monotonic)
    for _ in range(3):
        log.note(ANN, "1", "events")
        log.note(BOB, "1", "events")
        log.note(ANN, "2", "events")
        log.note(ANN, "1", "output")

    assert len(told) == 4


def test_no_more_reads_are_remembered_than_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(read_log, "_MOST", 2)
    told: list[Event] = []
    log = ReadLog(queue=told.append, now=FakeClock().monotonic)
    for run in "12321":
        log.note(ANN, run, "run")

    assert [one.run for one in told if isinstance(one, RunRead)] == [*"1231"]


def test_nothing_is_recorded_where_nobody_is_served() -> None:
    ReadLog().note(ANN, "1", "run")
