"""What is told of a run that failed, and of its calls."""

from __future__ import annotations

from dataclasses import replace

import pytest

from caxton_host.cli.run_text import call_lines, failure, report
from caxton_host.core.analysis.checking import Known
from caxton_host.core.calls import Completed, Denied, Failed, Outcome
from caxton_host.core.log.events import (
    Event,
    LogWritten,
    RunFailed,
    RunStarted,
    settled,
)
from caxton_host.core.log.projection import summarise

from .test_parts import invoked, recorded, retried

STARTED = RunStarted(
    agent="a",
    actor={},
    module_sha256="0" * 64,
    abi="core/1",
    entry="run",
    input=None,
    context={},
    limits={"memory": 64 * 2**20},
    seed="",
    grants={},
    grants_sha256="",
    catalogue={},
    servers={},
    host=None,
    engine="",
)


def logged(*texts: str) -> list[LogWritten]:
    return [LogWritten(n=n, level="error", text=t) for n, t in enumerate(texts, 1)]


def told(capsys: pytest.CaptureFixture[str], *events: Event) -> list[str]:
    history = recorded(STARTED, *events)
    failure(summarise("0198", history), history)
    return capsys.readouterr().err.splitlines()


def test_an_error_has_the_last_errors_of_the_log_below_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = logged(*map(str, range(20)), "panicked at\n\x1b[2Jsrc.rs:1")
    debug = LogWritten(n=99, level="debug", text="not this")
    end = RunFailed(kind="trap", message="unreachable", fuel=1)

    error, *said, fix = told(capsys, *lines, debug, end)

    assert error == "Error: trap: unreachable"
    assert said[-3:] == ["  19", "  panicked at", "  \\x1b[2Jsrc.rs:1"]
    assert len(said) == 12
    assert fix.startswith("To fix: caxton events list 0198")


def test_an_error_that_the_log_ends_with_is_told_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    end = RunFailed(kind="agent_error", message="KeyError: 'a'", fuel=1)
    error, place, fix = told(capsys, *logged("a.py:3, in run", "KeyError: 'a'"), end)

    assert (error, place) == ("Error: agent_error: KeyError: 'a'", "  a.py:3, in run")
    assert fix


@pytest.mark.parametrize(
    ("kind", "message", "line"),
    [
        ("agent_error", "MemoryError", "MemoryError"),
        ("agent_error", "InternalError: out of memory (agent.js:1:2)", "at run"),
        ("trap", "unreachable", "out of memory"),
    ],
)
def test_an_agent_without_memory_is_told_which_limit_it_met(
    capsys: pytest.CaptureFixture[str], kind: str, message: str, line: str
) -> None:
    *_, fix = told(capsys, *logged(line), RunFailed(kind=kind, message=message, fuel=1))

    assert fix.startswith("To fix: raise limits.memory of the agent, now 64 MiB; ")


KNOWN: Known = {"demo": {"get_weather": {}, "large": {}}, "asleep": None}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mcp__demo__get_wether", "demo has no tool get_wether; did you mean demo/get"),
        ("mcp__demo__xyzzy", "demo has no tool xyzzy; caxton tool list shows all"),
        ("mcp__dmo__get_weather", "no tool of that name is known; did you mean demo/"),
        ("mcp__other__rm", "no tool of that name is known; caxton tool list shows all"),
        ("get_wether", "no tool of that name is known; did you mean demo/get_weather?"),
        ("mcp__demo__get_weather", "to allow it: --allow demo/get_weather"),
        ("mcp__asleep__any", "to allow it: --allow asleep/any"),
    ],
)
def test_no_grant_is_proposed_for_a_tool_that_its_server_lacks(
    capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    call = replace(invoked(1, {}), name=name, server=None, tool=None, rule=None)
    denied = Denied(code="not_granted", rule=None, message="no grant")
    history = recorded(STARTED, call, settled(1, denied))

    report(
        summarise("0198", history),
        history,
        configured=False,
        servers=["demo", "asleep"],
        known=lambda: KNOWN,
    )

    err = capsys.readouterr().err
    assert f"  {said}" in err
    assert ("--allow" in err) == said.startswith("to allow")


def test_a_granted_tool_that_its_server_lacks_is_warned_of_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    gone = Failed(kind="changed", sent="no", message="not offered")
    ends = [settled(1, gone), settled(2, gone)]
    history = recorded(STARTED, invoked(1, {}), ends[0], invoked(2, {}), ends[1])

    run = summarise("0198", history)
    report(run, history, configured=True, servers=["demo"], known=lambda: KNOWN)

    warning = "warning: mcp__demo__echo is granted, and demo has no tool echo; "
    assert capsys.readouterr().err.count(warning) == 1


def test_calls_that_end_alike_are_folded_in_a_report(
    capsys: pytest.CaptureFixture[str],
) -> None:
    denied = Denied(code="not_granted", message="no grant", rule=None)
    ends: list[Outcome] = [denied] * 1000
    ends += [Completed(duration_us=n * 1000) for n in range(7)]
    ends += [Failed(kind="timeout", sent="unknown", message=str(n)) for n in range(6)]
    events = [(invoked(n, {}), settled(n, end)) for n, end in enumerate(ends, 1)]
    history = recorded(STARTED, *(event for pair in events for event in pair))

    run = summarise("0198", history)
    report(run, history, configured=True, servers=[])
    shown = capsys.readouterr().err.splitlines()
    assert len([line for line in shown if line.startswith("  call ")]) == 15
    assert "  995 more calls of mcp__demo__echo  denied" in shown
    assert "  2 more calls of mcp__demo__echo  ok" in shown
    assert "  1 more call of mcp__demo__echo  failed" in shown
    assert len(call_lines(history)) == 1013


def test_a_call_is_shown_with_all_its_attempts() -> None:
    lines = call_lines(
        recorded(
            invoked(1, {}),
            retried(1, 2),
            retried(1, 3),
            settled(1, Completed(attempts=3, duration_us=2_100_000)),
            invoked(2, {}),
            retried(2, 2),
            settled(2, Failed(kind="timeout", sent="unknown", message="late")),
        )
    )

    assert lines[0].endswith("{}  ok, 3 attempts, 2.1 s")
    assert lines[1].endswith("{}  failed (timeout, sent unknown, 2 attempts): late")
