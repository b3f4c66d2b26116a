"""
One execution of a run, from what it is given to an end that is recorded.

Start, resume and fork are one procedure: they differ in what the run is given. Whatever
happens, the event that records it comes out here; only the store's own failure and a
cancellation do not: the first cannot be recorded, and `UnderWay` records the second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from ..core.calls import JSON, Route
from ..core.grants.approvals import Unapproved
from ..core.grants.bounds import TODAY
from ..core.grants.freezes import Freezes, Halted
from ..core.grants.grants import Grant
from ..core.grants.journal import Journal
from ..core.limits import Limits
from ..core.log.events import (
    CallResolved,
    Event,
    Recorded,
    RunCompleted,
    RunFailed,
    RunResumed,
    RunStarted,
    RunSuspended,
    ToolInvoked,
    ToolProgress,
)
from ..core.log.runs import CHILD, ENDS
from ..core.names import run_of, stream_of
from ..core.text.redact import Redactor
from ..core.tools.manifest import Manifest
from ..errors import (
    BadBytes,
    ChildSuspended,
    NondeterminismError,
    RunStopped,
    SandboxError,
    StoreError,
    Suspend,
)
from ..gateway.gateway import Gateway
from ..gateway.guest_calls import GuestCalls, output_value
from ..gateway.judge import Judge
from ..gateway.recorder import Recorder
from ..lib.json_schema import input_check
from ..ports.log import EventLog, Store, Trace
from ..ports.sandbox import Ending, Guest, Prepared, Sandbox
from ..ports.tools import ToolClient
from ..ports.watch import Clock, Execution, Origin, RunSpan, Served, Telemetry
from .cancellation import UnderWay
from .desk import Client, no_client
from .recording import Recording
from .run_request import grants_digest

#: How many workers may die under a run that shares its workers, and under one that has
#: a worker of its own: that one is itself the cause.
_SHARED, _ALONE = 2, 3

_NO_TRACE: Mapping[str, str] = {}

_log = logging.getLogger("caxton_host")


def unwatched(_run: str, _: ToolProgress) -> None:
    """Ignore a report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """
    What one execution of a run is given.

    Attributes:
        actor: Who asks for it: ``{kind, id, authenticated}``.

        execution: The same for telemetry.

        prepared: The module, compiled.

        guest: What that is given. A ``now`` of 0 stands for the time of the start.

        grant: What the run may do, as it is recorded.

        routes: Where each name for a tool leads.

        schemas: The schema of the parameters of each tool that the guest may see.

        journal: What the log says so far.

        events: What is recorded first.

        blobs: What is stored with these, by digest.

        after: The number of the last event of a run that is resumed, or was queued;
            ``None``: its stream begins with *events*.

        ahead: The start is not awaited: it becomes durable with the first call, or
            with the end, before any of these leaves the host.

        driven_s: Seconds for which hosts have driven the run before.

        served: Calls whose spans say where their answer comes from.

        callers: The runs that wait for it, the top one first.
    """

    run_id: str
    agent: str
    actor: dict[str, JSON]
    execution: Execution
    prepared: Prepared
    guest: Guest
    grant: Grant
    routes: Mapping[str, Route]
    schemas: Mapping[str, Mapping[str, JSON]]
    journal: Journal
    events: Sequence[Event]
    blobs: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    after: int | None = None
    ahead: bool = False
    driven_s: float = 0.0
    served: Mapping[int, Served] = field(default_factory=dict[int, Served])
    callers: tuple[str, ...] = ()

    @property
    def today(self) -> Grant:
        """The grant of its agent in the configuration, when this was gathered."""
        bounds = self.journal.bounds
        return next((one.grant for one in bounds if one.name == TODAY), self.grant)


@dataclass(slots=True)
class _Present:
    """The grant of an agent in the configuration, as it was looked up last."""

    grant: Grant
    look: Callable[[], Grant | None]

    def changed(self) -> Grant | None:
        """Return the grant of now if it is another."""
        now = self.look()
        if now is None or now is self.grant:
            return None
        before, self.grant = self.grant, now
        return now if grants_digest(now) != grants_digest(before) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    """
    Executes runs.

    Attributes:
        store: Where runs are recorded.

        sandbox: Where guests are executed.

        clock: Where time comes from.

        entropy: Returns that many random bytes.

        telemetry: Watches runs and calls.

        redact: Removes configured secrets from what is recorded.

        under_way: The runs that this host executes now, so that they can be stopped.

        watch: Called with a run and each progress report of a call of it.

        client: Asks the user of the client that makes the calls of a run.

        freezes: Returns what is frozen.

        present: Returns what the configuration grants an agent now; ``None``: it is as
            it was when the host started.
    """

    store: Store
    sandbox: Sandbox
    clock: Clock
    entropy: Callable[[int], bytes]
    telemetry: Telemetry
    redact: Redactor = field(default_factory=Redactor)
    under_way: UnderWay = field(default_factory=UnderWay)
    watch: Callable[[str, ToolProgress], None] = unwatched
    client: Client = no_client
    freezes: Callable[[], Freezes] = Freezes
    present: Callable[[str], Grant | None] = lambda _: None

    async def execute(
        self,
        given: Assignment,
        tools: ToolClient,
        on_started: Callable[[str], None] | None = None,
    ) -> None:
        """
        Execute a run until its end, or its suspension, is recorded.

        Args:
            given: What the run is given.

            tools: Where its calls go.

            on_started: Called with the id of the run once its start is recorded.

        Raises:
            BusyError: A run that is resumed is driven by another host.

            StoreError: An event could not be stored.

            asyncio.CancelledError: The caller was cancelled; so was the run, and
                that is recorded.
        """
        with self.telemetry.run(given.execution) as span:
            recorder = await self._recorder(given, self._trace(span))
            log = recorder.log
            async with self.under_way.run(
                given.run_id, recorder, given.actor, _telling(span, log)
            ) as run:
                # law 3: what leaves the host waits for all that is queued before it
                if given.ahead:
                    recorder.queue(*given.events, blobs=given.blobs)
                elif given.after is None:
                    await recorder.append(*given.events, blobs=given.blobs)
                guest = given.guest
                if not guest.now:
                    guest = replace(guest, now=log.recorded_at)
                gateway = self._gateway(given, recorder, tools)
                *run.before, run.end = await self._drive(
                    span, gateway, given, guest, on_started
                )

    async def _recorder(self, given: Assignment, trace: Trace) -> Recorder:
        stream = stream_of(given.run_id)
        if given.after is None:
            return Recorder(self.store.create(stream, trace), given.journal)
        log = await self.store.claim(
            stream,
            *given.events,
            after=given.after,
            trace=trace,
            blobs=given.blobs,
        )
        return Recorder.claimed(log, given.journal, given.events)

    def _gateway(
        self, given: Assignment, recorder: Recorder, tools: ToolClient
    ) -> Gateway:
        judge = Judge(
            run_id=given.run_id,
            agent=given.agent,
            grant=given.grant,
            routes=given.routes,
            journal=recorder.journal,
            inputs={
                name: input_check(schema) for name, schema in given.schemas.items()
            },
            redact=self.redact,
            now=self.clock.now,
            freezes=self.freezes,
            changed=_Present(given.today, partial(self.present, given.agent)).changed,
            callers=given.callers,
            limits=given.guest.limits,
        )
        return Gateway(
            judge=judge,
            recorder=recorder,
            tools=tools,
            max_result=given.guest.limits.result,
            wait=asyncio.sleep,
            watch=partial(self.watch, given.run_id),
            desk=partial(self.under_way.desk.ask, self.client, given.run_id),
        )

    async def _drive(
        self,
        span: RunSpan,
        gateway: Gateway,
        given: Assignment,
        guest: Guest,
        on_started: Callable[[str], None] | None,
    ) -> Sequence[Event]:
        """
        Execute the guest, and return the events that end or suspend the run.

        They are not stored yet. The last is the end; before it are the questions to
        people, if it is suspended for an approval.

        Raises:
            StoreError: An event could not be stored.
        """
        bound = asyncio.timeout(max(guest.limits.wall - given.driven_s, 0.0))
        try:
            if on_started:
                on_started(given.run_id)
            async with bound:
                ending = await self._run_guest(span, gateway, given, guest)
        except StoreError:
            raise
        except Exception as exc:  # noqa: BLE001 -- it ends this run, not the host
            if isinstance(exc, TimeoutError) and bound.expired():
                exc = RunStopped("wall", f"{guest.limits.wall:g} s")
            return _stopped_by(exc)
        return [end_of(ending, guest.limits, self.redact)]

    async def _run_guest(
        self, span: RunSpan, gateway: Gateway, given: Assignment, guest: Guest
    ) -> Ending:
        """Execute the guest; if its worker dies, again over the journal so far."""
        alone = replace(guest, domain=f"{guest.domain}/{given.run_id}")
        for life in range(1, _SHARED + _ALONE + 1):
            door = GuestCalls(
                gateway=gateway,
                limits=guest.limits,
                span=span,
                served=given.served,
                seeds=guest.seeds,
            )
            try:
                return await self.sandbox.run(
                    given.prepared, guest if life <= _SHARED else alone, door
                )
            except SandboxError:
                if life == _SHARED + _ALONE:
                    raise
        raise AssertionError  # pragma: no cover -- the loop returns or raises

    def _trace(self, span: RunSpan) -> Trace:
        fallback = self.telemetry.ids()[0] or self.entropy(16).hex()

        def trace(
            seq: int, events: Sequence[Event]
        ) -> list[tuple[str | None, str | None]]:
            return [(t or fallback, s) for t, s in span.recorded(seq, events)]

        return trace


def _telling(span: RunSpan, log: EventLog) -> Callable[[Event], None]:
    """Return the function that tells *span* how the run of *log* ends."""

    def tell(end: Event) -> None:
        span.stored(*log.head)
        kind = end.kind if isinstance(end, RunFailed) else None
        span.ended(ENDS[type(end).__name__], kind)

    return tell


def _stopped_by(exc: Exception) -> Sequence[Event]:
    """Return the events that record why a guest was stopped."""
    match exc:
        case Unapproved():
            return *exc.requests, RunSuspended(reason="approval", call=exc.call)
        case Suspend():
            reason = CHILD if isinstance(exc, ChildSuspended) else "in_doubt"
            said = RunSuspended(reason=reason, call=exc.call)
            return [exc.recorded if isinstance(exc, Halted) else said]
        case RunStopped():
            return [RunFailed(kind="limit", message=f"{exc.limit}: {exc}", fuel=None)]
        case NondeterminismError():
            return [RunFailed(kind="diverged", message=str(exc), fuel=None)]
        case SandboxError():
            return [RunFailed(kind="worker", message=str(exc), fuel=None)]
        case _:
            _log.error("the host failed in a run", exc_info=exc)
            return [RunFailed(kind="host", message=type(exc).__name__, fuel=None)]


def end_of(ending: Ending, limits: Limits, redact: Redactor) -> Event:
    """Return the event that records how a guest ended."""
    if ending.kind == "limit":
        return RunFailed(
            kind="limit",
            message=f"{ending.limit}: {ending.message}",
            fuel=ending.fuel,
        )
    if ending.kind == "trap":
        return RunFailed(kind="trap", message=ending.message, fuel=ending.fuel)
    try:
        output, digest = output_value(ending.output, limits)
    except BadBytes as exc:
        return RunFailed(kind="agent_error", message=f"output: {exc}", fuel=ending.fuel)
    if ending.code:
        return RunFailed(
            kind="agent_error",
            message=redact.text(ending.message) or f"the agent returned {ending.code}",
            fuel=ending.fuel,
        )
    return RunCompleted(
        output=redact.value(output), output_sha256=digest, fuel=ending.fuel
    )


def start_of(
    run_id: str,
    started: RunStarted,
    manifest: Manifest | None = None,
    trace: Mapping[str, str] = _NO_TRACE,
) -> Execution:
    """Return the execution of a new run; *started* is its first event."""
    return Execution(
        run_id=run_id,
        agent=started.agent,
        mode="live",
        module_sha256=started.module_sha256,
        description=manifest.description if manifest else "",
        version=manifest.version if manifest else "",
        caller=_caller_of(started),
        asked=trace,
    )


def resume_of(recording: Recording, before: Sequence[Recorded]) -> Execution:
    """Return the execution of a run that is resumed, after its events *before*."""
    starts = [e for e in before if isinstance(e.event, RunStarted | RunResumed)]
    return Execution(
        run_id=recording.run_id,
        agent=recording.started.agent,
        mode="resume",
        module_sha256=recording.started.module_sha256,
        origin=_origin("resume_of", starts[-1]),
        caller=_caller_of(recording.started),
    )


def fork_of(run_id: str, agent: str, module_sha256: str, parent: Recorded) -> Execution:
    """Return the execution of a fork; *parent* is the first event of its parent."""
    return Execution(
        run_id=run_id,
        agent=agent,
        mode="live",
        module_sha256=module_sha256,
        origin=_origin("forked_from", parent),
    )


def replay_of(recording: Recording, module_sha256: str) -> Execution:
    """Return the execution of a run that is replayed."""
    return Execution(
        run_id=recording.run_id,
        agent=recording.started.agent,
        mode="replay",
        module_sha256=module_sha256,
        origin=_origin("replay_of", recording.own[0]),
    )


def _caller_of(started: RunStarted) -> tuple[str, int] | None:
    if started.parent and started.called_by:
        return started.parent, started.called_by
    return None


def recorded_calls(recording: Recording) -> Mapping[int, Served]:
    """Return every call that a replay answers from the log."""
    return {
        recorded.event.call: Served(by="log", origin=_origin("replay_of", recorded))
        for recorded in recording.history
        if isinstance(recorded.event, ToolInvoked)
    }


def resolved_calls(own: Iterable[Recorded]) -> Mapping[int, Served]:
    """Return the calls that a person resolved since the run was driven last."""
    found: dict[int, Served] = {}
    for recorded in own:
        match recorded.event:
            case RunResumed():
                found.clear()
            case CallResolved(call=call, verdict=verdict, actor=actor):
                by: Literal["upstream", "resolution"] = (
                    "upstream" if verdict == "retry" else "resolution"
                )
                found[call] = Served(by=by, actor=str(actor.get("id", "")))
            case _:
                pass
    return found


def _origin(
    kind: Literal["resume_of", "forked_from", "replay_of"], recorded: Recorded
) -> Origin:
    return Origin(
        kind=kind,
        run_id=run_of(recorded.stream) or "",
        trace_id=recorded.trace_id,
        span_id=recorded.span_id,
        seq=recorded.seq,
        hash=recorded.hash.hex(),
    )
