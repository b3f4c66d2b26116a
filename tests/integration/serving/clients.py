"""Agents served to clients of MCP, on fakes and on a real port."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeAlias, cast

from mcp_types import RequestParamsMeta

from caxton_host.core.grants.principals import Principal
from caxton_host.runs.admission import Ticket
from caxton_host.service.run_service import Service
from caxton_host.web.mcp.http_router import agents_app
from tests.integration.mcp.authority import served
from tests.office import ANN

__all__ = ["ACCEPT", "Mode", "meta", "serving"]

#: How a client of the SDK begins: as since 2026-07-28, or as before.
Mode: TypeAlias = Literal["auto", "legacy"]

ACCEPT = {"accept": "application/json, text/event-stream"}


def meta(**keys: object) -> RequestParamsMeta:
    return cast("RequestParamsMeta", keys)


@asynccontextmanager
async def serving(
    service: Service,
    who: Principal = ANN,
    ticket: Ticket | None = None,
    body: int = 10_000,
) -> AsyncGenerator[str]:
    """Yield the address at which the agents of *who* are served."""
    app = agents_app(service, body=body)

    async def edge(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 -- ASGI
        if scope["type"] == "http":
            scope["caxton.principal"] = who
            scope["caxton.ticket"] = ticket
            await app(scope, receive, send)

    async with app.running(), served(edge) as origin:
        yield f"{origin}/mcp"
