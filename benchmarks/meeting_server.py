"""
A tool server whose tool ``meet`` blocks all its calls until it is told to go on.

    python meeting_server.py COUNT FOLDER

The server creates the file ``full`` in FOLDER when COUNT calls are active. All calls
return when a file ``go`` appears there.
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

_COUNT, _FOLDER = int(sys.argv[1]), Path(sys.argv[2])
_TOOL = types.Tool(name="meet", input_schema={"type": "object"})


class _Meeting:
    def __init__(self) -> None:
        self.inside = self.most = 0
        self.over = anyio.Event()

    async def list(
        self,
        _context: ServerRequestContext[object],
        _params: types.PaginatedRequestParams | None,
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_TOOL])

    async def call(
        self,
        _context: ServerRequestContext[object],
        _params: types.CallToolRequestParams,
    ) -> types.CallToolResult:
        self.inside += 1
        self.most = max(self.most, self.inside)
        if self.inside == _COUNT:
            (_FOLDER / "full").touch()
        await self.over.wait()
        self.inside -= 1
        return types.CallToolResult(content=[types.TextContent(text=str(self.most))])

    async def end(self) -> None:
        while not (_FOLDER / "go").exists():  # noqa: ASYNC110 -- another process creates it
            await anyio.sleep(0.05)
        self.over.set()


async def _serve() -> None:
    meeting = _Meeting()
    server = Server("meeting", on_list_tools=meeting.list, on_call_tool=meeting.call)
    async with stdio_server() as (read, write), anyio.create_task_group() as tasks:
        tasks.start_soon(meeting.end)
        await server.run(read, write, server.create_initialization_options())
        tasks.cancel_scope.cancel()


anyio.run(_serve)
