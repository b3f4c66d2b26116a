"""Tasks of a served host, over HTTP and pipes, which outlive the host."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client, StdioServerParameters

from tests import standin
from tests.integration.serving.rpc import DATED, MODERN, Rpc, TasksExtension

from .guests import call, guest
from .serving import Host, served, token
from .shell import CAXTON, SOON, Shell

COUNTING = Path(__file__).parents[1] / "chaos" / "server.py"
CONFIG = """\
version = 1
[servers.demo]
{demo}
[servers.counting]
command = {python}
args = ["-IS", {counting}, "effects.txt"]
[sessions.dev]
[[sessions.dev.allow]]
tools = ["demo/slow"]
[[sessions.dev.allow]]
tools = ["counting/send"]
approve = {{}}
[agents.sender]
module = "sender.wasm"
expose = {{ mcp = true }}
[[agents.sender.allow]]
tools = ["counting/send"]
approve = {{}}
[agents.sleeper]
module = "sleeper.wasm"
expose = {{ mcp = true }}
[[agents.sleeper.allow]]
tools = ["demo/slow"]
"""
SEND, SLOW = "mcp__counting__send", "mcp__demo__slow"
both = pytest.mark.parametrize("revision", [DATED, MODERN])


@pytest.fixture
def desk(shell: Shell) -> Shell:
    shell.write(
        "caxton.toml",
        CONFIG.format(
            demo=standin.toml(f"of={shell.folder}"),
            python=json.dumps(sys.executable),
            counting=json.dumps(str(COUNTING)),
        ),
    )
    sends, sleeps = call(SEND), call(SLOW, seconds=3600)
    (shell.folder / "sender.wasm").write_bytes(guest(sends, output={"sent": 1}))
    (shell.folder / "sleeper.wasm").write_bytes(guest(sleeps, output={"slept": 1}))
    return shell


@asynccontextmanager
async def client(
    host: Host, own: str, revision: str, path: str = "/mcp/dev"
) -> AsyncGenerator[Rpc]:
    headers = {"authorization": f"Bearer {own}"}
    async with httpx2.AsyncClient(headers=headers) as http:
        yield Rpc(http, f"{host.url}{path}", revision)


def begun(host: Host, own: str, revision: str, path: str, name: str) -> str:
    """Call a tool as a task, and return that."""

    async def begin() -> str:
        async with client(host, own, revision, path) as ask:
            task = await ask.begin(name, arguments=_ARGUMENTS.get(name, {}))
            return str(task["taskId"])

    return anyio.run(begin)


_ARGUMENTS: dict[str, dict[str, Any]] = {SLOW: {"seconds": 3600}}


def until(
    host: Host, own: str, revision: str, path: str, key: str, *wanted: str
) -> dict[str, Any]:
    """Return a task once it is in a state."""

    async def ask_on() -> dict[str, Any]:
        async with client(host, own, revision, path) as ask, asyncio.timeout(60):
            while True:
                found: dict[str, Any] = await ask("tasks/get", taskId=key)
                if found["status"] in wanted or not wanted:
                    return found
                await asyncio.sleep(0.05)

    return anyio.run(ask_on)


def effects(shell: Shell) -> int:
    return len((shell.folder / "effects.txt").read_text().splitlines())


def waits(shell: Shell, kind: str) -> None:
    """Return once the log has an event of that type."""
    while kind not in shell.types():
        pass


@both
def test_a_task_that_waits_is_approved_while_no_host_is_up(
    desk: Shell, revision: str
) -> None:  # laws 7 and 10
    mine = token(desk, "--session", "dev", "--name", "mine")
    with served(desk, good=mine) as host:
        key = begun(host, mine, revision, "/mcp/dev", SEND)
        host.child.send_signal(signal.SIGKILL)
        host.child.wait()
    while (done := desk("approval", "approve", "@last", "--reason", "fine")).code == 5:
        pass
    assert done.code == 0, done.err
    with served(desk, good=mine) as host:
        assert until(host, mine, revision, "/mcp/dev", key, "completed", "failed")
        found = until(host, mine, revision, "/mcp/dev", key)
        assert found["status"] == "completed"
        host.stop(signal.SIGTERM)
    assert effects(desk) == 1
    assert desk("audit", "verify").code == 0


def test_a_task_under_way_when_its_host_is_killed_is_in_doubt(
    desk: Shell,
) -> None:  # laws 7 and 10
    mine = token(desk, "--session", "dev", "--name", "mine")
    with served(desk, good=mine) as host:
        key = begun(host, mine, DATED, "/mcp/dev", SLOW)
        host.child.send_signal(signal.SIGKILL)
        host.child.wait()
    with served(desk, good=mine) as host:
        found = until(host, mine, DATED, "/mcp/dev", key)
        assert found["status"] == "failed"
        assert "whether it happened is unknown" in found["statusMessage"]
        host.stop(signal.SIGTERM)
    assert desk.types().count("ToolInvoked") == 1
    assert "ToolRetried" not in desk.types()


@both
@pytest.mark.long
def test_a_run_is_still_a_task_when_its_host_was_killed(
    desk: Shell, revision: str
) -> None:  # law 10
    boss = token(desk)
    waiting = "input_required" if revision == DATED else "working"
    with served(desk, good=boss) as host:
        sent = begun(host, boss, revision, "/mcp", "sender")
        slept = begun(host, boss, revision, "/mcp", "sleeper")
        waits(desk, "ToolInvoked")
        waits(desk, "RunSuspended")
        host.child.send_signal(signal.SIGKILL)
        host.child.wait()
    with served(desk, good=boss) as host:
        found = until(host, boss, revision, "/mcp", sent)
        assert (found["status"], found["taskId"]) == (waiting, sent)
        assert "waits for the approval of anyone" in found["statusMessage"]
        approving = ("approval", "approve", sent, "--no-resume", "--reason", "fine")
        done = desk(*approving)
        assert done.code == 0, done.err
        until(host, boss, revision, "/mcp", sent, "completed")

        waits(desk, "RunResumed")
        while True:
            found = until(host, boss, revision, "/mcp", slept)
            if "outcome is unknown" in found.get("statusMessage", ""):
                break
        assert found["status"] == waiting
        host.stop(signal.SIGTERM)
    assert effects(desk) == 1


@pytest.mark.parametrize(
    ("words", "name"),
    [(("mcp", "connect", "dev"), SEND), (("serve", "--stdio"), "sender")],
)
async def test_the_official_client_gets_what_was_approved_over_a_pipe(
    desk: Shell, words: tuple[str, ...], name: str
) -> None:
    server = StdioServerParameters(
        command=CAXTON, args=[*words], env=desk.environ, cwd=desk.folder
    )
    extension = TasksExtension()
    async with Client(server, extensions=[extension]) as one:
        calling = asyncio.create_task(one.call_tool(name, {}))
        while not extension.polled:  # noqa: ASYNC110 -- a process
            await asyncio.sleep(0.05)
        while (await _approve(desk)).code:  # noqa: ASYNC110 -- a process
            await asyncio.sleep(0.05)
        result = await calling
    assert not result.is_error
    assert effects(desk) == 1


def test_a_client_on_a_pipe_that_leaves_cancels_its_task(desk: Shell) -> None:
    slow = {"name": SLOW, "arguments": {"seconds": 3600}, "task": {}}
    hello = {
        "protocolVersion": DATED,
        "capabilities": {},
        "clientInfo": {"name": "x", "version": "1"},
    }
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": slow},
    ]
    with desk.started("mcp", "connect", "dev", stdin=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for message in messages:
            child.stdin.write(json.dumps(message).encode() + b"\n")
        child.stdin.flush()
        lines = (json.loads(line) for line in child.stdout)
        told = next(line for line in lines if line.get("id") == 2)
        assert told["result"]["task"]["status"] == "working"
        child.stdin.close()
        child.wait(timeout=SOON)
    assert desk.types()[-2:] == ["ToolFailed", "RunCompleted"]
    events = map(json.loads, desk("events", "export", "--all").out.splitlines())
    (failed,) = [one["payload"] for one in events if one["type"] == "ToolFailed"]
    assert failed["kind"] == "cancelled"


async def _approve(desk: Shell) -> Any:  # noqa: ANN401 -- as `Shell.typed`
    words = ("approval", "approve", "@last", "--reason", "fine", "--no-resume")
    return await asyncio.to_thread(desk.typed, *words)
