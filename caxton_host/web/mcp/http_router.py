"""
The HTTP transport of the MCP server: chooses how each request is answered.

* JSON where the client takes nothing else, and where one answer is all there is;
* a stream, with reports before the answer, for a call if the client takes one;
* no session is kept: no ``DELETE``. A ``GET`` is for `notices`.

Closing the connection cancels its call. Clients of protocols before 2026-07-28
send a notification instead, on a connection of its own: so they are given a session
id, which only identifies the client, and holds what it said of itself.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, TypeAlias, cast

import anyio
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import DEFAULT_NEGOTIATED_VERSION
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from ...core.clients import Client
from ...core.grants.principals import Principal
from ...core.names import PROMPT, READ
from ...service.run_service import Service
from ...service.sessions import Sessions
from ..edge.event_stream import MEDIA
from .back_channel import BackChannel
from .elicit import modes_of
from .notices import notices
from .server import AGENTS, ASKING, AgentServer, Changes, Context, Key, scope_of
from .sessions import SessionServer

_Message: TypeAlias = MutableMapping[str, Any]
_Scope: TypeAlias = MutableMapping[str, Any]
_Receive: TypeAlias = Callable[[], Awaitable[_Message]]
_Send: TypeAlias = Callable[[_Message], Awaitable[None]]

_SESSION = b"mcp-session-id"
_VERSION = b"mcp-protocol-version"
_STREAM = MEDIA.encode()
_OLDER = {b"", *(version.encode() for version in HANDSHAKE_PROTOCOL_VERSIONS)}
_HELLO: dict[str, Any] = {
    "protocolVersion": DEFAULT_NEGOTIATED_VERSION,
    "capabilities": {},
    "clientInfo": {"name": "", "version": ""},
}
_CALLS = {"tools/call", READ, PROMPT}
#: What may take long.
_LONG = {"tools/call", "tasks/result"}
_CANCELLED = "the client cancelled the call"
_LONGEST, _LONGEST_ID = 500, 2048


class Served(Protocol):
    """Answers the requests of clients."""

    @property
    def server(self) -> Server[Any]:
        """Answers them."""
        ...

    @property
    def changes(self) -> Changes:
        """Watches what they are shown."""
        ...

    def running(self) -> AbstractAsyncContextManager[None]:
        """Serve while this is entered."""
        ...

    async def stop(self, key: Key, who: Principal, reason: str) -> None:
        """Cancel the call with that key, if it is in progress."""
        ...


class HttpRouter:
    """The ASGI application of what is served to clients."""

    def __init__(self, served: Served, body: int) -> None:
        self._served = served
        self._most = body
        self._back = BackChannel()
        self._plain, self._streaming = (
            StreamableHTTPSessionManager(
                served.server,
                json_response=plain,
                stateless=True,
                max_request_body_size=body,
            )
            for plain in (True, False)
        )

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Serve while this is entered."""
        async with (
            self._served.running(),
            self._plain.run(),
            self._streaming.run(),
        ):
            yield

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Answer a request."""
        headers, who = dict(scope["headers"]), scope["caxton.principal"]
        streaming = _STREAM in headers.get(b"accept", b"")
        is_older = headers.get(_VERSION, b"") in _OLDER
        if scope["method"] == "GET" and streaming and is_older and _SESSION in headers:
            name = scope.get("caxton.session", AGENTS)
            told = notices(self._served.changes, who, name, headers)
            await told(scope, receive, send)
            return
        if scope["method"] != "POST":
            await _refused(send, 405, (b"allow", b"GET, POST"))
            return
        ASKING.set(who)
        body = await _body(receive, self._most)
        if body is None:
            await _refused(send, 413)
            return
        if is_older:
            message = _decoded(body)
            streaming = streaming and message.get("method") in _LONG
            client = await self._of_session(scope, headers.get(_SESSION), message)
            if client and streaming:
                send, scope["caxton.ask"] = self._back.of_call(client, send)
            if message.get("method") == "initialize":
                message = _complete(message)
                send, body = _with_session(send, message), json.dumps(message).encode()
        again = _replayed(body, receive)
        if streaming:
            await self._streaming.handle_request(scope, again, send)
        else:
            await self._answer(scope, again, receive, send)

    async def _answer(
        self, scope: _Scope, again: _Receive, receive: _Receive, send: _Send
    ) -> None:
        """Answer with JSON; stop if the client hangs up."""

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await self._plain.handle_request(scope, again, send)
            tasks.cancel_scope.cancel()

    async def _of_session(
        self, scope: _Scope, session: bytes | None, message: dict[str, Any]
    ) -> tuple[str, ...]:
        """
        Register a call for cancellation by its session, or cancel it.

        Return what tells the client from others, if it has a session.
        """
        if session is None:
            return ()
        who: Principal = scope["caxton.principal"]
        name, version, asks = _client_of(session)
        scope["caxton.client"], scope["caxton.asks"] = (name, version), asks.split()

        client = who.key, session.decode("latin-1")

        def key(request: object) -> tuple[str, ...]:
            return *client, repr(request)

        if message.get("method") in _CALLS:
            scope["caxton.call"] = key(message.get("id"))
        elif message.get("method") == "notifications/cancelled":
            params = _object(message.get("params"))
            reason = str(params.get("reason") or _CANCELLED)[:_LONGEST]
            await self._served.stop(key(params.get("requestId")), who, reason)
        elif "method" not in message:
            self._back.replied(client, message)
        return client


async def _body(receive: _Receive, most: int) -> bytes | None:
    """Read the body of a request; ``None`` if it is too long."""
    body = bytearray()
    while len(body) <= most:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return bytes(body)
    return None


def _replayed(body: bytes, receive: _Receive) -> _Receive:
    left = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> _Message:
        return left.pop() if left else await receive()

    return replay


def _decoded(body: bytes) -> dict[str, Any]:
    """Parse a message; ``{}`` if it is invalid, which the SDK reports."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return _object(message)


def _object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _complete(message: dict[str, Any]) -> dict[str, Any]:
    """Return an ``initialize`` message completed with defaults."""
    return {**message, "params": _HELLO | _object(message.get("params"))}


def _with_session(send: _Send, hello: dict[str, Any]) -> _Send:
    async def sending(message: _Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == 200:  # noqa: PLR2004 -- OK
            session = b".".join((secrets.token_hex(16).encode(), _said(hello)))
            message["headers"] = [*message["headers"], (_SESSION, session)]
        await send(message)

    return sending


def _said(hello: dict[str, Any]) -> bytes:
    """Return what a client says of itself, as the part of a session id."""
    info = _object(hello["params"].get("clientInfo"))
    name, version = (str(info.get(key) or "") for key in ("name", "version"))
    client = Client.said(name, version, "")
    asks = " ".join(modes_of(_object(hello["params"].get("capabilities"))))
    said = f"{client.name}\n{client.version}\n{asks}".encode(errors="replace")
    return base64.urlsafe_b64encode(said).rstrip(b"=")


def _client_of(session: bytes) -> tuple[str, str, str]:
    """
    Return what the client said that a session id was given to.

    It is its name, its version, and how it can ask its user.
    """
    said = session.partition(b".")[2][:_LONGEST_ID]
    try:
        text = base64.urlsafe_b64decode(said + b"=" * (-len(said) % 4)).decode()
    except ValueError:
        return "", "", ""
    name, version, asks = (*text.split("\n", 2), "", "")[:3]
    return name, version, asks


async def _refused(send: _Send, status: int, *more: tuple[bytes, bytes]) -> None:
    headers = [*more, (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def agents_app(service: Service, *, body: int = 4 * 1024 * 1024) -> HttpRouter:
    """
    Return the ASGI application that serves agents over MCP.

    It works inside ``async with app.running():``, and once. Each request's scope has
    ``caxton.principal``, and may have ``caxton.ticket``.

    Args:
        service: Runs the agents.

        body: The most bytes of a request.
    """

    def principal(ctx: Context) -> Principal:
        who: Principal = scope_of(ctx)["caxton.principal"]
        return who

    return HttpRouter(AgentServer(service=service, principal=principal), body)


def sessions_app(
    sessions: Sessions, closed: Callable[[], bool], *, body: int = 4 * 1024 * 1024
) -> HttpRouter:
    """
    Return the ASGI application that serves sessions over MCP; see `agents_app`.

    Each request's scope has ``caxton.session`` too: the name of a session that its
    principal may open.

    Args:
        sessions: Makes the calls of their clients.

        closed: Returns whether the host is about to stop.

        body: The most bytes of a request.
    """

    def asking(ctx: Context) -> tuple[Principal, str]:
        scope = scope_of(ctx)
        return scope["caxton.principal"], scope["caxton.session"]

    return HttpRouter(
        SessionServer(sessions=sessions, asking=asking, closed=closed), body
    )
