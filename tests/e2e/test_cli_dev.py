"""``caxton agent dev`` runs what changed, and says what that changed."""

from __future__ import annotations

import json
import os
import pty
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import IO, Any

import pytest

from caxton_host.cli import execute
from tests import standin

from .shell import SOON, Shell, toml

#: The runtime is built and compiled once for a test run.
pytestmark = pytest.mark.timeout(400)
_COMPILED = 300.0

ECHO = """\
from caxton_agent import tools
def run():
    return tools.demo.echo(text='{}')
"""


class Watched:
    """A command under way, whose documents a test waits for."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self.child = child
        self._lines: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.child.stdout
        for line in self.child.stdout:
            self._lines.put(line)

    def next(self) -> Any:  # noqa: ANN401 -- whatever was printed
        return json.loads(self._lines.get(timeout=_COMPILED))


def change(shell: Shell, name: str, text: str) -> None:
    """Write a file as editors do, at once."""
    shell.write(f"{name}.new", text).replace(shell.folder / name)


@contextmanager
def developing(shell: Shell, *words: str) -> Generator[Watched]:
    with shell.started(
        *("agent", "dev", *words, "--json"), stderr=subprocess.DEVNULL
    ) as child:
        yield Watched(child)


@pytest.mark.long
def test_change_runs_the_program_again_with_the_same_servers(runtimes: Shell) -> None:
    runtimes.write("caxton.toml", toml({"servers.demo": standin.command()}))
    runtimes.write("a.py", ECHO.format("one"))

    with developing(runtimes, "a.py", "--allow", "demo/echo") as dev:
        first = dev.next()
        change(runtimes, "a.py", ECHO.format("two"))
        second = dev.next()
        dev.child.send_signal(signal.SIGINT)
        assert dev.child.wait(SOON) == 130

    assert (first["run"]["output"], second["run"]["output"]) == ("one", "two")
    assert first["differences"] is None
    (call,) = second["differences"]["calls"]
    assert call["differences"][0]["path"] == "$.params.text"
    assert runtimes.rows("SELECT type FROM events WHERE type = 'ServerConnected'") == [
        ("ServerConnected",)
    ]
    assert runtimes("audit", "verify").code == 0


def test_change_cancels_a_program_that_never_ends(runtimes: Shell) -> None:
    runtimes.write("a.py", "while True:\n    pass\n")

    with developing(runtimes, "a.py") as dev:
        while not runtimes("runs", "list", "--json").out.startswith("[{"):
            assert dev.child.poll() is None
        change(runtimes, "a.py", "def run():\n    return 2\n")
        # What is stopped before the command knows of its run is not reported.
        while (told := dev.next())["run"]["output"] != 2:
            assert told["run"]["state"] == "cancelled"

    cancelled = "SELECT type FROM events WHERE type = 'RunCancelled'"
    assert len(runtimes.rows(cancelled)) == 1


def test_error_waits_for_the_next_change(runtimes: Shell) -> None:
    runtimes.write("a.py", " ")

    with developing(runtimes, "a.py") as dev:
        refused = dev.next()
        change(runtimes, "a.py", "def run():\n    return 2\n")
        then = dev.next()

    assert refused["$type"] == "caxton.dev-error/v1"
    assert refused["error"] == "the program a.py is empty"
    assert then["run"]["output"] == 2


def test_changed_grant_of_a_configured_agent_counts_for_the_next_run(
    runtimes: Shell,
) -> None:
    agent = '[agents.a]\nprogram = "a.py"\n'
    allowed = '[[agents.a.allow]]\ntools = ["demo/echo"]\n'
    servers = {"servers.demo": standin.command()}
    runtimes.write("caxton.toml", toml(servers, agent))
    runtimes.write("a.py", ECHO.format("one"))

    with developing(runtimes, "a.py") as dev:
        first = dev.next()
        change(runtimes, "caxton.toml", toml(servers, agent, allowed))
        second = dev.next()

    assert (first["run"]["agent"], first["run"]["state"]) == ("a", "failed")
    assert second["run"]["output"] == "one"


def test_folder_is_built_and_run(runtimes: Shell) -> None:
    runtimes("agent", "new", "hello")

    done = runtimes("agent", "dev", "hello", "--once")

    assert done.code == 0, done.err
    assert "building hello\n" in done.err
    assert (runtimes.folder / "hello.wasm").is_file()


def test_once_ends_as_run_does(runtimes: Shell) -> None:
    runtimes.write("a.py", "print('said')\n1 / 0\n")

    done = runtimes("agent", "dev", "a.py", "--once")

    assert done.code == 1
    assert "  info: said\n" in done.err
    assert "ZeroDivisionError" in done.err
    told = runtimes("agent", "dev", "a.py", "--once", "--json").document
    assert told["run"]["state"] == "failed"
    assert told["logs"][0] == {"level": "info", "text": "said"}
    assert runtimes("agent", "dev", "none.py", "--once").code == 2
    runtimes.write("a.py", " ")
    refused = runtimes("agent", "dev", "a.py", "--once", "--json")
    assert (refused.code, refused.document["fix"]) == (2, "write a statement in it")


def test_folder_without_an_agent_is_not_watched(shell: Shell) -> None:
    done = shell("agent", "dev", ".")
    assert (done.code, done.fix) == (2, "name the folder that caxton agent new made")


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Generator[IO[bytes]]:
    """Make a terminal of stdin, stdout and stderr, and yield the side of a person."""
    ours, theirs = pty.openpty()
    with (
        os.fdopen(ours, "r+b", buffering=0) as person,
        os.fdopen(theirs) as stdin,
        os.fdopen(os.dup(theirs), "w") as stdout,
        monkeypatch.context() as patch,
    ):
        patch.setattr(sys, "stdin", stdin)
        patch.setattr(sys, "stdout", stdout)
        patch.setattr(sys, "stderr", stdout)
        yield person


def test_keys_run_replay_explain_and_quit(
    runtimes: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtimes.write("caxton.toml", toml({"servers.demo": standin.command()}))
    runtimes.write("a.py", ECHO.format("one"))
    shown: list[bytes] = []

    def type_in(person: IO[bytes]) -> None:
        told = bytearray()

        def until(text: bytes) -> None:
            while text not in told:
                told.extend(person.read(1024))
            shown.append(bytes(told))
            told.clear()

        until(b"completed")
        change(runtimes, "a.py", ECHO.format("two"))
        until(b'$.output: "one" became "two"')
        person.write(b"\n")
        until(b"the last run had the same calls and end")
        person.write(b"?e")
        until(b"verdict   allowed, rule allow[1]")
        person.write(b"r")
        until(b"identical: 1 call answered from the log")
        change(runtimes, "a.py", "while True: pass")
        until(b"a.py\r\n")
        person.write(b"q")

    with terminal(monkeypatch) as person:
        typing = threading.Thread(target=type_in, args=(person,))
        typing.start()
        code = execute(["agent", "dev", "a.py", "--allow", "demo/echo"])
        typing.join()

    assert code == 0
    assert b'call 1 mcp__demo__echo: $.params.text: "one" became "two"' in shown[1]
    states = [run["state"] for run in runtimes("runs", "list", "--json").document]
    assert states == ["cancelled", "completed", "completed", "completed"]


def test_explain_and_replay_need_a_run(
    runtimes: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtimes.write("a.py", " ")
    shown: list[bytes] = []

    def type_in(person: IO[bytes]) -> None:
        for key, wanted in (
            (b"", b"To fix: "),
            (b"e", b"there is no call to explain"),
            (b"r", b"there is no run yet"),
        ):
            person.write(key)
            told = bytearray()
            while wanted not in told:
                told.extend(person.read(1024))
            shown.append(wanted)
        person.write(b"q")

    with terminal(monkeypatch) as person:
        typing = threading.Thread(target=type_in, args=(person,))
        typing.start()
        code = execute(["agent", "dev", "a.py"])
        typing.join()

    assert (code, len(shown)) == (0, 3)
