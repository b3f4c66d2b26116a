"""
Runs: start one or take one over, and see it to its recorded end.

    request -> RunStarted -> drive -> RunCompleted, RunFailed, RunCancelled
      run id -> RunResumed -> drive -^                     or RunSuspended

Nothing of a run leaves the host before the events that it depends on are durable
(law 3): not its calls, which the gateway sees to, and not its result.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from dataclasses import dataclass, field

from . import codec
from .core.calls import JSON
from .core.catalogue import Catalogue, catalogue_for, pinned, routes_from_payload
from .core.events import (
    ENDS,
    Event,
    RunCancelled,
    RunFailed,
    RunResumed,
    RunStarted,
    RunSuspended,
)
from .core.grants import Grant
from .core.journal import Journal
from .core.limits import Limits
from .core.names import uuid7
from .core.places import Places
from .core.redact import Redactor
from .core.resolution import Resolution, recorded_as
from .drive import Driver
from .errors import BadBytes, BusyError, Suspend, UsageError
from .gateway import Gateway
from .ports import (
    Clock,
    EventLog,
    Guest,
    Prepared,
    Sandbox,
    Span,
    Store,
    Telemetry,
    ToolClient,
    Trace,
)
from .recording import Recording, guest_for

__all__ = ["Admission", "Host", "RunRequest"]

Payload = dict[str, JSON]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """
    What a run is to be.

    Attributes:
        agent: Its name, also its trust domain.

        module: The bytes of the module.

        names: The agent's own names for tools, to ``(server, tool)``.

        actor: Who asks: ``{kind, id, authenticated}``.
    """

    agent: str
    module: bytes
    actor: Payload
    entry: str = "run"
    input: JSON = None
    context: dict[str, JSON] = field(default_factory=dict[str, JSON])
    limits: Limits = field(default_factory=Limits)
    grant: Grant = field(default_factory=Grant)
    names: Mapping[str, tuple[str, str]] = field(
        default_factory=dict[str, tuple[str, str]]
    )


@dataclass(slots=True)
class Admission:
    """
    Counts the runs of a host, and lets in no more than so many.

    One is held by ``with admission:``.
    """

    most: int = field(default_factory=lambda: Places().runs)
    inside: int = 0

    def __enter__(self) -> None:
        if self.inside >= self.most:
            raise BusyError(
                f"the host has {self.inside} runs under way, and takes no more",
                fix="wait for one to end, or raise runs in [sandbox]",
            )
        self.inside += 1

    def __exit__(self, *_: object) -> None:
        self.inside -= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """
    Starts runs and drives them.

    Attributes:
        stream: The stream of this host process, named in the runs it drives.

        servers: Every server that a grant may speak of.

        entropy: Returns that many random bytes.
    """

    store: Store
    tools: ToolClient
    sandbox: Sandbox
    clock: Clock
    entropy: Callable[[int], bytes]
    telemetry: Telemetry
    stream: str | None = None
    servers: Collection[str] = ()
    redact: Redactor = field(default_factory=Redactor)
    admission: Admission = field(default_factory=Admission)

    async def start(
        self,
        request: RunRequest,
        *,
        on_started: Callable[[str], None] | None = None,
    ) -> str:
        """
        Run an agent to its end, and return the id of the run.

        The end is durable when this returns; read it from the store.

        Args:
            request: What is to run.

            on_started: Called with the run's id once its start is durable.

        Raises:
            UsageError: The module, the input or a name is refused; no event was
                written.

            ServerUnavailable: A required server is down; no event was written.

            BusyError: The host has as many runs as it takes; no event was written.

            StoreError: An event could not be stored.

            asyncio.CancelledError: The caller was cancelled; so was the run, and
                that is recorded.
        """
        with self.admission:
            return await self._start(request, on_started)

    async def _start(
        self, request: RunRequest, on_started: Callable[[str], None] | None
    ) -> str:
        prepared = await self.sandbox.prepare(
            request.module, request.limits, request.entry
        )
        wanted = request.grant.servers(self.servers)
        named = [server for server, _ in request.names.values()]
        offered = await self.tools.offered(
            [name for name in self.servers if name in {*wanted, *named}]
        )
        catalogue = catalogue_for(
            request.grant, request.names, offered.offers, offered.options
        )
        run_id = uuid7(self.clock.now(), self.entropy(10))
        with self.telemetry.run(request.agent, run_id, "live") as span:
            started = self._started(request, prepared, catalogue, offered.servers)
            definitions = {
                offer.definition_sha256: offer.definition
                for offer in catalogue.visible.values()
            }
            log = self.store.create(f"run/{run_id}", self._trace())
            gateway = Gateway(
                run_id=run_id,
                grant=request.grant,
                routes=catalogue.routes,
                journal=Journal(),
                log=log,
                tools=self.tools,
                redact=self.redact,
                max_result=request.limits.result,
            )
            async with _cancellable(log, request.actor):
                await log.append(
                    started, blobs={prepared.sha256: request.module, **definitions}
                )
                guest = guest_for(request.agent, started, definitions, log.recorded_at)
                end = await self._drive(gateway, prepared, guest, on_started)
            await log.append(end)
            _tell(span, end)
        return run_id

    async def resume(
        self,
        run_id: str,
        *,
        actor: Payload,
        grant: Grant,
        reason: str = "requested",
        on_started: Callable[[str], None] | None = None,
    ) -> None:
        """
        Take over a run that no host drives, and see it to its end.

        The guest is executed again over what the log holds: nothing of that is
        sent again. From there it goes on, with the yes of its recorded grants and
        of *grant*.

        Args:
            run_id: The run.

            actor: Who asks.

            grant: What the operator grants the agent now.

            reason: Recorded with it.

            on_started: Called with the run's id once it is ours.

        Raises:
            NotFoundError: There is no such run.

            UsageError: It has ended.

            NotKeptError: The log keeps a digest of an answer that the guest would
                have to get once more. No event was written.

            Suspend: A call is in doubt, and a person has to say what became of it.
                No event was written.

            BusyError: A living host drives it, or this one has as many runs as it
                takes.

            ServerUnavailable: A required server is down; no event was written.

            StoreError: Its log lacks what is needed, or an event could not be stored.

            asyncio.CancelledError: As for `start`.
        """
        with self.admission:
            await self._resume(
                await self._unended(run_id), actor, grant, reason, on_started
            )

    async def _resume(
        self,
        recording: Recording,
        actor: Payload,
        grant: Grant,
        reason: str,
        on_started: Callable[[str], None] | None,
    ) -> None:
        started, limits = recording.started, recording.limits
        _check_waiting(recording)
        if error := recording.journal().not_kept:
            raise error
        module = await self.store.blob(started.module_sha256)
        prepared = await self.sandbox.prepare(module, limits, started.entry)
        guest = await recording.guest(started.agent, self.store)
        named = {r.server for r in routes_from_payload(started.catalogue).values()}
        offered = await self.tools.offered(
            [name for name in self.servers if name in named]
        )
        resumed = RunResumed(
            actor=actor,
            host=self.stream,
            epoch=recording.epoch + 1,
            reason=reason,
            grants_sha256=_grants_digest(grant),
        )
        with self.telemetry.run(started.agent, recording.run_id, "resume") as span:
            log = await self.store.claim(
                f"run/{recording.run_id}",
                resumed,
                after=recording.history[-1].seq,
                trace=self._trace(),
            )
            gateway = Gateway(
                run_id=recording.run_id,
                grant=Grant.from_payload(started.grants),
                routes=pinned(started.catalogue, offered),
                journal=recording.journal(
                    compare_fuel=prepared.engine == started.engine, today=grant
                ),
                log=log,
                tools=self.tools,
                redact=self.redact,
                max_result=limits.result,
            )
            async with _cancellable(log, actor):
                end = await self._drive(
                    gateway, prepared, guest, on_started, driven=recording.driven
                )
            await log.append(end)
            _tell(span, end)

    async def resolve(
        self,
        run_id: str,
        seq: int,
        resolution: Resolution,
        *,
        actor: Payload,
        reason: str,
    ) -> None:
        """
        Record what a person says of a call in doubt. Does not drive the run.

        Args:
            run_id: The run.

            seq: The number of the call's `ToolInvoked`.

            resolution: What became of it.

            actor: Who says so.

            reason: Why.

        Raises:
            NotFoundError: There is no such run.

            UsageError: It has ended, or that call is not in doubt.

            BusyError: A living host drives it.

            StoreError: An event could not be stored.
        """
        recording = await self._unended(run_id)
        doubts = {doubt.seq: doubt for doubt in recording.journal().in_doubt}
        if seq not in doubts:
            known = ", ".join(map(str, doubts)) or "none"
            raise UsageError(
                f"event {seq} of run {run_id} is no call in doubt; those are: {known}",
                fix="name one of them; caxton runs show lists the calls",
            )
        events = recorded_as(doubts[seq].invoked.call, resolution, actor, reason)
        await self.store.claim(
            f"run/{run_id}", *events, after=recording.history[-1].seq
        )

    async def _unended(self, run_id: str) -> Recording:
        recording = await Recording.load(run_id, self.store)
        if recording.end is None:
            return recording
        how = "was" if recording.state == "cancelled" else "has"
        raise UsageError(
            f"run {run_id} {how} {recording.state} already",
            fix="start another with caxton run, or look at it with caxton runs show",
        )

    async def _drive(
        self,
        gateway: Gateway,
        prepared: Prepared,
        guest: Guest,
        on_started: Callable[[str], None] | None,
        *,
        driven: float = 0.0,
    ) -> Event:
        driver = Driver(sandbox=self.sandbox, telemetry=self.telemetry)
        wall = max(guest.limits.wall - driven, 0.0)
        return await driver.drive(
            gateway, prepared, guest, wall=wall, on_started=on_started
        )

    def _trace(self) -> Trace:
        fallback = self.telemetry.ids()[0] or self.entropy(16).hex()

        def trace() -> tuple[str, str | None]:
            trace_id, span_id = self.telemetry.ids()
            return trace_id or fallback, span_id

        return trace

    def _started(
        self,
        request: RunRequest,
        prepared: Prepared,
        catalogue: Catalogue,
        servers: Mapping[str, dict[str, JSON]],
    ) -> RunStarted:
        value = self.redact.value(request.input)
        try:
            size = len(codec.encode(value))
        except BadBytes as exc:
            raise UsageError(
                f"the input is {exc}", fix="pass what JSON can say"
            ) from None
        if size > request.limits.input:
            raise UsageError(
                f"the input has {size} bytes, of {request.limits.input} allowed",
                fix="pass less, or raise limits.input of the agent",
            )
        return RunStarted(
            agent=request.agent,
            actor=request.actor,
            module_sha256=prepared.sha256,
            abi=prepared.abi,
            entry=request.entry,
            input=value,
            context=self.redact.value(request.context),
            limits=request.limits.to_payload(),
            seed=self.entropy(32).hex(),
            grants=request.grant.to_payload(),
            grants_sha256=_grants_digest(request.grant),
            catalogue=catalogue.to_payload(),
            servers=dict(servers),
            host=self.stream,
            engine=prepared.engine,
        )


@contextlib.asynccontextmanager
async def _cancellable(log: EventLog, actor: Payload) -> AsyncGenerator[None]:
    """Record the run's end if it is cancelled: the one way that is not driven to."""
    try:
        yield
    except asyncio.CancelledError:
        await log.append(RunCancelled(actor=actor, reason="interrupted"))
        raise


def _grants_digest(grant: Grant) -> str:
    return codec.sha256(codec.canonical(grant.to_payload()))


def _check_waiting(recording: Recording) -> None:
    """Refuse to take over a run that would do no more than wait again."""
    if not isinstance(recording.latest.event, RunSuspended):
        return
    call = recording.latest.event.call
    for doubt in recording.journal().in_doubt:
        if doubt.invoked.call == call and not doubt.resolved:
            raise Suspend(
                call,
                f"run {recording.run_id} waits for a word on call {call} "
                f"(event {doubt.seq})",
                fix=f"caxton runs resolve {recording.run_id} {doubt.seq} --retry",
            )


def _tell(span: Span, end: Event) -> None:
    kind = end.kind if isinstance(end, RunFailed) else None
    span.ended(ENDS[type(end).__name__], kind)
