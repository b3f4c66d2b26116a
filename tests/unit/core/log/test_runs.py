"""Runs are summarised from their events; each exported line names agent, tool, end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.log.events import (
    ApprovalRequested,
    Event,
    Recorded,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunResumed,
    RunStarted,
    RunSuspended,
    ToolCompleted,
    ToolDenied,
    ToolFailed,
    ToolInvoked,
    ToolRetried,
)
from caxton_host.core.log.projection import summarise
from caxton_host.core.log.runs import (
    ExportFilter,
    ExportLine,
    OpenCalls,
    call_list,
    call_of,
    event_of_call,
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
) -> ExportLine:
    return ExportLine(
        recorded=recorded(event, at=at),
        run="1",
        agent="weather",
        actor=ANN,
        tool=tool,
        outcome=outcome,
    )


def test_tool_of_a_call_is_known_until_its_end() -> None:
    calls = OpenCalls()

    assert calls.tool(recorded(invoked())) == "s/t"
    assert calls.tool(recorded(ToolRetried(call=1, attempt=2, reason=""))) == "s/t"
    assert calls.tool(recorded(denied())) == "s/t"
    assert not calls.knows(recorded(denied()))
    assert calls.tool(recorded(denied())) is None
    assert calls.tool(recorded(ToolRetried(call=1, attempt=3, reason=""))) is None


def test_calls_of_two_runs_are_two() -> None:
    calls = OpenCalls()
    calls.tool(recorded(invoked(tool="one"), "run/1"))
    calls.tool(recorded(invoked(tool="two"), "run/2"))

    assert calls.tool(recorded(denied(), "run/1")) == "s/one"


def test_call_that_leads_nowhere_has_no_tool() -> None:
    calls = OpenCalls()

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
    calls = OpenCalls()

    assert calls.knows(recorded(asked))
    assert calls.tool(recorded(asked)) == "s/t"


def test_event_of_no_call_needs_none() -> None:
    calls, event = OpenCalls(), recorded(RunCancelled(actor=BOB, reason=""))

    assert calls.knows(event)
    assert calls.tool(event) is None
    assert call_of(recorded(None)) is None
    assert calls.tool(recorded(None)) is None


def test_least_recently_used_call_is_forgotten_first() -> None:
    calls = OpenCalls(most=2)
    calls.tool(recorded(invoked(1)))
    calls.tool(recorded(invoked(2)))
    calls.tool(recorded(ToolRetried(call=1, attempt=2, reason="")))
    calls.tool(recorded(invoked(3)))

    known = [number for number in (1, 2, 3) if calls.knows(recorded(denied(number)))]

    assert known == [1, 3]


def test_nothing_said_is_everything() -> None:
    assert ExportFilter().takes(line(invoked()))


def test_outcomes_take_what_ended_so() -> None:
    wanted = ExportFilter(outcomes=("denied", "in_doubt"))

    assert wanted.takes(line(denied(), outcome="denied"))
    assert not wanted.takes(line(denied(), outcome="ok"))
    assert not wanted.takes(line(invoked()))


def test_tool_is_a_glob_over_server_and_tool() -> None:
    assert ExportFilter(tool="s/*").takes(line(invoked(), tool="s/t"))
    assert ExportFilter(tool="*/t").takes(line(invoked(), tool="s/t"))
    assert not ExportFilter(tool="S/*").takes(line(invoked(), tool="s/t"))
    assert not ExportFilter(tool="s/*").takes(line(invoked()))


def test_actor_is_who_started_the_run_or_caused_the_event() -> None:
    cancelled = line(RunCancelled(actor=BOB, reason=""))

    assert ExportFilter(actor="ann").takes(cancelled)
    assert ExportFilter(actor="bob").takes(cancelled)
    assert not ExportFilter(actor="bob").takes(line(invoked()))


def test_until_is_the_first_moment_that_is_not_wanted() -> None:
    assert ExportFilter(until=6).takes(line(invoked(), at=5))
    assert not ExportFilter(until=5).takes(line(invoked(), at=5))


def test_a_call_is_at_the_event_that_says_what_it_is() -> None:
    history = [replace(recorded(invoked(n)), seq=2 * n) for n in (1, 2)]

    assert event_of_call(history, 2) == 4
    with pytest.raises(UsageError, match="no call 4; it has 2 calls"):
        event_of_call(history, 4)


ACTOR: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}
STARTED = RunStarted(
    agent="weather",
    actor=ACTOR,
    module_sha256="m",
    abi="core/1",
    entry="run",
    input=None,
    context={},
    limits={},
    seed="00",
    grants={},
    grants_sha256="g",
    catalogue={},
    servers={},
    host=None,
    engine="e",
)


def completed(call: int, *, is_error: bool = False) -> ToolCompleted:
    return ToolCompleted(call=call, is_error=is_error, message="", data=None)


def history(*events: Event) -> list[Recorded]:
    return [
        Recorded(
            position=seq,
            stream="run/1",
            seq=seq,
            type=type(event).__name__,
            schema_version=1,
            recorded_at=1_000_000 + seq * 1_500,
            trace_id="t" * 32,
            span_id=None,
            hash=bytes(32),
            event=event,
        )
        for seq, event in enumerate(events, 1)
    ]


def test_run_in_progress_counts_its_calls_by_how_they_ended() -> None:
    run = summarise(
        "1",
        history(
            STARTED,
            *(invoked(n) for n in range(1, 6)),
            completed(1),
            completed(2, is_error=True),
            ToolDenied(call=3, code="denied", rule=None, message=""),
            ToolFailed(call=4, kind="timeout", sent="unknown", message=""),
        ),
    )

    assert (run.state, run.agent, run.actor) == ("running", "weather", ACTOR)
    assert run.calls == {
        "total": 5,
        "ok": 1,
        "tool_error": 1,
        "denied": 1,
        "failed": 1,
        "in_doubt": 1,
        "waits": 0,
    }
    assert (run.events, run.duration_ms, run.trace_id) == (10, 13.5, "t" * 32)


def test_a_call_that_waits_for_an_approval_counts_once() -> None:
    asked = ApprovalRequested(
        call=1,
        name="x",
        server="demo",
        tool="x",
        params={},
        params_sha256="",
        rule="allow[1]",
        fuel=0,
        by=(),
        until=None,
    )
    suspended = RunSuspended(reason="approval", call=1)

    waiting = summarise("1", history(STARTED, asked, suspended, asked)).calls
    made = summarise("1", history(STARTED, asked, suspended, invoked(1))).calls

    assert (waiting["total"], waiting["waits"], waiting["in_doubt"]) == (1, 1, 0)
    assert (made["total"], made["waits"], made["in_doubt"]) == (1, 0, 1)


@pytest.mark.parametrize(
    ("end", "state", "output", "error"),
    [
        (RunCompleted(output=[1], output_sha256="", fuel=1), "completed", [1], None),
        (
            RunFailed(kind="trap", message="unreachable", fuel=1),
            "failed",
            None,
            {"kind": "trap", "message": "unreachable"},
        ),
        (
            RunCancelled(actor={}, reason="interrupted"),
            "cancelled",
            None,
            {"kind": "cancelled", "message": "interrupted"},
        ),
        (RunSuspended(reason="in_doubt", call=1), "suspended", None, None),
    ],
)
def test_last_event_says_the_state(
    end: Event, state: str, output: object, error: object
) -> None:
    run = summarise("1", history(STARTED, end))

    assert (run.state, run.output, run.error) == (state, output, error)


def test_resumed_run_is_running() -> None:
    resumed = RunResumed(actor={}, host=None, epoch=2, reason="", grants_sha256="")
    suspended = RunSuspended(reason="approval", call=1)

    assert summarise("1", history(STARTED, suspended, resumed)).state == "running"


def test_erased_run_keeps_its_state_and_its_size() -> None:
    end = RunCompleted(output=None, output_sha256="", fuel=1)
    erased = [replace(r, event=None) for r in history(STARTED, end)]

    run = summarise("1", erased)

    assert (run.state, run.events, run.agent) == ("completed", 2, "")
    assert run.erased


def test_document_has_the_keys_that_were_promised() -> None:
    document = summarise("1", history(STARTED)).to_document()

    assert document["$type"] == "caxton.run/v1"
    assert set(document) == {
        "$type",
        "run_id",
        "agent",
        "actor",
        "module_sha256",
        "state",
        "output",
        "error",
        "calls",
        "events",
        "started_at",
        "duration_ms",
        "erased",
        "trace_id",
        "forked_from",
        "waits_for",
        "program",
        "bounds",
        "signed_by",
        "parent",
        "called_by",
    }


def test_no_events_no_calls() -> None:
    run = summarise("1", [])

    assert (run.events, run.calls["total"], run.state) == (0, 0, "running")


def test_each_call_of_a_run_is_listed_with_what_came_of_it() -> None:
    asked = replace(invoked(2), server="demo", tool="echo", params={"n": 1})
    answered = replace(completed(2), message="one", duration_us=7)
    events = history(
        STARTED,
        completed(1),  # of a call that a fork inherited
        asked,
        answered,
        invoked(3),
        ToolDenied(call=3, code="denied", rule=None, message="no"),
        invoked(4),
    )

    assert call_list(events) == [
        document(2, 3, "ok", "one", tool="demo/echo", params={"n": 1}, duration_us=7),
        document(3, 5, "denied", "no", tool="s/t", params={}),
        document(4, 7, "in_doubt", None, tool="s/t", params={}),
    ]


def document(
    call: int, seq: int, outcome: str, message: str | None, **given: JSON
) -> dict[str, JSON]:
    said: dict[str, JSON] = {"call": call, "seq": seq, "name": "x"}
    said |= {"outcome": outcome, "message": message}
    return {
        **said,
        "tool": None,
        "params": None,
        "duration_us": None,
        "cached": False,
        "run": None,
        **given,
    }
