"""
Commits on PostgreSQL: one statement a batch, and what to do when its answer is lost.

A batch is one statement of its own: one round trip, one flush. Only budgets need a
transaction around it, so that other hosts wait with theirs.

A connection that is lost during a commit leaves it in doubt. The same rows are then
sent again over a new one: either they were not stored, or they are found by their
hash, which nobody else can have written.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import psycopg
import sqlalchemy as sa
from psycopg import errors
from sqlalchemy.exc import SQLAlchemyError

from ..errors import LeaseLost, StoreError
from .commit import Batch, Group, Outcome, Transactions
from .committed_mark import Kept
from .drafts import CONFLICT, CONFLICT_FIX
from .engine import explain, said
from .ledger import Page, Use
from .statements_postgres import HELD, STORED, TAKEN, statement

_PATIENCE = 10.0
_PAUSE = 0.05
_TRIES = 3
_DOWN = "see that the server of the store runs and can be reached"


@dataclass(slots=True)
class _Attempt:
    """What was sent last, in case that its answer is lost."""

    batch: Batch = field(default_factory=Batch)
    outcomes: list[Outcome] = field(default_factory=list[Outcome])


class PostgresCommitter(Transactions):
    """
    See `Committer`. It may wait for the network, so never on the event loop.

    Args:
        kept: Each new connection is asked for it: nothing is written to a server that
            was set back.
    """

    inline = False

    def __init__(self, engine: sa.Engine, kept: Kept) -> None:
        self._engine = engine
        self._kept = kept
        self._is_down = False
        self._connect()

    def _connect(self) -> None:
        self._connection = self._engine.connect()
        # Through SQLAlchemy the same statement costs a tenth more.
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
        tries, until = 1, time.monotonic() + _PATIENCE
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
                elif self._is_down or time.monotonic() > until:
                    # Whoever comes next does not wait as long: it tries once.
                    self._is_down = True
                    return [_lost(exc)] * len(groups)
                else:
                    time.sleep(_PAUSE)
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
            self._kept.check(lambda query: self._connection.execute(query).all())
            self._is_known = True

    def _store(self, groups: Sequence[Group], last: _Attempt) -> list[Outcome]:
        keys = sorted({item.key for group in groups for item in group.reserve})
        guards = [group.guard for group in groups if group.guard]
        if guards and self._landed(last):
            # A guard would find what this very append has changed.
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
        """Make these budgets ours alone until the transaction ends."""
        books = Page()
        for key, used, since, now in self._driver.execute(HELD, [keys]).fetchall():
            books.uses[key] = Use(used, since)
            books.time = max(books.time, now)
        for key, stream, call in self._driver.execute(TAKEN, [keys]).fetchall():
            books.places.setdefault(key, []).append((stream, call))
        return books

    def _landed(self, last: _Attempt) -> bool:
        """Whether what was sent last is in the log. It is there whole, or not."""
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
    """Whether another host was in the way, and the same may succeed now."""
    return isinstance(exc, psycopg.Error) and (exc.sqlstate or "").startswith("40")
