"""What hosts remember of tool servers: accepted definitions, and protocols."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

import sqlalchemy as sa

from ..core.calls import JSON
from ..lib.codec import sha256
from ..ports.log import ServerProtocol
from .database import Database
from .schema import blobs, servers, tools

#: Microseconds after which a server is asked anew: it may have been updated.
_RECENT_US = 7 * 24 * 3600 * 1_000_000


class Definitions:
    """Accepted definitions of tools. See `caxton_host.ports.log.Definitions`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def accepted(self, servers: Collection[str]) -> dict[tuple[str, str], str]:
        """Return the digests of accepted definitions, by ``(server, tool)``."""
        query = sa.select(tools.c.server, tools.c.tool, tools.c.sha256).where(
            tools.c.server.in_([*servers])
        )
        rows = await self._database.rows(query)
        return {(row.server, row.tool): row.sha256 for row in rows}

    async def accept(
        self,
        definitions: Mapping[tuple[str, str], bytes],
        actor: dict[str, JSON],
        *,
        anew: bool = False,
    ) -> None:
        """
        Accept *definitions* of tools, and keep them by digest.

        Raises:
            StoreError: They could not be stored.
        """
        key, news = (tools.c.server, tools.c.tool), ("sha256", "accepted_at", "actor")
        by = json.dumps(actor, ensure_ascii=False, sort_keys=True)
        now = self._database.clock.now()
        digests = {sha256(data): data for data in definitions.values()}
        keep = self._database.insert(blobs).values(
            [
                {"sha256": digest, "bytes": data, "size": len(data)}
                for digest, data in digests.items()
            ]
        )
        note = self._database.insert(tools).values(
            [
                {
                    "server": server,
                    "tool": tool,
                    "sha256": sha256(data),
                    "accepted_at": now,
                    "actor": by,
                }
                for (server, tool), data in definitions.items()
            ]
        )
        note = (
            note.on_conflict_do_update(
                index_elements=key, set_={name: note.excluded[name] for name in news}
            )
            if anew
            else note.on_conflict_do_nothing(index_elements=key)
        )

        def store(connection: sa.Connection) -> None:
            # One statement each: in SQLite, each is a commit of its own.
            connection.execute(keep.on_conflict_do_nothing())
            connection.execute(note)

        await self._database.change("the definitions of tools", store)


class ServerProtocols:
    """The protocol of each server; see `caxton_host.ports.log.ServerProtocols`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def protocol_of(self, key: str) -> ServerProtocol | None:
        """Return what the server with that *key* spoke lately, if it was met."""
        query = sa.select(servers.c.protocol, servers.c.legacy).where(
            servers.c.key == key,
            servers.c.seen_at > self._database.clock.now() - _RECENT_US,
        )
        rows = await self._database.rows(query)
        return ServerProtocol(rows[0].protocol, rows[0].legacy) if rows else None

    async def learn_protocol(self, key: str, protocol: ServerProtocol) -> None:
        """
        Remember what a server speaks.

        Raises:
            StoreError: It could not be stored.
        """
        said = {
            "protocol": protocol.protocol,
            "legacy": protocol.legacy,
            "seen_at": self._database.clock.now(),
        }
        note = self._database.insert(servers).values(key=key, **said)
        note = note.on_conflict_do_update(index_elements=["key"], set_=said)
        await self._database.change(
            "the protocol of a server", lambda connection: connection.execute(note)
        )
