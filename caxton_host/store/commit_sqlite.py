"""Commits on SQLite: one file, one writer at a time, no network."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence
from typing import cast

import sqlalchemy as sa

from ..errors import CaxtonError, LeaseLost, StoreError
from ..ports import Clock
from .commit import Batch, Group, LockedError, Outcome, Transactions
from .drafts import CONFLICT, CONFLICT_FIX
from .engine import explain, path_of
from .file_guard import Whereabouts
from .ledger import Holder, Use
from .statements_sqlite import Statements
from .tree_sqlite import SqliteTree

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
