"""Where a crash can be: never inside of a transaction."""

from __future__ import annotations

import pytest

from caxton_host.cli.run_control import _left
from caxton_host.core.calls import JSON, Completed, cut
from caxton_host.core.limits import Limits
from caxton_host.core.log.events import (
    Event,
    LogWritten,
    Recorded,
    RunSuspended,
    ToolInvoked,
    settled,
)
from caxton_host.core.log.requests import (
    Abort,
    Fail,
    GiveResult,
    Resend,
    Resolution,
    recorded_as,
)
from caxton_host.errors import NotKeptError, UsageError
from caxton_host.runs.recording import Recording
from tests.unit.store.fakes import run_started

WHO: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}


INVOKED = ToolInvoked(
    call=1,
    name="mcp__demo__pay",
    server="demo",
    tool="pay",
    params={},
    params_sha256="",
    effect="unsafe",
    rule="allow[1]",
    idempotency_key="",
    fuel=0,
)


def recorded(*events: Event) -> Recording:
    """Return a run whose call 1 is event 2, and what follows."""
    started = run_started()
    own = [
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
        for seq, event in enumerate((started, INVOKED, *events), 1)
    ]
    return Recording(run_id="1", history=own, own=own, started=started, limits=Limits())


def left(recording: Recording, at: int) -> list[int]:
    found = _left(recording, at)
    assert found.own == found.history
    return [one.seq for one in found.own]


WAITS = RunSuspended(reason="in_doubt", call=1)


@pytest.mark.parametrize(
    ("resolution", "ends"),
    [(Resend(), 4), (GiveResult(Completed(message="paid")), 5), (Fail(), 5)],
)
def test_word_of_a_person_and_what_it_makes_of_the_call_stay_together(
    resolution: Resolution, ends: int
) -> None:
    events = recorded_as(1, resolution, WHO, "looked")
    history = recorded(WAITS, *events, WAITS)
    assert left(history, 4) == [*range(1, ends + 1)]


@pytest.mark.parametrize("at", [4, 5, 6])
def test_crash_in_the_middle_of_an_abort_comes_after_the_end(at: int) -> None:
    history = recorded(WAITS, *recorded_as(1, Abort(), WHO, "enough"))
    with pytest.raises(UsageError, match="event 6 ends the run"):
        _left(history, at)


def test_last_line_of_a_log_and_its_mark_stay_together() -> None:
    line = LogWritten(n=1, level="info", text="a")
    history = recorded(line, LogWritten(n=2, level="truncated", text=""), line, line)
    assert [left(history, at)[-1] for at in (3, 4, 5, 6)] == [4, 4, 5, 6]


def test_run_that_could_not_go_on_is_refused() -> None:
    kept = settled(1, cut(Completed(message="private")))
    with pytest.raises(NotKeptError, match=r"event 2.*keeps a digest") as refusal:
        _left(recorded(WAITS, kept, WAITS), 5)
    assert refusal.value.fix == "name an earlier event"
    assert left(recorded(WAITS, kept, WAITS), 3) == [1, 2, 3]
