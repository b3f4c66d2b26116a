"""``caxton approval``: calls that wait for a person, in scripts and in a terminal."""

from __future__ import annotations

import os
import pty
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

import pytest
from click.shell_completion import ShellComplete

from caxton_host.cli import caxton, execute
from tests import standin

from .guests import call, guest
from .shell import SOON, Done, Shell, toml

CANARY = "hunter2-hunter2"
OPS = "approve = { by = ['ops'], within = '15m', fresh = '5m' }"
ONE = guest(
    call("mcp__demo__echo", text=f"\x1b[31m {CANARY} " + 80 * "x"), output="done"
)
TWO = guest(
    call("mcp__demo__echo", text="one"), call("mcp__demo__echo", text="two"), output=2
)


def configure(shell: Shell, approve: str = OPS, module: bytes = ONE) -> Shell:
    server: dict[str, object] = {
        **standin.command(),
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
    needs = "rule allow[1] needs an approval by ops, signed in within 300 s"
    assert needs in " ".join(shown.out.split())
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
    assert (decided["role"], decided["signed_in_for"]) == ("ops", 0.0)
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
    words = ("approve", "@last", "--as", "ops", "--no-resume", "--json")
    lost = waiting("approval", *words, "--var", "name=x")
    assert (lost.code, lost.fix) == (2, "leave out --var, or --no-resume")
    done = approval(waiting, *words)
    assert (done.code, done.document["state"]) == (0, "suspended")
    assert "approve is recorded of call 1, demo/echo" in done.err
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
    shown = shell("runs", "show", "@last")
    assert f"to go on: caxton runs resume {name_of(shell)}" in shown.err
    assert "approval approve" not in shown.err
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
    shell = ShellComplete(caxton, {}, "caxton", "_CAXTON_COMPLETE")
    words, run = ["approval", "approve"], name_of(waiting)
    found = shell.get_completions(words, run[:4])
    assert [(one.value, one.help) for one in found] == [(run, "a")]
    assert shell.get_completions(words, "zzz") == []
    assert shell.get_completions(["--config", "no.toml", *words], run[:4]) == []


def test_damaged_run_does_not_hide_the_others(waiting: Shell) -> None:
    assert waiting("run", "a").code == 3
    broken, sound = sorted(waiting.runs())
    with waiting.tampering() as database:
        database.execute("DELETE FROM events WHERE stream = ? AND seq = 1", (broken,))
    done = waiting("approval", "list", "--json")
    assert [one["run_id"] for one in done.document] == [sound.removeprefix("run/")]
    assert f"warning: run {broken.removeprefix('run/')}" in done.err


# -- in a terminal -------------------------------------------------------------

Act: TypeAlias = Callable[[int], object]


def typing(text: str) -> Act:
    return lambda keys: os.write(keys, text.encode())


def interrupt(_: int) -> None:
    os.kill(os.getpid(), signal.SIGINT)


@dataclass(slots=True)
class Person:
    """Somebody at a terminal, who waits for a text and does something, in order."""

    keys: int
    script: Sequence[tuple[str, Act]]
    screen: str = ""

    def __call__(self) -> None:
        for text, act in self.script:
            while text not in self.screen:
                self.screen += os.read(self.keys, 4096).decode()
            act(self.keys)
        with suppress(OSError):  # until the command closes the terminal
            while data := os.read(self.keys, 4096):
                self.screen += data.decode()


def at_terminal(
    patch: pytest.MonkeyPatch, words: str, *script: tuple[str, Act]
) -> tuple[int, str]:
    """Return the exit code of a command, and what somebody saw who typed it."""
    keys, screen = pty.openpty()
    person = Person(keys, script)
    thread = threading.Thread(target=person)
    with (
        os.fdopen(screen, "r") as stdin,
        os.fdopen(os.dup(screen), "w") as stderr,
        patch.context() as patched,
    ):
        patched.setattr(sys, "stdin", stdin)
        patched.setattr(sys, "stderr", stderr)
        thread.start()
        code = execute(words.split())
    thread.join(SOON)
    os.close(keys)
    return code, person.screen


def test_terminal_asks_and_the_run_goes_on(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(shell)
    yes = ("Approve it as ops? [y/N]", typing("y\n")), ("Why?", typing("it is fine\n"))
    code, screen = at_terminal(monkeypatch, "run a", *yes)
    assert code == 0
    assert 80 * "x" in screen
    assert CANARY not in screen
    assert shell.types()[-1] == "RunCompleted"


def test_anything_but_yes_is_no(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(shell, "approve = { by = ['ops', 'board'] }")
    code, _ = at_terminal(
        monkeypatch,
        "run a",
        ("ops or board?", typing("board\n")),
        ("Approve it as board? [y/N]", typing("\n")),
        ("Why?", typing("\n")),
    )
    assert code == 0
    assert shell.types()[-3:] == ["ToolInvoked", "ToolDenied", "RunCompleted"]


@pytest.mark.parametrize(
    "script",
    [
        [("ops or board?", interrupt)],
        [("ops or board?", typing("\x04"))],
        [("ops or board?", typing("me\n"))],
        [("ops or board?", typing("ops\n")), ("[y/N]", typing("\x04"))],
        [
            ("ops or board?", typing("ops\n")),
            ("[y/N]", typing("y\n")),
            ("Why?", interrupt),
        ],
    ],
    ids=["Ctrl-C", "Ctrl-D", "nobody", "no answer", "no reason"],
)
def test_nothing_said_leaves_the_run_suspended(
    waiting_for_two: Shell,
    monkeypatch: pytest.MonkeyPatch,
    script: list[tuple[str, Act]],
) -> None:
    code, screen = at_terminal(monkeypatch, "run a", *script)
    assert code == 3
    assert "To fix: decide:" in screen
    assert "cancelling" not in screen
    assert waiting_for_two.types()[-1] == "RunSuspended"


@pytest.fixture
def waiting_for_two(shell: Shell) -> Shell:
    return configure(shell, "approve = { by = ['ops', 'board'] }")


@pytest.mark.parametrize("more", [(), ("--no-resume",)])
@pytest.mark.long
def test_word_that_is_said_elsewhere_reaches_the_terminal(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    configure(shell)
    words = ("approval", "approve", "@last", "--as", "ops", *more)
    said: list[Done] = []
    elsewhere = ("[y/N]", lambda _: said.append(shell.typed(*words)))
    code, _ = at_terminal(monkeypatch, "run a", elsewhere)
    assert (code, said[0].code) == (0, 0)
    # law 7: whoever was faster
    assert shell.types().count("ToolInvoked") == 1
    assert shell.types()[-1] == "RunCompleted"


def test_what_is_typed_before_the_question_is_no_answer(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(shell)
    early, late = ("", typing("y\n\n")), ("[y/N]", typing("\x04"))
    code, _ = at_terminal(monkeypatch, "run a", early, late)
    assert code == 3
    assert shell.types()[-1] == "RunSuspended"


def test_time_that_is_over_ends_the_question(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(shell, "approve = { within = '1500ms' }")
    code, screen = at_terminal(monkeypatch, "run a", ("[y/N]", typing("")))
    assert code == 0
    assert "the deadline has passed" in screen
    assert shell.types()[-2:] == ["ToolDenied", "RunCompleted"]


def test_terminal_of_a_resume_asks_too(
    waiting: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    yes = ("[y/N]", typing("y\n")), ("Why?", typing("\n"))
    code, _ = at_terminal(monkeypatch, f"runs resume {name_of(waiting)}", *yes)
    assert code == 0
    assert waiting.types()[-1] == "RunCompleted"


def test_terminal_asks_about_the_calls_of_a_called_run(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(shell)
    rule = "[agents.boss]\nmodule = 'boss.wasm'\n[[agents.boss.allow]]\n"
    text = (shell.folder / "caxton.toml").read_text()
    shell.write("caxton.toml", f"{text}{rule}tools = ['agents/a', 'demo/*']\n")
    shell.write("boss.wasm", guest(call("mcp__agents__a"), output="asked"))
    yes = ("Approve it as ops? [y/N]", typing("y\n")), ("Why?", typing("fine\n"))

    code, screen = at_terminal(monkeypatch, "run boss", *yes)

    assert code == 0
    assert 80 * "x" in screen
    assert shell.types()[-1] == "RunCompleted"
    # The newest run is the one that was started, and not the one that it called.
    assert shell("runs", "show", "@last").out.count("boss") == 1
    rows = [line.split("\t") for line in shell("runs", "list").out.splitlines()]
    assert [row[1] for row in rows] == ["a", "boss"]
    assert rows[0][-1] == rows[1][0]
    (top,) = shell("runs", "list", "--top").out.splitlines()
    assert top.split("\t")[1] == "boss"
