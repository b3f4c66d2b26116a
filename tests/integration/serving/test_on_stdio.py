"""Agents are tools of a client that starts the host itself."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters

from .clients import Mode

ROOT = Path(__file__).parents[3]
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "pipe", "version": "1"},
}


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
    told = host(tmp_path)
    served = await asyncio.create_subprocess_exec(
        *(told.command, *told.args),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    async with asyncio.timeout(20):
        out, err = await served.communicate("\n".join([*lines, ""]).encode())

    assert served.returncode == 0
    *refusals, answer = map(json.loads, out.splitlines())
    assert [one["error"]["code"] for one in refusals] == [-32700, -32600, -32700]
    assert {one["id"] for one in refusals} == {None}
    assert answer["id"] == 7
    assert answer["result"]["serverInfo"]["name"] == "caxton"
    assert b"hunter22" not in out + err
