"""How answers are sent: with what every one has, and to who reads them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from starlette.types import Message, Send

from ...core.calls import JSON
from .bodies import GoneError
from .problems import Problem

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
    Sends an answer, with what every answer has; and does not wait for ever.

    Attributes:
        headers: Those that it gets if it has no others of the name.

        unread: Not all of the request was read: the connection ends with the answer.

        started: Something was sent.
    """

    send: Send
    headers: dict[str, str] = field(default_factory=lambda: dict(_SECURITY))
    unread: bool = False
    started: bool = False

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
            self.started = True
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
    """Send an error of JSON-RPC, about the request with that id."""
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
