"""
Writing to SQLite: one file, one writer at a time, no network.

Statements are compiled once from the tables and go to the driver: for 64 rows the same
``insert()`` through Core costs 54 %. The tree grows in the transaction of every append.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import cast

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from ..core.log.checkpoint import parse_note
from ..core.log.runs import RunRow
from ..core.log.tree import Frontier
from ..errors import CaxtonError, LeaseLost, StoreError
from ..lib.signing import Signer
from ..ports import Clock
from .commit import Batch, Group, Line, LockedError, Outcome, Transactions
from .diagnosis import explain, path_of
from .drafts import CONFLICT, CONFLICT_FIX
from .file_guard import Whereabouts
from .ledger import Holder, Use
from .schema import blobs, budgets, checkpoints, events, payloads, runs, slots, tree
from .seals import UNSIGNED, Seal, shortened, sign, unsigned
from .writer import Writer

_PATIENCE_MS = 10_000
_TRACE, _SPAN, _DIGEST, _HASH = 5, 6, 7, 8


class SqliteCommitter(Transactions):
    """
    See `Committer`.

    Args:
        tree: That of the same database.

        clock: That of the budgets.

        whereabouts: Of its file: nothing is written to one that has lost its name.
    """

    def __init__(
        self,
        engine: sa.Engine,
        tree: SqliteTree,
        clock: Clock,
        whereabouts: Whereabouts,
    ) -> None:
        self._engine = engine
        self._whereabouts = whereabouts
        self._clock = clock
        self._tree = tree
        self._sql = Statements.of(engine.dialect)
        self._connect()

    def _connect(self) -> None:
        self._connection = self._engine.connect()
        # Through SQLAlchemy a commit costs 30 microseconds more: a fifth of it. A
        # cursor for each statement is some more.
        self._driver = cast(
            "sqlite3.Connection", self._connection.connection.driver_connection
        ).cursor()
        self._patience = -1

    def close(self) -> None:
        """Give the connection back."""
        # A statement that failed would keep the file open, and SQLite would not move
        # what is in the write-ahead log into it.
        with contextlib.suppress(sqlite3.ProgrammingError):
            self._driver.close()
        self._connection.close()

    def _transaction(self, groups: Sequence[Group], *, wait: bool) -> list[Outcome]:
        try:
            return self._commit(groups, _PATIENCE_MS if wait else 0)
        except Exception as exc:
            # SQLite has rolled back by itself after some errors, and refuses then.
            self._tree.rolled_back()
            with contextlib.suppress(sqlite3.Error):
                self._driver.execute("ROLLBACK")
            if isinstance(exc, sqlite3.ProgrammingError):
                # Closed, as far as one can tell.
                self._connection.invalidate()
            if not wait and _is_locked(exc):
                raise LockedError from None
            raise

    def _commit(self, groups: Sequence[Group], patience: int) -> list[Outcome]:
        self._whereabouts.check_sometimes()
        if self._connection.invalidated:
            self._connection.close()
            self._connect()
        driver = self._driver
        if patience != self._patience:
            driver.execute(f"PRAGMA busy_timeout = {patience}")
            self._patience = patience
        driver.execute("BEGIN IMMEDIATE")
        for group in groups:
            if group.guard:
                group.guard(driver)
        batch = Batch(self)
        outcomes: list[Outcome] = [batch.admit(group) for group in groups]
        if batch.events:
            self._append(batch)
        self._change(batch)
        if any(group.seal for group in groups):
            self._tree.seal(driver)
        driver.execute("COMMIT")
        self._tree.committed()
        self.commits += 1
        batch.done()
        return outcomes

    def _append(self, batch: Batch) -> None:
        # The driver takes a bytearray as it is. For bytes and for None it first looks
        # in vain for an adapter: a quarter of a microsecond each.
        if any(e[_TRACE] is not None or e[_SPAN] is not None for e in batch.events):
            statement, kept = self._sql.event, _DIGEST
        else:
            statement, kept = self._sql.untraced, _TRACE
        *events, last = [
            (*e[:kept], bytearray(e[_DIGEST]), bytearray(e[_HASH]))
            for e in batch.events
        ]
        if events:
            self._driver.executemany(statement, events)
        # Only here does it tell the position. Theirs are those before it: nobody else
        # writes until the end of the transaction.
        position = self._driver.execute(statement, last).lastrowid or 0
        first = position - len(events)
        payloads = [
            (position, bytearray(salt), bytearray(payload))
            for position, (salt, payload) in enumerate(batch.payloads, first)
        ]
        self._driver.executemany(self._sql.payload, payloads)
        self._tree.grow(self._driver, first, [e[_HASH] for e in batch.events])

    def _change(self, batch: Batch) -> None:
        driver, sql = self._driver, self._sql
        if batch.blobs:
            driver.executemany(sql.blob, batch.blob_rows())
        if batch.started:
            driver.executemany(sql.started, batch.started_rows())
        if batch.states:
            driver.executemany(sql.state, batch.state_rows())
        ledger = batch.ledger
        if ledger.uses:
            driver.executemany(sql.budget, batch.budget_rows())
        if ledger.freed:
            driver.executemany(sql.freed, batch.freed_rows())
        if ledger.ended:
            driver.executemany(sql.ended, batch.ended_rows())
        if ledger.opened:
            driver.executemany(sql.opened, batch.opened_rows())

    def now(self) -> int:
        """See `Books`. A file has the clock of the machine that it is on."""
        return self._clock.now()

    def use(self, key: str) -> Use:
        """See `Books`."""
        row = self._driver.execute(self._sql.used, (key,)).fetchone()
        return Use(*row) if row else Use()

    def holders(self, key: str) -> list[Holder]:
        """See `Books`."""
        return self._driver.execute(self._sql.holders, (key,)).fetchall()

    def _is_shared(self, exc: Exception) -> bool:
        return _is_locked(exc)

    def _failure(self, exc: Exception) -> StoreError:
        if isinstance(exc, StoreError):
            return exc
        if isinstance(exc, CaxtonError):
            return StoreError(str(exc), fix=exc.fix)
        if isinstance(exc, sqlite3.IntegrityError):
            return LeaseLost(CONFLICT, fix=CONFLICT_FIX)
        if isinstance(exc, sqlite3.Error):
            text, fix = explain(exc, path_of(self._engine), "see `caxton db status`")
            return StoreError(f"the log cannot be written: {text}", fix=fix)
        return StoreError(f"an event cannot be stored: {type(exc).__name__}")


def _is_locked(exc: Exception) -> bool:
    code = getattr(exc, "sqlite_errorcode", None)
    return code == sqlite3.SQLITE_BUSY


_STARTED = [field.name for field in fields(RunRow)]
_EVENT = [column.name for column in events.columns if column.name != "position"]
_UNTRACED = [name for name in _EVENT if name not in {"trace_id", "span_id"}]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statements:
    """
    The writer's statements.

    Attributes:
        event: Parameters: the columns of `events` but position, in order. SQLite
            gives the one behind the highest: rows are never deleted.

        untraced: The same without trace and span, which then are null.

        payload: Position, salt, payload.

        blob: Digest, bytes, size. A digest that is there already is left alone.

        started: Parameters: the fields of `RunRow`, in order.

        state: State, end, owner, epoch or nothing, run id.

        used: Key.

        budget: Key, what is used now, since when.

        holders: Key.

        opened: Key, stream, call.

        freed: Stream, call.

        ended: Stream.
    """

    event: str
    untraced: str
    payload: str
    blob: str
    started: str
    state: str
    used: str
    budget: str
    holders: str
    opened: str
    freed: str
    ended: str

    @classmethod
    def of(cls, dialect: sa.Dialect) -> Statements:
        """Return the statements in *dialect*."""
        budget = sqlite.insert(budgets)
        return cls(
            event=_sql(sa.insert(events), dialect, _EVENT),
            untraced=_sql(sa.insert(events), dialect, _UNTRACED),
            payload=_sql(sa.insert(payloads), dialect, payloads.c.keys()),
            blob=_sql(
                sqlite.insert(blobs).on_conflict_do_nothing(), dialect, blobs.c.keys()
            ),
            started=_sql(sa.insert(runs), dialect, _STARTED),
            state=_sql(
                sa.update(runs)
                .values(
                    state=sa.bindparam("to"),
                    ended_at=sa.bindparam("at"),
                    owner=sa.bindparam("by"),
                    epoch=sa.func.coalesce(
                        sa.bindparam("nth", type_=runs.c.epoch.type), runs.c.epoch
                    ),
                )
                .where(runs.c.run_id == sa.bindparam("run")),
                dialect,
            ),
            used=_sql(
                sa.select(budgets.c.used, budgets.c.since).where(
                    budgets.c.key == sa.bindparam("k")
                ),
                dialect,
            ),
            budget=_sql(
                budget.on_conflict_do_update(
                    index_elements=[budgets.c.key],
                    set_={
                        "used": budget.excluded.used,
                        "since": budget.excluded.since,
                    },
                ),
                dialect,
                budgets.c.keys(),
            ),
            holders=_sql(
                sa.select(slots.c.stream, slots.c.call).where(
                    slots.c.key == sa.bindparam("k")
                ),
                dialect,
            ),
            opened=_sql(
                sqlite.insert(slots).on_conflict_do_nothing(), dialect, slots.c.keys()
            ),
            freed=_sql(
                sa.delete(slots).where(
                    slots.c.stream == sa.bindparam("run"),
                    slots.c.call == sa.bindparam("nth"),
                ),
                dialect,
            ),
            ended=_sql(
                sa.delete(slots).where(slots.c.stream == sa.bindparam("run")), dialect
            ),
        )


def _sql(
    statement: sa.ClauseElement,
    dialect: sa.Dialect,
    columns: Iterable[str] | None = None,
) -> str:
    return str(
        statement.compile(
            dialect=dialect, column_keys=list(columns) if columns else None
        )
    )


_log = logging.getLogger(__name__)


class SqliteTree:
    """
    The tree of one database. Called within the transactions of its only caller.

    Attributes:
        newest: The last checkpoint that was committed here.
    """

    def __init__(
        self, dialect: sa.Dialect, clock: Clock, signer: Signer | None
    ) -> None:
        self.newest: Seal | None = None
        self._clock = clock
        self._signer = signer
        self._warned = False
        self._tree, self._position = Frontier(), 0
        self._grown: tuple[Frontier, int] | None = None
        self._sealed: Seal | None = None
        self._sql = {
            name: str(statement.compile(dialect=dialect, column_keys=keys))
            for name, statement, keys in _STATEMENTS
        }

    @property
    def is_new(self) -> bool:
        """Whether there is something that no checkpoint from here covers."""
        size = self.newest.note.checkpoint.size if self.newest else 0
        return self._signer is not None and self._tree.size > size

    def grow(self, driver: sqlite3.Cursor, first: int, hashes: Sequence[bytes]) -> None:
        """
        Add events.

        Args:
            driver: Within their transaction.

            first: The position of the first of them.

            hashes: Theirs.

        Raises:
            LogBrokenError: The log is shorter than its tree.
        """
        grown = self._current(driver, first - 1)
        grown.extend(hashes)
        last = first + len(hashes) - 1
        driver.execute(
            self._sql["grow"], (grown.size, bytearray(grown.to_bytes()), last)
        )
        self._grown = grown, last
        if self.newest is None and self._signer is not None:
            self._try_to_sign(driver, grown, self._signer)

    def seal(self, driver: sqlite3.Cursor) -> None:
        """Sign what is there. See `grow` for the argument and what is raised."""
        if self._sealed is not None or self._signer is None:
            return
        tree_ = self._grown[0] if self._grown else self._current(driver, None)
        if not tree_.size:
            return
        known = tree_.size, self._signer.public_key()
        if row := driver.execute(self._sql["signed"], known).fetchone():
            self._sealed = Seal(parse_note(row[0]), known[1])
        else:
            self._sign(driver, tree_, self._signer)

    def committed(self) -> None:
        """Note that the transaction is durable."""
        if self._grown:
            self._tree, self._position = self._grown
        if self._sealed:
            self.newest = self._sealed
        self.rolled_back()

    def rolled_back(self) -> None:
        """Forget the transaction."""
        self._grown = self._sealed = None

    def _current(self, driver: sqlite3.Cursor, last: int | None) -> Frontier:
        """Return the tree up to position *last*, or up to the end."""
        if last is None:
            last = driver.execute(self._sql["last"]).fetchone()[0] or 0
        if self._position == last:
            return self._tree.copy()
        # Another process wrote, or an older version that knew of no tree.
        size, frontier, position = driver.execute(self._sql["tree"]).fetchone()
        found = Frontier.parse(size, frontier)
        if position > last:
            raise shortened(size)
        rest = driver.connection.execute(self._sql["hashes"], (position, last))
        found.extend(hash_ for (hash_,) in rest)
        self._tree, self._position = found.copy(), last
        return found

    def _try_to_sign(
        self, driver: sqlite3.Cursor, grown: Frontier, signer: Signer
    ) -> None:
        try:
            self._sign(driver, grown, signer)
        except (CaxtonError, OSError) as exc:
            if not self._warned:
                self._warned = True
                _log.warning(UNSIGNED, *unsigned(exc))

    def _sign(self, driver: sqlite3.Cursor, grown: Frontier, signer: Signer) -> None:
        first: bytes = driver.execute(self._sql["first"]).fetchone()[0]
        seal = sign(signer, grown, first)
        note, now = seal.note.text().encode(), self._clock.now()
        driver.execute(
            self._sql["checkpoint"], (grown.size, note, seal.public_key, now)
        )
        self._sealed = seal


class SqliteSealer:
    """
    See `Sealer`: signs in a transaction of the writer.

    Args:
        writer: Of the same log.

        tree: The same.
    """

    def __init__(self, writer: Writer, tree: SqliteTree) -> None:
        self._writer = writer
        self._tree = tree

    @property
    def newest(self) -> Seal | None:
        """See `Sealer`."""
        return self._tree.newest

    async def seal(self, *, force: bool = False) -> None:
        """See `Sealer`."""
        if force or self._tree.is_new:
            group = Group(line=Line(""), drafts=(), blobs={}, seal=True)
            await self._writer.append(group)


_STATEMENTS: Sequence[tuple[str, sa.ClauseElement, list[str] | None]] = (
    ("last", sa.select(sa.func.max(events.c.position)), None),
    (
        "first",
        sa.select(events.c.hash).where(
            events.c.position
            == sa.select(sa.func.min(events.c.position)).scalar_subquery()
        ),
        None,
    ),
    (
        "hashes",
        sa.select(events.c.hash)
        .where(
            events.c.position > sa.bindparam("a"),
            events.c.position <= sa.bindparam("b"),
        )
        .order_by(events.c.position),
        None,
    ),
    ("tree", sa.select(tree.c.size, tree.c.frontier, tree.c.position), None),
    (
        "grow",
        sa.update(tree).values(
            size=sa.bindparam("n"),
            frontier=sa.bindparam("f"),
            position=sa.bindparam("p"),
        ),
        None,
    ),
    (
        "signed",
        sa.select(checkpoints.c.note).where(
            checkpoints.c.size == sa.bindparam("n"),
            checkpoints.c.public_key == sa.bindparam("k"),
        ),
        None,
    ),
    (
        "checkpoint",
        sa.insert(checkpoints),
        ["size", "note", "public_key", "signed_at"],
    ),
)
