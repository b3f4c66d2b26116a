"""Where a crash can be: never inside of a transaction."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from caxton_host.cli.crash import _left
from caxton_host.core.calls import JSON, Completed, cut
from caxton_host.core.events import (
    Event,
    LogWritten,
    Recorded,
    RunSuspended,
    settled,
)
from caxton_host.core.resolution import (
    Abort,
    Fail,
    GiveResult,
    Resolution,
    Retry,
    recorded_as,
)
from caxton_host.errors import UsageError

WHO: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}


def recorded(*events: Event | None) -> list[Recorded]:
    return [
        Recorded(
            position=seq,
            stream="run/1",
            seq=seq,
            type=type(event).__name__,
            schema_version=1,
            recorded_at=0,
            trace_id=None,
            span_id=None,
            hash=b"",
            event=event,
        )
        for seq, event in enumerate(events, 1)
    ]


def seqs(history: Sequence[Recorded]) -> list[int]:
    return [one.seq for one in history]


WAITS = RunSuspended(reason="in_doubt", call=1)


@pytest.mark.parametrize(
    ("resolution", "ends"),
    [(Retry(), 2), (GiveResult(Completed(message="paid")), 3), (Fail(), 3)],
)
def test_word_of_a_person_and_what_it_makes_of_the_call_stay_together(
    resolution: Resolution, ends: int
) -> None:
    events = recorded_as(1, resolution, WHO, "looked")
    history = recorded(WAITS, *events, WAITS)
    assert seqs(_left(history, 2)) == [*range(1, ends + 1)]


@pytest.mark.parametrize("at", [2, 3, 4])
def test_crash_in_the_middle_of_an_abort_comes_after_the_end(at: int) -> None:
    history = recorded(WAITS, *recorded_as(1, Abort(), WHO, "enough"))
    with pytest.raises(UsageError, match="event 4 ends the run"):
        _left(history, at)


def test_last_line_of_a_log_and_its_mark_stay_together() -> None:
    line = LogWritten(n=1, level="info", text="a")
    history = recorded(line, LogWritten(n=2, level="truncated", text=""), line, line)
    assert [len(_left(history, at)) for at in (1, 2, 3, 4)] == [2, 2, 3, 4]


def test_run_whose_payload_was_erased_is_refused() -> None:
    with pytest.raises(UsageError, match="event 2 of this run was erased"):
        _left(recorded(WAITS, None, WAITS), 3)


def test_run_that_could_not_go_on_is_refused() -> None:
    kept = settled(1, cut(Completed(message="private")))
    with pytest.raises(UsageError, match="event 2 keeps a digest"):
        _left(recorded(WAITS, kept, WAITS), 3)
    assert seqs(_left(recorded(WAITS, kept, WAITS), 1)) == [1]
