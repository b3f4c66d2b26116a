"""
A tool server with a tool that reports progress, and one that takes its time.

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
    schema = {"type": "object"}
    names = ("steps", "rest")
    tools = [types.Tool(name=name, input_schema=schema) for name in names]
    return types.ListToolsResult(tools=tools)


async def _call(
    ctx: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
) -> types.CallToolResult:
    if params.name == "rest":
        await asyncio.sleep(1)
        return types.CallToolResult(content=[types.TextContent(text="rested")])
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
