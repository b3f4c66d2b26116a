"""
procrastinate, on the PostgreSQL of the log: one queue for all hosts.

A job is deferred in the transaction of `RunQueued`. Its priority is its place in the
fair order, its queue is its tenant, and its queueing lock is the run, so that a run
waits once. The engine's watch over running jobs is not used: `Placer` finds what a dead
host had claimed.

See https://procrastinate.readthedocs.io
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, LiteralString, TypeAlias

from procrastinate import PsycopgConnector, SyncPsycopgConnector, exceptions
from procrastinate.jobs import Job as Deferred
from procrastinate.jobs import Status
from procrastinate.manager import JobManager
from procrastinate.schema import SchemaManager

from ..core.turns import MOST, rank, turn_behind, turn_of
from ..errors import LeaseLost, StoreError
from ..lib.bell import SLOW_S, Bell
from ..ports.placement import Job, Record

#: The name of our jobs: no function of that name is ever called.
_TASK = "caxton.start"
Rows: TypeAlias = list[dict[str, Any]]
#: Calls a function with a connection of the log, in a thread.
Over: TypeAlias = Callable[[Callable[[Any], Rows]], Awaitable[Rows]]
#: Seconds to wait for a connection, and between two looks where nobody tells of jobs.
_PATIENCE_S, _UNHEARD_S = 10.0, 1.0
#: Seconds between two signs of life, and after which a host is forgotten.
_BEAT_S, _GONE_S = 60.0, 3600.0
#: A time that is over: a job that is given back may be claimed at once.
_PAST = datetime(2000, 1, 1, tzinfo=UTC)

_HEAD = """\
SELECT max(priority) AS head,
  min(priority) FILTER (WHERE queue_name = %(queue)s) AS last
FROM procrastinate_jobs
WHERE status = 'todo' AND priority >= %(least)s AND priority < %(most)s"""
_WAITING = """\
SELECT count(*) AS found, count(*) FILTER (WHERE args->>'who' = %(who)s) AS own
FROM procrastinate_jobs WHERE status = 'todo'"""
_KNOWN = """\
SELECT queueing_lock FROM procrastinate_jobs
WHERE status = 'todo' AND queueing_lock = ANY(%(runs)s)"""
_AGAIN = "SELECT pg_notify('procrastinate_any_queue_v1', '')"
_SWEEP = """\
DELETE FROM procrastinate_jobs WHERE status = 'doing' AND worker_id IS NULL
RETURNING id"""
_THERE = "SELECT to_regclass('procrastinate_jobs') AS found"

_log = logging.getLogger("caxton_host")


@contextlib.contextmanager
def _told() -> Generator[None]:
    """Raise the errors of the engine as those of the log."""
    try:
        yield
    except (exceptions.ConnectorException, exceptions.AppNotOpen) as exc:
        cause = exc.__cause__ or exc
        raise StoreError(
            f"the queue cannot be used: {type(cause).__name__}",
            fix="see that the server of the store runs, then: caxton db migrate",
        ) from None


class _Connector(SyncPsycopgConnector):
    """Executes statements of the engine over connections of the log, in a thread."""

    def __init__(self, over: Over) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType] -- theirs
        self._over = over

    async def execute_query_all_async(
        self,
        query: LiteralString,
        **arguments: Any,  # noqa: ANN401 -- as theirs
    ) -> Rows:
        def execute(driver: Any) -> Rows:  # noqa: ANN401 -- psycopg's
            return self.execute_query_all_with_connection(driver, query, **arguments)

        return await self._over(execute)

    async def execute_query_one_async(
        self,
        query: LiteralString,
        **arguments: Any,  # noqa: ANN401 -- the same
    ) -> dict[str, Any]:
        (row,) = await self.execute_query_all_async(query, **arguments)
        return row

    async def execute_query_async(
        self,
        query: LiteralString,
        **arguments: Any,  # noqa: ANN401 -- the same
    ) -> None:
        await self.execute_query_all_async(query, **arguments)


@dataclass(slots=True, kw_only=True, eq=False)
class Procrastinate:
    """
    See `Placement`.

    Attributes:
        over: Calls a function with a connection of the log.

        bell: Tells of new jobs.
    """

    over: Over = field(repr=False)
    bell: Bell
    shared: bool = True
    is_empty: bool = field(default=False, init=False)
    _connector: _Connector = field(init=False)
    _jobs: JobManager = field(init=False)
    _worker: int = field(default=0, init=False)
    _counted: int = field(default=0, init=False)
    # The engine's records of each job that is claimed here, as often as it came.
    _claimed: dict[str, list[Deferred]] = field(
        default_factory=lambda: defaultdict[str, list[Deferred]](list), init=False
    )
    _some: asyncio.Event = field(init=False)

    def __post_init__(self) -> None:
        self._some = self.bell.news("jobs")
        self._connector = _Connector(self.over)
        self._jobs = JobManager(self._connector)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Give signs of life."""
        with _told():
            await self._sweep()
            self._worker = await self._jobs.register_worker()
        beat = asyncio.create_task(self._beat())
        try:
            yield
        finally:
            beat.cancel()
            with contextlib.suppress(exceptions.ConnectorException, StoreError):
                await self._jobs.unregister_worker(self._worker)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(_BEAT_S)
            with contextlib.suppress(exceptions.ConnectorException, StoreError):
                await self._jobs.update_heartbeat(self._worker)
                await self._sweep()

    async def _sweep(self) -> None:
        """Delete what hosts had claimed that are gone: it was submitted again."""
        await self._jobs.prune_stalled_workers(_GONE_S)
        await self._connector.execute_query_async(_SWEEP)

    async def submit(self, job: Job, record: Record | None = None) -> None:
        """Defer a job, in the transaction that *record* makes."""
        if record is None:
            with _told(), contextlib.suppress(exceptions.AlreadyEnqueued):
                places = await self._connector.execute_query_one_async(
                    _HEAD, **_place_of(job)
                )
                await self._jobs.defer_job_async(_deferred(job, places))
        else:

            def within(driver: Any) -> None:  # noqa: ANN401 -- psycopg's
                places = self._connector.execute_query_one_with_connection(
                    driver, _HEAD, **_place_of(job)
                )
                try:
                    self._jobs.defer_job(_deferred(job, places), connection=driver)
                except exceptions.AlreadyEnqueued:
                    # A host has recorded the same run in between.
                    raise LeaseLost(f"run {job.run_id} waits already") from None

            await record(within)
        self.is_empty = False
        self._some.set()

    async def claim(self) -> Job:
        """Return the next job, once there is one."""
        while True:
            self._some.clear()
            with _told():
                found = await self._fetched()
            if found is not None and found.task_name == _TASK:
                self._claimed[found.queueing_lock or ""].append(found)
                given = found.task_kwargs
                return Job(
                    run_id=found.queueing_lock or "",
                    who=str(given["who"]),
                    priority=int(str(given["priority"])),
                )
            self.is_empty = found is None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(
                    SLOW_S if self.bell.is_heard else _UNHEARD_S
                ):
                    await self._some.wait()

    async def _fetched(self) -> Deferred | None:
        fetching = asyncio.ensure_future(self._jobs.fetch_job(None, self._worker))
        try:
            return await asyncio.shield(fetching)
        except asyncio.CancelledError:
            if found := await fetching:
                await self._give_back(found)
            raise

    async def _give_back(self, job: Deferred) -> None:
        await self._jobs.retry_job(job, _PAST)
        # The engine tells only of jobs that are new.
        await self._connector.execute_query_async(_AGAIN)

    async def waiting(self, who: str) -> tuple[int, int]:
        """Return how many jobs wait, and how many of them are of that principal."""
        with _told():
            row = await self._connector.execute_query_one_async(_WAITING, who=who)
        self._counted = row["found"]
        return row["found"], row["own"]

    def known(self, who: str) -> tuple[int, int]:
        """Return how many jobs there were when they were counted last."""
        del who
        return (0 if self.is_empty else self._counted), 0

    async def missing(self, run_ids: Collection[str]) -> set[str]:
        """Return those of the runs that are not in the queue."""
        with _told():
            rows = await self._connector.execute_query_all_async(
                _KNOWN, runs=[*run_ids]
            )
        return {*run_ids} - {row["queueing_lock"] for row in rows} - {*self._claimed}

    async def release(self, job: Job, *, again: bool = False) -> None:
        """Delete a job, or give it back."""
        found = self._claimed[job.run_id].pop()
        if not self._claimed[job.run_id]:
            del self._claimed[job.run_id]
        with _told(), contextlib.suppress(exceptions.AlreadyEnqueued):
            if again:
                await self._give_back(found)
            else:
                await self._jobs.finish_job(found, Status.SUCCEEDED, delete_job=True)

    async def cancel(self, run_id: str) -> None:
        """Delete the job of a run, unless it is claimed."""
        with _told():
            for job in await self._jobs.list_jobs_async(queueing_lock=run_id):
                if job.id is not None and job.status == Status.TODO.value:
                    await self._jobs.cancel_job_by_id_async(job.id, delete_job=True)


def _place_of(job: Job) -> dict[str, Any]:
    base = job.priority * MOST
    return {"queue": _queue(job), "least": base - MOST, "most": base}


def _queue(job: Job) -> str:
    # It is part of the name of a channel, which is short.
    return sha256(job.sharer.encode()).hexdigest()[:32]


def _deferred(job: Job, places: dict[str, Any]) -> Deferred:
    known = (places["head"], places["last"])
    turn = turn_behind(*(None if one is None else turn_of(one) for one in known))
    return Deferred(
        id=None,
        queue=_queue(job),
        lock=None,
        queueing_lock=job.run_id,
        task_name=_TASK,
        priority=rank(job.priority, turn),
        task_kwargs={"who": job.who, "priority": job.priority},
    )


async def prepare(url: str) -> None:
    """
    Make the tables of the engine, unless the database has them.

    Raises:
        StoreError: It could not be done.
    """
    connector = PsycopgConnector(
        conninfo=url, min_size=1, max_size=1, timeout=_PATIENCE_S
    )
    with _told():
        await connector.open_async()
        try:
            row = await connector.execute_query_one_async(_THERE)
            if row["found"] is None:
                await SchemaManager(connector).apply_schema_async()
        finally:
            await connector.close_async()
