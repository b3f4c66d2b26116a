"""Each exported line says who, by what tool, and how it ended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.log.attribution import Calls, Line, Wanted, call_of, event_of_call
from caxton_host.core.log.events import (
    ApprovalRequested,
    Event,
    Recorded,
    RunCancelled,
    ToolDenied,
    ToolInvoked,
    ToolRetried,
)
from caxton_host.errors import UsageError

ANN: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}
BOB: dict[str, JSON] = {"kind": "token", "id": "bob", "authenticated": True}


def recorded(event: Event | None, stream: str = "run/1", at: int = 5) -> Recorded:
    return Recorded(
        position=1,
        stream=stream,
        seq=1,
        type=type(event).__name__,
        schema_version=1,
        recorded_at=at,
        trace_id=None,
        span_id=None,
        hash=b"",
        event=event,
    )


def invoked(call: int = 1, tool: str | None = "t") -> ToolInvoked:
    return ToolInvoked(
        call=call,
        name="x",
        server=tool and "s",
        tool=tool,
        params={},
        params_sha256="",
        effect="read",
        rule=None,
        idempotency_key="",
        fuel=0,
    )


def denied(call: int = 1) -> ToolDenied:
    return ToolDenied(call=call, code="denied", rule=None, message="")


def line(
    event: Event, *, tool: str | None = None, outcome: str | None = None, at: int = 5
) -> Line:
    return Line(
        recorded=recorded(event, at=at),
        run="1",
        agent="weather",
        actor=ANN,
        tool=tool,
        outcome=outcome,
    )


def test_tool_of_a_call_is_known_until_its_end() -> None:
    calls = Calls()

    assert calls.tool(recorded(invoked())) == "s/t"
    assert calls.tool(recorded(ToolRetried(call=1, attempt=2, reason=""))) == "s/t"
    assert calls.tool(recorded(denied())) == "s/t"
    assert not calls.knows(recorded(denied()))
    assert calls.tool(recorded(denied())) is None
    assert calls.tool(recorded(ToolRetried(call=1, attempt=3, reason=""))) is None


def test_calls_of_two_runs_are_two() -> None:
    calls = Calls()
    calls.tool(recorded(invoked(tool="one"), "run/1"))
    calls.tool(recorded(invoked(tool="two"), "run/2"))

    assert calls.tool(recorded(denied(), "run/1")) == "s/one"


def test_call_that_leads_nowhere_has_no_tool() -> None:
    calls = Calls()

    assert calls.tool(recorded(invoked(tool=None))) is None
    assert calls.knows(recorded(denied()))
    assert calls.tool(recorded(denied())) is None


def test_request_for_an_approval_names_its_tool_itself() -> None:
    asked = ApprovalRequested(
        call=1,
        name="x",
        server="s",
        tool="t",
        params={},
        params_sha256="",
        rule="",
        fuel=0,
        by=(),
        until=None,
    )
    calls = Calls()

    assert calls.knows(recorded(asked))
    assert calls.tool(recorded(asked)) == "s/t"


def test_event_of_no_call_needs_none() -> None:
    calls, event = Calls(), recorded(RunCancelled(actor=BOB, reason=""))

    assert calls.knows(event)
    assert calls.tool(event) is None
    assert call_of(recorded(None)) is None
    assert calls.tool(recorded(None)) is None


def test_least_recently_used_call_is_forgotten_first() -> None:
    calls = Calls(most=2)
    calls.tool(recorded(invoked(1)))
    calls.tool(recorded(invoked(2)))
    calls.tool(recorded(ToolRetried(call=1, attempt=2, reason="")))
    calls.tool(recorded(invoked(3)))

    known = [number for number in (1, 2, 3) if calls.knows(recorded(denied(number)))]

    assert known == [1, 3]


def test_nothing_said_is_everything() -> None:
    assert Wanted().takes(line(invoked()))


def test_outcomes_take_what_ended_so() -> None:
    wanted = Wanted(outcomes=("denied", "in_doubt"))

    assert wanted.takes(line(denied(), outcome="denied"))
    assert not wanted.takes(line(denied(), outcome="ok"))
    assert not wanted.takes(line(invoked()))


def test_tool_is_a_glob_over_server_and_tool() -> None:
    assert Wanted(tool="s/*").takes(line(invoked(), tool="s/t"))
    assert Wanted(tool="*/t").takes(line(invoked(), tool="s/t"))
    assert not Wanted(tool="S/*").takes(line(invoked(), tool="s/t"))
    assert not Wanted(tool="s/*").takes(line(invoked()))


def test_actor_is_who_started_the_run_or_caused_the_event() -> None:
    cancelled = line(RunCancelled(actor=BOB, reason=""))

    assert Wanted(actor="ann").takes(cancelled)
    assert Wanted(actor="bob").takes(cancelled)
    assert not Wanted(actor="bob").takes(line(invoked()))


def test_until_is_the_first_moment_that_is_not_wanted() -> None:
    assert Wanted(until=6).takes(line(invoked(), at=5))
    assert not Wanted(until=5).takes(line(invoked(), at=5))


def test_a_call_is_at_the_event_that_says_what_it_is() -> None:
    history = [replace(recorded(invoked(n)), seq=2 * n) for n in (1, 2)]

    assert event_of_call(history, 2) == 4
    with pytest.raises(UsageError, match="no call 4 in this run, which has 2"):
        event_of_call(history, 4)
