"""
What a client writes that is no message, answered as JSON-RPC 2.0 has it.

The SDK drops it without a word. No answer has a byte of what was written.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable

import mcp_types as types
from anyio.abc import ObjectSendStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

_NOT_JSON = types.ErrorData(code=types.PARSE_ERROR, message="that line is not JSON")
_NO_MESSAGE = types.ErrorData(
    code=types.INVALID_REQUEST, message="that line is no message of JSON-RPC 2.0"
)


async def answer_garbled(
    read: AsyncIterable[SessionMessage | Exception],
    answer: Callable[[SessionMessage], Awaitable[None]],
    messages: ObjectSendStream[SessionMessage],
) -> None:
    """Pass on what is a message, in order, and answer what is none, until the end."""
    async with messages:
        async for item in read:
            if isinstance(item, SessionMessage):
                await messages.send(item)
            else:
                error = types.JSONRPCError(jsonrpc="2.0", id=None, error=_fault(item))
                await answer(SessionMessage(error))


def _fault(exc: Exception) -> types.ErrorData:
    if isinstance(exc, ValidationError):
        first = exc.errors(include_input=False, include_context=False)[0]
        if first["type"] != "json_invalid":
            return _NO_MESSAGE
    return _NOT_JSON
