"""
Recorded runs, judged against a change, over all processors.

This process lists the runs. Others, one a processor, judge a few dozen of them at a
time, each with a store and a sandbox of its own, so that a module is loaded once. They
have no tools, and end with this one.

Which executions were identical is remembered, in a file of the cache folder with a MAC:
by the hash of the run's last event, which binds all before it, by what was executed,
and by the versions that did it. Nothing that was recorded is in that file.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import multiprocessing
import os
import signal
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import (
    AsyncExitStack,
    ExitStack,
    aclosing,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from dataclasses import dataclass, field, replace
from hashlib import sha256
from importlib.metadata import version
from itertools import islice
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Self

from .. import __version__
from ..config import Config, Paths
from ..core.analysis.history import Finding
from ..core.log.runs import GOING_ON, RunFilter, RunRow
from ..errors import CaxtonError
from ..lib.signing import secret
from ..runs.history import Change, Execution, Job, Place, Run
from ..sandbox.artifacts import Artifact, Cache
from ..telemetry import NoTelemetry
from .bootstrap import open_sandbox, open_store

if TYPE_CHECKING:
    from ..store.sql import SqlStore

_PAGE = 1000
#: Runs that a process judges at a time.
_WINDOW = 50
#: Runs that are remembered of a change, and changes.
_RUNS, _CHANGES = 200_000, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """
    How runs are judged.

    Attributes:
        config: Names the store.

        paths: Where keys and caches are.

        only: Selects the runs.

        change: What they are judged against.

        take: Called with each finding.

        fresh: Judge every run, whatever is remembered.
    """

    config: Config
    paths: Paths
    only: RunFilter
    change: Change
    take: Callable[[Finding], None]
    fresh: bool = False

    async def go(self) -> None:
        """
        Judge the runs.

        Raises:
            CaxtonError: The log or a module cannot be read, or a process ended.
        """
        memory = _Memory.of(self.paths, self.change, fresh=self.fresh)
        try:
            async with (
                open_store(self.config, write=False) as store,
                aclosing(self._jobs(store, memory)) as jobs,
            ):
                first = [await anext(jobs, None), await anext(jobs, None)]
                if None in first:
                    async with self._place(store) as place:
                        for job in filter(None, first):
                            self._note(await self.change.judge(job, place), memory)
                else:
                    await self._spread(first, jobs, memory)
        finally:
            memory.write()

    async def _spread(
        self,
        first: Iterable[Job | None],
        jobs: AsyncGenerator[Job],
        memory: _Memory,
    ) -> None:
        """Judge jobs in processes."""
        count = len(os.sched_getaffinity(0))
        queue: asyncio.Queue[Job | None] = asyncio.Queue(maxsize=count)
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(count):
                    tasks.create_task(self._work(queue, memory))
                for job in first:
                    await queue.put(job)
                async for job in jobs:
                    await queue.put(job)
                for _ in range(count):
                    await queue.put(None)
        except ExceptionGroup as exc:
            # What the first process said: the others ended because of it.
            raise exc.exceptions[0] from None

    async def serve(self, there: Connection) -> None:
        """Judge the jobs that come, and send back what was found, or an error."""
        try:
            async with (
                open_store(self.config, write=False) as store,
                self._place(store) as place,
            ):
                while True:
                    job = await asyncio.to_thread(there.recv)
                    there.send(await self.change.judge(job, place))
        except CaxtonError as exc:
            there.send(exc)

    @asynccontextmanager
    async def _place(self, store: SqlStore) -> AsyncGenerator[Place]:
        async with AsyncExitStack() as stack:
            sandbox = None
            if self.change.executes:
                sandbox = await stack.enter_async_context(
                    open_sandbox(self.paths, self.config.places)
                )
            yield Place(log=store.reader, sandbox=sandbox, telemetry=NoTelemetry())

    def _note(self, findings: Iterable[Finding], memory: _Memory) -> None:
        for one in findings:
            memory.note(one)
            self.take(one)

    async def _jobs(self, store: SqlStore, memory: _Memory) -> AsyncGenerator[Job]:
        """Yield what is to be judged, and take the rest."""
        together: dict[str, list[Run]] = {}
        before: tuple[int, str] | None = None
        while rows := await store.reader.runs(_PAGE, self.only, before=before):
            before = rows[-1].started_at, rows[-1].run_id
            heads = await store.reader.heads([row.run_id for row in rows])
            alone: list[Run] = []
            for row in rows:
                run = row.run_id, row.agent
                if row.is_erased:
                    self.take(_erased(row))
                elif self.change.depends(row.agent, row.kind):
                    together.setdefault(row.agent, []).append(run)
                elif known := memory.recall(row, heads.get(row.run_id, b"")):
                    self.take(known)
                else:
                    alone.append(run)
            for first in range(0, len(alone), _WINDOW):
                yield Job(alone[first : first + _WINDOW])
        for agent, runs in together.items():
            yield Job(runs, replace(self.only, agent=agent))

    async def _work(self, jobs: asyncio.Queue[Job | None], memory: _Memory) -> None:
        """Judge jobs in a process, which starts with the first."""
        with ExitStack() as stack:
            here: Connection | None = None
            while job := await jobs.get():
                here = here or stack.enter_context(_process(self))
                here.send(job)
                try:
                    found = await asyncio.to_thread(here.recv)
                except (EOFError, OSError):
                    raise CaxtonError(
                        "a process that judged runs has ended",
                        fix="see that the machine has memory left, and try again",
                    ) from None
                if isinstance(found, Exception):
                    raise found
                self._note(found, memory)


def _erased(row: RunRow) -> Finding:
    return Finding(
        run_id=row.run_id, agent=row.agent, verdict="unjudged", how="it is erased"
    )


@contextmanager
def _process(judging: Judging) -> Generator[Connection]:
    """Start a process that judges what it is sent, and end it."""
    # A fresh interpreter: this one has threads.
    fresh = multiprocessing.get_context("spawn")
    here, there = fresh.Pipe()
    process = fresh.Process(
        target=_serve, args=(there, replace(judging, take=_untold)), daemon=True
    )
    process.start()
    there.close()
    try:
        yield here
    finally:
        # What is awaited in a thread ends with it.
        process.kill()
        process.join()
        here.close()


def _untold(finding: Finding) -> None:
    """Tell nobody: the process that started this one does."""
    del finding


def _serve(there: Connection, judging: Judging) -> None:
    # Ctrl-C is for the process that started this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(EOFError, OSError):
        asyncio.run(judging.serve(there))


@dataclass(slots=True)
class _Memory:
    """
    What is remembered of a change.

    Attributes:
        cache: Where; ``None``: nothing is.

        name: Of the change.

        known: How many calls an identical run has, by the hash of its last event.
    """

    cache: Cache | None = None
    name: str = ""
    known: dict[str, int] = field(default_factory=dict[str, int])
    _heads: dict[str, str] = field(default_factory=dict[str, str])
    _now: dict[str, int] = field(default_factory=dict[str, int])

    @classmethod
    def of(cls, paths: Paths, change: Change, *, fresh: bool) -> Self:
        """Read what is remembered. A file with any fault holds nothing."""
        if not isinstance(change, Execution):
            return cls()
        # A key of its own: a compiled module is no memory, nor the other way round.
        key = hmac.digest(secret(paths.state / "cache.key"), b"history", "sha256")
        cache = Cache(paths.cache / "history", key, most=_CHANGES)
        told = (__version__, version("wasmtime"), change.digest)
        name = sha256("\n".join(told).encode()).hexdigest()
        found = None if fresh else cache.read(name)
        if found is None:
            return cls(cache, name)
        with found.view() as data:
            known = json.loads(bytes(data))
        found.close()
        return cls(cache, name, known)

    def recall(self, row: RunRow, head: bytes) -> Finding | None:
        """Return what is known of a run that has ended, if anything is."""
        if self.cache is None or row.state in GOING_ON:
            return None
        self._heads[row.run_id] = head.hex()
        calls = self.known.get(head.hex())
        if calls is None:
            return None
        self._now[head.hex()] = calls
        return Finding(
            run_id=row.run_id,
            agent=row.agent,
            verdict="identical",
            calls=calls,
            remembered=True,
        )

    def note(self, finding: Finding) -> None:
        """Remember a run, if it is identical."""
        head = self._heads.get(finding.run_id)
        if head and finding.verdict == "identical":
            self._now[head] = finding.calls

    def write(self) -> None:
        """Keep what is remembered, that of this time first."""
        if self.cache is None or self._now.items() <= self.known.items():
            return
        known = {**self._now, **self.known}
        data = json.dumps(dict(islice(known.items(), _RUNS))).encode()
        self.cache.write(Artifact(key=self.name, data=data))
