"""Agents are tools of a client that starts the host itself."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import sys
import tty
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters

from caxton_host.web.mcp import pipes

from .clients import Mode

ROOT = Path(__file__).parents[3]
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "pipe", "version": "1"},
}
#: A message that is not JSON, since it says a key twice.
TWICE = '{"jsonrpc": "2.0", "id": 6, "id": 5, "method": "ping"}'


def host(folder: Path) -> StdioServerParameters:
    module = "tests.integration.serving.on_stdio"
    return StdioServerParameters(
        command=sys.executable, args=["-m", module, str(folder)], cwd=ROOT
    )


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_lists_and_calls_and_is_told_of_other_tools(
    tmp_path: Path, mode: Mode
) -> None:
    changed = asyncio.Event()

    async def hear(message: object) -> None:
        if type(message).__name__ == "ToolListChangedNotification":
            changed.set()

    async with Client(host(tmp_path), mode=mode, message_handler=hear) as served:
        (tool,) = (await served.list_tools()).tools
        result = await served.call_tool("sky", {"city": "Oslo"})
        assert served.server_capabilities.tools
        assert served.server_capabilities.tools.list_changed
        if mode == "auto":
            async with served.listen(tools_list_changed=True) as told:
                (tmp_path / "other").touch()
                async with asyncio.timeout(20):
                    await anext(aiter(told))
        else:
            (tmp_path / "other").touch()
            async with asyncio.timeout(20):
                await changed.wait()
        (after,) = (await served.list_tools()).tools

    assert tool.description == "Says what the sky is like."
    assert result.structured_content == {"sky": "clear"}
    assert after.description == "Another."


async def test_lines_that_are_no_messages_are_answered_and_not_repeated(
    tmp_path: Path,
) -> None:
    hello = {"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": HELLO}
    lines = ["hunter22 {", '{"hunter22": 1}', "[" * 100_000, json.dumps(hello)]
    out, err = await _told(tmp_path, *lines)

    *refusals, answer = map(json.loads, out.splitlines())
    assert [one["error"]["code"] for one in refusals] == [-32700, -32600, -32700]
    assert {one["id"] for one in refusals} == {None}
    assert answer["id"] == 7
    assert answer["result"]["serverInfo"]["name"] == "caxton"
    assert b"hunter22" not in out + err


async def test_a_message_that_is_too_long_is_refused_and_the_next_is_read(
    tmp_path: Path,
) -> None:  # law 9
    hello = {"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": HELLO}
    giant = {**hello, "id": 6, "x": "x" * pipes.LONGEST}
    out, _ = await _told(tmp_path, json.dumps(giant), json.dumps(hello))

    refusal, answer = map(json.loads, out.splitlines())
    assert refusal["error"]["code"] == -32700
    assert answer["id"] == 7


def test_a_file_may_be_read_and_written(tmp_path: Path) -> None:
    hello = {"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": HELLO}
    (tmp_path / "in").write_text(f"{TWICE}\n{json.dumps(hello)}\n")
    told = host(tmp_path)
    with (tmp_path / "in").open() as stdin, (tmp_path / "out").open("wb") as stdout:
        subprocess.run(
            (told.command, *told.args),
            cwd=ROOT,
            stdin=stdin,
            stdout=stdout,
            check=True,
            timeout=60,
        )
    refusal, answer = map(json.loads, (tmp_path / "out").read_text().splitlines())
    assert refusal["error"]["code"] == -32700
    assert answer["id"] == 7


async def test_a_person_may_type_messages_on_a_terminal(tmp_path: Path) -> None:
    told = host(tmp_path)
    terminal, end = pty.openpty()
    tty.setraw(end)
    served = await asyncio.create_subprocess_exec(
        *(told.command, *told.args), cwd=ROOT, stdin=end, stdout=end
    )
    os.close(end)
    found = b""
    hello = {"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": HELLO}
    os.write(terminal, f"{TWICE}\n{json.dumps(hello)}\n".encode())
    async with asyncio.timeout(60):
        while found.count(b"\n") < 2:
            found += await asyncio.to_thread(os.read, terminal, 4096)
        refusal, answer = map(json.loads, found.splitlines())
        assert refusal["error"]["code"] == -32700
        assert answer["id"] == 7
        os.close(terminal)
        await served.wait()


async def _told(folder: Path, *lines: str) -> tuple[bytes, bytes]:
    """Return what a host says to a client that sends *lines*."""
    told = host(folder)
    served = await asyncio.create_subprocess_exec(
        *(told.command, *told.args),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        found = await served.communicate("\n".join([*lines, ""]).encode())
    assert served.returncode == 0
    return found
