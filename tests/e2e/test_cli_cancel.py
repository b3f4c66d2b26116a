"""``caxton runs cancel`` and Ctrl-C: a run ends, and the log says who wanted it."""

from __future__ import annotations

import json
import signal
import sqlite3
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import pytest

from tests import standin

from .guests import call, guest
from .shell import SOON, Shell, processes, toml

SLOW = guest(call("mcp__demo__slow", seconds=3600))
ALLOW = '[[agents.a.allow]]\ntools = ["demo/*"]'


def until(condition: Callable[[], object]) -> None:
    """Wait for something that nobody tells."""
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def configure(shell: Shell, **store: str) -> Shell:
    server = {
        **standin.command(f"of={shell.folder}"),
        "env": {"SESSION_TOKEN": "hunter2-hunter2"},
    }
    tables: dict[str, dict[str, Any]] = {
        "servers.demo": server,
        "agents.a": {"module": "a.wasm"},
    }
    if store:
        tables["store"] = store
    shell.write("caxton.toml", toml(tables, ALLOW))
    shell.write("a.wasm", SLOW)
    return shell


@pytest.fixture(params=["sqlite", "postgresql"])
def slow(request: pytest.FixtureRequest, shell: Shell) -> Generator[Shell]:
    """A folder whose agent waits for a tool, and nothing left behind."""
    if request.param == "postgresql":
        configure(shell, url=request.getfixturevalue("postgres_url"))
    else:
        configure(shell)
    yield shell
    until(lambda: not [*processes(str(shell.folder))])


@contextmanager
def waiting(shell: Shell, **options: Any) -> Generator[tuple[Any, str]]:  # noqa: ANN401
    """Start a run, and give its process and id once it waits for its tool."""
    with shell.started("run", "a", **options) as host:
        assert host.stderr
        # On a busy machine, what takes long is told before.
        told = next(line for line in host.stderr if line.startswith(b"run "))
        run_id = told.split()[1].decode()
        until(lambda: "ToolInvoked" in shell("events", "list", run_id, "--json").out)
        yield host, run_id


def last(shell: Shell, run_id: str, count: int) -> list[dict[str, Any]]:
    out = shell("events", "list", run_id, "--json").out
    document = json.loads(out)
    events = document if isinstance(document, list) else document["events"]
    return events[-count:]


def test_a_run_of_another_process_is_cancelled(slow: Shell) -> None:
    with waiting(slow) as (host, run_id):
        done = slow("runs", "cancel", run_id[:-4], "--reason", "not that one")

        assert (done.code, done.out) == (0, "")
        assert done.err == f"cancelled {run_id}\n"
        out, err = host.communicate(timeout=SOON)
    assert (host.returncode, out) == (1, b"")
    assert b"cancelled in" in err
    closed, end = last(slow, run_id, 2)
    assert closed["type"] == "ToolFailed"  # law 2
    assert end["type"] == "RunCancelled"
    assert end["payload"]["reason"] == "not that one"
    assert end["payload"]["actor"]["kind"] == "local"
    assert slow("replay", run_id).code == 0
    again = slow("runs", "cancel", run_id)
    assert (again.code, again.out) == (2, "")
    assert "has been cancelled already" in again.err
    assert again.fix


def test_a_run_whose_host_was_killed_is_cancelled_here(shell: Shell) -> None:
    configure(shell)
    with waiting(shell) as (host, run_id):
        host.kill()
        host.wait()

        done = shell("runs", "cancel", "@last", "--json", "--reason", "hunter2-hunter2")

    assert done.code == 0
    assert done.document["state"] == "cancelled"
    assert done.document["calls"]["in_doubt"] == 0
    closed, end = last(shell, run_id, 2)
    assert (closed["type"], closed["payload"]["sent"]) == ("ToolFailed", "unknown")
    assert "hunter2" not in end["payload"]["reason"]  # law 8
    assert shell("replay", "@last").code == 0
    until(lambda: not [*processes(str(shell.folder))])


def test_a_suspended_run_is_cancelled_here(shell: Shell) -> None:
    configure(shell)
    with waiting(shell) as (host, run_id):
        host.kill()
        host.wait()
    assert shell("runs", "resume", run_id).code == 3

    assert shell("runs", "cancel", run_id).code == 0

    (run,) = shell("runs", "list", "--json").document
    assert run["state"] == "cancelled"


def test_a_run_that_is_not_there_is_not_cancelled(shell: Shell) -> None:
    configure(shell)
    assert shell("runs", "cancel", "0198").code == 2
    assert not shell.database.exists()
    shell.write("a.wasm", guest(output=1))
    shell("run", "a")
    done = shell("runs", "cancel", "@last")
    assert done.code == 2
    assert "has completed already" in done.err
    assert shell("runs", "cancel", "ffff").code == 2


def test_ctrl_c_cancels_and_says_so(shell: Shell) -> None:
    configure(shell)
    with waiting(shell) as (host, run_id):
        host.send_signal(signal.SIGINT)
        out, err = host.communicate(timeout=SOON)
    assert (host.returncode, out) == (130, b"")
    assert f"cancelling {run_id}; Ctrl-C once more ends at once" in err.decode()
    (end,) = last(shell, run_id, 1)
    assert (end["type"], end["payload"]["reason"]) == ("RunCancelled", "interrupted")


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
@pytest.mark.long
def test_ctrl_c_twice_ends_at_once(
    shell: Shell, number: signal.Signals, code: int
) -> None:
    configure(shell)
    with (
        waiting(shell) as (host, run_id),
        closing(sqlite3.connect(shell.database, isolation_level=None)) as other,
    ):
        # Nothing can be recorded, so the first one waits.
        other.execute("BEGIN IMMEDIATE")
        host.send_signal(number)
        assert f"cancelling {run_id}" in "".join(
            host.stderr.readline().decode() for _ in range(2)
        )
        host.send_signal(signal.SIGINT)
        out, err = host.communicate(timeout=SOON)
        other.execute("ROLLBACK")
    assert (host.returncode, out) == (code, b""), err
    assert "ended at once" in err.decode()
    assert f"caxton runs resume {run_id}" in err.decode()
    (run,) = shell("runs", "list", "--json").document
    assert run["state"] == "running"
    until(lambda: not [*processes(str(shell.folder))])
    assert shell("runs", "resume", run_id).code == 3  # its call is in doubt


def test_ctrl_c_that_is_to_be_ignored_is_ignored_and_sigterm_is_not(
    shell: Shell,
) -> None:
    configure(shell)
    ignore = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)
    with waiting(shell, preexec_fn=ignore) as (host, run_id):
        host.send_signal(signal.SIGINT)
        time.sleep(0.2)
        host.send_signal(signal.SIGTERM)
        _, err = host.communicate(timeout=SOON)
    assert host.returncode == 143
    assert err.decode().count("cancelling") == 1
    (end,) = last(shell, run_id, 1)
    assert end["type"] == "RunCancelled"
