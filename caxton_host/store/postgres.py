"""
Writing to PostgreSQL: the commits of each host, and the tree over all of them.

A batch is one statement of its own: one round trip, one flush. Only budgets need a
transaction around it, so that other hosts wait with theirs. Rows travel as one array a
column, so a batch of any size is one statement of one text, prepared by the server.

A connection that is lost during a commit leaves it in doubt. The same rows are then
sent again over a new one: either they were not stored, or they are found by their
hash, which nobody else can have written.

One host at a time sequences what all of them append. Leaves come in the order of
(transaction, position), below the oldest transaction that still runs: what is there
never changes, so no append has to wait (see `reader`). The host that gets the lock
sequences this time; if it dies, the lock is released with its connection. The
transaction gets its own number with its first write, after it has read and hashed, so
that it holds up no reader meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, LiteralString, cast

import psycopg
import sqlalchemy as sa
from psycopg import errors
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import SQLAlchemyError

from ..core.grants.budgets import Use
from ..core.log.checkpoint import parse_note
from ..core.log.tree import Frontier
from ..errors import LeaseLost, StoreError
from ..gateway.ledger import Page
from ..lib.bell import SLOW_S
from ..lib.signing import Signer
from ..ports.watch import Clock
from .commit import Batch, CommittedMark, Group, Outcome, Transactions
from .diagnosis import explain, said
from .drafts import CONFLICT, CONFLICT_FIX
from .engine import is_pooled
from .projections import CHANGED, COLUMNS, Row
from .schema import blobs, budgets, events, payloads, run_tools, runs, slots, waits
from .seals import PERIOD, Seal, sign

_PATIENCE_S = 10.0
_PAUSE_S = 0.05
_TRIES = 3
_DOWN = "see that the server of the store runs and can be reached"


@dataclass(slots=True)
class _Attempt:
    """The batch that was sent last, in case its answer is lost."""

    batch: Batch = field(default_factory=Batch)
    outcomes: list[Outcome] = field(default_factory=list[Outcome])


class PostgresCommitter(Transactions):
    """
    See `Committer`. It waits for the network, so never call it on the event loop.

    Args:
        kept: Checked on each new connection: nothing is written to a server that was
            set back.
    """

    inline = False

    def __init__(self, engine: sa.Engine, kept: CommittedMark) -> None:
        self._engine = engine
        self._kept = kept
        self._is_down = False
        self._connect()

    def _connect(self) -> None:
        self._connection = self._engine.connect()
        # Through SQLAlchemy the same statement costs 10 % more.
        self._driver = cast(
            "psycopg.Connection", self._connection.connection.driver_connection
        )
        self._is_known = False

    def close(self) -> None:
        """Give the connection back."""
        self._connection.close()

    def _transaction(self, groups: Sequence[Group], *, wait: bool) -> list[Outcome]:
        del wait
        last = _Attempt()
        tries, until = 1, time.monotonic() + _PATIENCE_S
        while True:
            try:
                self._reconnect()
                outcomes = self._store(groups, last)
            except (psycopg.Error, SQLAlchemyError) as exc:
                if not self._driver.closed:
                    self._roll_back()
                    if isinstance(exc, errors.UniqueViolation) and self._landed(last):
                        return self._settled(last)
                    if not _is_passing(exc) or tries == _TRIES:
                        raise
                    tries += 1
                    # Who was in the way has to take what was given back.
                    time.sleep(_PAUSE_S)
                elif self._is_down or time.monotonic() > until:
                    # The next commit does not wait as long: it tries once.
                    self._is_down = True
                    return [_lost(exc)] * len(groups)
                else:
                    time.sleep(_PAUSE_S)
            except BaseException:
                self._roll_back()
                raise
            else:
                return outcomes

    def _reconnect(self) -> None:
        if self._driver.closed:
            with contextlib.suppress(SQLAlchemyError):
                self._connection.invalidate()
                self._connection.close()
            self._connect()
            self._is_down = False
        if not self._is_known:
            self._check()
            self._is_known = True

    def _check(self) -> None:
        self._kept.check(lambda query: self._connection.execute(query).all())

    def _store(self, groups: Sequence[Group], last: _Attempt) -> list[Outcome]:
        keys = sorted({key for group in groups for key in group.budgets})
        guards = [group.guard for group in groups if group.guard]
        if is_pooled(self._driver):
            # Its connection to the server may be another one each time.
            guards.insert(0, lambda _: self._check())
        if guards and self._landed(last):
            # A guard would see the changes of this very append.
            return self._settled(last)
        if keys or guards:
            self._driver.execute("BEGIN")
        for guard in guards:
            guard(self._driver)
        books = self._hold(keys) if keys else Page()
        if self._landed(last):
            self._roll_back()
            return self._settled(last)
        last.batch = batch = Batch(books)
        last.outcomes = [batch.admit(group) for group in groups]
        self._driver.execute(*statement(batch))
        if keys or guards:
            self._driver.execute("COMMIT")
        return self._settled(last)

    def _hold(self, keys: list[str]) -> Page:
        """Lock these budgets until the transaction ends."""
        books = Page()
        for key, used, since, now in self._driver.execute(HELD, [keys]).fetchall():
            books.uses[key] = Use(used, since)
            books.time = max(books.time, now)
        for key, stream, call in self._driver.execute(TAKEN, [keys]).fetchall():
            books.places.setdefault(key, []).append((stream, call))
        return books

    def _landed(self, last: _Attempt) -> bool:
        """Return whether the batch that was sent last is in the log, as a whole."""
        if not last.batch.events:
            return False
        event = last.batch.events[0]
        row = self._driver.execute(STORED, [event[0], event[1], event[-1]]).fetchone()
        return row is not None

    def _settled(self, last: _Attempt) -> list[Outcome]:
        self.commits += 1
        last.batch.done()
        if last.batch.events:
            stream, seq, *_, hash_ = last.batch.events[-1]
            self._kept.event = stream, seq, hash_
        return last.outcomes

    def _roll_back(self) -> None:
        with contextlib.suppress(psycopg.Error):
            self._driver.rollback()

    def _failure(self, exc: Exception) -> StoreError:
        if isinstance(exc, StoreError):
            return exc
        if isinstance(exc, errors.UniqueViolation):
            return LeaseLost(CONFLICT, fix=CONFLICT_FIX)
        if isinstance(exc, psycopg.Error):
            text, fix = explain(exc, None, "see `caxton db status`")
            return StoreError(f"the log cannot be written: {text}", fix=fix)
        return StoreError(f"an event cannot be stored: {type(exc).__name__}")


def _lost(exc: Exception) -> StoreError:
    return StoreError(f"the log cannot be written: {said(exc)}", fix=_DOWN)


def _is_passing(exc: Exception) -> bool:
    """Return whether the failure was a conflict with another host, worth a retry."""
    return isinstance(exc, psycopg.Error) and (exc.sqlstate or "").startswith("40")


#: Parameters: an array of keys. Inserts new budgets and locks all, in the same order
#: for every host, until the transaction ends. Returns key, what is used, since when,
#: and the time.
HELD = """\
INSERT INTO budgets (key, used)
SELECT k, 0 FROM unnest(%b::text[]) AS k ORDER BY k COLLATE "C"
ON CONFLICT (key) DO UPDATE SET used = budgets.used
RETURNING key, used, since, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"""

#: Parameters: an array of keys. Returns key, stream and call of each place. Executed
#: once the budgets are locked, so no place is taken meanwhile.
TAKEN = "SELECT key, stream, call FROM slots WHERE key = ANY(%b::text[])"

#: Parameters: stream, number, hash. Returns a row if that event is in the log.
STORED = "SELECT 1 FROM events WHERE stream = %s AND seq = %s AND hash = %s"

_EVENT = [c.name for c in events.columns if c.name != "position"]
_PAYLOAD = [c.name for c in payloads.columns if c.name != "position"]

# Positions are drawn first: an event and its payload share one.
_APPEND = """\
WITH given AS MATERIALIZED (
  SELECT nextval('events_position_seq') AS position, * FROM {given}
), appended AS (
  INSERT INTO events (position, {event}) OVERRIDING SYSTEM VALUE
  SELECT position, {event} FROM given
){others}
INSERT INTO payloads (position, {payload}) SELECT position, {payload} FROM given"""

# Added to the append if there are rows for it, in the order of `_rows`.
_OTHERS = (
    """kept AS (
  INSERT INTO blobs (sha256, bytes, size) SELECT * FROM {blob} ON CONFLICT DO NOTHING
)""",
    """started AS (
  INSERT INTO runs ({run}) SELECT {run} FROM {started}
)""",
    """changed AS (
  UPDATE runs SET {changes} FROM {changed} WHERE runs.run_id = t.run_id
)""",
    """lost AS (
  DELETE FROM run_tools AS r USING {tools} WHERE r.tool = t.tool
    AND r.outcome = t.outcome AND r.started_at = t.started_at AND r.run_id = t.run_id
)""",
    """gained AS (
  INSERT INTO run_tools SELECT * FROM {tools} ON CONFLICT DO NOTHING
)""",
    """over AS (
  DELETE FROM waits AS w USING {over}
  WHERE w.asked_at = t.asked_at AND w.run_id = t.run_id AND w.seq = t.seq
)""",
    """asked AS (
  INSERT INTO waits SELECT * FROM {asked} ON CONFLICT DO NOTHING
)""",
    """spent AS (
  UPDATE budgets SET used = t.used, since = t.since FROM {budget}
  WHERE budgets.key = t.key
)""",
    """freed AS (
  DELETE FROM slots USING {freed} WHERE slots.stream = t.stream AND slots.call = t.call
)""",
    """ended AS (
  DELETE FROM slots USING {ended} WHERE slots.stream = t.stream
)""",
    # By code point, "0" comes right behind "/". The run follows "run/".
    """unshared AS (
  DELETE FROM budgets USING {ended} WHERE key >= '#' || substr(t.stream, 5) || '/'
  AND key < '#' || substr(t.stream, 5) || '0'
)""",
    """opened AS (
  INSERT INTO slots SELECT * FROM {opened} ON CONFLICT DO NOTHING
)""",
)

_DIALECT: sa.Dialect = postgresql.dialect()  # type: ignore[no-untyped-call]  # theirs


def statement(batch: Batch) -> tuple[bytes, list[Sequence[object]]]:
    """Return the statement that stores *batch*, and its parameters."""
    rows = _rows(batch)
    columns = _columns(
        [e + p for e, p in zip(batch.events, batch.payloads, strict=True)],
        len(_EVENT) + len(_PAYLOAD),
    )
    for each in rows:
        if each:
            columns += _columns(each, len(each[0]))
    return _text(tuple(bool(each) for each in rows)), columns


def _rows(batch: Batch) -> tuple[list[Row], ...]:
    turned = batch.turned()
    return (
        batch.blob_rows(),
        *(getattr(turned, one.name) for one in fields(turned)),
        batch.budget_rows(),
        batch.freed_rows(),
        batch.ended_rows(),
        batch.ended_rows(),
        batch.opened_rows(),
    )


def _columns(rows: Sequence[Row], width: int) -> list[Sequence[object]]:
    return [list(column) for column in zip(*rows, strict=True)] or [[]] * width


@cache
def _text(present: tuple[bool, ...]) -> bytes:
    others = [other for other, there in zip(_OTHERS, present, strict=True) if there]
    given = _unnest(
        [events.c[name] for name in _EVENT] + [payloads.c[name] for name in _PAYLOAD]
    )
    text = _APPEND.replace("{others}", "".join(f", {other}" for other in others))
    return text.format(
        given=given,
        event=", ".join(_EVENT),
        payload=", ".join(_PAYLOAD),
        run=", ".join(COLUMNS),
        changes=", ".join(f"{name} = t.{name}" for name in CHANGED),
        blob=_unnest([*blobs.columns]),
        started=_unnest([runs.c[name] for name in COLUMNS]),
        changed=_unnest([runs.c[name] for name in (*CHANGED, "run_id")]),
        tools=_unnest([*run_tools.columns]),
        over=_unnest([waits.c.asked_at, waits.c.run_id, waits.c.seq]),
        asked=_unnest([*waits.columns]),
        budget=_unnest([*budgets.columns]),
        freed=_unnest([slots.c.stream, slots.c.call]),
        ended=_unnest([slots.c.stream]),
        opened=_unnest([*slots.columns]),
    ).encode()


def _unnest(columns: Sequence[sa.Column[object]]) -> str:
    arrays = ", ".join(f"%b::{_type(column)}[]" for column in columns)
    names = ", ".join(column.name for column in columns)
    return f"unnest({arrays}) AS t ({names})"


def _type(column: sa.Column[object]) -> str:
    # Without a collation, which is not part of an array's type.
    name = column.type.compile(dialect=_DIALECT)
    return name.split(" ", 1)[0].lower()


_AT_ONCE = 10_000
_HASH = 32
_OPEN_PATIENCE_S = 30.0

# The number is ours: "tree".
_TRY: LiteralString = "SELECT pg_try_advisory_xact_lock(1953654117)"
_LOCK: LiteralString = "SELECT pg_advisory_xact_lock(1953654117)"
_TREE: LiteralString = "SELECT size, frontier, xid, position FROM tree"
_NOW: LiteralString = "SELECT pg_current_snapshot()::text"

# One value for all hashes: a row for each would take longer than the tree.
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
#: Transactions below the one have ended, those from the other on have not begun.
_BOUNDS: LiteralString = """\
SELECT pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint
FROM pg_current_snapshot() AS s"""
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
#: Whether a transaction that was open at a snapshot is still open.
_OPEN: LiteralString = (
    "SELECT pg_snapshot_xmin(pg_current_snapshot()) < pg_snapshot_xmax(%s::pg_snapshot)"
)


class PostgresTree:
    """
    See `seals.Sealer`.

    Each host signs after its own appends. Others are looked for rarely: their host may
    have died before it signed.

    Args:
        kept: What this process has committed last.
    """

    def __init__(
        self,
        engine: sa.Engine,
        clock: Clock,
        signer: Signer | None,
        kept: CommittedMark,
    ) -> None:
        self.newest: Seal | None = None
        self._kept = kept
        # The last that this process has committed, the transaction that is after it,
        # and when to look if all before that is signed.
        self._seen: tuple[str, int, bytes] | None = None
        self._after: int | None = None
        self._look_at = 0.0
        self._engine = engine
        self._clock = clock
        self._signer = signer
        self._one = threading.Lock()

    async def seal(self, *, force: bool = False) -> None:
        """See `seals.Sealer`."""
        now = time.monotonic()
        if self._seen != self._kept.event:
            self._seen, self._after, self._look_at = self._kept.event, None, now
        if self._signer is None or not (force or now >= self._look_at):
            return
        if await asyncio.to_thread(self._seal, self._signer, force=force):
            self._look_at = now + SLOW_S

    def _seal(self, signer: Signer, *, force: bool) -> bool:
        """Return whether all that this process had committed is signed now."""
        try:
            with self._one, self._engine.connect() as connection:
                driver = cast(
                    "psycopg.Connection", connection.connection.driver_connection
                )
                try:
                    if force:
                        self._catch_up(driver)
                    return self._round(driver, signer, force=force)
                finally:
                    driver.rollback()
        except (psycopg.Error, SQLAlchemyError) as exc:
            text, fix = explain(exc, None, "see `caxton db status`")
            raise StoreError(f"the log cannot be signed: {text}", fix=fix) from None

    def _catch_up(self, driver: psycopg.Connection) -> None:
        """Wait until all transactions that are open now have ended."""
        snapshot = _row(driver, _NOW)[0]
        until = time.monotonic() + _OPEN_PATIENCE_S
        while _row(driver, _OPEN, snapshot)[0]:
            if time.monotonic() > until:
                raise StoreError(
                    "a transaction of the database does not end, so later events "
                    "cannot be signed",
                    fix="end it, see pg_stat_activity",
                )
            time.sleep(_PAUSE_S)

    def _round(
        self, driver: psycopg.Connection, signer: Signer, *, force: bool
    ) -> bool:
        driver.execute("BEGIN")
        if force:
            driver.execute(_LOCK)
        elif not _row(driver, _TRY)[0]:
            return False
        ended, begun = _row(driver, _BOUNDS)
        self._after = self._after or begun
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
        return ended >= self._after and (newest is not None or not tree.size)

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
