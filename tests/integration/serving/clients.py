"""Agents served to clients of MCP, on fakes and on a real port."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from caxton_host.admission import Ticket
from caxton_host.core.principals import Principal
from caxton_host.mcp.server import agents_app
from caxton_host.service import Service
from tests.integration.mcp.authority import served
from tests.office import ANN

__all__ = ["ACCEPT", "MODERN", "serving"]

#: What clients of protocols before 2026-07-28 send.
ACCEPT = {"accept": "application/json, text/event-stream"}
MODERN = "2026-07-28"


@asynccontextmanager
async def serving(
    service: Service, who: Principal = ANN, ticket: Ticket | None = None
) -> AsyncGenerator[str]:
    """Yield the address at which the agents of *who* are served."""
    app = agents_app(service, body=10_000)

    async def edge(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 -- ASGI
        if scope["type"] == "http":
            scope["caxton.principal"] = who
            scope["caxton.ticket"] = ticket
            await app(scope, receive, send)

    async with app.running(), served(edge) as origin:
        yield f"{origin}/mcp"
