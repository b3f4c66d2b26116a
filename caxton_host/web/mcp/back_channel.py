"""
Requests to clients of before 2026 over HTTP.

They go on the stream of the call that they are about. The client replies with a request
of its own, which is matched by its session, its principal and a random number.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ...core.calls import JSON

_Message: TypeAlias = MutableMapping[str, Any]
_Send: TypeAlias = Callable[[_Message], Awaitable[None]]
#: Makes a request to the client of a call: a method, and its parameters.
AskClient: TypeAlias = Callable[[str, JSON], Awaitable[JSON]]


@dataclass(slots=True)
class BackChannel:
    """The requests to clients that wait for a reply."""

    _waiting: dict[tuple[str, ...], asyncio.Future[JSON]] = field(
        default_factory=dict[tuple[str, ...], "asyncio.Future[JSON]"]
    )

    def of_call(self, client: tuple[str, ...], send: _Send) -> tuple[_Send, AskClient]:
        """
        Return what sends the stream of a call, and what makes requests on it.

        Args:
            client: Tells it from others.

            send: Sends the stream.
        """
        begun = asyncio.Event()

        async def sending(message: _Message) -> None:
            await send(message)
            begun.set()

        async def ask(method: str, params: JSON) -> JSON:
            number = secrets.token_hex(16)
            request = {"jsonrpc": "2.0", "id": number, "method": method}
            data = json.dumps(request | {"params": params})
            key = *client, number
            reply: asyncio.Future[JSON] = asyncio.get_running_loop().create_future()
            self._waiting[key] = reply
            try:
                await begun.wait()
                body = f"event: message\r\ndata: {data}\r\n\r\n".encode()
                part = {"type": "http.response.body", "body": body, "more_body": True}
                await send(part)
                return await reply
            finally:
                del self._waiting[key]

        return sending, ask

    def replied(self, client: tuple[str, ...], message: Mapping[str, Any]) -> None:
        """Take a reply; one that nobody waits for is ignored."""
        reply = self._waiting.get((*client, str(message.get("id"))))
        if reply and not reply.done():
            reply.set_result(message.get("result"))
