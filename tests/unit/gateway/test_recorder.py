"""The recorder of a run, and the progress reports that it takes."""

from __future__ import annotations

import asyncio

import pytest

from caxton_host.core.grants.journal import Journal
from caxton_host.core.log.events import Event, ToolInvoked, ToolProgress
from caxton_host.core.text.redact import Redactor
from caxton_host.errors import StoreError
from caxton_host.gateway.recorder import Recorder, Reports
from caxton_host.ports import Progress, Reservation
from caxton_host.store.memory import MemoryLog, MemoryStore
from caxton_host.testing import FakeClock, FakeEntropy

SECRET = "hunter2hunter2"  # noqa: S105 -- a canary


def new_log() -> MemoryLog:
    store = MemoryStore(clock=FakeClock(), entropy=FakeEntropy())
    return store.create("run/1")


def invoked(number: int) -> ToolInvoked:
    return ToolInvoked(
        call=number,
        name="a",
        server="demo",
        tool="a",
        params={},
        params_sha256="",
        effect="read",
        rule="allow[1]",
        idempotency_key="",
        fuel=1,
    )


def log_of(kind: type[MemoryLog]) -> MemoryLog:
    plain = new_log()
    return kind(plain._store, plain._drafter, 0)


async def test_journal_is_in_step_with_the_log() -> None:
    recorder = Recorder(log := new_log(), Journal())

    await recorder.append(invoked(1))
    recorder.queue(invoked(2))

    assert log.events == [invoked(1), invoked(2)]
    assert recorder.journal.open_calls == [1, 2]
    assert recorder.journal.tallies.recorded.used == {"allow[1]": 2}


async def test_claim_is_folded_into_the_journal() -> None:
    recorder = Recorder.claimed(new_log(), Journal(), [invoked(1)])

    assert recorder.journal.open_calls == [1]


async def test_refused_append_is_not_folded() -> None:
    none = Reservation(key="a", amount=2, limit=1, rule="allow[1]")
    recorder = Recorder(log := new_log(), Journal())

    assert await recorder.append(invoked(1), reserve=[none]) is not None

    assert (log.events, recorder.journal.calls) == ([], 0)


async def test_event_that_cannot_be_stored_is_not_folded() -> None:  # law 3
    recorder = Recorder(log := new_log(), Journal())
    log._failed = True

    with pytest.raises(StoreError):
        await recorder.append(invoked(1))
    with pytest.raises(StoreError):
        recorder.queue(invoked(1))

    assert recorder.journal.calls == 0


async def test_append_that_is_cancelled_while_the_log_commits_is_folded() -> None:
    class Slow(MemoryLog):
        async def append(self, *events: Event, **_: object) -> None:
            self.queue(*events)
            await asyncio.sleep(30)

    recorder = Recorder(log := log_of(Slow), Journal())
    task = asyncio.create_task(recorder.append(invoked(1)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert log.events == [invoked(1)]
    assert recorder.journal.open_calls == [1]


def test_report_is_recorded_without_a_secret_and_shown() -> None:  # law 8
    shown: list[ToolProgress] = []
    log = new_log()
    reports = Reports(
        recorder=Recorder(log, Journal()),
        redact=Redactor([SECRET]),
        call=7,
        watch=shown.append,
    )

    reports.take(Progress(progress=1.0, total=2.0, message=f"with {SECRET}"))

    event = ToolProgress(call=7, message="with [redacted]", progress=1.0, total=2.0)
    assert (log.events, shown) == ([event], [event])


def test_reports_are_bounded_in_number_and_size() -> None:  # law 9
    log = new_log()
    reports = Reports(recorder=Recorder(log, Journal()), redact=Redactor(), call=1)

    for step in range(1000):
        reports.take(Progress(progress=step, message="x" * 10_000))

    assert len(log.events) == 100
    assert {len(e.message) for e in log.events if isinstance(e, ToolProgress)} == {500}


def test_nothing_is_told_once_the_send_is_over() -> None:
    log = new_log()
    reports = Reports(recorder=Recorder(log, Journal()), redact=Redactor(), call=1)
    reports.end()

    reports.take(Progress(message="late"))

    assert log.events == []


def test_words_of_a_tool_whose_answers_are_not_kept_are_not_kept() -> None:
    log = new_log()
    reports = Reports(
        recorder=Recorder(log, Journal()), redact=Redactor(), call=1, quiet=True
    )

    reports.take(Progress(progress=1.0, message="the answer is 42"))

    assert log.events == [ToolProgress(call=1, message="", progress=1.0)]


def test_log_that_takes_no_more_does_not_break_the_connection() -> None:
    class Full(MemoryLog):
        def queue(self, *_: object, **__: object) -> None:
            raise StoreError("disk full")

    plain = new_log()
    shown: list[ToolProgress] = []
    log = Full(plain._store, plain._drafter, 0)
    reports = Reports(
        recorder=Recorder(log, Journal()), redact=Redactor(), call=1, watch=shown.append
    )

    reports.take(Progress(message="half"))

    assert shown == []
