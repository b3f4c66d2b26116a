"""A queue in the memory of one host. What is in it is in the log, too."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import AsyncGenerator, Collection
from dataclasses import dataclass, field
from itertools import count

from ..core.turns import rank, turn_behind, turn_of
from ..ports.placement import Job, Record


@dataclass(slots=True, eq=False)
class InProcess:
    """See `Placement`: the default."""

    shared: bool = False
    # In the order of rank and arrival.
    _heap: list[tuple[int, int, Job]] = field(
        default_factory=list[tuple[int, int, Job]], init=False
    )
    # Whether each job waits; otherwise it is claimed.
    _waits: dict[str, bool] = field(default_factory=dict[str, bool], init=False)
    # The last turn of each tenant in each class.
    _last: dict[tuple[str, int], int] = field(
        default_factory=dict[tuple[str, int], int], init=False
    )
    _arrivals: count[int] = field(default_factory=count, init=False)
    _some: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._heap

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Do nothing: the queue is that of this process."""
        yield

    async def submit(self, job: Job, record: Record | None = None) -> None:
        """Record a job, and put it into the queue."""
        if record:
            await record(None)
        if job.run_id not in self._waits:
            self._put(job)

    def _put(self, job: Job) -> None:
        key = job.sharer, job.priority
        same = [place for place, _, one in self._heap if one.priority == job.priority]
        head = turn_of(-min(same)) if same else None
        if head is None:
            self._forget(job.priority)
        turn = self._last[key] = turn_behind(head, self._last.get(key))
        place = -rank(job.priority, turn)
        heapq.heappush(self._heap, (place, next(self._arrivals), job))
        self._waits[job.run_id] = True
        self._some.set()

    def _forget(self, priority: int) -> None:
        for key in [key for key in self._last if key[1] == priority]:
            del self._last[key]

    async def claim(self) -> Job:
        """Return the next job, once there is one."""
        while not self._heap:
            self._some.clear()
            await self._some.wait()
        _, _, job = heapq.heappop(self._heap)
        self._waits[job.run_id] = False
        return job

    async def waiting(self, who: str) -> tuple[int, int]:
        """Return how many jobs wait, and how many of them are of that principal."""
        return self.known(who)

    def known(self, who: str) -> tuple[int, int]:
        """Return the same."""
        return len(self._heap), sum(job.who == who for _, _, job in self._heap)

    async def missing(self, run_ids: Collection[str]) -> set[str]:
        """Return those of the runs that are not in the queue."""
        return {*run_ids} - self._waits.keys()

    async def release(self, job: Job, *, again: bool = False) -> None:
        """Forget a job, or put it back."""
        self._waits.pop(job.run_id, None)
        if again:
            self._put(job)

    async def cancel(self, run_id: str) -> None:
        """Take a run out of the queue."""
        if self._waits.get(run_id):
            del self._waits[run_id]
            self._heap = [item for item in self._heap if item[2].run_id != run_id]
            heapq.heapify(self._heap)
