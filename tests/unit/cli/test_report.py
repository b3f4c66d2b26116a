"""What is told of a run that failed, and of its calls."""

from __future__ import annotations

import pytest

from caxton_host.cli.report import call_lines, failure
from caxton_host.core.calls import Completed, Failed
from caxton_host.core.events import Event, LogWritten, RunFailed, RunStarted
from caxton_host.core.payloads import settled
from caxton_host.core.summary import summarise

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
