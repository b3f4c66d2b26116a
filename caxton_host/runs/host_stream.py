"""The stream of a host process, which is kept while the store fails."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Protocol

from ..core.log.events import Event
from ..errors import NotFoundError, StoreError
from ..ports.log import EventLog

#: Seconds between two attempts to write again.
PAUSE = 1.0

logger = logging.getLogger("caxton_host")


class Logs(Protocol):
    """The part of a store that the stream of a host needs."""

    def create(self, stream: str) -> EventLog:
        """Return the log of a stream that has no events yet."""
        ...

    async def resume_log(self, stream: str) -> EventLog:
        """
        Return the log of a stream that goes on where it ends now.

        Raises:
            NotFoundError: It has no events.
        """
        ...


class HostLog:
    """
    Keeps the events of a host until they are durable, and stores them in order.

    A run whose log fails can go on at another host; a host has only this stream, so its
    events are kept in memory and written again.

    Args:
        store: Where they are stored.

        stream: The stream of the host, which has no events yet.
    """

    def __init__(self, store: Logs, stream: str) -> None:
        self._store = store
        self._stream = stream
        self._log: EventLog = store.create(stream)
        self._kept: list[Event] = []
        self._first = 1  # the number of the first that is kept
        self._again: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()  # after it, a failed attempt is the last

    def queue(self, *events: Event) -> None:
        """Add *events* without waiting; if the log fails, they are stored later."""
        self._left().extend(events)
        if self._again is None:
            try:
                self._log.queue(*events)
            except StoreError as exc:
                logger.warning("what the host does is recorded later: %s", exc)
                self._again = asyncio.create_task(self._try_again())

    async def append(self, *events: Event) -> None:
        """
        Store events now.

        Raises:
            StoreError: They could not be stored; they are stored later.
        """
        self.queue(*events)
        await self._log.append()

    async def aclose(self) -> None:
        """Wait for what is queued, and stop writing."""
        if self._again is not None:
            self._closing.set()
            await self._again
            self._closing.clear()
        try:
            await self._log.append()
        except StoreError as exc:
            lost = "%d events of the host are lost: %s. To fix: %s"
            fix = exc.fix or "see `caxton db status`"
            logger.warning(lost, len(self._left()), exc, fix)

    def _left(self) -> list[Event]:
        """Return the events that are not durable, as far as is known."""
        durable = max(self._log.head[0] + 1 - self._first, 0)
        del self._kept[:durable]
        self._first += durable
        return self._kept

    async def _try_again(self) -> None:
        while self._left():
            try:
                self._log = await self._reopened()
                await self._log.append(*self._left())
            except StoreError:
                if self._closing.is_set():
                    break
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), PAUSE)
        self._again = None

    async def _reopened(self) -> EventLog:
        try:
            return await self._store.resume_log(self._stream)
        except NotFoundError:
            return self._store.create(self._stream)
