"""The soak that is run by hand works, and it would notice."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from caxton_host.core.log.events import (
    Event,
    RunCompleted,
    ToolCompleted,
    ToolFailed,
    ToolInvoked,
)
from tests.soak.watch import Reading, Tally, grown, leaked

HELD = Reading(
    rss=100_000_000,
    pss=90_000_000,
    every=300_000_000,
    descriptors=40,
    processes=6,
    tasks=20,
)


@pytest.mark.long
def test_a_host_works_for_a_moment_and_nothing_is_wrong() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.soak", "--minutes", "0.01"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("no violations\n")
    assert "'ok': " in done.stdout
    assert "transport/unknown" in done.stdout


def invoked(call: int, server: str) -> ToolInvoked:
    return ToolInvoked(
        call=call,
        name=f"mcp__{server}__echo",
        server=server,
        tool="echo",
        params={},
        params_sha256="",
        effect="unknown",
        rule="allow[1]",
        idempotency_key=str(call),
        fuel=0,
    )


ANSWERED = ToolCompleted(call=1, is_error=False, message="fine", data=None)
FAILED = ToolFailed(call=1, kind="transport", sent="unknown", message="gone")
OVER = RunCompleted(output=None, output_sha256="", fuel=None)


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([invoked(1, "moody"), ANSWERED, OVER], None),
        ([invoked(1, "moody"), FAILED, OVER], None),
        ([invoked(1, "web"), FAILED, OVER], "correct server: transport/unknown"),
        ([invoked(1, "web"), OVER], "has 0 ends"),
        ([invoked(1, "web"), ANSWERED, ANSWERED, OVER], "has 2 ends"),
        ([ANSWERED, OVER], "made 0 calls of 1"),
        ([invoked(1, "web"), ANSWERED], "did not complete"),
    ],
)
def test_a_call_that_is_lost_is_told(events: list[Event], told: str | None) -> None:
    tally = Tally()
    tally.fold("run", events, calls=1)
    assert bool(tally.wrong) == bool(told)
    if told:
        assert any(told in line for line in tally.wrong)


def test_memory_that_grows_is_told() -> None:
    later = replace(HELD, rss=106_000_000)
    assert grown([HELD] * 20) == []
    assert grown([HELD] * 15 + [later] * 5) == ["rss grew from 100.0 to 106.0 MB"]
    assert grown([later] * 5 + [HELD] * 15) == []


def test_what_has_leaked_is_told() -> None:
    assert leaked(HELD, HELD) == []
    assert leaked(HELD, replace(HELD, processes=7)) == ["processes grew from 6 to 7"]
    more = replace(HELD, descriptors=60, tasks=40)
    assert [line.split()[0] for line in leaked(HELD, more)] == ["descriptors", "tasks"]
