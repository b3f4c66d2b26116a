"""
The outermost ring: behind it, every request is bounded and vouched for.

    headers -> names -> who asks -> room -> body -> ticket -> app
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

from ...config import Serve
from ...core.calls import JSON
from ...core.grants.principals import Principal
from ...errors import BadBytes, OverloadedError
from ...lib.logs import about
from ...runs.admission import Line
from .bodies import Bodies, GoneError, check_media, headers_of, parsed, replayed
from .concurrency import Crowd
from .identity import Identity
from .names import Names, check_site
from .problems import Refusal, problem_of
from .reauth import Lasting
from .sending import Answering, respond, rpc_error, send_whole

logger = logging.getLogger("caxton_host")

MCP = "/mcp"
_HELD = 256 * 1024 * 1024
_LARGE = 128 * 1024
_ALL = 2048
_OVERLOADED, _PARSE_ERROR, _INVALID = -32000, -32700, -32600

_MAY_SEND = (
    "authorization, content-type, idempotency-key, last-event-id, "
    "mcp-protocol-version, mcp-session-id, mcp-method, mcp-name"
)
_METHODS = "GET, POST, PUT, DELETE"
_BODILESS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(slots=True, kw_only=True)
class Edge:
    """
    An ASGI application around another, `app`.

    Attributes:
        identity: Finds out who asks.

        line: Who asks for a run gets a ticket there.

        names: Of the host, and of pages that may ask.

        bodies: Reads them.

        open: Paths for which nobody has to say who they are.

        crowd: Requests under way.
    """

    app: ASGIApp
    identity: Identity
    line: Line
    names: Names
    bodies: Bodies
    crowd: Crowd
    open: frozenset[str]

    @classmethod
    def around(
        cls,
        app: ASGIApp,
        *,
        identity: Identity,
        line: Line,
        serve: Serve,
        open: frozenset[str],  # noqa: A002 -- as the attribute
    ) -> Edge:
        """Return the edge that *serve* describes."""
        return cls(
            app=app,
            identity=identity,
            line=line,
            names=Names(
                bound=serve.host,
                hosts=tuple(name.lower() for name in serve.allowed_hosts),
                origins=serve.allowed_origins,
            ),
            bodies=Bodies(most=serve.body, all=max(_HELD, 2 * serve.body)),
            crowd=Crowd(
                each=serve.concurrency, all=max(_ALL, 2 * (serve.runs + serve.queue))
            ),
            open=open,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        answering = Answering(send, unread=scope["method"] not in _BODILESS)
        try:
            await self._checked(scope, receive, answering)
        except GoneError:
            logger.debug("a client is gone")
        except Exception as exc:
            if answering.started:
                raise
            who: Principal | None = scope.get("caxton.principal")
            problem = problem_of(exc, inside=who is not None and who.may("admin"))
            await respond(answering, problem, scope["path"])

    async def _checked(
        self, scope: Scope, receive: Receive, answering: Answering
    ) -> None:
        headers = headers_of(scope)
        origin = self._origin(scope, headers)
        if origin:
            answering.readable_by(origin)
        self.bodies.check(headers)
        if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            await _preflight(answering, allowed=origin is not None)
            return
        if scope["path"] in self.open and scope["method"] in _BODILESS:
            await self.app(scope, receive, answering)
            return
        if origin is None:
            check_site(headers.get("sec-fetch-site", []))
        said = _authorization(headers)
        who = await self.identity.principal(said)
        send = Lasting(answering, lambda: self.identity.principal(said), self.line.now)
        key = who.key
        scope["caxton.principal"] = who
        with self.crowd.one(key), about(principal=key):
            if scope["method"] in _BODILESS:
                await self.app(scope, receive, send)
            else:
                async with self.bodies.read(receive) as body:
                    answering.unread = False
                    await self._with_body(scope, headers, body, receive, send)
        if send.refused:
            raise send.refused

    async def _with_body(
        self,
        scope: Scope,
        headers: Mapping[str, Sequence[str]],
        body: bytes,
        receive: Receive,
        send: Send,
    ) -> None:
        again = replayed(body, receive)
        if scope["path"].rstrip("/") == MCP:
            if scope["method"] == "POST":
                check_media(headers.get("content-type", []))
            await self._mcp(scope, body, again, send)
            return
        if body:
            check_media(headers.get("content-type", []))
            scope["caxton.body"] = await self._parsed(body)
        await self.app(scope, again, send)

    def _origin(self, scope: Scope, headers: Mapping[str, Sequence[str]]) -> str | None:
        """Return the origin whose pages may read the answer; refuse other names."""
        local = (scope.get("server") or ("", None))[0]
        hosts = headers.get("host", [])
        self.names.check_host(hosts, local)
        scheme = scope.get("scheme", "http")
        origins = headers.get("origin", [])
        return self.names.check_origin(origins, local, scheme=scheme, host=hosts[0])

    async def _parsed(self, body: bytes) -> JSON:
        """Return what a body holds; a large one holds nobody up."""
        if len(body) > _LARGE:
            return await asyncio.to_thread(parsed, body, limit=self.bodies.most)
        return parsed(body, limit=self.bodies.most)

    async def _mcp(
        self, scope: Scope, body: bytes, receive: Receive, send: Send
    ) -> None:
        """Hand on a message of the Model Context Protocol; a call with a ticket."""
        try:
            message = await self._parsed(body) if body else None
        except BadBytes as exc:
            await rpc_error(send, 400, None, _PARSE_ERROR, str(exc), {})
            return
        if isinstance(message, list):
            await rpc_error(send, 400, None, _INVALID, "one message a request", {})
            return
        if not isinstance(message, dict) or message.get("method") != "tools/call":
            await self.app(scope, receive, send)
            return
        try:
            ticket = self.line.take(scope["caxton.principal"].key)
        except OverloadedError as exc:
            found = problem_of(exc)
            await rpc_error(
                send,
                found.status,
                message.get("id"),
                _OVERLOADED,
                found.detail,
                {**(found.headers or {})},
            )
            return
        scope["caxton.ticket"] = ticket
        try:
            await self.app(scope, receive, send)
        finally:
            if not ticket.kept:
                ticket.leave()


def _authorization(headers: Mapping[str, Sequence[str]]) -> str | None:
    values = headers.get("authorization", [])
    if len(values) > 1:
        raise Refusal("bad-request", "a request has one Authorization header")
    return values[0] if values else None


async def _preflight(send: Send, *, allowed: bool) -> None:
    if not allowed:
        raise Refusal("bad-origin", "pages of that origin may not read answers")
    headers = {
        "access-control-allow-methods": _METHODS,
        "access-control-allow-headers": _MAY_SEND,
        "access-control-max-age": "600",
    }
    await send_whole(send, 204, headers, b"")
