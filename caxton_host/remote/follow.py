"""Events of a host as they come, whatever becomes of the connection between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from ..core.calls import JSON
from ..errors import OverloadedError, ToolError
from ..lib.http_rules import Lost
from ..mcp.transport.frames import Events
from .client import MOST_BYTES, Remote, read_json, unreached
from .problems import is_of, stranger

_SSE, _NOTHING = "text/event-stream", 204

#: Seconds without a byte, after which a connection counts as lost.
_IDLE = 60.0
#: Seconds that a host may be away.
_PATIENCE = 60.0
_PAUSE = 0.2
#: What may be otherwise the next time.
_PASSING = {"timeout", "transport"}
#: A connection that lasted for so many seconds was one.
_LASTED = 5.0


class _Over(Exception):  # noqa: N818 -- an end, not a fault
    """There is nothing behind the cursor, and there will be nothing."""


async def follow(
    remote: Remote, where: str, after: str | None
) -> AsyncGenerator[tuple[JSON, str]]:
    """
    Yield each event behind a cursor once, with its own cursor, and miss none.

    A connection that is lost is made anew, behind the last event.

    Args:
        remote: The host.

        where: The path of the events.

        after: The cursor, or ``None``: from the first one on.

    Raises:
        ServerUnavailable: The host is away for too long, or is none.

        CaxtonError: What the host says.
    """
    clock = asyncio.get_running_loop().time
    since, met = clock(), False
    while True:
        began = clock()
        try:
            async with aclosing(_connection(remote, where, after)) as found:
                async for document, cursor in found:
                    after, since = cursor, clock()
                    if document is not None:
                        yield document, cursor
            lost, met = ToolError("transport", "yes", "it ends the connection"), True
        except ToolError as exc:
            met = met or exc.sent != "no"
            if not (met and (isinstance(exc, Lost) or exc.kind in _PASSING)):
                raise unreached(exc, remote.address) from None
            lost = exc
        except _Over:
            return
        except OverloadedError as exc:
            await asyncio.sleep(min(exc.retry_after, _PATIENCE))
            lost = ToolError("transport", "no", str(exc))
        if clock() - began > _LASTED:
            since = clock()
        if clock() - since > _PATIENCE:
            raise unreached(lost, remote.address)
        await asyncio.sleep(_PAUSE)


async def _connection(
    remote: Remote, where: str, after: str | None
) -> AsyncGenerator[tuple[JSON, str]]:
    """Yield what a connection brings; a cursor may come with nothing."""
    headers = {"accept": _SSE}
    if after is not None:
        headers["last-event-id"] = after
    events = Events(MOST_BYTES)
    async with remote.stream(where, headers) as stream:
        if stream.status == _NOTHING:
            raise _Over
        if not is_of(stream.headers, _SSE):
            raise stranger("it does not send events")
        async with aclosing(stream.chunks(_IDLE)) as chunks:
            async for chunk in chunks:
                for event in events.feed(chunk):
                    document = read_json(event.data) if event.data else None
                    if event.id:
                        yield document, event.id.decode("ascii", "replace")
