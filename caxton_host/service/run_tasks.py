"""
Background tasks that drive runs.

The caller waits until the start of a run is durable; the task goes on. When the host
stops, runs get some time to end; those that take longer are suspended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from ..core.log.events import Event, RunSuspended, ToolProgress
from ..lib.fair_loop import Pace, paced
from ..runs.admission import RunQueue, Ticket, about_to_stop
from ..runs.cancellation import UnderWay

logger = logging.getLogger("caxton_host")

Watcher: TypeAlias = Callable[[ToolProgress], None]

#: Drives a run; calls its argument once the start of the run is durable.
Driving: TypeAlias = Callable[[Callable[[str], None]], Awaitable[object]]


#: Runs that continue in one turn of the event loop, so that requests are not delayed.
_AT_ONCE = 16


def _ignore(_run: str) -> None:
    """Ignore a run."""


class Watchers:
    """Callbacks for the progress of calls, by run."""

    def __init__(self) -> None:
        self._of: dict[str, list[Watcher]] = {}

    def tell(self, run_id: str, event: ToolProgress) -> None:
        """Call the callbacks of a run."""
        for watcher in self._of.get(run_id, ()):
            watcher(event)

    def add(self, run_id: str, watcher: Watcher) -> Callable[[], None]:
        """Add a callback, and return the function that removes it."""
        watchers = self._of.setdefault(run_id, [])
        watchers.append(watcher)

        def remove() -> None:
            watchers.remove(watcher)
            if not watchers:
                self._of.pop(run_id, None)

        return remove


@dataclass(slots=True, eq=False)
class _Job:
    """
    A run that this service drives.

    Attributes:
        started: Done when its start is durable, or when it has failed to start.

        task: Drives it.

        end: The event that ended or suspended it, once that is recorded.

        over: Set when it is no longer driven here.
    """

    run_id: str
    started: asyncio.Future[None]
    task: asyncio.Task[None] | None = None
    end: Event | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def begun(self, _run: str) -> None:
        """Note that the start is durable."""
        if not self.started.done():
            self.started.set_result(None)

    def failed(self, exc: Exception) -> None:
        """Note that it could not start; what comes later is in its log."""
        if not self.started.done():
            self.started.set_exception(exc)
        else:
            logger.warning("run %s: %s", self.run_id, exc)


@dataclass(slots=True, kw_only=True)
class RunTasks:
    """
    Drives runs in background tasks.

    Attributes:
        line: Bounds the runs, and queues them.

        under_way: The runs of the host.

        suspended: Called with the id of each run that is suspended.
    """

    line: RunQueue
    under_way: UnderWay
    suspended: Callable[[str], None] = _ignore
    _jobs: dict[str, _Job] = field(default_factory=dict[str, _Job], init=False)
    _pace: Pace = field(default_factory=partial(Pace, _AT_ONCE), init=False)

    def __post_init__(self) -> None:
        self.under_way.ended = self._ended

    def _ended(self, run_id: str, end: Event) -> None:
        if job := self._jobs.get(run_id):
            job.end = end
        if isinstance(end, RunSuspended):
            self.suspended(run_id)

    async def begin(self, run_id: str, ticket: Ticket, driving: Driving) -> None:
        """
        Drive a run; return once it has begun.

        If the caller is cancelled before, it does not begin.

        Args:
            run_id: The run.

            ticket: Its place, which is returned when it is over.

            driving: Drives it.

        Raises:
            CaxtonError: It could not begin.
        """
        ticket.kept = True
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        job = self._jobs[run_id] = _Job(run_id, started)
        job.task = asyncio.create_task(self._drive(job, ticket, driving))
        try:
            await asyncio.shield(started)
        except asyncio.CancelledError:
            job.task.cancel()
            raise

    async def _drive(self, job: _Job, ticket: Ticket, driving: Driving) -> None:
        try:
            with ticket:
                await ticket.turn()
                await paced(driving(job.begun), self._pace)
                job.begun(job.run_id)
        except Exception as exc:  # noqa: BLE001 -- told to who waits for the start
            job.failed(exc)
        finally:
            job.started.cancel()
            job.over.set()
            if self._jobs.get(job.run_id) is job:
                del self._jobs[job.run_id]

    def drives(self, run_id: str) -> bool:
        """Return whether a run is driven here, or is about to be."""
        return run_id in self._jobs

    async def begun(self, run_id: str) -> bool:
        """
        Return whether a run is driven here, once that has begun.

        Raises:
            CaxtonError: It could not begin.
        """
        while job := self._jobs.get(run_id):
            await asyncio.wait([job.started])
            # Cancelled: the caller hung up before it began.
            if not job.started.cancelled():
                job.started.result()
                return True
        return False

    async def over(self, run_id: str) -> Event | None:
        """
        Wait until a run is not driven here: it has ended, or is suspended.

        Returns:
            The event that says so, if it was driven here until now.
        """
        job = self._jobs.get(run_id)
        if job is None:
            return None
        await job.over.wait()
        return job.end

    async def drain(self, seconds: float) -> int:
        """
        Stop accepting runs, and wait until those under way end.

        Runs that take longer are suspended for the next host: their calls that are
        under way are in doubt then.

        Args:
            seconds: How long they may take.

        Returns:
            How many were suspended.
        """
        self.line.closed = True
        left = [job.task for job in self._jobs.values() if job.task]
        if left:
            await asyncio.wait(left, timeout=seconds)
        stopping = RunSuspended(reason="host_stopped")
        late = list(self._jobs.values())
        await asyncio.gather(*(self._let_go(job, stopping) for job in late))
        return len(late)

    async def _let_go(self, job: _Job, end: RunSuspended) -> None:
        if await self.under_way.stop(job.run_id, end) is None and job.task:
            if not job.started.done():
                job.failed(about_to_stop())
            job.task.cancel()  # It has not begun.
        await job.over.wait()
