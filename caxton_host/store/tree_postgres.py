"""
The tree on PostgreSQL: one host at a time sequences what all of them append.

Leaves come in the order of (transaction, position), below the oldest transaction that
still runs: what is there never changes, so no append has to wait (see `tail`). Whoever
gets the lock sequences this time; a host that dies gives it back with its connection.
The transaction gets its own number with its first write, after it has read and hashed,
so that it holds up no reader meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, LiteralString, cast

import psycopg
import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from ..core.log.checkpoint import parse_note
from ..core.log.tree import Frontier
from ..errors import StoreError
from ..lib.signing import Signer
from ..ports import Clock
from .engine import explain
from .seals import PERIOD, Seal, sign

_AT_ONCE = 10_000
_HASH = 32
_PATIENCE = 30.0
_PAUSE = 0.05

# The number is ours: "tree".
_TRY: LiteralString = "SELECT pg_try_advisory_xact_lock(1953654117)"
_LOCK: LiteralString = "SELECT pg_advisory_xact_lock(1953654117)"
_TREE: LiteralString = "SELECT size, frontier, xid, position FROM tree"
_NOW: LiteralString = "SELECT pg_current_snapshot()::text"

# One value for all their hashes: a row for each would take longer than the tree does.
_BEHIND: LiteralString = """\
SELECT count(*), string_agg(hash, ''::bytea ORDER BY xid, position),
  max(xid::text::numeric)::text,
  (array_agg(position ORDER BY xid DESC, position DESC))[1]
FROM (
  SELECT xid, position, hash FROM events
  WHERE (xid, position) > (%s::xid8, %s)
    AND xid < pg_snapshot_xmin(pg_current_snapshot())
  ORDER BY xid, position LIMIT %s
) AS behind"""
_GROW: LiteralString = (
    "UPDATE tree SET size = %s, frontier = %s, xid = %s, position = %s"
)
_FIRST: LiteralString = "SELECT hash FROM events ORDER BY xid, position LIMIT 1"
_NEWEST: LiteralString = (
    "SELECT size, note, public_key, signed_at FROM checkpoints ORDER BY id DESC LIMIT 1"
)
_SIGNED: LiteralString = """\
INSERT INTO checkpoints (size, note, public_key, signed_at)
VALUES (%s, %s, %s, %s)"""
#: Whether a transaction that was there at a snapshot is still not over.
_OPEN: LiteralString = (
    "SELECT pg_snapshot_xmin(pg_current_snapshot()) < pg_snapshot_xmax(%s::pg_snapshot)"
)


class PostgresTree:
    """See `seals.Sealer`. Has a connection of its own, used in a thread."""

    def __init__(self, engine: sa.Engine, clock: Clock, signer: Signer | None) -> None:
        self.newest: Seal | None = None
        self._engine = engine
        self._clock = clock
        self._signer = signer
        self._one = threading.Lock()

    async def seal(self, *, force: bool = False) -> None:
        """See `seals.Sealer`."""
        if self._signer is not None:
            await asyncio.to_thread(self._seal, self._signer, force=force)

    def _seal(self, signer: Signer, *, force: bool) -> None:
        try:
            with self._one, self._engine.connect() as connection:
                driver = cast(
                    "psycopg.Connection", connection.connection.driver_connection
                )
                try:
                    if force:
                        self._catch_up(driver, signer)
                    else:
                        self._round(driver, signer, force=False)
                finally:
                    driver.rollback()
        except (psycopg.Error, SQLAlchemyError) as exc:
            text, fix = explain(exc, None, "see `caxton db status`")
            raise StoreError(f"the log cannot be signed: {text}", fix=fix) from None

    def _catch_up(self, driver: psycopg.Connection, signer: Signer) -> None:
        """Sign once every transaction that is under way now is over."""
        snapshot = _row(driver, _NOW)[0]
        until = time.monotonic() + _PATIENCE
        while _row(driver, _OPEN, snapshot)[0]:
            if time.monotonic() > until:
                raise StoreError(
                    "a transaction of the database does not end, and what is behind it "
                    "cannot be signed",
                    fix="end it, see pg_stat_activity",
                )
            time.sleep(_PAUSE)
        self._round(driver, signer, force=True)

    def _round(
        self, driver: psycopg.Connection, signer: Signer, *, force: bool
    ) -> None:
        driver.execute("BEGIN")
        if force:
            driver.execute(_LOCK)
        elif not _row(driver, _TRY)[0]:
            return
        size, frontier, xid, position = _row(driver, _TREE)
        tree = Frontier.parse(size, frontier)
        while True:
            count, hashes, *end = _row(driver, _BEHIND, xid, position, _AT_ONCE)
            if count:
                xid, position = end
                parts = range(0, len(hashes), _HASH)
                tree.extend(hashes[at : at + _HASH] for at in parts)
            if count < _AT_ONCE:
                break
        newest = self._sign(driver, signer, tree, force=force)
        if tree.size > size:
            driver.execute(_GROW, (tree.size, tree.to_bytes(), xid, position))
        driver.execute("COMMIT")
        self.newest = newest or self.newest

    def _sign(
        self, driver: psycopg.Connection, signer: Signer, tree: Frontier, *, force: bool
    ) -> Seal | None:
        newest = driver.execute(_NEWEST).fetchone()
        key, now = signer.public_key(), self._clock.now()
        if newest is not None:
            size, note, by, signed_at = newest
            if size == tree.size and (not force or by == key):
                return Seal(parse_note(note), by)
            if not force and signed_at <= now < signed_at + PERIOD * 1e6:
                return None
        if not tree.size:
            return None
        seal = sign(signer, tree, _row(driver, _FIRST)[0])
        note = seal.note.text().encode()
        driver.execute(_SIGNED, (tree.size, note, key, now))
        return seal


def _row(
    driver: psycopg.Connection, text: LiteralString, *values: object
) -> tuple[Any, ...]:
    row = driver.execute(text, values, binary=True).fetchone()
    assert row is not None  # noqa: S101 -- each of them has one
    return row
