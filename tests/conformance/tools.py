"""
A tool server whose tool reports progress.

    python tools.py
"""

from __future__ import annotations

import asyncio
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server


async def _list(_: object, __: object) -> types.ListToolsResult:
    tool = types.Tool(name="steps", input_schema={"type": "object"})
    return types.ListToolsResult(tools=[tool])


async def _call(
    ctx: ServerRequestContext[Any, Any], _: types.CallToolRequestParams
) -> types.CallToolResult:
    for done in (0, 50, 100):
        await ctx.session.report_progress(done, 100)
        # The host forwards at most ten per second.
        await asyncio.sleep(0.15)
    return types.CallToolResult(content=[types.TextContent(text="done")])


async def _serve() -> None:
    server = Server("suite", on_list_tools=_list, on_call_tool=_call)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(_serve())
