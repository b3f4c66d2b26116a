"""Headers and bodies of requests, bounded before anything is made of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from json import JSONDecodeError

from starlette.types import Message, Receive, Scope

from ...core.calls import JSON
from ...errors import BadBytes, OverloadedError
from ...lib.codec import DEPTH, load_json
from .problems import Refusal

_HEADERS = 100
_HEADER_BYTES = 32 * 1024
_TARGET = 8 * 1024


class GoneError(Exception):
    """Whoever asked is gone, or does not read."""


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
    Return if a request says that it is JSON, by its ``Content-Type`` headers.

    A page in a browser cannot say so of another origin without being asked first, so
    what changes something has to say it without a body too.

    Raises:
        Refusal: It does not.
    """
    if [one.partition(";")[0].strip().lower() for one in types] != ["application/json"]:
        raise Refusal("bad-media", "a request that changes something is JSON")


def parsed(body: bytes, *, limit: int) -> JSON:
    """
    Return what a body holds.

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
        Return if a body may be read, by what its headers say.

        Raises:
            Refusal: It is too large, or packed, or has two ends.
        """
        if headers.get("content-encoding", ["identity"]) != ["identity"]:
            raise Refusal("bad-media", "a packed body is not read", fix="send it plain")
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
        Read a body; its room is taken until the block is left.

        Raises:
            Refusal: It is too large, or too slow.

            OverloadedError: There is no room for it now.

            GoneError: Whoever sent it is gone.
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
    """Return what gives a body that was read once more, then what comes after it."""
    waiting: list[Message] = [
        {"type": "http.request", "body": body, "more_body": False}
    ]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again
