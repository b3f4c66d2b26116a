"""Everything that is served on one port, behind one edge."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from starlette.responses import Response
from starlette.routing import Mount, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from ..config import Serve
from ..core.calls import JSON
from ..errors import ForbiddenError
from ..ports import ToolSource
from ..service import Service
from . import events, runs
from .edge import MCP, Crowd, Edge
from .identity import Identity
from .operations import Desk, Operation, answer, routes
from .problems import Refusal

__all__ = ["OPERATIONS", "application"]

logger = logging.getLogger("caxton_host")

Scrape: TypeAlias = Callable[[], tuple[str, bytes]]
Ready: TypeAlias = Callable[[], Awaitable[Mapping[str, JSON]]]

OPERATIONS: tuple[Operation, ...] = (*runs.OPERATIONS, *events.OPERATIONS)

_HEALTH, _READY, _METRICS = "/healthz", "/readyz", "/metrics"
_STREAMS_EACH, _STREAMS = 32, 256


def application(  # noqa: PLR0913 -- each may be left out
    service: Service,
    identity: Identity,
    serve: Serve,
    *,
    mcp: ASGIApp | None = None,
    scrape: Scrape | None = None,
    ready: Ready | None = None,
    tools: ToolSource | None = None,
    metadata: Mapping[str, JSON] | None = None,
) -> ASGIApp:
    """
    Return what is served: the control API, agents as tools, health and metrics.

    Args:
        service: Serves runs.

        identity: Finds out who asks.

        serve: How it is served.

        mcp: Serves agents as tools, at ``/mcp``.

        scrape: Returns the metrics: their media type, and text.

        ready: Returns what is ready; each value that is ``False`` is not.

        tools: What servers offer, whether it was accepted or not.

        metadata: Says whose access tokens are taken; nobody's without.
    """
    desk = Desk(
        service=service,
        serve=serve,
        tools=tools or service.host.tools,
        streams=Crowd(each=_STREAMS_EACH, all=_STREAMS, what="event streams"),
    )
    open_ = {_HEALTH, _READY}
    found: list[Route | Mount] = [
        Route(_HEALTH, _Fixed({"status": "ok"})),
        Route(_READY, _Readiness(service, ready)),
    ]
    if scrape:
        found.append(Route(_METRICS, _Metrics(scrape, open=serve.metrics == "open")))
        open_ |= {_METRICS} if serve.metrics == "open" else set()
    if metadata:
        for path in ("", MCP):
            where = f"/.well-known/oauth-protected-resource{path}"
            found.append(Route(where, _Fixed(metadata)))
            open_.add(where)
    if serve.api:
        found += routes(desk, OPERATIONS)
    if mcp and serve.mcp:
        found.append(Route(MCP, _Whole(mcp)))
    return Edge.around(
        _Alive(Router(found, redirect_slashes=False, default=_nothing), mcp),
        identity=identity,
        line=service.line,
        serve=serve,
        open=frozenset(open_),
    )


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:
    del scope, receive, send
    raise Refusal("not-found", "nothing is at that address")


@dataclass(frozen=True, slots=True)
class _Whole:
    """An application that answers for one path."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


@dataclass(frozen=True, slots=True)
class _Alive:
    """Gives the events of its life to the application that needs them."""

    app: ASGIApp
    lives: ASGIApp | None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        living = self.lives if scope["type"] == "lifespan" and self.lives else self.app
        await living(scope, receive, send)


@dataclass(frozen=True, slots=True)
class _Fixed:
    """Always the same document."""

    document: Mapping[str, JSON]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await answer({**self.document})(scope, receive, send)


@dataclass(frozen=True, slots=True)
class _Readiness:
    """Says whether a request for a run would be taken."""

    service: Service
    ready: Ready | None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        draining = self.service.line.closed
        found = dict(await self.ready()) if self.ready else {}
        is_ready = not draining and False not in found.values()
        document: dict[str, JSON] = {"ready": is_ready, "draining": draining, **found}
        await answer(document, 200 if is_ready else 503)(scope, receive, send)


@dataclass(frozen=True, slots=True)
class _Metrics:
    """What is measured, for who may look at everything."""

    scrape: Scrape
    open: bool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self.open and not scope["caxton.principal"].may("read"):
            raise ForbiddenError("this needs the scope read")
        media, text = await asyncio.to_thread(self.scrape)
        await Response(text, media_type=media)(scope, receive, send)
