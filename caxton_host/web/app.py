"""The ASGI application of a host: everything served on one port."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from ..config import Config, Serve
from ..core.calls import JSON
from ..core.grants.principals import Principal
from ..errors import ForbiddenError, StoreError
from ..ports.serving import Keeper, Keeping
from ..ports.tools import ToolSource
from ..service.run_service import Service
from ..service.verifying import Verifying
from .api.openapi import OPERATIONS, document
from .api.operations import (
    PREFIX,
    ApiContext,
    answer,
    read_only,
    routes,
    text_of,
    wrong_method,
)
from .edge.authentication import Identity, ThawedIdentity, documented, metadata
from .edge.messages import Refusal, why
from .edge.middleware import MCP, ConcurrencyLimit, Edge, Requested, unrequested
from .ui.console import Console
from .ui.visits import Visits

Scrape: TypeAlias = Callable[[], tuple[str, bytes]]
Ready: TypeAlias = Callable[[], Awaitable[Mapping[str, JSON]]]

_HEALTH, _READY, _METRICS = "/healthz", "/readyz", "/metrics"
_OPENAPI = f"{PREFIX}/openapi.json"
_READS = ("GET", "HEAD")
_STREAMS_EACH, _STREAMS = 32, 256
#: Seconds that the log may take until the host is not ready.
_PATIENCE = 5.0
#: Seconds for which it is known whether the log is well.
_FRESH = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """
    What verifies and maintains the log of a host.

    Attributes:
        verifying: Verifies it.

        keeping: See `Keeping`; ``None``: nothing can be changed.

        reading: Why not.
    """

    verifying: Verifying
    keeping: Keeping | None = None
    reading: str = ""


@contextlib.asynccontextmanager
async def _unkept(why: str, _actor: dict[str, JSON]) -> AsyncGenerator[Keeper]:
    raise read_only(why or "the log is not kept by this process")
    yield


def application(  # noqa: PLR0913 -- each may be left out
    service: Service,
    identity: Identity,
    serve: Serve,
    *,
    mcp: ASGIApp | None = None,
    sessions: ASGIApp | None = None,
    scrape: Scrape | None = None,
    ready: Ready | None = None,
    tools: ToolSource | None = None,
    environ: Mapping[str, str] = os.environ,
    visits: Visits | None = None,
    requested: Requested = unrequested,
    upkeep: Upkeep | None = None,
) -> Edge:
    """
    Return the application: control API, console, MCP, health and metrics.

    Args:
        service: Runs the agents.

        identity: Authenticates callers.

        serve: How it is served.

        mcp: Serves agents as tools, at ``/mcp``.

        sessions: Serves the sessions, at ``/mcp/NAME``.

        scrape: Returns the metrics: their media type, and text.

        ready: Returns what is ready; each value that is ``False`` is not.

        tools: What servers offer, whether it was accepted or not.

        environ: Where variables of the configuration are looked up.

        visits: Who is signed in to the console; ``None``: it is not served.

        requested: Called with each request that was answered.

        upkeep: Verifies and maintains the log; ``None``: nothing does.
    """
    upkeep = upkeep or Upkeep(verifying=Verifying(now=service.host.clock.now))
    desk = ApiContext(
        service=service,
        tools=tools or service.host.tools,
        environ=environ,
        edit=serve.edit,
        streams=ConcurrencyLimit(
            each=_STREAMS_EACH, all=_STREAMS, what="event streams"
        ),
        verifying=upkeep.verifying,
        keeping=upkeep.keeping or partial(_unkept, upkeep.reading),
        anybody=serve.allow_unauthenticated,
        reading=upkeep.reading,
    )
    console = Console(desk=desk, visits=visits) if visits else None
    open_ = _open(serve, ready=_Readiness(service, ready))
    if console:
        open_ += console.open
    # Looked through one after the other: what is asked for most comes first.
    first = [Route(MCP, mcp)] if mcp and serve.mcp else []
    if sessions and serve.mcp:
        first.append(
            Route(f"{MCP}/{{session}}", _Opened(sessions, service.config)),
        )
    behind = [_read(_METRICS, _Metrics(scrape, serve))] if scrape else []
    if serve.api:
        behind += routes(desk, OPERATIONS)
    if console:
        behind += console.routes
    to_all = {_METRICS} if serve.metrics == "open" else set[str]()
    return Edge.around(
        Router([*first, *open_, *behind], redirect_slashes=False, default=_nothing),
        identity=ThawedIdentity(identity, lambda: service.host.freezes.now),
        line=service.line,
        serve=serve,
        open=frozenset({route.path for route in open_} | to_all),
        pages=console,
        names=[visits.name] if visits and visits.name else (),
        requested=requested,
    )


def _open(serve: Serve, *, ready: _Readiness) -> list[Route]:
    """Return the routes that need no authentication."""
    found = [_read(_HEALTH, _always({"status": "ok"})), _read(_READY, ready)]
    if serve.oauth and (about := metadata(serve.oauth)):
        told = _always(about)
        found += [_read(path, told) for path in documented(serve.oauth, MCP)]
    if serve.api:
        found.append(_read(_OPENAPI, _always(document())))
    return found


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:
    del scope, receive, send
    raise Refusal(
        "not-found", "nothing is at that address", fix=f"see {_OPENAPI} for what is"
    )


@dataclass(frozen=True, slots=True)
class _Opened:
    """Sessions, for principals that may open them: no others exist for these."""

    app: ASGIApp
    config: Callable[[], Config]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name: str = scope["path_params"]["session"]
        who: Principal = scope["caxton.principal"]
        if not (who.opens(name) and name in self.config().sessions):
            await _nothing(scope, receive, send)
        scope["caxton.session"] = name
        await self.app(scope, receive, send)


def _read(path: str, app: ASGIApp) -> Route:
    return Route(path, _Readable(app))


@dataclass(frozen=True, slots=True)
class _Readable:
    """An application that only answers GET and HEAD."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in _READS:
            raise wrong_method(scope["method"], _READS)
        await self.app(scope, receive, send)


def _always(said: Mapping[str, JSON]) -> Response:
    return Response(text_of({**said}), media_type="application/json")


@dataclass(slots=True)
class _Readiness:
    """
    Answers whether the host would accept a run.

    The log is checked at most once a second.
    """

    service: Service
    ready: Ready | None
    _one: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _why: str | None = field(default=None, init=False)
    _known_at: float | None = field(default=None, init=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        draining = self.service.line.closed
        reason = await self._wrong()
        found: dict[str, JSON] = {"store": reason is None}
        if reason:
            found["reason"] = reason
        if self.ready:
            found |= await self.ready()
        is_ready = not draining and not any(value is False for value in found.values())
        document: dict[str, JSON] = {"ready": is_ready, "draining": draining, **found}
        await answer(document, 200 if is_ready else 503)(scope, receive, send)

    async def _wrong(self) -> str | None:
        """Return the problem of the log in public terms, without its URL."""
        async with self._one:
            now = asyncio.get_running_loop().time()
            if self._known_at is None or now - self._known_at >= _FRESH:
                self._why = await self._looked()
                self._known_at = now
            return self._why

    async def _looked(self) -> str | None:
        try:
            async with asyncio.timeout(_PATIENCE):
                await self.service.store.health.check()
        except TimeoutError:
            return "the log does not answer"
        except StoreError as exc:
            return why(exc)
        return None


@dataclass(frozen=True, slots=True)
class _Metrics:
    """Metrics, for principals that may read all runs."""

    scrape: Scrape
    serve: Serve

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_open = self.serve.metrics == "open"
        # They count runs of all agents.
        if not (is_open or scope["caxton.principal"].reads_all):
            raise ForbiddenError(
                "the scope read is required, for all agents and without a tenant",
                fix="use a token that has it",
            )
        media, text = await asyncio.to_thread(self.scrape)
        await Response(text, media_type=media)(scope, receive, send)
