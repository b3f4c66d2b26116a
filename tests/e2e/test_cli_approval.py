"""``caxton approval``: calls that wait for a person, in scripts and in a terminal."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from .guests import call, guest
from .shell import SOON, Done, Shell, toml
from .test_cli_process import until

CANARY = "hunter2-hunter2"
OPS = "approve = { by = ['ops'], within = '15m' }"
ONE = guest(
    call("mcp__demo__echo", text=f"\x1b[31m {CANARY} " + 80 * "x"), output="done"
)
TWO = guest(
    call("mcp__demo__echo", text="one"), call("mcp__demo__echo", text="two"), output=2
)


def configure(shell: Shell, approve: str = OPS, module: bytes = ONE) -> Shell:
    server: dict[str, object] = {
        "command": "python",
        "args": ["-m", "caxton_host.demo_server"],
        "env": {"SESSION_TOKEN": CANARY},
    }
    rule = f"[[agents.a.allow]]\ntools = ['demo/*']\n{approve}"
    tables: dict[str, dict[str, object]] = {
        "servers.demo": server,
        "agents.a": {"module": "a.wasm"},
    }
    shell.write("caxton.toml", toml(tables, rule))
    shell.write("a.wasm", module)
    return shell


@pytest.fixture
def waiting(shell: Shell) -> Shell:
    """A folder whose one run waits for a word."""
    done = configure(shell)("run", "a")
    assert (done.code, done.out) == (3, "")
    return shell


def name_of(shell: Shell) -> str:
    (stream,) = shell.runs()
    return stream.removeprefix("run/")


def approval(shell: Shell, *words: str) -> Done:
    return shell("approval", *words, "--reason", f"fine, {CANARY}")


def test_suspended_run_exits_with_3_and_prints_what_goes_on(shell: Shell) -> None:
    done = configure(shell)("run", "a")
    run = name_of(shell)
    assert done.code == 3
    command = f"caxton approval approve {run} 2 --as ops --reason"
    assert command in done.fix
    assert f"caxton approval deny {run} 2 --as ops" in done.err
    assert "waits for an approval" in done.err
    assert shell.types() == ["RunStarted", "ApprovalRequested", "RunSuspended"]
    shown = shell("runs", "show", "@last")
    assert "waits for an approval" in shown.out
    assert command in shown.err
    again = shell("runs", "resume", "@last")
    assert (again.code, len(shell.types())) == (3, 3)
    assert command in again.fix
    everything = shell("runs", "resume", "--all")
    assert "1 run suspended" in everything.err


def test_exact_parameters_are_shown_whole_and_cannot_steer(waiting: Shell) -> None:
    shown = waiting("approval", "show", "@last")
    assert shown.code == 0
    assert "demo/echo" in shown.out
    assert "\x1b" not in shown.out + shown.err  # law 9
    assert "\\u001b[31m" in shown.out
    assert 80 * "x" in shown.out
    assert CANARY not in shown.out + shown.err  # law 8
    assert "rule allow[1] wants the word of ops" in " ".join(shown.out.split())
    (document,) = waiting("approval", "show", "@last", "--json").document
    assert waiting("approval", "list", "--json").document == [document]
    assert document["$type"] == "caxton.approval/v1"
    assert document["params"]["text"].startswith("\x1b[31m [redacted]")
    assert (document["seq"], document["expired"], document["by"]) == (2, False, ["ops"])
    listed = waiting("approval", "list")
    assert name_of(waiting) in listed.out
    assert "\x1b" not in listed.out


def test_yes_goes_on_at_once_and_says_who_and_why(waiting: Shell) -> None:
    done = approval(waiting, "approve", "@last", "--as", "ops")
    assert (done.code, done.out) == (0, '"done"\n')
    assert waiting.types()[3:] == [
        *("ApprovalDecided", "RunResumed"),
        *("ToolInvoked", "ToolCompleted", "RunCompleted"),
    ]
    (decided,) = [
        item["payload"]
        for item in waiting("events", "list", "@last", "--json").document
        if item["type"] == "ApprovalDecided"
    ]
    assert decided["role"] == "ops"
    assert decided["reason"] == "fine, [redacted]"
    assert decided["actor"]["kind"] == "local"
    assert " as ops: fine, [redacted]" in waiting("events", "list", "@last").out
    assert waiting("replay", "@last").code == 0
    assert waiting("audit", "verify").code == 0
    assert "nothing waits" in waiting("approval", "list").err


def test_no_is_told_to_the_agent(waiting: Shell) -> None:
    done = approval(waiting, "deny", "@last", "2", "--as", "ops", "--json")
    assert done.code == 0
    assert done.document["calls"]["denied"] == 1
    explained = waiting("runs", "explain", "@last", "2")
    assert "verdict   approval, rule allow[1]" in explained.out


def test_word_alone_is_recorded_and_the_run_goes_on_later(waiting: Shell) -> None:
    done = approval(waiting, "approve", "@last", "--as", "ops", "--no-resume")
    assert done.code == 0
    assert f"caxton runs resume {name_of(waiting)}" in done.err
    assert waiting.types()[-1] == "ApprovalDecided"
    shown = waiting("runs", "show", "@last")
    assert "approved by " in shown.out
    assert "caxton runs resume" in shown.err
    assert waiting("approval", "list", "--json").document == []
    assert waiting("runs", "resume", "--all").code == 0
    assert waiting.types()[-1] == "RunCompleted"


def test_what_cannot_be_meant_is_a_usage_error(waiting: Shell) -> None:
    before = waiting.types()
    for words, said in (
        (("approve", "@last"), "by others: ops"),
        (("approve", "@last", "--as", "sales"), "--as ops"),
        (("deny", "@last", "3", "--as", "ops"), "event 3"),
        (("approve", "zzz"), "zzz"),
        (("show", "@last", "3"), "approval: 2"),
    ):
        done = waiting("approval", *words)
        assert done.code == 2
        assert said in done.err
        assert done.fix
    assert waiting.types() == before


def test_expired_question_is_marked_and_is_a_no(shell: Shell) -> None:
    configure(shell, "approve = { within = '1ms' }")
    assert shell("run", "a").code == 3
    assert "expired" in shell("approval", "list").out
    late = shell("approval", "approve", "@last")
    assert late.code == 2
    assert f"caxton runs resume {name_of(shell)}" in late.fix
    assert shell("runs", "resume", "@last").code == 0
    assert shell.types()[3:6] == ["ApprovalDecided", "RunResumed", "ToolInvoked"]


def test_next_question_of_the_same_run_is_asked_in_its_turn(shell: Shell) -> None:
    configure(shell, "approve = {}", TWO)
    assert shell("run", "a").code == 3
    done = approval(shell, "approve", "@last")
    assert done.code == 3
    assert "waits for an approval" in done.err
    assert "approval approve" in done.fix
    assert approval(shell, "approve", "@last").code == 0


def test_runs_that_wait_are_completed_by_the_shell(waiting: Shell) -> None:
    run = name_of(waiting)
    words = f"caxton approval approve {run[:4]}"
    waiting.set(COMP_WORDS=words, COMP_CWORD="3", _CAXTON_COMPLETE="bash_complete")
    assert run in waiting.typed().out


# -- in a terminal -------------------------------------------------------------


@dataclass(slots=True)
class Terminal:
    """A command that somebody sees, and types into."""

    keys: int
    child: subprocess.Popen[bytes]
    screen: str = ""

    def sees(self, text: str) -> None:
        while text not in self.screen:
            self.screen += os.read(self.keys, 4096).decode()

    def types(self, text: str) -> None:
        os.write(self.keys, text.encode())

    def ends(self) -> int:
        return self.child.wait(SOON)


@contextmanager
def terminal(shell: Shell, *words: str) -> Generator[Terminal]:
    keys, screen = pty.openpty()
    try:
        with shell.started(*words, stdin=screen, stderr=screen) as child:
            yield Terminal(keys, child)
    finally:
        os.close(screen)
        os.close(keys)


def test_terminal_asks_and_the_run_goes_on(shell: Shell) -> None:
    configure(shell)
    with terminal(shell, "run", "a") as it:
        it.sees("Approve it as ops? [y/N]")
        assert 80 * "x" in it.screen
        assert CANARY not in it.screen
        it.types("y\n")
        it.sees("Why?")
        it.types("looks fine\n")
        assert it.ends() == 0
        assert it.child.stdout is not None
        assert json.loads(it.child.stdout.read()) == "done"
    assert shell.types()[-1] == "RunCompleted"


def test_anything_but_yes_is_no(shell: Shell) -> None:
    configure(shell, "approve = { by = ['ops', 'board'] }")
    with terminal(shell, "run", "a") as it:
        it.sees("ops or board?")
        it.types("board\n")
        it.sees("Approve it as board? [y/N]")
        it.types("\n")
        it.sees("Why?")
        it.types("\n")
        assert it.ends() == 0
    assert shell.types()[-3:] == ["ToolInvoked", "ToolDenied", "RunCompleted"]


@pytest.mark.parametrize("how", ["Ctrl-C", "Ctrl-D", "nobody"])
def test_nothing_said_leaves_the_run_suspended(shell: Shell, how: str) -> None:
    configure(shell, "approve = { by = ['ops', 'board'] }")
    with terminal(shell, "run", "a") as it:
        it.sees("ops or board?")
        if how == "Ctrl-C":
            it.child.send_signal(signal.SIGINT)
        else:
            it.types("\x04" if how == "Ctrl-D" else "me\n")
        it.sees("To fix:")
        assert it.ends() == 3
    assert "cancelling" not in it.screen
    assert shell.types()[-1] == "RunSuspended"


@pytest.mark.parametrize("more", [(), ("--no-resume",)])
def test_word_that_is_said_elsewhere_reaches_the_terminal(
    shell: Shell, more: tuple[str, ...]
) -> None:
    configure(shell)
    with terminal(shell, "run", "a") as it:
        it.sees("[y/N]")
        done = approval(shell, "approve", "@last", "--as", "ops", *more)
        assert done.code == 0
        assert it.ends() == 0
    until(lambda: shell.types()[-1] == "RunCompleted")
    # law 7: whoever was faster
    assert shell.types().count("ToolInvoked") == 1
