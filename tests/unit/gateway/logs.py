"""Logs that fail, or are slow."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from caxton_host.core.log.events import Event
from caxton_host.errors import StoreError
from caxton_host.ports.log import Refused, Reservation
from caxton_host.store.memory import MemoryLog


class Failing(MemoryLog):
    """A log whose disk is full."""

    async def append(
        self,
        *events: Event,
        blobs: Mapping[str, bytes] | None = None,
        reserve: Sequence[Reservation] = (),
    ) -> Refused | None:
        del events, blobs, reserve
        raise StoreError("disk full")


class Slow(MemoryLog):
    """A log that takes events at once, and a while to make them durable."""

    async def append(
        self,
        *events: Event,
        blobs: Mapping[str, bytes] | None = None,
        reserve: Sequence[Reservation] = (),
    ) -> Refused | None:
        self.queue(*events, blobs=blobs)
        await asyncio.sleep(30)
        return await super().append(reserve=reserve)
