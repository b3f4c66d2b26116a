"""How a run ends, by what the author's function does."""

from __future__ import annotations

import sys
from typing import Any

import caxton_agent as ca
import pytest
from caxton_agent.testing import FakeHost


def test_what_run_returns_is_the_output() -> None:
    host = FakeHost()
    assert host.run(lambda: {"a": 1}) is None
    assert host.output == {"a": 1}


def test_a_run_that_returns_nothing_keeps_the_output_it_set() -> None:
    host = FakeHost()
    assert host.run(lambda: ca.output("set")) is None
    assert host.output == "set"


def test_an_exception_is_the_reason_and_its_way_is_logged() -> None:
    def deeper() -> None:
        raise KeyError("missing")

    host = FakeHost()
    assert host.run(deeper) == "KeyError: 'missing'"
    where, what = host.logs
    assert where[0] == what[0] == "error"
    assert where[1].startswith("test_ends.py:")
    assert where[1].endswith('in deeper: raise KeyError("missing")')
    assert what[1] == "KeyError: 'missing'"


def test_a_denial_that_nobody_handles_ends_the_run_with_its_code() -> None:
    reason = FakeHost().run(lambda: ca.mcp_call("x"))
    assert reason == "Denied: no rule allows x (not_granted)"


def test_an_output_that_json_cannot_say_fails_the_run() -> None:
    reason = FakeHost().run(lambda: {1, 2})
    assert reason
    assert reason.startswith("TypeError: the output: ")


def test_frames_of_the_sdk_are_not_shown() -> None:
    host = FakeHost()
    host.run(lambda: ca.mcp_call("x"))
    assert not any("_calls.py" in text for _, text in host.logs)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (None, None),
        (0, None),
        (3, "SystemExit: 3"),
        ("no", "SystemExit: no"),
        (["a"], "SystemExit: ['a']"),
    ],
)
def test_exit_ends_the_run(code: Any, reason: str | None) -> None:  # noqa: ANN401 -- what sys.exit takes
    assert FakeHost().run(lambda: sys.exit(code)) == reason


def test_a_long_reason_and_a_deep_stack_are_cut() -> None:
    def endless() -> None:
        endless()

    host = FakeHost()
    assert (host.run(endless) or "").startswith("RecursionError")
    assert len(host.logs) == 11

    def verbose() -> None:
        raise ValueError("x" * 10_000)

    assert len(host.run(verbose) or "") == 1_000


def test_even_an_interrupt_does_not_leave_the_agent() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    assert FakeHost().run(interrupted) == "KeyboardInterrupt"


def test_an_exception_that_cannot_be_told_still_has_its_type() -> None:
    class Hostile(Exception):  # noqa: N818 -- it is no error of this package
        def __str__(self) -> str:
            raise KeyboardInterrupt

    def hostile() -> None:
        raise Hostile

    assert FakeHost().run(hostile) == "Hostile"


def test_a_coroutine_is_run_to_its_end() -> None:
    async def run() -> str:
        return "done"

    host = FakeHost()
    assert host.run(run) is None
    assert host.output == "done"
