"""Events as they come: server-sent, with a cursor to go on behind each."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, aclosing

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from ...core.log.events import Recorded, event_document
from ...errors import CaxtonError

logger = logging.getLogger("caxton_host")

#: Seconds between two looks at whether to go on, and between two signs of life.
_TICK = 1.0
_HEARTBEAT = 15.0

_HEAD: list[tuple[bytes, bytes]] = [
    (b"content-type", b"text/event-stream"),
    (b"x-accel-buffering", b"no"),
]


class EventStream(Response):
    """
    Sends events until there are no more, the client is gone, or the host stops.

    One event is read at a time, and the next when that one is sent: who does not read
    has nothing kept for it.

    Args:
        events: Each with the cursor behind it.

        after: The cursor before the first; who is cut off early comes back with it.

        stops: Returns whether the host is about to stop.

        place: Is held while they are sent.
    """

    def __init__(
        self,
        events: AsyncGenerator[tuple[Recorded, str]],
        after: str | None = None,
        *,
        stops: Callable[[], bool],
        place: AbstractContextManager[None],
    ) -> None:
        super().__init__(media_type="text/event-stream")
        self._events = events
        self._after = after
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
                if self._after is not None:
                    await send(_part(f"id: {self._after}\n\n"))
                async for text in _ticking(events, self._stops):
                    await send(_part(text))
        except CaxtonError as exc:
            # Whoever follows comes back with the cursor that it has.
            logger.warning("a stream of events ends early: %s", exc)
        await send({"type": "http.response.body", "body": b""})


def _part(text: str) -> Message:
    return {"type": "http.response.body", "body": text.encode(), "more_body": True}


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _ticking(
    events: AsyncGenerator[tuple[Recorded, str]], stops: Callable[[], bool]
) -> AsyncGenerator[str]:
    """Yield what is sent: events, and signs of life between them."""
    yield ": caxton\n\n"
    silent = 0.0
    coming: asyncio.Task[tuple[Recorded, str]] | None = None
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
                recorded, cursor = coming.result()
            except StopAsyncIteration:
                return
            finally:
                coming = None
            silent = 0.0
            yield _sent(recorded, cursor)
    finally:
        if coming:
            coming.cancel()
            await asyncio.wait([coming])


def _sent(recorded: Recorded, cursor: str) -> str:
    document = event_document(recorded) | {"cursor": cursor}
    data = json.dumps(document, separators=(",", ":"))
    return f"id: {cursor}\nevent: {recorded.type}\ndata: {data}\n\n"
