"""
The outermost ring: behind it, every request is bounded and vouched for.

    names -> headers -> who asks -> room -> body -> ticket -> app
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..admission import Line
from ..codec import load_json
from ..config import Serve
from ..core.calls import JSON
from ..core.principals import Principal
from ..errors import BadBytes, OverloadedError
from ..logs import about
from .bodies import Bodies, headers_of, replayed
from .identity import Identity
from .lasting import Lasting
from .names import Names
from .problems import Problem, Refusal, problem_of

__all__ = ["Crowd", "Edge", "respond"]

logger = logging.getLogger("caxton_host")

MCP = "/mcp"
_HELD = 256 * 1024 * 1024
_ALL = 2048
_PATIENCE = 60.0
_OVERLOADED, _PARSE_ERROR, _INVALID = -32000, -32700, -32600

_SECURITY: Mapping[str, str] = {
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
}
_MAY_SEND = "authorization, content-type, idempotency-key, last-event-id"
_METHODS = "GET, POST, PUT, DELETE"
_BODILESS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(slots=True, kw_only=True)
class Crowd:
    """
    How many do something at a time.

    Attributes:
        each: Most of one principal.

        all: Most of everybody.

        what: What they do, for people.

        present: How many are at it.
    """

    each: int
    all: int
    what: str = "requests"
    present: int = field(default=0, init=False)
    _inside: Counter[str] = field(default_factory=Counter[str], init=False)

    @contextmanager
    def one(self, who: str) -> Generator[None]:
        """
        Count one more, for as long as the block lasts.

        Raises:
            OverloadedError: They are too many.
        """
        if self._inside[who] >= self.each:
            raise OverloadedError(
                f"{self.each} of your {self.what} are under way: that is the most",
                retry_after=1,
                whose="principal",
            )
        if self.present >= self.all:
            raise OverloadedError(
                f"too many {self.what} are under way", retry_after=1, whose="host"
            )
        self._inside[who] += 1
        self.present += 1
        try:
            yield
        finally:
            self.present -= 1
            self._inside[who] -= 1
            if not self._inside[who]:
                del self._inside[who]


@dataclass(slots=True)
class _Answering:
    """Sends an answer, with what every answer has; and does not wait for ever."""

    send: Send
    headers: dict[str, str]
    started: bool = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            given = [*message.get("headers", [])]
            names = {name.lower() for name, _ in given}
            message["headers"] = [
                *given,
                *(
                    (name.encode(), value.encode("latin-1"))
                    for name, value in self.headers.items()
                    if name.encode() not in names
                ),
            ]
        try:
            async with asyncio.timeout(_PATIENCE):
                await self.send(message)
        except TimeoutError:
            raise ConnectionResetError("nobody reads the answer") from None


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
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        answering = _Answering(send, dict(_SECURITY))
        try:
            await self._checked(scope, receive, answering)
        except ConnectionError:
            logger.debug("a client is gone")
        except Exception as exc:
            problem = problem_of(exc)
            if answering.started:
                raise
            if scope["method"] not in _BODILESS:
                # What is left of its body is not read.
                answering.headers["connection"] = "close"
            await respond(answering, problem, scope["path"])

    async def _checked(
        self, scope: Scope, receive: Receive, answering: _Answering
    ) -> None:
        headers = headers_of(scope)
        local = (scope.get("server") or ("", None))[0]
        self.names.check_host(headers.get("host", []), local)
        origin = self.names.check_origin(headers.get("origin", []), local)
        if origin:
            answering.headers |= {
                "access-control-allow-origin": origin,
                "access-control-expose-headers": "location, retry-after",
                "vary": "origin",
            }
            answering.headers.pop("cross-origin-resource-policy")
        self.bodies.check(headers)
        if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            await _preflight(answering, allowed=origin is not None)
            return
        if scope["path"] in self.open and scope["method"] in _BODILESS:
            await self.app(scope, receive, answering)
            return
        said = _authorization(headers)
        who = await self.identity.principal(said)
        send = Lasting(answering, lambda: self.identity.principal(said), self.line.now)
        key = f"{who.kind}/{who.id}"
        scope["caxton.principal"] = who
        with self.crowd.one(key), about(principal=key):
            if scope["method"] in _BODILESS:
                await self.app(scope, receive, send)
                return
            async with self.bodies.read(receive) as body:
                again = replayed(body, receive)
                if scope["path"].rstrip("/") == MCP:
                    await self._mcp(scope, body, who, again, send)
                    return
                scope["caxton.body"] = self._value(headers, body)
                await self.app(scope, again, send)

    def _value(self, headers: Mapping[str, Sequence[str]], body: bytes) -> JSON:
        """Return what the body of a request holds; ``None`` if it has none."""
        if not body:
            return None
        media = headers.get("content-type", [""])
        if len(media) != 1 or media[0].partition(";")[0].strip().lower() != (
            "application/json"
        ):
            raise Refusal("bad-media", "a body is application/json")
        return load_json(body, limit=self.bodies.most)

    async def _mcp(
        self, scope: Scope, body: bytes, who: Principal, receive: Receive, send: Send
    ) -> None:
        """Hand on a message of the Model Context Protocol; a call with a ticket."""
        try:
            message = load_json(body, limit=self.bodies.most) if body else None
        except BadBytes as exc:
            await _rpc_error(send, 400, None, _PARSE_ERROR, str(exc), {})
            return
        if isinstance(message, list):
            await _rpc_error(send, 400, None, _INVALID, "one message a request", {})
            return
        if not isinstance(message, dict) or message.get("method") != "tools/call":
            await self.app(scope, receive, send)
            return
        try:
            ticket = self.line.take(f"{who.kind}/{who.id}")
        except OverloadedError as exc:
            found = problem_of(exc)
            await _rpc_error(
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
    await _send(send, 204, headers, b"")


async def respond(send: Send, problem: Problem, instance: str) -> None:
    """Send a problem document about the request for *instance*."""
    headers = {**(problem.headers or {}), "content-type": "application/problem+json"}
    body = json.dumps(problem.document(instance), separators=(",", ":")).encode()
    await _send(send, problem.status, headers, body)


async def _rpc_error(  # noqa: PLR0913, PLR0917 -- what an error of JSON-RPC is
    send: Send, status: int, id_: JSON, code: int, message: str, headers: dict[str, str]
) -> None:
    document = {
        "jsonrpc": "2.0",
        "id": id_,
        "error": {"code": code, "message": message},
    }
    headers["content-type"] = "application/json"
    await _send(send, status, headers, json.dumps(document).encode())


async def _send(
    send: Send, status: int, headers: Mapping[str, str], body: bytes
) -> None:
    pairs = [(k.encode(), v.encode("latin-1")) for k, v in headers.items()]
    if status != 204:  # noqa: PLR2004 -- no content, no length
        pairs.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
