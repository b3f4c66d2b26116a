"""The recorder of a run, and the progress reports that it takes."""

from __future__ import annotations

from caxton_host.core.grants.journal import Journal
from caxton_host.core.log.events import ToolProgress
from caxton_host.core.text.redact import Redactor
from caxton_host.errors import StoreError
from caxton_host.gateway.recorder import Recorder, Reports
from caxton_host.ports import Progress
from caxton_host.store.memory import MemoryLog, MemoryStore
from caxton_host.testing import FakeClock, FakeEntropy

SECRET = "hunter2hunter2"  # noqa: S105 -- a canary


def new_log() -> MemoryLog:
    store = MemoryStore(clock=FakeClock(), entropy=FakeEntropy())
    return store.create("run/1")


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
