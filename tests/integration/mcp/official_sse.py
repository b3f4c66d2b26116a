"""The demo server over the transport of 2024, as the official SDK serves it."""

from __future__ import annotations

from mcp.server.sse import SseServerTransport
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from caxton_host.demo_server import demo_server


def official_sse() -> Starlette:
    transport = SseServerTransport("/messages/")
    demo = demo_server()

    async def stream(asked: Request) -> Response:
        async with transport.connect_sse(asked.scope, asked.receive, asked._send) as (
            read,
            write,
        ):
            await demo.run(read, write, demo.create_initialization_options())
        return Response()

    return Starlette(
        routes=[
            Route("/sse", stream),
            Mount("/messages/", transport.handle_post_message),
        ]
    )
