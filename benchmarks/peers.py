"""
Peer programs of the benchmarks of served agents and of sessions.

    python -m benchmarks.peers direct    the tool itself, over HTTP
    python -m benchmarks.peers plain     an SDK server; its handler calls the tool
    python -m benchmarks.peers fastmcp   FastMCP's proxy in front of the same tool
    python -m benchmarks.peers catalogue a server with many tools
    python -m benchmarks.peers sink      accepts spans and drops them
    python -m benchmarks.peers proxy     FastMCP's proxy, over stdio

The first line on standard error is the address; the last one has none.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import mcp_types as types
import uvicorn
from fastmcp.server import create_proxy
from fastmcp.server.providers.proxy import FastMCPProxy
from mcp import Client, StdioServerParameters
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from caxton_host.demo_server import demo_server

#: Of the server `catalogue`.
TOOLS = 40

_TOOL = ("-m", "caxton_host.demo_server")

_App: TypeAlias = Callable[..., Awaitable[None]]


@asynccontextmanager
async def _plain() -> AsyncGenerator[tuple[_App, str]]:
    """Yield a server whose tool calls the tool of another server."""
    program = StdioServerParameters(command=sys.executable, args=[*_TOOL])
    async with Client(program) as client:
        await client.list_tools()

        async def offer(
            _context: ServerRequestContext[Any, Any],
            _params: types.PaginatedRequestParams | None,
        ) -> types.ListToolsResult:
            return await client.list_tools()

        async def call(
            _context: ServerRequestContext[Any, Any],
            params: types.CallToolRequestParams,
        ) -> types.CallToolResult:
            text = (params.arguments or {})["text"]
            return await client.call_tool("echo", {"text": text})

        server = Server("plain", on_list_tools=offer, on_call_tool=call)
        app = server.streamable_http_app()
        async with app.router.lifespan_context(app):
            yield app, "/mcp"


@asynccontextmanager
async def _direct() -> AsyncGenerator[tuple[_App, str]]:
    app = demo_server().streamable_http_app()
    async with app.router.lifespan_context(app):
        yield app, "/mcp"


@asynccontextmanager
async def _catalogue() -> AsyncGenerator[tuple[_App, str]]:
    """Yield a server that has `TOOLS` tools, with an equal schema each."""
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    tools = [
        types.Tool(
            name=f"tool_{n}", description="It does one thing.", input_schema=schema
        )
        for n in range(TOOLS)
    ]

    async def offer(
        _context: ServerRequestContext[Any, Any],
        _params: types.PaginatedRequestParams | None,
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    app = Server("catalogue", on_list_tools=offer).streamable_http_app()
    async with app.router.lifespan_context(app):
        yield app, "/mcp"


def _proxy() -> FastMCPProxy:
    config = {"command": sys.executable, "args": [*_TOOL]}
    return create_proxy({"mcpServers": {"demo": config}})


@asynccontextmanager
async def _fastmcp() -> AsyncGenerator[tuple[_App, str]]:
    app = _proxy().http_app()
    async with app.router.lifespan_context(app):
        yield app, "/mcp"


@asynccontextmanager
async def _sink() -> AsyncGenerator[tuple[_App, str]]:
    async def take(request: Request) -> Response:
        await request.body()
        return Response(media_type="application/x-protobuf")

    yield Starlette(routes=[Route("/{path:path}", take, methods=["POST"])]), ""


_PEERS = {
    "direct": _direct,
    "catalogue": _catalogue,
    "plain": _plain,
    "fastmcp": _fastmcp,
    "sink": _sink,
}


async def _serve(name: str) -> None:
    if name == "proxy":
        await _proxy().run_stdio_async(show_banner=False)
        return
    with socket.socket(proto=socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        async with _PEERS[name]() as (app, path):
            print(f"http://127.0.0.1:{port}{path}", file=sys.stderr, flush=True)
            config = uvicorn.Config(app, log_level="error", lifespan="off")
            await uvicorn.Server(config).serve([listening])


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
