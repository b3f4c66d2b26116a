"""
Stopping a run that is under way, for whoever may ask; and what is asked of a host.

The run's own task may be cancelled: by Ctrl-C, or by a client that hangs up. From
other processes come requests, through the store. And a run that no living host
drives is ended right where somebody asks for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ..core.calls import JSON
from ..core.grants.journal import Journal
from ..core.log.events import Event, RunCancelled, RunSuspended
from ..core.log.in_doubt import closing
from ..core.log.request_outcomes import FAILED, UNKNOWN
from ..core.log.runs import ENDS, Request
from ..core.names import stream_of
from ..errors import BusyError, CaxtonError, StoreError, UsageError
from ..ports import EventLog, SharedStore, Store
from .recording import Recording

#: Asked of a host: to go on with a run, if that waits for nobody any more.
GO_ON = "go_on"

#: Seconds between two looks for requests.
EVERY = 0.25

#: So many times longer, as long as the host drives nothing.
_RARELY = 4

_PATIENCE = 5.0

logger = logging.getLogger("caxton_host")


@dataclass(slots=True, eq=False)
class _Run:
    """
    A run under way in this host.

    Attributes:
        end: How it ends; set by who drives it, before it is recorded.

        before: What is recorded together with that.

        asked: What is recorded if a request ends it.

        over: Done when it is no longer under way.
    """

    task: asyncio.Task[object]
    log: EventLog
    journal: Journal
    end: Event | None = None
    before: list[Event] = field(default_factory=list[Event])
    asked: RunCancelled | RunSuspended | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self, end: RunCancelled | RunSuspended) -> None:
        """End or suspend it with *end*, unless it is at its end."""
        if self.end is None and self.asked is None:
            self.asked = end
            self.journal.leaving = isinstance(end, RunSuspended)
            self.task.cancel()


def _ignore(_run: str, _: Event) -> None:
    """Do nothing with the end of a run."""


class UnderWay:
    """
    The runs under way in a host, by id.

    Attributes:
        ended: Called with each that ends or is suspended, once that is recorded.
    """

    def __init__(self) -> None:
        self.ended: Callable[[str, Event], None] = _ignore
        self._runs: dict[str, _Run] = {}
        self._some = asyncio.Event()

    @contextlib.asynccontextmanager
    async def run(
        self,
        run_id: str,
        log: EventLog,
        actor: dict[str, JSON],
        journal: Journal | None = None,
        tell: Callable[[Event], None] = lambda _: None,
    ) -> AsyncGenerator[_Run]:
        """
        See a run to its recorded end: the ``end`` that was set, or its cancellation.

        A request that ends it is no fault of the caller, who goes on. Any other
        cancellation is recorded, and goes on too.

        Args:
            run_id: The run.

            log: Where its end is recorded.

            actor: On whose behalf it is cancelled if no request says so.

            journal: Of the run, if that is known yet: calls may be open in it that
                the guest does not come back to.

            tell: Called with the end, once it is recorded.
        """
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 -- it awaits
        run = self._runs[run_id] = _Run(task, log, journal or Journal())
        self._some.set()

        def told(end: Event) -> None:
            tell(end)
            self.ended(run_id, end)

        try:
            try:
                yield run
            except asyncio.CancelledError:
                by_caller = RunCancelled(actor=actor, reason="interrupted")
                run.end = run.asked or by_caller
                await log.append(*closing(run.journal.open_calls, run.end))
                told(run.end)
                if run.asked is None or task.cancelling() > 1:
                    raise
            else:
                assert run.end is not None  # noqa: S101 -- who drives it sets it
                await log.append(*run.before, *closing(run.journal.open_calls, run.end))
                told(run.end)
        finally:
            if run.asked:
                task.uncancel()
            run.over.set()
            # One whose log has failed may be under way anew before it is over.
            if self._runs.get(run_id) is run:
                del self._runs[run_id]
            if not self._runs:
                self._some.clear()

    async def stop(self, run_id: str, end: RunCancelled | RunSuspended) -> Event | None:
        """
        End or suspend a run with *end*, and return what it came to.

        ``None`` if it is not under way here, or if its log failed.
        """
        run = self._runs.get(run_id)
        if run is None:
            return None
        run.stop(end)
        await run.over.wait()
        return run.end

    async def recorded(self, run_id: str) -> None:
        """
        Return once all is durable that a run under way here has recorded.

        Raises:
            StoreError: It could not be stored.
        """
        if run := self._runs.get(run_id):
            await run.log.append()

    async def wait(self) -> None:
        """Return once a run is under way."""
        await self._some.wait()


async def tell_hosts(
    store: SharedStore, run_id: str, actor: dict[str, JSON], reason: str
) -> None:
    """
    Tell the hosts that are up that somebody had a word on a suspended run.

    Those that serve go on with it.

    Raises:
        StoreError: They could not be told; the word counts nevertheless.
    """
    for host in await store.leases.hosts():
        await store.requests.ask_host(host, GO_ON, actor, reason, run_id)


async def cancel_idle(
    store: Store, run_id: str, actor: dict[str, JSON], reason: str
) -> RunCancelled:
    """
    End a run that no living host drives.

    Its open calls are closed in the same transaction: whether their tools acted
    stays unknown.

    Raises:
        NotFoundError: There is no such run.

        UsageError: It has ended.

        BusyError: A living host drives it, or it has gone on meanwhile.

        StoreError: It could not be recorded.
    """
    recording = await Recording.load(run_id, store.reader)
    recording.check_unended()
    cancelled = RunCancelled(actor=actor, reason=reason)
    events = closing(recording.journal().open_calls, cancelled)
    last = recording.history[-1].seq
    await store.claim(stream_of(run_id), *events, after=last)
    return cancelled


async def _cancel(
    under_way: UnderWay, store: SharedStore, run_id: str, request: Request
) -> str:
    actor, reason = request.actor, request.reason
    cancelled = RunCancelled(actor=actor, reason=reason)
    end = await under_way.stop(run_id, cancelled)
    if end is None:
        # This host has let go of it, but is not dead.
        end = await cancel_idle(store, run_id, actor, reason)
    return ENDS[type(end).__name__]


_OfRun: TypeAlias = Callable[[UnderWay, SharedStore, str, Request], Awaitable[str]]
_OF_RUNS: dict[str, _OfRun] = {"cancel": _cancel}

#: Does what is asked of a host, and returns the outcome.
OfHost: TypeAlias = Callable[[Request], Awaitable[str]]
_NOTHING: Mapping[str, OfHost] = {}


@dataclass(frozen=True, slots=True)
class _Doing:
    """What does what is asked."""

    store: SharedStore
    under_way: UnderWay
    kinds: Mapping[str, OfHost]

    async def answer(self, request: Request) -> None:
        try:
            await self.store.requests.answer(request.id, await self._outcome(request))
        except (BusyError, UsageError):
            pass  # It went on, or ended: whoever asked sees that.
        except CaxtonError as exc:
            # Asked again at the next look.
            logger.warning("request %d is not answered: %s", request.id, exc)

    async def _outcome(self, request: Request) -> str:
        if request.run_id is not None and (of_run := _OF_RUNS.get(request.kind)):
            return await of_run(self.under_way, self.store, request.run_id, request)
        if request.run_id is None and (of_host := self.kinds.get(request.kind)):
            try:
                return await of_host(request)
            except CaxtonError as exc:
                return f"{FAILED}{exc}"
        return UNKNOWN


@contextlib.asynccontextmanager
async def watching(
    store: SharedStore,
    host: str,
    under_way: UnderWay,
    every: float = EVERY,
    *,
    kinds: Mapping[str, OfHost] = _NOTHING,
) -> AsyncGenerator[None]:
    """
    Do what is asked of a host and of its runs, in the background.

    Args:
        store: Where requests are.

        host: Whose.

        under_way: Its runs. As long as there are none, looks are rare.

        every: Seconds between two looks.

        kinds: What it does of itself, by kind of request.
    """
    doing = _Doing(store, under_way, kinds)
    watch = asyncio.create_task(_watch(doing, host, every))
    try:
        yield
    finally:
        watch.cancel()
        await asyncio.wait([watch])


async def _watch(doing: _Doing, host: str, every: float) -> None:
    tasks: dict[int, asyncio.Task[None]] = {}
    try:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(every * _RARELY):
                    await doing.under_way.wait()
                await asyncio.sleep(every)
            try:
                found = await doing.store.requests.waiting(host)
            except StoreError as exc:
                logger.warning("requests cannot be read: %s", exc)
                continue
            for request in found:
                if request.id not in tasks or tasks[request.id].done():
                    tasks[request.id] = asyncio.create_task(doing.answer(request))
            left = {request.id for request in found}
            tasks = {n: t for n, t in tasks.items() if n in left or not t.done()}
    finally:
        # The runs are over: who asked is told so.
        if tasks:
            _, late = await asyncio.wait(tasks.values(), timeout=_PATIENCE)
            for task in late:
                task.cancel()
