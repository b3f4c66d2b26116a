"""Which definition of each tool was accepted, and by whom."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError

from ..core.calls import JSON
from ..errors import StoreError
from ..lib.codec import sha256
from .engine import explain, path_of
from .requests import Requests
from .schema import blobs, tools


class Definitions(Requests):
    """See `caxton_host.ports.Definitions`."""

    async def accepted(self, servers: Collection[str]) -> dict[tuple[str, str], str]:
        """Return the digests of accepted definitions, by ``(server, tool)``."""
        query = sa.select(tools.c.server, tools.c.tool, tools.c.sha256).where(
            tools.c.server.in_([*servers])
        )
        rows = await asyncio.to_thread(self._rows, query)
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
        await asyncio.to_thread(self._accept, definitions, actor, anew=anew)

    def _accept(
        self,
        definitions: Mapping[tuple[str, str], bytes],
        actor: dict[str, JSON],
        *,
        anew: bool,
    ) -> None:
        key, news = (tools.c.server, tools.c.tool), ("sha256", "accepted_at", "actor")
        by, now = (
            json.dumps(actor, ensure_ascii=False, sort_keys=True),
            self._clock.now(),
        )
        is_file = self.engine.dialect.name == "sqlite"
        insert = sqlite.insert if is_file else postgresql.insert
        # One statement each: in SQLite, each is a commit of its own.
        keep = insert(blobs).values(
            [
                {"sha256": digest, "bytes": data, "size": len(data)}
                for digest, data in {sha256(d): d for d in definitions.values()}.items()
            ]
        )
        note = insert(tools).values(
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
        try:
            with self.engine.connect() as connection:
                connection.execute(keep.on_conflict_do_nothing())
                connection.execute(note)
        except DBAPIError as exc:
            text, fix = explain(exc, path_of(self.engine), "see `caxton db status`")
            raise StoreError(
                f"the definitions of tools cannot be stored: {text}", fix=fix
            ) from None
