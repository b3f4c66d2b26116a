"""
What an operator watches of a log.

Each look is bounded, by an index or by `MOST`, and takes no lock that a writer needs.
It is for a thread that may wait.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

import sqlalchemy as sa

from .database import Database
from .diagnosis import path_of
from .schema import checkpoints, events, runs, tokens, tree, waits
from .writer import Writer

#: Rows that are counted.
MOST = 10_000
_SECOND = 1_000_000

_SIZE = sa.select(sa.func.pg_database_size(sa.func.current_database()))


def sizes_of(file: Path) -> dict[str, int]:
    """Return the bytes of an SQLite ``database``, and those of its ``wal``."""
    wal = file.with_name(f"{file.name}-wal")
    return {
        "database": file.stat().st_size,
        "wal": wal.stat().st_size if wal.exists() else 0,
    }


class Vitals:
    """
    The looks at one database; each raises `StoreError` if it cannot be read.

    Args:
        database: The log.

        writer: The one of this process, if it writes.
    """

    def __init__(self, database: Database, writer: Writer | None) -> None:
        self._database = database
        self._writer = writer

    @property
    def queued(self) -> int:
        """How many appends wait for the writer of this process."""
        return self._writer.queued if self._writer else 0

    def waits(self, kinds: Collection[str]) -> Mapping[str, tuple[int, float]]:
        """Return how many questions to people wait, and the seconds of the oldest."""
        some = sa.select(waits.c.kind, waits.c.asked_at)
        first = some.order_by(waits.c.asked_at).limit(MOST).subquery()
        oldest = sa.func.min(first.c.asked_at)
        query = sa.select(first.c.kind, sa.func.count(), oldest).group_by(first.c.kind)
        found = self._database.look(lambda one: one.execute(query).all())
        known = {kind: (count, self._age(at)) for kind, count, at in found}
        return {kind: known.get(kind, (0, 0.0)) for kind in kinds}

    def suspended(self, reasons: Collection[str]) -> Mapping[str, int]:
        """Return how many runs are suspended, by reason."""
        known = sa.select(runs.c.run_id)
        some = {
            reason: known.where(runs.c.reason == reason).limit(MOST).subquery()
            for reason in reasons
        }
        counts = [sa.select(sa.func.count()).select_from(one) for one in some.values()]
        query = sa.select(*(count.scalar_subquery() for count in counts))
        found = self._database.look(lambda one: one.execute(query).one())
        return dict(zip(some, found, strict=True))

    def queued_for(self) -> float:
        """Return the seconds for which the oldest queued run has waited."""
        # A partial index answers it: its condition is no parameter.
        first = sa.select(sa.func.min(runs.c.started_at))
        query = first.where(sa.text("state = 'queued'"))
        at = self._database.look(lambda one: one.execute(query).scalar())
        return self._age(at) if at else 0.0

    def unsigned_for(self) -> float | None:
        """
        Return the age of the newest checkpoint in seconds; 0: it has all events.

        Returns:
            ``None``: There is none.
        """
        signed = sa.select(checkpoints.c.size, checkpoints.c.signed_at)
        newest = signed.order_by(checkpoints.c.id.desc()).limit(1).subquery()
        last = sa.select(sa.func.max(events.c.position)).scalar_subquery()
        query = sa.select(
            newest.c.signed_at,
            sa.or_(tree.c.size > newest.c.size, last > tree.c.position),
        ).join_from(newest, tree, sa.true())
        found = self._database.look(lambda one: one.execute(query).first())
        if found is None:
            return None
        at, is_behind = found
        return self._age(at) if is_behind else 0.0

    def expires_in(self) -> float | None:
        """Return the seconds until the next token expires; ``None``: none does."""
        now = self._database.clock.now()
        good = tokens.c.revoked_at.is_(None), tokens.c.expires_at > now
        query = sa.select(sa.func.min(tokens.c.expires_at)).where(*good)
        at = self._database.look(lambda one: one.execute(query).scalar())
        return -self._age(at) if at else None

    def sizes(self) -> Mapping[str, int]:
        """Return the bytes of the ``database``; of a file also ``wal`` and ``free``."""
        file = path_of(self._database.engine)
        if file is None:
            found = self._database.look(lambda one: one.execute(_SIZE).scalar_one())
            return {"database": found}
        return sizes_of(file) | {"free": shutil.disk_usage(file).free}

    def _age(self, at: int) -> float:
        return (self._database.clock.now() - at) / _SECOND
