"""``caxton agent dev`` runs what changed, and says what that changed."""

from __future__ import annotations

import json
import os
import pty
import queue
import signal
import subprocess
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from typing import Any

import pytest

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


@contextmanager
def developing(shell: Shell, *words: str) -> Generator[Watched]:
    with shell.started(
        *("agent", "dev", *words, "--json"), stderr=subprocess.DEVNULL
    ) as child:
        yield Watched(child)


def test_change_runs_the_program_again_with_the_same_servers(runtimes: Shell) -> None:
    runtimes.write("caxton.toml", toml({"servers.demo": standin.command()}))
    runtimes.write("a.py", ECHO.format("one"))

    with developing(runtimes, "a.py", "--allow", "demo/echo") as dev:
        first = dev.next()
        runtimes.write("a.py", ECHO.format("two"))
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
        runtimes.write("a.py", "def run():\n    return 2\n")
        stopped, then = dev.next(), dev.next()

    assert stopped["run"]["state"] == "cancelled"
    assert then["run"]["output"] == 2


def test_error_waits_for_the_next_change(runtimes: Shell) -> None:
    runtimes.write("a.py", " ")

    with developing(runtimes, "a.py") as dev:
        refused = dev.next()
        runtimes.write("a.py", "def run():\n    return 2\n")
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
        runtimes.write("caxton.toml", toml(servers, agent, allowed))
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
    assert runtimes("agent", "dev", "none.py", "--once").code == 2


def test_keys_run_replay_explain_and_quit(runtimes: Shell) -> None:
    runtimes.write("caxton.toml", toml({"servers.demo": standin.command()}))
    runtimes.write("a.py", ECHO.format("one"))
    ours, theirs = pty.openpty()
    with (
        closing(os.fdopen(ours, "r+b", buffering=0)) as terminal,
        runtimes.started(
            *("agent", "dev", "a.py", "--allow", "demo/echo"),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        ) as child,
    ):
        os.close(theirs)
        shown = bytearray()

        def until(text: bytes) -> None:
            while text not in shown:
                shown.extend(terminal.read(1024))
            shown.clear()

        until(b"completed")
        terminal.write(b"\n")
        until(b"nothing differs from the last run")
        terminal.write(b"e")
        until(b"verdict   allowed, rule allow[1]")
        terminal.write(b"r")
        until(b"identical: 1 call answered from the log")
        terminal.write(b"q")
        assert child.wait(SOON) == 0
        with suppress(OSError):
            terminal.read(1024)
