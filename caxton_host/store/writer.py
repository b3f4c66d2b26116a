"""
The log of one run, and the writer that decides when to commit.

A commit happens now, together with others, or a few milliseconds later. All decisions
are made on the event loop. While one batch is with the thread that commits it, the next
one gathers; so the slower the disk, the larger the batches. A run that is alone commits
on the event loop if no network lies between: a hop to the thread and back would cost it
more than the disk does.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from ..core.grants.settlement import Correction
from ..core.log.events import Event
from ..core.log.runs import ENDS
from ..errors import LeaseLost, StoreError
from ..ports.log import Refused, Reservation
from ..ports.placement import Within
from .channels import announcing
from .commit import Committer, Driver, Group, Line, LockedError, Outcome, ask
from .drafts import CONFLICT, CONFLICT_FIX, Drafter

BATCH = 512
#: Seconds that a queued event waits for an append to ride on.
LINGER = 0.005
#: Bytes of blobs that the event loop may wait for.
LIGHT = 256 * 1024
#: Bytes of a blob that is stored again rather than remembered.
_SMALL = 64 * 1024

_BEHIND = "SELECT 1 FROM events WHERE stream = ? AND seq > ?"

_OVER = frozenset(name for name, state in ENDS.items() if state != "running")

#: Called after each transaction with its seconds and its events.
OnCommit: TypeAlias = Callable[[float, int], None]


def untold(seconds: float, events: int) -> None:
    """Ignore a transaction."""
    del seconds, events


class Writer:
    """
    Appends to the log; one per process. Belongs to one event loop.

    Attributes:
        failed: Whether the last transaction failed.
    """

    def __init__(self, committer: Committer, on_commit: OnCommit = untold) -> None:
        self._committer = committer
        self._on_commit = on_commit
        self._thread = ThreadPoolExecutor(1, "caxton-log")
        self._pending: deque[Group] = deque()
        self._waiters = 0
        self._committing = False
        self._woken = False
        self._timer: asyncio.TimerHandle | None = None
        self._last: Line | None = None
        self._over = False
        self._closed: asyncio.Event | None = None
        #: Digests of large blobs that are durable. Blobs are never deleted.
        self._stored: set[str] = set()
        self.failed = False

    @property
    def commits(self) -> int:
        """How many transactions were made."""
        return self._committer.commits

    @property
    def queued(self) -> int:
        """How many groups wait. May be called from another thread."""
        return len(self._pending)

    def check(self, line: Line) -> None:
        """
        Return if *line* can take events.

        Raises:
            StoreError: It failed before, or the store is closed.
        """
        if line.error is not None:
            raise _again(line.error)
        if self._closed is not None:
            raise StoreError("the log is closed")

    def missing(self, blobs: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return *blobs* without the large ones that this process has stored."""
        return {key: data for key, data in blobs.items() if key not in self._stored}

    def queue(self, group: Group) -> None:
        """Store *group* with the next append, or after `LINGER`."""
        loop = asyncio.get_running_loop()
        group.queued_at = loop.time()
        self._add(group)
        if self._timer is None:
            self._timer = loop.call_later(LINGER, self._tick)

    async def append(self, group: Group) -> Refused | None:
        """
        Store *group*, and return once it and all before it are durable.

        Raises:
            StoreError: It could not be stored.

            asyncio.CancelledError: See `EventLog.append`.
        """
        self._add(group)
        if self._is_alone(group.line):
            self._commit_here()
        if not group.settled:
            group.future = asyncio.get_running_loop().create_future()
            self._waiters += 1
            self._wake()
            try:
                await group.future
            except asyncio.CancelledError:
                await self._wait_on(group)
                if isinstance(group.outcome, Refused):
                    raise asyncio.CancelledError(group.outcome) from None
                raise
        if isinstance(group.outcome, StoreError):
            raise _again(group.outcome)
        return group.outcome

    async def aclose(self) -> None:
        """Store queued groups, and take no more."""
        if self._closed is not None:
            return
        self._closed = asyncio.Event()
        try:
            if self._pending or self._committing:
                self._wake()
                await self._closed.wait()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._thread.shutdown()
            self._committer.close()

    def _add(self, group: Group) -> None:
        group.line.outstanding += 1
        self._pending.append(group)

    def _is_alone(self, line: Line) -> bool:
        """Return whether to commit on the event loop: no other stream is active."""
        return (
            (self._last is line or self._over)
            and self._committer.inline
            and not self._committing
            and len(self._pending) <= BATCH
            and (
                len(self._pending) == 1
                or all(group.line is line for group in self._pending)
            )
            and (self._last is line or self._is_light())
        )

    def _is_light(self) -> bool:
        blobs = (len(data) for group in self._pending for data in group.blobs.values())
        return sum(blobs) <= LIGHT

    def _commit_here(self) -> None:
        batch = list(self._pending)
        began = time.perf_counter()
        try:
            outcomes = self._committer.commit(batch, wait=False)
        except LockedError:
            return
        self._pending.clear()
        self._tell(batch, outcomes, time.perf_counter() - began)
        self._remember(batch)
        self._settle(batch, outcomes)

    def _wake(self) -> None:
        # Not at once: other tasks that are ready in this turn of the loop join the
        # batch.
        if not self._woken and not self._committing:
            self._woken = True
            asyncio.get_running_loop().call_soon(self._dispatch)

    def _tick(self) -> None:
        self._timer = None
        if self._committing or not self._pending:
            return
        loop = asyncio.get_running_loop()
        due = self._pending[0].queued_at + LINGER
        if due > loop.time():
            self._timer = loop.call_at(due, self._tick)
        else:
            self._dispatch()

    def _dispatch(self) -> None:
        self._woken = False
        if self._committing or not self._pending:
            return
        count = min(BATCH, len(self._pending))
        batch = [self._pending.popleft() for _ in range(count)]
        self._committing = True
        self._thread.submit(self._commit_there, batch, asyncio.get_running_loop())

    def _commit_there(
        self, batch: list[Group], loop: asyncio.AbstractEventLoop
    ) -> None:
        began = time.perf_counter()
        outcomes = self._committer.commit(batch)
        took = time.perf_counter() - began
        loop.call_soon_threadsafe(self._committed, batch, outcomes, took)

    def _committed(
        self, batch: list[Group], outcomes: list[Outcome], took: float
    ) -> None:
        self._committing = False
        self._tell(batch, outcomes, took)
        self._remember(batch)
        self._settle(batch, outcomes)
        if self._waiters or (self._closed and self._pending):
            self._wake()
        elif self._closed:
            self._closed.set()
        elif self._pending and self._timer is None:
            self._tick()

    def _tell(
        self, batch: Sequence[Group], outcomes: Sequence[Outcome], took: float
    ) -> None:
        settled = zip(batch, outcomes, strict=True)
        stored = sum(len(group.drafts) for group, failed in settled if not failed)
        self.failed = isinstance(outcomes[-1], StoreError)
        self._on_commit(took, stored)

    def _remember(self, batch: Sequence[Group]) -> None:
        """Note the stream of the commit, if it was one, and whether its run is over."""
        line, drafts = batch[-1].line, batch[-1].drafts
        is_one = all(group.line is line for group in batch)
        self._last = line if is_one else None
        self._over = is_one and bool(drafts) and drafts[-1].type in _OVER

    async def _wait_on(self, group: Group) -> None:
        """Wait until *group* is settled, although its caller was cancelled."""
        if group.settled:
            return
        group.future = asyncio.get_running_loop().create_future()
        while not group.future.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([group.future])

    def _settle(self, batch: Sequence[Group], outcomes: Sequence[Outcome]) -> None:
        failed = False
        for group, outcome in zip(batch, outcomes, strict=True):
            self._resolve(group, outcome)
            failed = failed or isinstance(outcome, StoreError)
        if failed:
            left = deque[Group]()
            for group in self._pending:
                if group.line.error is None:
                    left.append(group)
                else:
                    self._resolve(group, group.line.error)
            self._pending = left

    def _resolve(self, group: Group, outcome: Outcome) -> None:
        group.line.outstanding -= 1
        group.settled, group.outcome = True, outcome
        if isinstance(outcome, StoreError):
            group.line.error = outcome
        elif outcome is None and group.drafts:
            group.line.over = group.drafts[-1].type in _OVER
        if outcome is None and group.blobs:
            large = (k for k, data in group.blobs.items() if len(data) > _SMALL)
            self._stored.update(large)
        if group.future is not None:
            self._waiters -= 1
            if not group.future.done():
                group.future.set_result(None)


def _undisturbed(line: Line) -> Within:
    """Return the guard of an append without events: no other number is its fence."""

    def check(driver: Driver) -> None:
        if ask(driver, _BEHIND, line.stream, line.head[0]).fetchone():
            raise LeaseLost(CONFLICT, fix=CONFLICT_FIX)

    return check


def _again(error: StoreError) -> StoreError:
    """Return a copy: an exception that is raised twice carries both tracebacks."""
    return type(error)(str(error), fix=error.fix)


class SqlLog:
    """See `caxton_host.ports.log.EventLog`. Made by `SqlStore.create`."""

    def __init__(
        self, writer: Writer, drafter: Drafter, line: Line, holds: Callable[[], bool]
    ) -> None:
        self._writer = writer
        self._holds = holds
        self._drafter = drafter
        self._line = line

    @property
    def recorded_at(self) -> int:
        """When the newest event was recorded."""
        return self._drafter.recorded_at

    @property
    def head(self) -> tuple[int, bytes]:
        """Number and hash of the newest durable event."""
        return self._line.head

    def holds(self) -> bool:
        """Return whether this host may still send for the stream."""
        return self._line.error is None and self._holds()

    def leave(self) -> None:
        """Take no more events, so that a host may claim the stream: this one, too."""
        # The exception that stopped the run may keep the line alive.
        self._line.error = self._line.error or StoreError("the run was left")

    def queue(
        self,
        *events: Event,
        blobs: Mapping[str, bytes] | None = None,
        correct: Sequence[Correction] = (),
    ) -> None:
        """Add *events* to the stream without waiting."""
        group = self._group(events, blobs, ())
        group.correct = correct
        if not group.is_empty:
            self._writer.queue(group)

    async def append(
        self,
        *events: Event,
        blobs: Mapping[str, bytes] | None = None,
        reserve: Sequence[Reservation] = (),
        within: Within | None = None,
    ) -> Refused | None:
        """Add *events*, and return once they and all before them are durable."""
        group = self._group(events, blobs, reserve)
        group.guard = within or announcing(self._line.stream)
        if reserve and not events:
            group.guard = _undisturbed(self._line)
        if group.is_empty and not self._line.outstanding:
            return None
        try:
            return await self._writer.append(group)
        finally:
            if isinstance(group.outcome, Refused):
                self._drafter.seq -= len(group.drafts)

    def _group(
        self,
        events: Sequence[Event],
        blobs: Mapping[str, bytes] | None,
        reserve: Sequence[Reservation],
    ) -> Group:
        self._writer.check(self._line)
        return Group(
            line=self._line,
            drafts=self._drafter.draft(events),
            blobs=self._writer.missing(blobs or {}),
            reserve=reserve,
        )
