"""
One transaction for all groups that wait.

A failure of one stream does not affect the others: a batch that fails is taken apart,
and each of its groups is tried alone.
"""

from __future__ import annotations

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import sqlalchemy as sa

from ..core.grants.settlement import Correction
from ..core.log.chain import GENESIS
from ..core.log.checkpoint import Note
from ..core.log.projection import TURNS, Projection
from ..errors import CaxtonError, LogSetBackError, StoreError
from ..gateway.ledger import Books, Ledger, Page, settle
from ..ports.log import Refused, Reservation
from .drafts import Draft
from .projections import NONE, Row, Turned
from .schema import checkpoints, events

Outcome: TypeAlias = Refused | StoreError | None
_Find: TypeAlias = Callable[[sa.Select[Any]], Sized]


class LockedError(Exception):
    """Another process writes, and the caller cannot wait for it."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class Line:
    """
    The state of a stream in its writer.

    Attributes:
        head: Number and hash of its last committed event.

        outstanding: Groups that are not settled yet.

        places: Whether its calls may have places of budgets, to be freed at its end, or
            budgets that it shares with the runs below it, to be deleted then.

        error: Why it takes no more events.

        over: Whether its run has ended, or is suspended: nobody drives it.

        projection: Of a run: of its committed events.
    """

    stream: str
    head: tuple[int, bytes] = (0, GENESIS)
    outstanding: int = 0
    places: bool = True
    error: StoreError | None = None
    over: bool = False
    projection: Projection | None = None


class Driver(Protocol):
    """What a cursor of sqlite3 and a connection of psycopg have in common."""

    def execute(self, query: Any, params: Sequence[Any], /) -> Any:  # noqa: ANN401 -- a cursor of either
        """Execute a statement, and return a cursor."""
        ...


def ask(driver: Driver, statement: str, *params: object) -> Any:  # noqa: ANN401 -- a cursor
    """Execute a statement for either database, with a ``?`` for each parameter."""
    if not isinstance(driver, sqlite3.Cursor):
        statement = statement.replace("?", "%s")
    return driver.execute(statement, params)


@dataclass(slots=True, eq=False)
class Group:
    """
    Events and blobs that are committed together, or not at all.

    Attributes:
        seal: Whether to sign the log in the same transaction.

        queued_at: Seconds, by the clock of the event loop.

        future: Done when the group is settled, if a caller waits.

        settled: Whether it has an outcome.

        correct: What is added to budgets that were reserved before.

        guard: Called in the transaction; raises if it must not be made.
    """

    line: Line
    drafts: Sequence[Draft]
    blobs: Mapping[str, bytes]
    reserve: Sequence[Reservation] = ()
    correct: Sequence[Correction] = ()
    seal: bool = False
    queued_at: float = 0.0
    future: asyncio.Future[None] | None = None
    settled: bool = False
    outcome: Outcome = None
    guard: Callable[[Driver], None] | None = None

    @property
    def budgets(self) -> Iterator[str]:
        """The keys of the budgets that it changes."""
        yield from (item.key for item in self.reserve)
        yield from (item.key for item in self.correct)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in it to store."""
        return not (self.drafts or self.blobs or self.reserve or self.seal)


class Committer(Protocol):
    """
    Owns the connection that writes. One call at a time, from any thread.

    Attributes:
        inline: Whether the event loop may wait for a commit, since no network is used.

        commits: How many transactions it has made.
    """

    inline: bool = True
    commits: int = 0

    def commit(self, groups: Sequence[Group], *, wait: bool = True) -> list[Outcome]:
        """
        Store *groups*, in order, and return the outcome of each.

        Args:
            groups: Those of one stream in the order of their arrival.

            wait: Whether to wait for another process that writes.

        Raises:
            LockedError: Another process writes, and *wait* is false.
        """
        ...

    def close(self) -> None:
        """Give the connection back."""
        ...


class Batch:
    """
    The rows of one transaction.

    Attributes:
        heads: The new head of each of its streams.

        events: In the order of the columns of `schema.events`, without position,
            which the database assigns.

        payloads: Salt and payload of each event.

        ledger: Changes of budgets.
    """

    def __init__(self, books: Books | None = None) -> None:
        self.ledger = Ledger(books or Page())
        self.heads: dict[Line, tuple[int, bytes]] = {}
        self.events: list[tuple[Any, ...]] = []
        self.payloads: list[tuple[bytes, bytes]] = []
        self.blobs: dict[str, bytes] = {}
        self._of_runs: list[Group] = []
        self._turns: dict[Line, Projection | None] = {}

    def admit(self, group: Group) -> Refused | None:
        """Add *group*, unless a reservation is refused."""
        if group.reserve:
            group.line.places |= any(
                item.call is not None or item.key.startswith("#")
                for item in group.reserve
            )
            refused = self.ledger.reserve(group.reserve, group.line.stream)
            if refused:
                return refused
        self.ledger.correct(group.correct)
        self._add(group)
        return None

    def _add(self, group: Group) -> None:
        line = group.line
        seq, previous = self.heads.get(line, line.head)
        is_run = line.projection is not None
        for draft in group.drafts:
            seq += 1
            previous = draft.hash(previous, line.stream, seq)
            self.events.append((line.stream, seq, *draft[:6], previous))
            self.payloads.append((draft.salt, draft.payload))
            if is_run and draft.type in TURNS:
                self._turns[line] = None
            if line.places:
                settle(self.ledger, line.stream, draft.event)
        self.heads[line] = seq, previous
        self.blobs.update(group.blobs)
        if line.projection is not None:
            self._of_runs.append(group)
            if line.projection.asks:
                self._turns[line] = None

    def turned(self) -> Turned:
        """Return the rows of projections that change. Nothing is admitted after it."""
        turned = Turned() if self._turns else NONE
        drafts: dict[Line, list[Draft]] = {line: [] for line in self._turns}
        for group in self._of_runs if drafts else ():
            if group.line in drafts:
                drafts[group.line] += group.drafts
        for line, found in drafts.items():
            if before := line.projection:
                after = self._turns[line] = before.copy()
                _apply(after, found)
                turned.add(before, after)
        return turned

    def blob_rows(self) -> list[Row]:
        """Return digest, bytes, size; in an order that all hosts share."""
        return [(key, data, len(data)) for key, data in sorted(self.blobs.items())]

    def budget_rows(self) -> list[Row]:
        """Return key, what is used, since when."""
        return [(key, *use) for key, use in sorted(self.ledger.uses.items())]

    def opened_rows(self) -> list[Row]:
        """Return key, stream, call of each place that is taken."""
        return [(key, *holder) for key, holder in self.ledger.opened]

    def freed_rows(self) -> list[Row]:
        """Return stream, call of each whose places are free."""
        return sorted(self.ledger.freed)

    def ended_rows(self) -> list[Row]:
        """Return the streams whose places are free and whose budgets are not needed."""
        return [(stream,) for stream in sorted(self.ledger.ended)]

    def done(self) -> None:
        """Move the heads of the streams: the batch is durable."""
        for line, head in self.heads.items():
            line.head = head
        for group in self._of_runs:
            line = group.line
            if after := self._turns.get(line):
                line.projection = after
            elif line.projection:
                _apply(line.projection, group.drafts)
        self._of_runs.clear()


def _apply(projection: Projection, drafts: Sequence[Draft]) -> None:
    for draft in drafts:
        projection.apply(draft.type, draft.event, draft.recorded_at, draft.trace_id)


@dataclass(slots=True)
class CommittedMark:
    """
    What this process committed or saw last on its server.

    A server that was set back, by a restore or by a replica that lacked the end, has
    the same name and address. So each new connection is checked for what was committed
    last.

    Attributes:
        event: Stream, number and hash.

        note: The newest checkpoint, of any signer.
    """

    event: tuple[str, int, bytes] | None = None
    note: Note | None = None

    def check(self, find: _Find) -> None:
        """
        Return if the server still has both.

        Args:
            find: Returns the rows of a query.

        Raises:
            LogSetBackError: It lacks one of them.
        """
        if self.event:
            stream, seq, hash_ = self.event
            known = events.c.stream == stream, events.c.seq == seq
            query = sa.select(events.c.seq).where(*known, events.c.hash == hash_)
            if not find(query):
                raise _set_back()
        if self.note:
            size, text = self.note.checkpoint.size, self.note.text().encode()
            same = checkpoints.c.size == size, checkpoints.c.note == text
            if not find(sa.select(checkpoints.c.id).where(*same)):
                raise _set_back()


def _set_back() -> LogSetBackError:
    return LogSetBackError(
        "the database lacks events that this host has committed: it was restored "
        "from a copy, or a replica took over that lacked them",
        fix="stop the hosts, then: caxton db accept-copy",
    )


class Transactions(ABC, Committer):
    """A committer that takes a batch apart when it fails."""

    def commit(self, groups: Sequence[Group], *, wait: bool = True) -> list[Outcome]:
        """See `Committer`."""
        if all(group.is_empty for group in groups):
            return [None] * len(groups)
        try:
            return self._transaction(groups, wait=wait)
        except LockedError:
            raise
        except Exception as exc:  # noqa: BLE001 -- any failure belongs to a stream
            # An obstacle for all streams is not waited for again, stream by stream.
            if len(groups) == 1 or self._is_shared(exc):
                failure = self._failure(exc)
                return [failure] * len(groups)
        return self._one_by_one(groups)

    def alone(self, group: Group) -> None:
        """
        Store *group* in a transaction of its own.

        Raises:
            CaxtonError: It could not be stored, or its guard refused.
        """
        try:
            (outcome,) = self._transaction([group], wait=True)
        except CaxtonError:
            raise
        except Exception as exc:  # noqa: BLE001 -- as for `commit`
            outcome = self._failure(exc)
        if isinstance(outcome, StoreError):
            raise outcome

    def _one_by_one(self, groups: Sequence[Group]) -> list[Outcome]:
        failures: dict[Line, StoreError] = {}
        outcomes: list[Outcome] = []
        for group in groups:
            outcome = failures.get(group.line) or self.commit([group])[0]
            if isinstance(outcome, StoreError):
                failures[group.line] = outcome
            outcomes.append(outcome)
        return outcomes

    @abstractmethod
    def _transaction(self, groups: Sequence[Group], *, wait: bool) -> list[Outcome]:
        """Store *groups* together, or raise and leave nothing behind."""

    def _is_shared(self, exc: Exception) -> bool:
        """Return whether *exc* concerns all streams."""
        del exc
        return False

    @abstractmethod
    def _failure(self, exc: Exception) -> StoreError:
        """Return the error for a stream whose group failed with *exc*."""
