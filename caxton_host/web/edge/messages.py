"""
HTTP messages: problem documents (RFC 9457), bounded requests, and answers.

Every expected error has a kind in a table here. Unexpected errors are logged, and
clients get no detail of them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from json import JSONDecodeError
from typing import TypeAlias

from starlette.types import Message, Receive, Scope, Send

from ...core.calls import JSON
from ...errors import (
    BadBytes,
    BusyError,
    CaxtonError,
    CursorError,
    ForbiddenError,
    LeaseLost,
    LogBrokenError,
    LogMovedError,
    LogSetBackError,
    NotFoundError,
    NotKeptError,
    OverloadedError,
    ReadOnlyError,
    SandboxError,
    ServerUnavailable,
    StaleSignInError,
    StoreError,
    Suspend,
    ToolError,
    UsageError,
)
from ...lib.codec import DEPTH, load_json
from .authentication import Unauthenticated
from .failures import TooManyFailures

logger = logging.getLogger("caxton_host")

Headers: TypeAlias = Mapping[str, str]

#: Each kind of problem, its status, and its title.
KINDS: Mapping[str, tuple[int, str]] = {
    "bad-request": (400, "The request is not well-formed"),
    "unauthenticated": (401, "The request is not authenticated"),
    "forbidden": (403, "The caller may not do that"),
    "stale-sign-in": (403, "The caller must sign in again"),
    "bad-origin": (403, "The origin is not allowed"),
    "not-found": (404, "The resource does not exist"),
    "bad-method": (405, "The method is not allowed"),
    "slow": (408, "The request took too long to arrive"),
    "conflict": (409, "The request conflicts with the current state"),
    "waiting": (409, "A person must decide first"),
    "erased": (410, "It was erased, or never recorded"),
    "too-large": (413, "The request is too large"),
    "long-target": (414, "The URL is too long"),
    "bad-media": (415, "The media type is not supported"),
    "misdirected": (421, "The request is for another host"),
    "refused": (422, "The request cannot be carried out"),
    "overloaded-principal": (429, "Too many requests"),
    "large-headers": (431, "The headers are too large"),
    "internal": (500, "The host failed"),
    "broken-log": (500, "The stored log does not verify"),
    "server-unavailable": (502, "A tool server does not answer"),
    "overloaded": (503, "The host is overloaded"),
    "store": (503, "The log is unavailable"),
    "sandbox": (503, "The sandbox is unavailable"),
    "unusable": (503, "The agent cannot be run"),
}

_ASK, _LATER = "ask the operator of the host", "try again later"
#: What can be done about each kind, where an error says nothing else.
_FIXES: Mapping[str, str] = {
    "bad-request": "see /api/v1/openapi.json",
    "unauthenticated": "send Authorization: Bearer with a token that has not expired",
    "forbidden": "use a token that may",
    "stale-sign-in": "sign in to the console again",
    "bad-origin": "add the origin to allowed_origins in [serve]",
    "not-found": "use one from a list",
    "bad-method": "use a method that the header Allow names",
    "slow": "send the whole request at once",
    "conflict": _LATER,
    "waiting": "ask for the list of approvals",
    "erased": "ask for another run",
    "too-large": "send less",
    "long-target": "shorten the URL",
    "bad-media": "send JSON, with Content-Type: application/json",
    "misdirected": "add the name to allowed_hosts in [serve]",
    "refused": "see /api/v1/openapi.json",
    "overloaded-principal": _LATER,
    "large-headers": "send fewer headers",
    "internal": _ASK,
    "broken-log": _ASK,
    "server-unavailable": _ASK,
    "overloaded": _LATER,
    "store": _ASK,
    "sandbox": _ASK,
    "unusable": _ASK,
}

#: The fix for an invalid cursor.
NO_CURSOR = "ask without a cursor, and go on with those of the answer"

#: Errors and their kinds: of the classes of one, the first that is here counts.
_ERRORS: Mapping[type[BaseException], str] = {
    CursorError: "bad-request",
    NotFoundError: "not-found",
    NotKeptError: "erased",
    UsageError: "refused",
    BadBytes: "bad-request",
    StaleSignInError: "stale-sign-in",
    ForbiddenError: "forbidden",
    Suspend: "waiting",
    BusyError: "conflict",
    LogBrokenError: "broken-log",
    StoreError: "store",
    ServerUnavailable: "server-unavailable",
    ToolError: "server-unavailable",
    SandboxError: "sandbox",
    CaxtonError: "internal",
}


#: Kinds whose details say how a host is built: files, addresses, commands.
_INNER = frozenset({"store", "broken-log", "sandbox", "server-unavailable", "internal"})

#: Public descriptions of a log that fails. The first match counts.
_WHY: tuple[tuple[type[CaxtonError], str], ...] = (
    (LogSetBackError, "the database server lost committed events"),
    (LogMovedError, "the file of the log was moved away or replaced"),
    (ReadOnlyError, "the log's database is read-only, like a standby"),
    (LeaseLost, "the lease of this host has lapsed: other hosts may take its runs"),
    (CaxtonError, "the log cannot be read or written"),
)


def why(exc: CaxtonError) -> str:
    """Return the problem of the log in public terms, without its URL."""
    return next(text for kind, text in _WHY if isinstance(exc, kind))


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """
    A problem document, and the headers that go with it.

    Attributes:
        kind: One of `KINDS`.

        detail: What is wrong this time.

        fix: What the caller can do about it; ``""``: what the kind says.

    >>> Problem(kind="not-found").status
    404
    """

    kind: str
    detail: str = ""
    fix: str = ""
    headers: Headers | None = None

    @property
    def status(self) -> int:
        """The status of the response."""
        return KINDS[self.kind][0]

    def document(self, instance: str = "") -> dict[str, JSON]:
        """Return the document of the problem with the request for *instance*."""
        return {
            "type": f"/problems/{self.kind}",
            "title": KINDS[self.kind][1],
            "status": self.status,
            "detail": self.detail or KINDS[self.kind][1],
            "fix": self.fix or _FIXES[self.kind],
            "instance": instance,
        }


class Refusal(Exception):  # noqa: N818 -- a verdict, not a fault
    """A request that the HTTP layer refuses."""

    def __init__(
        self,
        kind: str,
        detail: str = "",
        *,
        fix: str = "",
        headers: Headers | None = None,
    ) -> None:
        super().__init__(detail)
        self.problem = Problem(kind=kind, detail=detail, fix=fix, headers=headers)


def problem_of(exc: Exception, *, inside: bool = False) -> Problem:
    """
    Return the problem document of an error; log an unexpected one.

    Args:
        exc: The error.

        inside: The caller may see details of the host.
    """
    match exc:
        case Refusal():
            return exc.problem
        case TooManyFailures():
            return Problem(
                kind="overloaded-principal",
                detail=str(exc),
                headers={"retry-after": str(math.ceil(exc.retry_after))},
            )
        case Unauthenticated():
            return Problem(
                kind="unauthenticated",
                detail=str(exc),
                headers={"www-authenticate": exc.challenge},
            )
        case OverloadedError():
            mine = exc.whose == "principal"
            return Problem(
                kind="overloaded-principal" if mine else "overloaded",
                detail=str(exc),
                fix=exc.fix,
                headers={"retry-after": str(max(1, math.ceil(exc.retry_after)))},
            )
        case CaxtonError():
            return _of(exc, inside=inside)
        case _:
            logger.error("a request failed", exc_info=exc)
            return Problem(kind="internal")


def _of(exc: CaxtonError, *, inside: bool) -> Problem:
    kind = next(_ERRORS[cls] for cls in type(exc).__mro__ if cls in _ERRORS)
    if isinstance(exc, CursorError):
        return Problem(kind=kind, detail=str(exc), fix=NO_CURSOR)
    if kind in _INNER:
        logger.warning("a request failed: %s", exc)
        if kind == "store" and not isinstance(exc, LeaseLost):
            return Problem(kind=kind, detail=why(exc))
        if not inside:
            return Problem(kind=kind)
    return Problem(kind=kind, detail=str(exc), fix=exc.fix)


_HEADERS = 100
_HEADER_BYTES = 32 * 1024
_TARGET = 8 * 1024


class GoneError(Exception):
    """The client disconnected, or does not read."""


def headers_of(scope: Scope) -> dict[str, list[str]]:
    """
    Return the headers of a request by name, each with its values.

    Raises:
        Refusal: They are too many, or the address is too long.
    """
    if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > _TARGET:
        raise Refusal("long-target", f"more than {_TARGET} bytes")
    pairs: Sequence[tuple[bytes, bytes]] = scope["headers"]
    size = sum(len(name) + len(value) for name, value in pairs)
    if len(pairs) > _HEADERS or size > _HEADER_BYTES:
        raise Refusal(
            "large-headers", f"more than {_HEADERS}, or {_HEADER_BYTES} bytes"
        )
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
    return found


def check_media(types: Sequence[str]) -> None:
    """
    Check that the ``Content-Type`` of a request is JSON.

    A page in a browser cannot say so of another origin without being asked first, so
    what changes something has to say it without a body too.

    Raises:
        Refusal: It does not.
    """
    if [one.partition(";")[0].strip().lower() for one in types] != ["application/json"]:
        raise Refusal("bad-media", "a request that changes something is JSON")


def parsed(body: bytes, *, limit: int) -> JSON:
    """
    Parse a JSON body.

    Raises:
        BadBytes: It is not JSON, or more than is read. None of it is in Python's words.
    """
    try:
        return load_json(body, limit=limit)
    except BadBytes as exc:
        match exc.__context__:
            case JSONDecodeError() as wrong:
                at = f"line {wrong.lineno}, column {wrong.colno}"
                raise BadBytes(f"not JSON: {at}") from None
            case RecursionError():
                raise BadBytes(f"deeper than {DEPTH}") from None
            case UnicodeError() | None:
                raise
            case _:
                raise BadBytes("a number has more than 64 bits") from None


@dataclass(slots=True, kw_only=True)
class Bodies:
    """
    Reads bodies.

    Attributes:
        most: Bytes of one.

        all: Bytes of those that are held at a time.

        patience: Seconds in which one has to arrive.
    """

    most: int
    all: int
    patience: float = 30.0
    held: int = field(default=0, init=False)

    def check(self, headers: Mapping[str, Sequence[str]]) -> None:
        """
        Check the headers of a body before it is read.

        Raises:
            Refusal: It is too large, or packed, or has two ends.
        """
        if headers.get("content-encoding", ["identity"]) != ["identity"]:
            raise Refusal(
                "bad-media",
                "a compressed body is not supported",
                fix="send it uncompressed",
            )
        lengths = headers.get("content-length", [])
        if len(lengths) > 1:
            raise Refusal("bad-request", "a request has one Content-Length")
        if lengths and "transfer-encoding" in headers:
            # A proxy may go by the other one: RFC 9112, section 6.1.
            raise Refusal(
                "bad-request",
                "a request has Content-Length or Transfer-Encoding",
                headers={"connection": "close"},
            )
        if lengths and not lengths[0].isdecimal():
            raise Refusal("bad-request", "Content-Length is not a number")
        digits = lengths[0].lstrip("0") if lengths else ""
        if len(digits) > len(str(self.most)) or int(digits or 0) > self.most:
            raise self._too_large()

    def _too_large(self) -> Refusal:
        return Refusal("too-large", f"more than {self.most} bytes")

    @asynccontextmanager
    async def read(self, receive: Receive) -> AsyncGenerator[bytes]:
        """
        Read a body, which counts against the limit until the block ends.

        Raises:
            Refusal: It is too large, or too slow.

            OverloadedError: There is no room for it now.

            GoneError: The client disconnected.
        """
        chunks: list[bytes] = []
        try:
            await self._gather(chunks, receive)
            yield b"".join(chunks)
        finally:
            self.held -= sum(map(len, chunks))

    async def _gather(self, chunks: list[bytes], receive: Receive) -> None:
        size = 0
        try:
            async with asyncio.timeout(self.patience):
                async for chunk in _chunks(receive):
                    chunks.append(chunk)
                    size += len(chunk)
                    self.held += len(chunk)
                    if size > self.most:
                        raise self._too_large()
                    if self.held > self.all:
                        raise OverloadedError(
                            "too many large requests", retry_after=1, whose="host"
                        )
        except TimeoutError:
            raise Refusal("slow", f"not there in {self.patience:g} seconds") from None


async def _chunks(receive: Receive) -> AsyncGenerator[bytes]:
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise GoneError
        yield message.get("body", b"")
        if not message.get("more_body"):
            return


def replayed(body: bytes, receive: Receive) -> Receive:
    """Return a *receive* that replays a body, and then passes messages on."""
    waiting: list[Message] = [
        {"type": "http.request", "body": body, "more_body": False}
    ]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again


#: Seconds in which a part of an answer has to be taken.
_PATIENCE = 60.0

_SECURITY: Mapping[str, str] = {
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
}


@dataclass(slots=True)
class Answering:
    """
    Sends an answer with default headers and a timeout.

    Attributes:
        headers: Those that it gets if it has no others of the name.

        unread: Not all of the request was read: the connection ends with the answer.

        status: Of the answer; 0: nothing was sent.
    """

    send: Send
    headers: dict[str, str] = field(default_factory=lambda: dict(_SECURITY))
    unread: bool = False
    status: int = 0

    @property
    def started(self) -> bool:
        """Whether something was sent."""
        return bool(self.status)

    def readable_by(self, origin: str) -> None:
        """Let pages of *origin* read the answer."""
        self.headers |= {
            "access-control-allow-origin": origin,
            "access-control-expose-headers": "location, retry-after, mcp-session-id",
            "vary": "origin",
        }
        self.headers.pop("cross-origin-resource-policy")

    async def __call__(self, message: Message) -> None:
        """Send a message."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            given = [*message.get("headers", [])]
            if self.unread:
                self.headers["connection"] = "close"
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
            raise GoneError from None


async def respond(send: Send, problem: Problem, instance: str) -> None:
    """Send a problem document about the request for *instance*."""
    headers = {**(problem.headers or {}), "content-type": "application/problem+json"}
    body = json.dumps(problem.document(instance), separators=(",", ":")).encode()
    await send_whole(send, problem.status, headers, body)


async def rpc_error(  # noqa: PLR0913, PLR0917 -- what an error of JSON-RPC is
    send: Send, status: int, id_: JSON, code: int, message: str, headers: dict[str, str]
) -> None:
    """Send a JSON-RPC error for the request with that id."""
    document = {
        "jsonrpc": "2.0",
        "id": id_,
        "error": {"code": code, "message": message},
    }
    headers["content-type"] = "application/json"
    await send_whole(send, status, headers, json.dumps(document).encode())


async def send_whole(
    send: Send, status: int, headers: Mapping[str, str], body: bytes
) -> None:
    """Send an answer at once."""
    pairs = [(k.encode(), v.encode("latin-1")) for k, v in headers.items()]
    if status != 204:  # noqa: PLR2004 -- no content, no length
        pairs.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
