"""The installed command as a process: signals, pipes, terminals."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest

from tests import standin

from .guests import SPINS, call, guest
from .shell import CAXTON, SOON, Shell, processes, toml

FAULTY = Path(__file__).parents[1] / "integration" / "mcp" / "faulty_server.py"
ALLOW = '[[agents.a.allow]]\ntools = ["demo/*"]'
SLOW = guest(call("mcp__demo__slow", seconds=3600))


@pytest.fixture
def demo(shell: Shell) -> Iterator[Shell]:
    """A folder whose agent may call every tool, and nothing left behind."""
    # The folder in the command line tells this server from others.
    server = standin.command(f"of={shell.folder}")
    limits = {"compute": "60s"}
    shell.write(
        "caxton.toml",
        toml(
            {
                "servers.demo": server,
                "agents.a": {"module": "a.wasm", "limits": limits},
            },
            ALLOW,
        ),
    )
    yield shell
    until(lambda: not [*processes(str(shell.folder))])


def until(condition: Callable[[], object]) -> None:
    """Wait for something that nobody tells."""
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def workers(pid: int) -> list[int]:
    """Return the workers of a host."""
    found = processes("caxton_host.sandbox.worker")
    return [one for one in found if str(pid) in _words(one)]


def _words(pid: int) -> list[str]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return []


# -- signals -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
@pytest.mark.parametrize("doing", ["waits", "spins"])
@pytest.mark.long
def test_an_interrupted_run_is_recorded_and_leaves_nothing(
    demo: Shell, number: signal.Signals, code: int, doing: str
) -> None:
    spins = guest(call("mcp__demo__echo", text=""), then=SPINS)
    demo.write("a.wasm", SLOW if doing == "waits" else spins)
    settled = "ToolInvoked" if doing == "waits" else "ToolCompleted"
    with demo.started("run", "a") as host:
        until(lambda: settled in demo.types())
        assert workers(host.pid)
        host.send_signal(number)
        out, err = host.communicate(timeout=SOON)
    assert (host.returncode, out) == (code, b"")
    assert b"interrupted" in err
    assert b"Traceback" not in err
    assert demo.types()[-1] == "RunCancelled"
    assert workers(host.pid) == []
    (run,) = demo("runs", "list", "--json").document
    assert run["state"] == "cancelled"
    assert run["calls"]["in_doubt"] == 0
    assert demo("replay", "@last").code == 0


def test_an_interrupt_before_the_run_has_begun_is_no_run(demo: Shell) -> None:
    state = demo.folder / "state"
    server = {"command": sys.executable, "args": [str(FAULTY), "silent", str(state)]}
    agent = {"module": "a.wasm"}
    demo.write("caxton.toml", toml({"servers.demo": server, "agents.a": agent}, ALLOW))
    demo.write("a.wasm", SLOW)
    with demo.started("run", "a") as host:
        until(state.exists)
        host.send_signal(signal.SIGINT)
        assert host.communicate(timeout=SOON) == (b"", b"\ninterrupted\n")
    assert host.returncode == 130
    assert demo.runs() == []


def _handles(pid: int, number: int) -> bool:
    (caught,) = re.findall(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
    return bool(int(caught, 16) >> number - 1 & 1)


def test_sigterm_ends_what_a_script_runs_in_the_background(demo: Shell) -> None:
    demo.write("a.wasm", SLOW)
    assert demo("db", "migrate").code == 0
    state = demo.folder / "state"
    server = {"command": sys.executable, "args": [str(FAULTY), "silent", str(state)]}
    demo.write("slow.toml", toml({"servers.demo": server, "agents.a": {}}, ALLOW))
    listens = ("serve", "--port", "0", "--allow-unauthenticated", "--json")
    moments: dict[tuple[str, ...], Callable[[subprocess.Popen[bytes]], object]] = {
        ("run", "a"): lambda one: until(lambda: _handles(one.pid, signal.SIGTERM)),
        ("-c", "slow.toml", "tool", "list"): lambda _: until(state.exists),
        ("events", "tail", "-f", "--all"): lambda one: (
            one.stdout and one.stdout.read(1)
        ),
        listens: lambda one: one.stdout and one.stdout.readline(),
    }
    ignore = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)
    with ExitStack() as stack:
        jobs = [
            stack.enter_context(demo.started(*words, preexec_fn=ignore))
            for words in moments
        ]
        for job, has_come_to_it in zip(jobs, moments.values(), strict=True):
            has_come_to_it(job)
            job.send_signal(signal.SIGTERM)
        codes = [(job.communicate(timeout=SOON), job.returncode)[1] for job in jobs]
    assert codes == [143, 143, 143, 0]


def test_a_killed_host_leaves_no_process_and_an_intact_log(demo: Shell) -> None:
    # law 10
    demo.write("a.wasm", SLOW)
    with demo.started("run", "a") as host:
        until(lambda: "ToolInvoked" in demo.types())
    until(lambda: not workers(host.pid))
    run = demo("runs", "show", "@last", "--json").document
    assert run["state"] == "running"
    assert run["calls"]["in_doubt"] == 1
    assert demo("audit", "verify").code == 0
    assert "in doubt" in demo("runs", "explain", "@last", "2").out


def test_a_hang_up_that_is_to_be_ignored_is_ignored(demo: Shell) -> None:
    demo.write("a.wasm", guest(call("mcp__demo__slow", seconds=0.5), output="done"))
    ignore = partial(signal.signal, signal.SIGHUP, signal.SIG_IGN)
    with demo.started("run", "a", "-q", preexec_fn=ignore) as host:
        until(lambda: "ToolInvoked" in demo.types())
        host.send_signal(signal.SIGHUP)
        assert host.communicate(timeout=SOON)[0] == b'"done"\n'
    assert host.returncode == 0


# -- pipes ---------------------------------------------------------------------


def test_a_reader_that_leaves_early_is_no_fault(shell: Shell) -> None:
    shell.write("a.wasm", guest(output="x" * 300_000))
    shell("run", "a.wasm", "-q")
    for words in ("events list @last --json", "events export --all", "runs list"):
        with shell.started(*words.split()) as listing:
            assert listing.stdout
            assert listing.stderr
            listing.stdout.close()
            assert listing.stderr.read() == b""
        assert listing.returncode == 128 + signal.SIGPIPE


def test_no_terminal_and_no_input_at_all(demo: Shell) -> None:
    demo.write("a.wasm", guest(call("mcp__demo__echo", text="hi"), output="12 °C"))
    done = demo.typed("run", "a")
    assert (done.code, done.out) == (0, '"12 °C"\n')
    assert "\x1b" not in done.err
    # On a busy machine, what takes long is told before.
    slow = ("waiting", "compiling")
    told = [line for line in done.err.splitlines() if not line.startswith(slow)]
    assert len(told) == 3
    script = 'exec "$0" run a -q <&-'
    closed = subprocess.run(
        ["sh", "-c", script, CAXTON],
        cwd=demo.folder,
        env=demo.environ,
        capture_output=True,
        timeout=SOON,
        check=False,
    )
    assert (closed.returncode, closed.stderr) == (0, b"")
    assert closed.stdout == '"12 °C"\n'.encode()


def test_a_terminal_of_another_alphabet(demo: Shell) -> None:
    demo.write("a.wasm", guest(output="12 °C → 日"))
    demo.environ["PYTHONIOENCODING"] = "latin-1"
    with demo.started("run", "a", "-q") as host:
        out, err = host.communicate(timeout=SOON)
    assert (host.returncode, err) == (0, b"")
    assert out == b'"12 \xb0C \\u2192 \\u65e5"\n'


def test_bad_input_in_a_process_of_its_own(demo: Shell) -> None:
    done = demo.typed("run", "nobody")
    assert (done.code, done.out) == (2, "")
    assert done.fix
    nothing = demo.typed()
    assert (nothing.code, nothing.out) == (2, "")
    assert "Commands:" in nothing.err
    assert demo.typed("--version").out.startswith("caxton, version ")
    module = [sys.executable, "-m", "caxton_host", "--version"]
    assert subprocess.run(module, check=True, capture_output=True).stdout


def test_help_imports_nothing_that_is_slow() -> None:
    script = (
        "import sys; sys.argv = ['caxton', '--help']\n"
        "from caxton_host.cli import main\n"
        "try: main()\n"
        "finally: print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    slow = {"sqlalchemy", "mcp", "rich", "pydantic", "wasmtime", "httpx", "alembic"}
    assert slow.isdisjoint(done.stderr.split())


def test_a_run_imports_neither_what_migrates_nor_what_executes(demo: Shell) -> None:
    demo.write("a.wasm", guest(call("mcp__demo__echo", text="hi")))
    demo("run", "a")  # the database is made
    script = (
        "import sys; sys.argv = ['caxton', 'run', 'a', '-q']\n"
        "from caxton_host.cli import main\n"
        "try: main()\n"
        "finally: print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        cwd=demo.folder,
        env=demo.environ,
        text=True,
        check=True,
    )
    loaded = set(done.stderr.split())
    assert "mcp" in loaded
    assert {"alembic", "wasmtime", "rich", "httpx"}.isdisjoint(loaded)


# -- terminals -----------------------------------------------------------------


def on_terminal(shell: Shell, *words: str, width: int = 80) -> tuple[int, str]:
    """Run the installed command on a terminal, and return its code and screen."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [CAXTON, *words],
        cwd=shell.folder,
        env={**shell.environ, "TERM": "xterm", "COLUMNS": str(width)},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    screen = b""
    with child, suppress(OSError):  # The terminal is gone with its last process.
        while data := os.read(ours, 65536):
            screen += data
    os.close(ours)
    return child.returncode, screen.decode(errors="replace")


def test_what_takes_long_is_shown_on_a_terminal_and_nowhere_else(demo: Shell) -> None:
    demo.write("a.wasm", guest(call("mcp__demo__slow", seconds=3)))
    with demo.started("run", "a") as piped:
        code, screen = on_terminal(demo, "run", "a")
        _, err = piped.communicate(timeout=SOON)
    assert code == 0
    assert "running a" in screen
    assert re.search(r"0:00:0\d", screen)
    # The first line does not wait for the run, however slowly it starts.
    assert screen.index("run 0") < screen.rindex("running a")
    assert piped.returncode == 0
    assert b"run 0" in err
    assert b"running a" not in err


@pytest.mark.long
def test_tables_fit_the_terminal_and_run_ids_can_be_copied(shell: Shell) -> None:
    run_id = shell("demo", "--json").document["run"]["run_id"]
    for words in (("runs", "list"), ("events", "list", "@last")):
        for width in (60, 80, 200):
            code, screen = on_terminal(shell, *words, width=width)
            assert code == 0
            lines = re.sub(r"\x1b\[[0-9;]*m", "", screen).splitlines()
            assert max(map(len, lines)) <= width
    _, screen = on_terminal(shell, "runs", "list")
    assert "started at" in screen
    (name,) = re.findall(r"\b0[0-9a-f]{7}-[0-9a-f-]+", screen)
    assert shell("runs", "show", name, "--json").document["run_id"] == run_id
    assert shell("runs", "list").out.startswith(f"{run_id}\tweather\tcompleted\t")


def test_a_document_on_a_terminal_is_indented(shell: Shell) -> None:
    code, screen = on_terminal(shell, "completion", "bash", "--json")
    assert code == 0
    assert '\r\n  "shell": "bash",\r\n' in screen


def test_what_a_tool_says_cannot_steer_a_terminal(demo: Shell) -> None:
    evil = "text=\x1b[2Jone\ntwo\u202e"
    code, screen = on_terminal(demo, "tool", "call", "demo/echo", evil)
    assert code == 0
    assert "\\x1b[2Jone\r\ntwo\\u202e" in screen
    # In a pipe it is data, and stays what it is.
    assert demo("tool", "call", "demo/echo", evil).out == "\x1b[2Jone\ntwo\u202e\n"
