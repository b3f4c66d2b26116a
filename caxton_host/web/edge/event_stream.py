"""Server-sent events: a stream that is sent as it is read, with heartbeats."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, aclosing

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from ...errors import CaxtonError

logger = logging.getLogger("caxton_host")

MEDIA = "text/event-stream"
#: A comment, so that the client and what is between get something at once.
GREETING = ": caxton\n\n"
#: Seconds between two checks for a stop, and between two heartbeats.
_TICK = 1.0
_HEARTBEAT = 15.0

_HEAD: list[tuple[bytes, bytes]] = [
    (b"content-type", MEDIA.encode()),
    (b"x-accel-buffering", b"no"),
]


class EventStream(Response):
    """
    Sends events until they end, the client disconnects, or the host stops.

    One event is read at a time, and the next once it is sent: nothing is buffered
    for a client that does not read.

    Args:
        events: Their text.

        stops: Returns whether the host is about to stop.

        place: Is held while they are sent.
    """

    def __init__(
        self,
        events: AsyncGenerator[str],
        *,
        stops: Callable[[], bool],
        place: AbstractContextManager[None],
    ) -> None:
        super().__init__(media_type=MEDIA)
        self._events = events
        self._stops = stops
        self._place = place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send them."""
        del scope
        with self._place:
            await self._until_gone(receive, send)

    async def _until_gone(self, receive: Receive, send: Send) -> None:
        tasks = {
            asyncio.create_task(self._send(send)),
            asyncio.create_task(_gone(receive)),
        }
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        for task in done:
            task.result()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEAD})
        try:
            async with aclosing(self._events) as events:
                async for text in _ticking(events, self._stops):
                    await send(_part(text))
        except CaxtonError as exc:
            # The client reconnects with its last cursor.
            logger.warning("a stream of events ends early: %s", exc)
        await send({"type": "http.response.body", "body": b""})


def _part(text: str) -> Message:
    return {"type": "http.response.body", "body": text.encode(), "more_body": True}


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _ticking(
    events: AsyncGenerator[str], stops: Callable[[], bool]
) -> AsyncGenerator[str]:
    """Yield events, and heartbeats between them."""
    silent = 0.0
    coming: asyncio.Task[str] | None = None
    try:
        while True:
            coming = coming or asyncio.create_task(anext(events))
            done, _ = await asyncio.wait([coming], timeout=_TICK)
            if not done:
                if stops():
                    return
                silent += _TICK
                if silent >= _HEARTBEAT:
                    silent = 0.0
                    yield ": still here\n\n"
                continue
            try:
                text = coming.result()
            except StopAsyncIteration:
                return
            finally:
                coming = None
            silent = 0.0
            yield text
    finally:
        if coming:
            coming.cancel()
            await asyncio.wait([coming])
