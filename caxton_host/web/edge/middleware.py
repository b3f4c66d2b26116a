"""
The outermost middleware: bounds, authenticates and counts every request.

    headers -> names -> authentication -> limit -> body -> ticket -> app
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Generator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_network
from typing import Protocol, TypeAlias
from urllib.parse import parse_qsl

from starlette.types import ASGIApp, Receive, Scope, Send

from ...config import Serve
from ...core.calls import JSON
from ...core.grants.content import COMPLETE
from ...core.grants.principals import Principal
from ...core.names import PROMPT, READ
from ...core.text.urls import is_loopback
from ...errors import BadBytes, ForbiddenError, OverloadedError
from ...lib.logs import about
from ...runs.admission import RunQueue
from .authentication import Identity, ReauthenticatedSend
from .failures import Network, note_client
from .messages import (
    Answering,
    Bodies,
    GoneError,
    Problem,
    Refusal,
    check_media,
    headers_of,
    parsed,
    problem_of,
    replayed,
    respond,
    rpc_error,
    send_whole,
)

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_OWN = frozenset({"same-origin", "none"})
_HOST = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9._-]{1,253})(?::([0-9]{1,5}))?")
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """
    The accepted host names and origins.

    Attributes:
        bound: The address that is listened on.

        hosts: Other names, each with its port or for any.

        origins: Origins of pages that may ask.
    """

    bound: str
    hosts: Collection[str] = ()
    origins: Collection[str] = ()

    def check_host(self, values: Sequence[str], local: str) -> None:
        """
        Check that a request is for this host.

        Args:
            values: Its ``Host`` headers.

            local: The address that it came to.

        Raises:
            Refusal: It is not.
        """
        if len(values) != 1:
            raise Refusal("bad-request", "a request has one Host header")
        value = values[0].lower()
        if not (self._ours(value, local) or value in self.hosts):
            raise Refusal(
                "misdirected",
                "this host does not have that name",
                fix="add the name to allowed_hosts in [serve]",
            )

    def _ours(self, value: str, local: str) -> bool:
        name = _name(value)
        if name is None:
            return False
        known = {self.bound, local, *self.hosts}
        return name in known or (is_loopback(local) and name in _LOOPBACK)

    def check_origin(
        self, values: Sequence[str], local: str, *, scheme: str, host: str
    ) -> str | None:
        """
        Check the origin; return it if its pages may read the answer.

        Args:
            values: The ``Origin`` headers of a request.

            local: The address that it came to.

            scheme: How it came: ``http`` or ``https``.

            host: Its ``Host`` header.

        Raises:
            Refusal: The origin is not allowed.
        """
        if not values:
            return None
        if len(values) == 1 and values[0] in self.origins:
            return values[0]
        if len(values) == 1 and self._is_own(values[0].lower(), local, scheme, host):
            # The browser lets a page read what its own host answers.
            return None
        raise Refusal(
            "bad-origin",
            "that origin is not allowed",
            fix="add the origin to allowed_origins in [serve]",
        )

    def _is_own(self, origin: str, local: str, scheme: str, host: str) -> bool:
        """Return whether an origin has this scheme, an own name, and this port."""
        theirs, _, where = origin.partition("://")
        return (
            theirs == scheme
            and (self._ours(where, local) or where in self.hosts)
            and _port(where, scheme) == _port(host.lower(), scheme)
        )


def check_site(values: Sequence[str]) -> None:
    """
    Check ``Sec-Fetch-Site``: no page of another origin may send the request.

    Raises:
        Refusal: One does.
    """
    if any(value not in _OWN for value in values):
        raise Refusal("bad-origin", "requests from pages of other origins are refused")


def _name(value: str) -> str | None:
    """Return the name or address in the value of a ``Host`` header."""
    match = _HOST.fullmatch(value)
    return match[1].strip("[]") if match else None


def _port(value: str, scheme: str) -> int | None:
    """Return the port in the value of a ``Host`` header, or that of the scheme."""
    match = _HOST.fullmatch(value)
    return match and int(match[2] or _PORTS[scheme])


@dataclass(slots=True, kw_only=True)
class ConcurrencyLimit:
    """
    Limits concurrent activities, per principal and in total.

    Attributes:
        each: Limit for one principal.

        all: Limit for all principals.

        what: The name of the activities, for messages.

        present: Activities in progress.
    """

    each: int
    all: int
    what: str = "requests"
    present: int = field(default=0, init=False)
    _inside: Counter[str] = field(default_factory=Counter[str], init=False)

    @contextmanager
    def one(self, who: str) -> Generator[None]:
        """
        Count one activity while the block runs.

        Raises:
            OverloadedError: They are too many.
        """
        if self._inside[who] >= self.each:
            raise OverloadedError(
                f"{self.each} of your {self.what} are in progress, which is the limit",
                retry_after=1,
                whose="principal",
            )
        if self.present >= self.all:
            raise OverloadedError(
                f"too many {self.what} are in progress", retry_after=1, whose="host"
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


logger = logging.getLogger("caxton_host")

MCP = "/mcp"
_HELD = 256 * 1024 * 1024
_LARGE = 128 * 1024
_ALL = 2048
#: Streams of notifications of one principal.
_STREAMS = 64
_OVERLOADED, _PARSE_ERROR, _INVALID = -32000, -32700, -32600

_MAY_SEND = (
    "authorization, content-type, idempotency-key, last-event-id, "
    "mcp-protocol-version, mcp-session-id, mcp-method, mcp-name"
)
_METHODS = "GET, POST, PUT, DELETE"
#: The largest sign-in form, in bytes, and the most fields of a form.
_FORM, _FIELDS = 20_000, 100
_FORM_MEDIA = "application/x-www-form-urlencoded"
_BODILESS = frozenset({"GET", "HEAD", "OPTIONS"})
#: What a session asks of its servers besides calls.
_ASKS = (READ, PROMPT, COMPLETE)


#: Called with method, scheme, template of the route, status (0: none was sent), and
#: seconds.
Requested: TypeAlias = Callable[[str, str, str, int, float], None]


def unrequested(
    method: str, scheme: str, route: str, status: int, seconds: float
) -> None:
    """Ignore a request."""
    del method, scheme, route, status, seconds


class Pages(Protocol):
    """The pages for people, which have credentials, forms and errors of their own."""

    def covers(self, path: str) -> bool:
        """Return whether a path is that of a page."""
        ...

    async def principal(self, headers: Mapping[str, Sequence[str]]) -> Principal:
        """
        Return who asks for a page.

        Raises:
            Unauthenticated: The caller has to sign in.
        """
        ...

    async def refuse(self, problem: Problem, scope: Scope, send: Send) -> None:
        """Show a problem."""
        ...


@dataclass(slots=True, kw_only=True)
class Edge:
    """
    The middleware around the application `app`.

    Attributes:
        identity: Authenticates callers.

        line: Gives tickets to requests for runs.

        names: Of the host, and of pages that may ask.

        bodies: Reads them.

        open: Paths that need no authentication.

        pages: For people.

        proxies: The networks of proxies, whose ``X-Forwarded-For`` is believed.

        limit: Requests under way.

        requested: Called with each request that was answered: its method, its
            scheme, the template of its route, the status, and the seconds. One that is
            refused before it is routed has no route.

        streams: Streams that clients of MCP open to be told of changes. They are no
            requests, since they last: clients that share a token could not call.
    """

    app: ASGIApp
    identity: Identity
    line: RunQueue
    names: Names
    bodies: Bodies
    limit: ConcurrencyLimit
    streams: ConcurrencyLimit
    open: frozenset[str]
    pages: Pages | None = None
    requested: Requested = unrequested
    proxies: Sequence[Network] = ()
    _forms: Bodies = field(init=False)

    def __post_init__(self) -> None:
        self._forms = Bodies(most=_FORM, all=100 * _FORM)

    @classmethod
    def around(  # noqa: PLR0913 -- what it is made of
        cls,
        app: ASGIApp,
        *,
        identity: Identity,
        line: RunQueue,
        serve: Serve,
        open: frozenset[str],  # noqa: A002 -- as the attribute
        pages: Pages | None = None,
        names: Sequence[str] = (),
        requested: Requested = unrequested,
    ) -> Edge:
        """Return the middleware configured by *serve*."""
        return cls(
            app=app,
            identity=identity,
            line=line,
            names=Names(
                bound=serve.host,
                hosts=tuple(name.lower() for name in [*serve.allowed_hosts, *names]),
                origins=serve.allowed_origins,
            ),
            bodies=Bodies(most=serve.body, all=max(_HELD, 2 * serve.body)),
            limit=ConcurrencyLimit(
                each=serve.each, all=max(_ALL, 2 * (serve.runs + serve.queue))
            ),
            streams=ConcurrencyLimit(each=_STREAMS, all=_ALL, what="streams"),
            open=open,
            pages=pages,
            requested=requested,
            proxies=[*map(ip_network, serve.trusted_proxies)],
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        answering = Answering(send, unread=scope["method"] not in _BODILESS)
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await self._answer(scope, receive, answering)
        finally:
            # Of the application, whatever that is: it has no template without a path.
            route = getattr(scope.get("route"), "path", "")
            took = loop.time() - began
            asked = scope["method"], scope.get("scheme", "http"), route
            self.requested(*asked, answering.status, took)

    async def _answer(
        self, scope: Scope, receive: Receive, answering: Answering
    ) -> None:
        try:
            await self._checked(scope, receive, answering)
        except GoneError:
            logger.debug("a client is gone")
        except Exception as exc:
            if answering.started:
                raise
            who: Principal | None = scope.get("caxton.principal")
            problem = problem_of(exc, inside=who is not None and who.may("admin"))
            if pages := self._pages(scope):
                await pages.refuse(problem, scope, answering)
            else:
                await respond(answering, problem, scope["path"])

    def _pages(self, scope: Scope) -> Pages | None:
        is_page = self.pages is not None and self.pages.covers(scope["path"])
        return self.pages if is_page else None

    async def _checked(
        self, scope: Scope, receive: Receive, answering: Answering
    ) -> None:
        headers = headers_of(scope)
        note_client(scope, headers, self.proxies)
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
        pages = self._pages(scope)
        if origin is None or pages:
            check_site(headers.get("sec-fetch-site", []))
        if pages and scope["path"] in self.open:
            await self._signing_in(scope, headers, receive, answering)
            return
        principal = self._identified(pages, headers)
        who = await principal()
        send = ReauthenticatedSend(answering, principal, self.line.now)
        if who.is_client and not _is_session(scope["path"]):
            raise ForbiddenError(
                "these credentials are for a session only",
                fix=f"send them to {MCP}/{who.sessions[0]}",
            )
        key = who.key
        scope["caxton.principal"] = who
        listens = scope["method"] == "GET" and _is_mcp(scope["path"])
        limit = self.streams if listens else self.limit
        with limit.one(key), about(principal=key):
            if scope["method"] in _BODILESS:
                await self.app(scope, receive, send)
            else:
                async with self.bodies.read(receive) as body:
                    answering.unread = False
                    await self._with_body(scope, headers, body, receive, send)
        if send.refused:
            raise send.refused

    def _identified(
        self, pages: Pages | None, headers: Mapping[str, Sequence[str]]
    ) -> Callable[[], Awaitable[Principal]]:
        """Return what authenticates the caller, now and again later."""
        if pages:
            return partial(pages.principal, headers)
        return partial(self.identity.principal, _authorization(headers))

    async def _signing_in(
        self,
        scope: Scope,
        headers: Mapping[str, Sequence[str]],
        receive: Receive,
        answering: Answering,
    ) -> None:
        """Read the sign-in form of a caller who is not authenticated."""
        self._forms.check(headers)
        async with self._forms.read(receive) as body:
            answering.unread = False
            _with_form(scope, headers, body)
            await self.app(scope, receive, answering)

    async def _with_body(
        self,
        scope: Scope,
        headers: Mapping[str, Sequence[str]],
        body: bytes,
        receive: Receive,
        send: Send,
    ) -> None:
        again = replayed(body, receive)
        if _is_mcp(scope["path"]):
            if scope["method"] == "POST":
                check_media(headers.get("content-type", []))
            await self._mcp(scope, body, again, send)
            return
        if self._pages(scope):
            _with_form(scope, headers, body)
        elif body:
            check_media(headers.get("content-type", []))
            scope["caxton.body"] = await self._parsed(body)
        await self.app(scope, again, send)

    def _origin(self, scope: Scope, headers: Mapping[str, Sequence[str]]) -> str | None:
        """Check host and origin; return the origin that may read the answer."""
        local = (scope.get("server") or ("", None))[0]
        hosts = headers.get("host", [])
        self.names.check_host(hosts, local)
        scheme = scope.get("scheme", "http")
        origins = headers.get("origin", [])
        return self.names.check_origin(origins, local, scheme=scheme, host=hosts[0])

    async def _parsed(self, body: bytes) -> JSON:
        """Parse a body; a large one in a thread."""
        if len(body) > _LARGE:
            return await asyncio.to_thread(parsed, body, limit=self.bodies.most)
        return parsed(body, limit=self.bodies.most)

    async def _mcp(
        self, scope: Scope, body: bytes, receive: Receive, send: Send
    ) -> None:
        """Forward an MCP message; a call gets a ticket."""
        try:
            message = await self._parsed(body) if body else None
        except BadBytes as exc:
            await rpc_error(send, 400, None, _PARSE_ERROR, str(exc), {})
            return
        if isinstance(message, list):
            await rpc_error(
                send, 400, None, _INVALID, "send one message per request", {}
            )
            return
        method = message.get("method") if isinstance(message, dict) else None
        asks = method in _ASKS and _is_session(scope["path"])
        if not isinstance(message, dict) or not (asks or method == "tools/call"):
            await self.app(scope, receive, send)
            return
        try:
            ticket = await self.line.enter(scope["caxton.principal"])
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


def _with_form(scope: Scope, headers: Mapping[str, Sequence[str]], body: bytes) -> None:
    """Add the fields of a form to what a page is asked."""
    types = headers.get("content-type", [])
    if [one.partition(";")[0].strip().lower() for one in types] != [_FORM_MEDIA]:
        raise Refusal("bad-media", "a page takes forms", fix="send it from the page")
    try:
        fields = parse_qsl(
            body.decode(), keep_blank_values=True, max_num_fields=_FIELDS
        )
    except ValueError:
        raise Refusal("bad-request", "the form cannot be read") from None
    scope["caxton.form"] = dict(fields)


def _is_mcp(path: str) -> bool:
    return path == MCP or _is_session(path)


def _is_session(path: str) -> bool:
    """Return whether a path can be that of a session."""
    return path.startswith(f"{MCP}/")


def _authorization(headers: Mapping[str, Sequence[str]]) -> str | None:
    values = headers.get("authorization", [])
    if len(values) > 1:
        raise Refusal("bad-request", "a request has one Authorization header")
    return values[0] if values else None


async def _preflight(send: Send, *, allowed: bool) -> None:
    if not allowed:
        raise Refusal("bad-origin", "that origin may not read responses")
    headers = {
        "access-control-allow-methods": _METHODS,
        "access-control-allow-headers": _MAY_SEND,
        "access-control-max-age": "600",
    }
    await send_whole(send, 204, headers, b"")
