"""
Stopping runs, and requests between hosts.

A run is stopped by a request through the store, or because its task is cancelled: by
Ctrl-C, or by a client that hangs up. A run that no living host drives is ended by the
process that is asked to end it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ..core.calls import JSON
from ..core.log.events import Event, RunCancelled, RunSuspended
from ..core.log.requests import FAILED, RESTARTED, UNKNOWN, Request, closing, is_failure
from ..core.log.runs import ENDS
from ..core.names import stream_of
from ..errors import (
    BusyError,
    CaxtonError,
    NotFoundError,
    NotKeptError,
    NotStartedError,
    StoreError,
    UsageError,
)
from ..gateway.recorder import Recorder
from ..lib.bell import Bell
from ..ports.log import SharedStore, Store
from .desk import ANSWER, Desk
from .recording import Recording

#: The kind of request that asks a host to resume a run that no longer has to wait.
GO_ON = "go_on"

#: Seconds between two polls for requests: how long a cancellation takes at most.
EVERY = 0.25

#: How many times longer that is while the host drives no run.
_IDLE_FACTOR = 4

#: Seconds that answers to requests get when the host stops.
_PATIENCE_S = 5.0

logger = logging.getLogger("caxton_host")


@dataclass(slots=True, eq=False)
class _Run:
    """
    A run under way in this host.

    Attributes:
        task: Drives it; cancelled to stop the run.

        recorder: Records its end.

        end: How it ends; set by the executor before it is recorded.

        before: Events that are recorded together with *end*.

        asked: What is recorded if a request ends the run.

        over: Set when it is no longer under way.
    """

    task: asyncio.Task[object]
    recorder: Recorder
    end: Event | None = None
    before: list[Event] = field(default_factory=list[Event])
    asked: RunCancelled | RunSuspended | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self, end: RunCancelled | RunSuspended) -> None:
        """End or suspend it with *end*, unless it is at its end."""
        if self.end is None and self.asked is None:
            self.asked = end
            self.recorder.leaving = isinstance(end, RunSuspended)
            self.task.cancel()


def _ignore(_run: str, _: Event) -> None:
    """Ignore the end of a run."""


class UnderWay:
    """
    The runs under way in a host, by id.

    Attributes:
        ended: Called with each run that ends or is suspended, and its last event,
            once that is recorded.

        begun: Called when a run begins: it may have been asked something before.

        desk: The questions of tool servers that wait for an answer.
    """

    def __init__(self) -> None:
        self.desk = Desk()
        self.ended: Callable[[str, Event], None] = _ignore
        self.begun: Callable[[], None] = lambda: None
        self._runs: dict[str, _Run] = {}
        self._some = asyncio.Event()

    @contextlib.asynccontextmanager
    async def run(
        self,
        run_id: str,
        recorder: Recorder,
        actor: dict[str, JSON],
        tell: Callable[[Event], None] = lambda _: None,
    ) -> AsyncGenerator[_Run]:
        """
        Record the end of a run: the ``end`` that was set, or its cancellation.

        If a request ended it, the cancellation does not reach the caller. Any other
        cancellation is recorded, and raised again.

        Args:
            run_id: The run.

            recorder: Records its end, and closes calls that are open.

            actor: On whose behalf it is cancelled if no request says so.

            tell: Called with the end, once it is recorded.
        """
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 -- it awaits
        run = self._runs[run_id] = _Run(task, recorder)
        self._some.set()
        self.begun()

        def told(end: Event) -> None:
            tell(end)
            self.ended(run_id, end)

        try:
            try:
                yield run
            except asyncio.CancelledError:
                by_caller = RunCancelled(actor=actor, reason="interrupted")
                run.end = run.asked or by_caller
                doubts = recorder.journal.open_calls
                await recorder.append(*closing(doubts, run.end))
                told(run.end)
                if run.asked is None or task.cancelling() > 1:
                    raise
            else:
                assert run.end is not None  # noqa: S101 -- who drives it sets it
                doubts = recorder.journal.open_calls
                await recorder.append(*run.before, *closing(doubts, run.end))
                told(run.end)
        except StoreError:
            # Its end is not recorded: it is to be taken up again, perhaps by this host.
            recorder.log.leave()
            run.end = None
            raise
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
        End or suspend a run with *end*, and return how it ended.

        Returns:
            Its last event; ``None`` if it is not under way here, or its log failed.
        """
        run = self._runs.get(run_id)
        if run is None:
            return None
        run.stop(end)
        await run.over.wait()
        return run.end

    def check_over(self, run_id: str) -> None:
        """
        Check that a run is not under way here.

        One whose log failed may be, with runs that it called: these would go on
        without it.

        Raises:
            BusyError: It is.
        """
        run = self._runs.get(run_id)
        if run and run.end is None:  # or its end is recorded at this moment
            raise BusyError(
                f"this host still drives run {run_id}", fix="try again once it is over"
            )

    def stopping(self, run_id: str) -> RunCancelled | RunSuspended | None:
        """Return what a run under way here is asked to end or to be suspended with."""
        run = self._runs.get(run_id)
        return run.asked if run else None

    async def recorded(self, run_id: str) -> None:
        """
        Return once everything is durable that a run under way here has recorded.

        Raises:
            StoreError: It could not be stored.
        """
        if run := self._runs.get(run_id):
            await run.recorder.append()

    async def wait(self) -> None:
        """Return once a run is under way."""
        await self._some.wait()


async def tell_hosts(
    store: SharedStore, run_id: str, actor: dict[str, JSON], reason: str
) -> None:
    """
    Notify running hosts of a decision about a suspended run.

    A host that serves resumes it.

    Raises:
        StoreError: They could not be told. The decision is recorded nevertheless.
    """
    for host in await store.leases.hosts():
        await store.requests.ask_host(host, GO_ON, actor, reason, run_id)


async def cancel_idle(
    store: Store, run_id: str, actor: dict[str, JSON], reason: str
) -> RunCancelled:
    """
    End a run that no living host drives, and the runs that it called.

    Its open calls are closed in the same transaction: whether their tools acted
    stays unknown.

    Raises:
        NotFoundError: There is no such run.

        UsageError: It has ended.

        BusyError: A living host drives it, or it has gone on meanwhile.

        StoreError: It could not be recorded.
    """
    cancelled = RunCancelled(actor=actor, reason=reason)
    try:
        recording = await Recording.load(run_id, store.reader)
    except NotStartedError:
        await store.claim(stream_of(run_id), cancelled, after=1)
        return cancelled
    recording.check_unended()
    for callee in recording.callees.values():
        # It has not begun, has ended, or ends by itself.
        with contextlib.suppress(NotFoundError, NotKeptError, UsageError, BusyError):
            await cancel_idle(store, callee, actor, reason)
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


async def _answer_question(
    under_way: UnderWay, _: SharedStore, run_id: str, request: Request
) -> str:
    return under_way.desk.answer(run_id, request)


_OfRun: TypeAlias = Callable[[UnderWay, SharedStore, str, Request], Awaitable[str]]
_OF_RUNS: dict[str, _OfRun] = {"cancel": _cancel, ANSWER: _answer_question}

#: Carries out a request to a host, and returns the outcome.
OfHost: TypeAlias = Callable[[Request], Awaitable[str]]
_NOTHING: Mapping[str, OfHost] = {}


@dataclass(frozen=True, slots=True)
class _Doing:
    """
    Carries out requests.

    Attributes:
        store: Where their outcomes are recorded.

        under_way: The runs of the host, for requests about a run.

        kinds: What carries out requests to the host itself, by kind.
    """

    store: SharedStore
    under_way: UnderWay
    kinds: Mapping[str, OfHost]

    async def answer(self, request: Request) -> None:
        try:
            await self.store.requests.answer(request.id, await self._outcome(request))
        except (BusyError, UsageError):
            pass  # The run went on, or has ended, which the asking process sees.
        except CaxtonError as exc:
            # Tried again at the next poll.
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
async def watching(  # noqa: PLR0913 -- what a watch is given
    store: SharedStore,
    host: str,
    under_way: UnderWay,
    every: float = EVERY,
    *,
    kinds: Mapping[str, OfHost] = _NOTHING,
    bell: Bell | None = None,
) -> AsyncGenerator[None]:
    """
    Carry out requests to a host and to its runs, in the background.

    Args:
        store: Where requests are.

        host: The stream of the host.

        under_way: Its runs. Polls are rare while there are none.

        every: Seconds between two polls.

        kinds: What carries out requests to the host itself, by kind.

        bell: Tells of new requests.
    """
    doing = _Doing(store, under_way, kinds)
    watch = asyncio.create_task(_watch(doing, host, every, bell or Bell()))
    try:
        yield
    finally:
        watch.cancel()
        await asyncio.wait([watch])


async def _watch(doing: _Doing, host: str, every: float, bell: Bell) -> None:
    tasks: dict[int, asyncio.Task[None]] = {}
    news = bell.news("requests")
    doing.under_way.begun = news.set
    try:
        while True:
            if not bell.is_heard:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(every * (_IDLE_FACTOR - 1)):
                        await doing.under_way.wait()
            await bell.pause(news, every)
            try:
                found = await doing.store.requests.waiting(host)
            except StoreError as exc:
                logger.warning("requests cannot be read: %s", exc)
                news.set()
                continue
            for request in found:
                if request.id not in tasks or tasks[request.id].done():
                    tasks[request.id] = asyncio.create_task(doing.answer(request))
            if found:
                news.set()  # Until they are answered.
            left = {request.id for request in found}
            tasks = {n: t for n, t in tasks.items() if n in left or not t.done()}
    finally:
        # The runs are over: their requests are answered before the host stops.
        if tasks:
            _, late = await asyncio.wait(tasks.values(), timeout=_PATIENCE_S)
            for task in late:
                task.cancel()


#: Seconds between two looks for the outcome of a request, and for all of them.
_PAUSE_S, _TIMEOUT_S = 0.1, 30.0


@dataclass(frozen=True, slots=True)
class Answer:
    """
    The outcome of a request at one host.

    Attributes:
        state: ``done``; ``ended``: the host has ended; or ``failed``.

        text: The outcome in words.
    """

    state: Literal["done", "ended", "failed"]
    text: str


_SILENT = Answer("failed", "does not answer")
_ENDED = Answer("ended", "has ended")


async def ask_hosts(  # noqa: PLR0913 -- what a request is
    store: SharedStore,
    kind: str,
    actor: dict[str, JSON],
    reason: str,
    *,
    subject: str | None = None,
    only: str | None = None,
) -> dict[str, Answer]:
    """
    Send a request to hosts that are up, and return its outcome at each.

    Args:
        store: The store that they share.

        kind: See `Request`.

        actor: Who asks.

        reason: Why; it is recorded.

        subject: What the request is about.

        only: The only host to ask, or ``None`` for all.

    Raises:
        NotFoundError: That host is not up.

        StoreError: They cannot be asked.
    """
    asked = {
        host: await store.requests.ask_host(host, kind, actor, reason, subject)
        for host in asked_of(await store.leases.hosts(), only)
    }
    async with asyncio.TaskGroup() as tasks:
        found = {
            host: tasks.create_task(outcome_at(store, host, number))
            for host, number in asked.items()
        }
    return {host: task.result() for host, task in found.items()}


def asked_of(hosts: Sequence[str], only: str | None) -> Sequence[str]:
    """
    Return the hosts to ask.

    Raises:
        NotFoundError: The host *only* is not up.
    """
    if only is None:
        return hosts
    if only not in hosts:
        names = ", ".join(hosts)
        see = f"name one of: {names}" if names else "leave out --only: none is up"
        raise NotFoundError(f"no host {only!r} is up", fix=see)
    return [only]


async def outcome_at(store: SharedStore, host: str, number: int) -> Answer:
    """Return the outcome of a request at a host, once there is one."""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            while (outcome := await store.requests.outcome(number)) is None:
                if host not in await store.leases.hosts():
                    return _ENDED
                await asyncio.sleep(_PAUSE_S)
    except TimeoutError:
        return _SILENT
    return answer_of(outcome)


def answer_of(outcome: str) -> Answer:
    """
    Return the outcome that *outcome* says in words.

    >>> answer_of("has ended").state
    'ended'
    """
    for known in (_SILENT, _ENDED):
        if outcome == known.text:
            return known
    return Answer("failed" if is_failure(outcome) else "done", outcome)


def reload_document(host: str, answer: Answer) -> dict[str, JSON]:
    """Return the ``caxton.reload/v1`` document of a host that was asked to reload."""
    return {
        "$type": "caxton.reload/v1",
        "host": host,
        "reloaded": answer.state == "done",
        "outcome": answer.text,
    }


def restart_document(server: str, host: str, answer: Answer) -> dict[str, JSON]:
    """Return the ``caxton.restart/v1`` document of a host that was asked for one."""
    return {
        "$type": "caxton.restart/v1",
        "server": server,
        "host": host,
        "restarted": answer.text == RESTARTED,
        "outcome": answer.text,
    }
