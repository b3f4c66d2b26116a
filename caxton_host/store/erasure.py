"""
Erasing a run: salts and payloads are deleted, events and their digests stay.

The chain binds digests, so it holds without the payloads; and without its salt a digest
reveals nothing of its payload. The erasure is an event of its own, stored in the same
transaction: a payload that is missing without one was lost.

SQLite: deleted data is overwritten with zeros, then the file is rewritten, since pages
that were split may hold old copies, and the write-ahead log is emptied. PostgreSQL
keeps deleted rows until it vacuums, and its own logs and backups for as long as
configured.
"""

from __future__ import annotations

import asyncio
import sqlite3
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from ..core.calls import JSON
from ..core.log.chain import GENESIS, SALT_SIZE, envelope, event_hash, payload_digest
from ..core.log.events import Event, RunErased, from_payload
from ..core.log.projection import FORGOTTEN
from ..core.log.runs import GOING_ON
from ..core.names import stream_of
from ..errors import LogBrokenError, NotKeptError
from ..lib.codec import decode_trusted
from .commit import Driver, ask
from .database import Database
from .drafts import (
    erased_before,
    heir_of,
    is_held,
    lineage,
    no_run,
    payload_missing,
    still_going,
    still_needed,
)
from .holds import held_runs, lock, parent_of_run
from .projections import LOST, keys
from .schema import ENVELOPE, events, payloads, runs

_PATIENCE_MS = 10_000
_TYPE = RunErased.__name__
_WIPE = "PRAGMA secure_delete = ON"
_HEAD = len(ENVELOPE)


class Erasures:
    """Erases the payloads of runs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def erase(
        self,
        run_id: str,
        stream: str,
        *before: Event,
        actor: dict[str, JSON],
        reason: str,
        bundle: dict[str, JSON] | None = None,
    ) -> RunErased:
        """
        Delete the payloads of a run that has ended, and record it.

        Args:
            run_id: The run.

            stream: Of the host that erases it, which writes nothing else meanwhile.

            before: What comes before in that stream.

            actor: Who asks for it.

            reason: Why.

            bundle: The file that has them now, ``{name, sha256}``.

        Raises:
            NotFoundError: There is no such run.

            NotKeptError: It was erased before.

            LogBrokenError: Its payloads were removed without an erasure.

            UsageError: It goes on or is on hold, or a fork of it is.

            StoreError: It could not be done, and nothing was.
        """
        database, name = self._database, stream_of(run_id)
        count = sa.select(sa.func.count()).where(events.c.stream == name)
        query = sa.select(runs.c.agent, count.scalar_subquery())
        rows = await database.rows(query.where(runs.c.run_id == run_id))
        if not rows:
            raise no_run(run_id)
        erased = RunErased(
            run=run_id,
            actor=actor,
            reason=reason,
            agent=rows[0][0],
            events=rows[0][1],
            bundle=bundle,
        )
        try:
            await database.record(stream, [*before, erased], _Erasure(run_id=run_id))
        except NotKeptError:
            if name not in await database.read(erased_runs):
                raise payload_missing(name) from None
            raise
        return erased

    async def scrub(self) -> bool:
        """Remove erased data from the file too; return whether that was done."""
        return await asyncio.to_thread(_scrub, self._database.engine)


@dataclass(slots=True, kw_only=True)
class _Erasure:
    """
    The guard of the transaction that erases a run.

    Attributes:
        run_id: The run.

        done: Whether it has deleted rows in an earlier attempt.
    """

    run_id: str
    done: bool = False

    def __call__(self, driver: Driver) -> None:
        """
        Delete the payloads of the run.

        Raises:
            NotFoundError: There is no such run.

            NotKeptError: It was erased before.

            UsageError: It goes on or is on hold, or a fork of it is.
        """
        if isinstance(driver, sqlite3.Cursor):
            driver.execute(_WIPE)
        lock(driver, self.run_id)
        state, tools, started_at = ask(driver, _STATE, self.run_id).fetchone()
        if state in GOING_ON:
            raise still_going(self.run_id, state)
        parent = partial(parent_of_run, driver)
        going_on = (name for (name,) in ask(driver, _GOING_ON).fetchall())
        if fork := heir_of(self.run_id, going_on, parent):
            raise still_needed(self.run_id, fork)
        for held in held_runs(driver):
            if self.run_id in {held, *lineage(held, parent)}:
                raise is_held(self.run_id, held)
        deleted = ask(driver, _DELETE, stream_of(self.run_id)).rowcount
        if not deleted and not self.done:
            raise erased_before(self.run_id)
        self.done = True
        for tool, outcome in keys(tools):
            ask(driver, LOST, tool, outcome, started_at, self.run_id)
        ask(driver, _LESS, *FORGOTTEN.values(), self.run_id)
        for statement in _FORGET:
            ask(driver, statement, self.run_id)


_STATE = "SELECT state, tools, started_at FROM runs WHERE run_id = ?"
_DELETE = """\
DELETE FROM payloads WHERE position IN (SELECT position FROM events WHERE stream = ?)"""

_GOING_ON = "SELECT run_id FROM runs WHERE ended_at IS NULL ORDER BY run_id"

# Rows that repeat what events say: the run, requests, and keys.
_LESS = f"UPDATE runs SET {' = ?, '.join(FORGOTTEN)} = ? WHERE run_id = ?"  # noqa: S608 -- ours
_FORGET = (
    "UPDATE requests SET actor = '{}', reason = '', subject = NULL WHERE run_id = ?",
    "DELETE FROM submissions WHERE run_id = ?",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedErasure:
    """
    An erasure as it is stored.

    Attributes:
        event: The erasure.

        previous: The hash of the event before it in its stream.

        columns: Those of its envelope, hash, salt, payload and digest; then the
            additional ones.
    """

    event: RunErased
    previous: bytes
    columns: Sequence[Any]


def erased_runs(
    connection: sa.Connection, *where: sa.ColumnElement[bool]
) -> dict[str, RunErased]:
    """Return what was erased, by the stream of the run; see `erasures`."""
    found = erasures(connection, where=where)
    return {stream: one.event for stream, one in found.items()}


def erasures(
    connection: sa.Connection,
    *columns: sa.ColumnElement[Any],
    where: Sequence[sa.ColumnElement[bool]] = (),
) -> dict[str, RecordedErasure]:
    """
    Return the erasures, by the stream of the run, with *columns* of each.

    Only those of which *where* holds; see `unchanged`.
    """
    # Spelled out, for the index.
    is_one = events.c.type == sa.literal_column(f"'{_TYPE}'")
    return {
        stream_of(known.run): RecordedErasure(
            event=known, previous=previous, columns=row
        )
        for known, previous, row in unchanged(connection, is_one, *where, add=columns)
        if isinstance(known, RunErased)
    }


def unchanged(
    connection: sa.Connection,
    *where: sa.ColumnElement[bool],
    add: Sequence[sa.ColumnElement[Any]] = (),
) -> Iterator[tuple[Event, bytes, Sequence[Any]]]:
    """
    Yield events, each with the hash before it and its columns; see `RecordedErasure`.

    Only an unchanged event in its place counts: an edited erasure, or another event
    that was turned into one, excuses nothing.
    """
    before = events.alias()
    query = (
        sa.select(
            before.c.hash,
            *ENVELOPE,
            events.c.hash,
            payloads.c.salt,
            payloads.c.payload,
            events.c.digest,
            *add,
        )
        .select_from(events)
        .join(payloads, payloads.c.position == events.c.position)
        .outerjoin(
            before,
            sa.and_(
                before.c.stream == events.c.stream, before.c.seq == events.c.seq - 1
            ),
        )
        .where(*where)
        .order_by(events.c.position)
    )
    for previous, *row in connection.execute(query):
        if known := _sound(previous or GENESIS, row):
            yield known, previous or GENESIS, row


def _sound(previous: Any, row: Sequence[Any]) -> Event | None:  # noqa: ANN401 -- whatever the columns hold
    head, (hash_, salt, payload) = row[:_HEAD], row[_HEAD : _HEAD + 3]
    try:
        digest = payload_digest(salt, payload)
        if event_hash(previous, envelope(*head), digest) != hash_:
            return None
        known = from_payload(head[2], head[3], decode_trusted(payload))
    except (LogBrokenError, ValueError, TypeError, AttributeError, struct.error):
        return None
    return known if len(salt) == SALT_SIZE else None


def _scrub(engine: sa.Engine) -> bool:
    """
    Remove deleted data from the file, and return whether that was possible.

    It is not possible while another process reads or writes the database, or on a disk
    without room for a second copy. PostgreSQL does it by itself, later.
    """
    if engine.dialect.name != "sqlite":
        return True
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql(f"PRAGMA busy_timeout = {_PATIENCE_MS}")
            connection.exec_driver_sql(_WIPE)
            connection.exec_driver_sql("VACUUM")
            busy = connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
            return bool(busy.one()[0] == 0)
    except DBAPIError:
        return False
