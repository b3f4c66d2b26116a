"""
One transaction for everything that waits.

Whatever one stream does wrong is its own loss: a batch that fails is taken apart,
and each of its groups is tried alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import TypeAlias, cast

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from ..core.chain import GENESIS
from ..core.events import ENDS, RunStarted
from ..errors import StoreError
from ..ports import Refused, Reservation
from .engine import said
from .entries import CONFLICT, Draft, ended_at, run_of, spend, started
from .statements import Statements

__all__ = ["Committer", "Group", "Line", "LockedError", "Outcome"]

Outcome: TypeAlias = Refused | StoreError | None

_Row: TypeAlias = tuple[object, ...]
_PATIENCE_MS = 10_000


class LockedError(Exception):
    """Another process writes, and the caller cannot wait for it."""


@dataclass(slots=True, eq=False)
class Line:
    """
    A stream, as its writer sees it.

    Attributes:
        head: Number and hash of its last committed event.

        outstanding: How many groups are not settled yet.

        error: Why it takes no more.
    """

    stream: str
    head: tuple[int, bytes] = (0, GENESIS)
    outstanding: int = 0
    error: StoreError | None = None


@dataclass(slots=True, eq=False)
class Group:
    """
    What is committed together, or not at all.

    Attributes:
        queued_at: When it came, on the loop's clock.

        future: Done when it is settled, if anyone waits.

        settled: Whether it has an outcome.
    """

    line: Line
    drafts: Sequence[Draft]
    blobs: Mapping[str, bytes]
    reserve: Sequence[Reservation] = ()
    queued_at: float = 0.0
    future: asyncio.Future[None] | None = None
    settled: bool = False
    outcome: Outcome = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in it to store."""
        return not (self.drafts or self.blobs or self.reserve)


class _Batch:
    """The rows of one transaction."""

    def __init__(self, sql: Statements, position: int) -> None:
        self.sql = sql
        self.position = position
        self.heads: dict[Line, tuple[int, bytes]] = {}
        self.events: list[_Row] = []
        self.payloads: list[_Row] = []
        self.blobs: dict[str, bytes] = {}
        self.runs: list[tuple[str, list[_Row]]] = []
        self.budgets: dict[str, int] = {}

    def add(self, group: Group) -> None:
        line = group.line
        seq, previous = self.heads.get(line, line.head)
        run_id = run_of(line.stream)
        for draft in group.drafts:
            seq += 1
            self.position += 1
            previous = draft.hash(previous, line.stream, seq)
            self.events.append((self.position, line.stream, seq, *draft[:6], previous))
            self.payloads.append((self.position, draft.salt, draft.payload))
            if run_id is not None and draft.type in ENDS:
                self._project(run_id, draft)
        self.heads[line] = seq, previous
        self.blobs.update(group.blobs)

    def _project(self, run_id: str, draft: Draft) -> None:
        event = draft.event
        if isinstance(event, RunStarted):
            row = astuple(started(run_id, draft, event))
            self.runs.append((self.sql.started, [row]))
        else:
            change = ENDS[draft.type], ended_at(draft), run_id
            self.runs.append((self.sql.state, [change]))

    def rows(self) -> list[tuple[str, list[_Row]]]:
        """Return the statements to send, each with its rows."""
        return [
            (self.sql.event, self.events),
            (self.sql.payload, self.payloads),
            (self.sql.blob, [(k, v, len(v)) for k, v in self.blobs.items()]),
            *self.runs,
            (self.sql.budget, list[_Row](sorted(self.budgets.items()))),
        ]


class Committer:
    """
    Owns the connection that writes. One call at a time, from any thread.

    Attributes:
        commits: How many transactions it has made.
    """

    def __init__(self, engine: sa.Engine) -> None:
        self.commits = 0
        self._engine = engine
        self._sql = Statements.of(engine.dialect)
        self._connect()

    def _connect(self) -> None:
        self._connection = self._engine.connect()
        # For what has no rows to insert: a result object costs 9 microseconds.
        self._driver = cast(
            "sqlite3.Connection", self._connection.connection.driver_connection
        )
        self._patience = -1

    def close(self) -> None:
        """Give the connection back."""
        self._connection.close()

    def commit(self, groups: Sequence[Group], *, wait: bool = True) -> list[Outcome]:
        """
        Store *groups*, in order, and return what became of each.

        Args:
            groups: Those of one stream in the order in which they came.

            wait: For another process that writes.

        Raises:
            LockedError: Another process writes, and *wait* is false.
        """
        try:
            return self._transaction(groups, _PATIENCE_MS if wait else 0)
        except Exception as exc:  # noqa: BLE001 -- whatever it is, it is a stream's own
            self._roll_back()
            if not wait and _is_locked(exc):
                raise LockedError from None
            if len(groups) == 1:
                return [_failure(exc)]
        return self._one_by_one(groups)

    def _one_by_one(self, groups: Sequence[Group]) -> list[Outcome]:
        failures: dict[Line, StoreError] = {}
        outcomes: list[Outcome] = []
        for group in groups:
            outcome = failures.get(group.line) or self.commit([group])[0]
            if isinstance(outcome, StoreError):
                failures[group.line] = outcome
            outcomes.append(outcome)
        return outcomes

    def _transaction(self, groups: Sequence[Group], patience: int) -> list[Outcome]:
        if all(group.is_empty for group in groups):
            return [None] * len(groups)
        if self._connection.invalidated:
            self._connection.close()
            self._connect()
        driver, sql = self._driver, self._sql
        if patience != self._patience:
            driver.execute(f"PRAGMA busy_timeout = {patience}")
            self._patience = patience
        driver.execute("BEGIN IMMEDIATE")
        batch = _Batch(sql, driver.execute(sql.last).fetchone()[0] or 0)
        outcomes: list[Outcome] = [self._admit(batch, group) for group in groups]
        for statement, rows in batch.rows():
            if rows:
                self._connection.exec_driver_sql(statement, rows)
        driver.execute("COMMIT")
        self.commits += 1
        for line, head in batch.heads.items():
            line.head = head
        return outcomes

    def _admit(self, batch: _Batch, group: Group) -> Refused | None:
        if group.reserve:
            after = spend(group.reserve, lambda key: self._used(batch, key))
            if isinstance(after, Refused):
                return after
            batch.budgets |= after
        batch.add(group)
        return None

    def _used(self, batch: _Batch, key: str) -> int:
        if key in batch.budgets:
            return batch.budgets[key]
        row = self._driver.execute(self._sql.used, (key,)).fetchone()
        return row[0] if row else 0

    def _roll_back(self) -> None:
        # SQLite has rolled back by itself after some errors, and refuses then.
        with contextlib.suppress(SQLAlchemyError):
            self._connection.exec_driver_sql("ROLLBACK")


def _cause(exc: Exception) -> BaseException:
    """Return what the driver said, without the statement around it."""
    return (isinstance(exc, DBAPIError) and exc.orig) or exc


def _is_locked(exc: Exception) -> bool:
    code = getattr(_cause(exc), "sqlite_errorcode", None)
    return code == sqlite3.SQLITE_BUSY


def _failure(exc: Exception) -> StoreError:
    cause = _cause(exc)
    if isinstance(cause, sqlite3.IntegrityError):
        return StoreError(CONFLICT, fix="see which host drives it, and stop one")
    if isinstance(cause, sqlite3.Error):
        return StoreError(
            f"the log cannot be written: {said(exc)}",
            fix="see that its disk has room and that its file can be written",
        )
    return StoreError(f"an event cannot be stored: {type(cause).__name__}")
