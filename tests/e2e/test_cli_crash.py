"""A crash that did not happen, and the commands that go on from it."""

from __future__ import annotations

import os
import shlex
import tempfile
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from caxton_host.core.calls import JSON
from caxton_host.lib.machine import SystemClock
from caxton_host.store.sql import SqlStore
from tests.unit.store.fakes import line, run_started

from .guests import call, guest, log
from .shell import Shell
from .test_cli_resume import configuration

AGENT = guest(
    call("mcp__demo__echo", text="one"),
    call("mcp__demo__slow", seconds=0.01),
    call("nothing"),
    log("nearly"),
    output="done",
)


@pytest.fixture
def ran(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A folder with one run of nine events that has completed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    shell.write("caxton.toml", configuration(shell, effect="keyed"))
    shell.write("a.wasm", AGENT)
    assert shell("run", "a").code == 0
    assert shell.types() == [
        "RunStarted",
        *("ToolInvoked", "ToolCompleted") * 2,
        *("ToolInvoked", "ToolDenied", "LogWritten", "RunCompleted"),
    ]
    return shell


def typed(shell: Shell, command: str) -> tuple[int, str, str]:
    """Type a command that was printed."""
    words = shlex.split(command)
    assert words[0] == "caxton"
    done = shell(*words[1:])
    return done.code, done.out, done.err


def test_copy_goes_on_by_the_command_that_is_printed(ran: Shell) -> None:  # law 10
    before = ran("events", "export", "--all").out
    crash = ran("runs", "simulate-crash", "@last", "--at", "4").out
    run_id = ran.runs()[0].removeprefix("run/")
    assert "in doubt: call 2 (event 4) mcp__demo__slow" in crash
    assert "with the same idempotency key" in crash

    command = crash.splitlines()[-1].removeprefix("to go on: ")
    assert command.endswith(f"runs resume {run_id}")
    code, out, err = typed(ran, command)
    assert (code, out) == (0, '"done"\n'), err
    copy = ("--db", shlex.split(command)[2])
    assert ran(*copy, "events", "list", run_id).out.count("ToolRetried") == 1
    verified = ran(*copy, "audit", "verify")
    assert verified.code == 0, verified.err
    assert ran(*copy, "replay", run_id).code == 0
    # The run itself is as it was.
    assert ran("events", "export", "--all").out == before


def test_document_says_what_the_words_say(ran: Shell) -> None:
    target = ran.folder / "crashed.db"
    done = ran(
        *("runs", "simulate-crash", "@last", "--at", "2", "-o", str(target), "--json")
    )
    document = done.document
    assert document["$type"] == "caxton.crash/v1"
    assert (document["at"], document["events"]) == (2, 9)
    assert document["database"] == str(target)
    (doubt,) = document["in_doubt"]
    assert (doubt["call"], doubt["seq"], doubt["effect"]) == (1, 2, "unsafe")
    # That one is left to a person.
    code, _, err = typed(ran, document["resume"])
    assert code == 3
    assert "call 1 (event 2)" in err
    code, out, _ = typed(ran, doubt["resolve"])
    assert (code, out) == (0, '"done"\n')


@pytest.mark.parametrize("at", [1, 3, 5, 7, 8])
def test_crash_between_two_calls_leaves_no_doubt(ran: Shell, at: int) -> None:
    target = ran.folder / f"{at}.db"
    done = ran("runs", "simulate-crash", "@last", "--at", str(at), "-o", str(target))
    assert "no call is in doubt" in done.out
    code, out, _ = typed(ran, done.out.splitlines()[-1].removeprefix("to go on: "))
    assert (code, out) == (0, '"done"\n')


def test_crash_never_parts_what_is_stored_together(ran: Shell) -> None:  # law 2
    done = ran("runs", "simulate-crash", "@last", "--at", "6", "--json")
    assert (done.document["asked_at"], done.document["at"]) == (6, 7)
    assert done.document["in_doubt"] == []
    said = ran("runs", "simulate-crash", "@last", "--at", "6")
    assert "what follows event 6 is stored with it" in said.err


@pytest.mark.parametrize(
    ("at", "why", "fix"),
    [
        ("10", "has no event 10", "name one of 1 to 9"),
        ("9", "ends the run", "caxton events list"),
    ],
)
def test_crash_that_leaves_nothing_to_do_is_refused(
    ran: Shell, at: str, why: str, fix: str
) -> None:
    target = ran.folder / "crashed.db"
    done = ran("runs", "simulate-crash", "@last", "--at", at, "-o", str(target))
    assert done.code == 2
    assert why in done.err
    assert fix in done.fix
    assert not target.exists()


@pytest.mark.parametrize(
    ("parent", "why"), [("2", "that is not here"), ("1", "has no end of runs")]
)
@pytest.mark.timeout(60)
def test_run_whose_forks_have_no_beginning_is_refused(
    shell: Shell, parent: str, why: str
) -> None:
    anyio.run(_forked, shell.folder / "log.db", parent)
    command = ("runs", "simulate-crash", "1", "--at", "2", "-o", "crashed.db")
    done = shell("--db", "sqlite:///log.db", *command)
    assert done.code == 5
    assert why in done.err
    assert not (shell.folder / "crashed.db").exists()


async def _forked(file: Path, parent: str) -> None:
    fork: dict[str, JSON] = {"run": parent, "seq": 1, "hash": "00"}
    started = replace(run_started(), forked_from=fork)
    async with SqlStore.open(
        f"sqlite:///{file}", clock=SystemClock(), entropy=os.urandom
    ) as store:
        await store.create("run/1").append(started, line(1))


def test_file_that_is_there_is_never_written_over(ran: Shell) -> None:
    ran.write("mine.db", b"mine")
    done = ran("runs", "simulate-crash", "@last", "--at", "4", "-o", "mine.db")
    assert done.code == 2
    assert "already exists" in done.err
    assert (ran.folder / "mine.db").read_bytes() == b"mine"
