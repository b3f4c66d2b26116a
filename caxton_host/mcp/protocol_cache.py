"""What a server speaks, so that it is not asked again, by this host and the next."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from ..core.tools.servers import ServerConfig
from ..errors import CaxtonError
from ..lib.codec import canonical, sha256
from ..ports import Era, Eras

logger = logging.getLogger(__name__)

#: To ask costs a second, so much and no more is spent on not having to.
_PATIENCE = 1.0


class Memory:
    """
    The era of one server.

    The *address* may hold no secret: a digest of it is stored. Without *eras*
    nothing is known at the start, and nothing is left in the end.
    """

    def __init__(self, config: ServerConfig, address: str, eras: Eras | None) -> None:
        self._key = sha256(canonical([config.name, config.transport, address]))
        # The oldest transport has no era to choose.
        self._eras = eras if config.transport != "sse" else None
        self._stored: Era | None = None
        self._era: Era | None = None
        self._storing: set[asyncio.Task[None]] = set()

    async def legacy(self) -> bool:
        """Return whether the server is known to speak nothing of 2026 or later."""
        if self._era is None and self._eras is not None:
            with suppress(CaxtonError, TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    self._era = self._stored = await self._eras.era(self._key)
        return self._era is not None and self._era.legacy

    def learn(self, era: Era) -> None:
        """Take note of what the server speaks now."""
        self._era = era
        if self._eras is not None and era != self._stored:
            self._stored = era
            task = asyncio.create_task(self._store(self._eras, era))
            self._storing.add(task)
            task.add_done_callback(self._storing.discard)

    def forget(self) -> None:
        """Have the server asked the next time: it did not come up as it is known."""
        if self._era is not None and self._era.legacy:
            self.learn(Era("", legacy=False))

    async def _store(self, eras: Eras, era: Era) -> None:
        try:
            await eras.learn_era(self._key, era)
        except CaxtonError as exc:
            logger.debug("MCP: what a server speaks is not remembered: %s", exc)

    async def close(self) -> None:
        """Wait a moment for what is being stored."""
        if self._storing:
            _, late = await asyncio.wait(self._storing, timeout=_PATIENCE)
            for task in late:
                task.cancel()
