"""What servers spoke when they were met last."""

from __future__ import annotations

import asyncio

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from ..ports import Era
from .definitions import Definitions
from .schema import servers

#: Microseconds after which a server is asked anew: it may have learnt since.
_LATELY = 7 * 24 * 3600 * 1_000_000


class Eras(Definitions):
    """See `caxton_host.ports.Eras`."""

    async def era(self, key: str) -> Era | None:
        """Return what the server with that *key* spoke lately, if it was met."""
        query = sa.select(servers.c.protocol, servers.c.legacy).where(
            servers.c.key == key, servers.c.seen_at > self._clock.now() - _LATELY
        )
        rows = await asyncio.to_thread(self._rows, query)
        return Era(rows[0].protocol, rows[0].legacy) if rows else None

    async def learn_era(self, key: str, era: Era) -> None:
        """
        Remember what a server speaks.

        Raises:
            StoreError: It could not be stored.
        """
        is_file = self.engine.dialect.name == "sqlite"
        insert = sqlite.insert if is_file else postgresql.insert
        said = {
            "protocol": era.protocol,
            "legacy": era.legacy,
            "seen_at": self._clock.now(),
        }
        note = insert(servers).values(key=key, **said)
        note = note.on_conflict_do_update(index_elements=["key"], set_=said)
        await asyncio.to_thread(self._write, note, "")
