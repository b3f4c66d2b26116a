"""
Erasing a run: salts and payloads go, events and their digests stay.

The chain binds digests, so it holds without what they were made of; and without its
salt no digest says anything of its payload. That it was erased is an event of its
own, stored in the same transaction: a payload that is missing without one was lost.

SQLite: what is deleted is overwritten with zeros, then the file is written anew,
since pages that were split may hold old copies, and the write-ahead log is emptied.
PostgreSQL keeps deleted rows until it vacuums, and its own logs and copies for as
long as it was told to.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from ..core.log.chain import GENESIS, SALT_SIZE, envelope, event_hash, payload_digest
from ..core.log.events import RunErased, from_payload
from ..core.log.runs import GOING_ON
from ..core.names import stream_of
from ..errors import LogBrokenError, NotFoundError, NotKeptError, UsageError
from ..lib.codec import decode_trusted
from .commit import Driver, ask
from .lineage import heir_of, parent_in
from .schema import ENVELOPE, events, payloads

_PATIENCE_MS = 10_000
_TYPE = RunErased.__name__
_WIPE = "PRAGMA secure_delete = ON"
_HEAD = len(ENVELOPE)


@dataclass(slots=True, kw_only=True)
class Erasure:
    """
    The guard of the transaction that erases a run.

    Attributes:
        run_id: The run.

        done: Whether it deleted anything; it may be tried again.
    """

    run_id: str
    done: bool = False

    def __call__(self, driver: Driver) -> None:
        """
        Delete what the run said.

        Raises:
            NotFoundError: There is no such run.

            NotKeptError: It was erased before.

            UsageError: It goes on, or a fork of it does.
        """
        if isinstance(driver, sqlite3.Cursor):
            driver.execute(_WIPE)
        row = ask(driver, _STATE, self.run_id).fetchone()
        if row is None:
            raise no_run(self.run_id)
        if row[0] in GOING_ON:
            raise still_going(self.run_id, row[0])
        going_on = (name for (name,) in ask(driver, _GOING_ON).fetchall())
        if fork := heir_of(self.run_id, going_on, partial(self._parent, driver)):
            raise still_needed(self.run_id, fork)
        deleted = ask(driver, _DELETE, stream_of(self.run_id)).rowcount
        if not deleted and not self.done:
            raise erased_before(self.run_id)
        self.done = True
        for statement in _FORGET:
            ask(driver, statement, self.run_id)

    def _parent(self, driver: Driver, run_id: str) -> str | None:
        row = ask(driver, _STARTED, stream_of(run_id)).fetchone()
        return parent_in(*row) if row else None


# A run that has ended stays so: nobody has to be kept from it.
_STATE = "SELECT state FROM runs WHERE run_id = ?"
_DELETE = """\
DELETE FROM payloads WHERE position IN (SELECT position FROM events WHERE stream = ?)"""

_GOING_ON = "SELECT run_id FROM runs WHERE ended_at IS NULL ORDER BY run_id"
_STARTED = """\
SELECT e.type, e.schema_version, p.payload
FROM events e JOIN payloads p ON p.position = e.position
WHERE e.stream = ? AND e.seq = 1"""

# Rows that say what events say: who started the run, with what, and who wanted what
# of it.
_FORGET = (
    "UPDATE runs SET actor = '{}' WHERE run_id = ?",
    "UPDATE requests SET actor = '{}', reason = '' WHERE run_id = ?",
    "DELETE FROM submissions WHERE run_id = ?",
)


def no_run(run_id: str) -> NotFoundError:
    """Return what is told to who names a run that is not there."""
    return NotFoundError(f"there is no run {run_id!r}", fix="caxton runs list")


def still_going(run_id: str, state: str) -> UsageError:
    """Return what is told to who would erase a run that has not ended."""
    return UsageError(
        f"run {run_id} is {state}, and needs its log to go on",
        fix="wait for its end, or end it; then erase it",
    )


def still_needed(run_id: str, fork: str) -> UsageError:
    """Return what is told to who would erase what a fork begins with."""
    return UsageError(
        f"run {fork} was forked from run {run_id}, and needs its log to go on",
        fix="wait for the end of the fork, or end it; then erase",
    )


def erased_before(run_id: str) -> NotKeptError:
    """Return what is told to who would erase a run twice."""
    return NotKeptError(
        f"run {run_id} was erased before", fix="caxton audit verify shows what is left"
    )


def payload_missing(stream: str) -> LogBrokenError:
    """Return what is told of a stream that lacks a payload nobody erased."""
    return LogBrokenError(
        f"a payload of {stream} is missing, and no event says that it was erased",
        fix="caxton audit verify",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedErasure:
    """
    An erasure as it is stored.

    Attributes:
        event: What it says.

        previous: The hash of the event before it in its stream.

        columns: Those of its envelope, hash, salt, payload and digest; then what else
            was asked for.
    """

    event: RunErased
    previous: bytes
    columns: Sequence[Any]


def erased_runs(connection: sa.Connection) -> dict[str, RunErased]:
    """Return what was erased, by the stream of the run."""
    return {stream: found.event for stream, found in erasures(connection).items()}


def erasures(
    connection: sa.Connection, *columns: sa.ColumnElement[Any]
) -> dict[str, RecordedErasure]:
    """
    Return the erasures, by the stream of the run, with *columns* of each.

    Only what is as it was written, and where, counts: one that was edited, or another
    event that was made one, excuses nothing.
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
            *columns,
        )
        .select_from(events)
        .join(payloads, payloads.c.position == events.c.position)
        .outerjoin(
            before,
            sa.and_(
                before.c.stream == events.c.stream, before.c.seq == events.c.seq - 1
            ),
        )
        .where(events.c.type == _TYPE)
        .order_by(events.c.position)
    )
    found: dict[str, RecordedErasure] = {}
    for previous, *row in connection.execute(query):
        if known := _sound(previous or GENESIS, row):
            found[stream_of(known.run)] = RecordedErasure(
                event=known, previous=previous or GENESIS, columns=row
            )
    return found


def _sound(previous: Any, row: Sequence[Any]) -> RunErased | None:  # noqa: ANN401 -- whatever the columns hold
    head, (hash_, salt, payload) = row[:_HEAD], row[_HEAD : _HEAD + 3]
    try:
        digest = payload_digest(salt, payload)
        if event_hash(previous, envelope(*head), digest) != hash_:
            return None
        known = from_payload(_TYPE, head[3], decode_trusted(payload))
    except (LogBrokenError, ValueError, TypeError, AttributeError, struct.error):
        return None
    if not isinstance(known, RunErased) or len(salt) != SALT_SIZE:
        return None
    return known


def scrub(engine: sa.Engine) -> bool:
    """
    Take what was deleted out of the file, and return whether that was possible.

    Whoever reads or writes the database at that moment keeps it from being done; so
    does a disk without room for a second copy. PostgreSQL does it in its own time.
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
