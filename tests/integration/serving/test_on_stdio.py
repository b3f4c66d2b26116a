"""Agents are tools of a client that starts the host itself."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters

from .clients import Mode

ROOT = Path(__file__).parents[3]


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
