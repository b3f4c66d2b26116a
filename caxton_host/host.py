"""
Runs: start one or take one over, and see it to its recorded end.

    request -> RunStarted -> drive -> RunCompleted, RunFailed, RunCancelled
      run id -> RunResumed -> drive -^                     or RunSuspended
        fork -> RunStarted -> drive -^

Nothing of a run leaves the host before the events that it depends on are durable
(law 3): not its calls, which the gateway sees to, and not its result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from .admission import Admission
from .approving import still_waiting
from .core.approvals import lapsed
from .core.calls import JSON, Route
from .core.catalogue import Offered, catalogue_for, pinned, routes_from_payload
from .core.contexts import merged
from .core.events import (
    ApprovalDecided,
    Event,
    RunFailed,
    RunResumed,
    RunStarted,
    RunSuspended,
    ToolProgress,
)
from .core.forks import forking_point
from .core.grants import Grant
from .core.journal import Journal
from .core.limits import Limits
from .core.names import stream_of, uuid7
from .core.redact import Redactor
from .core.resolution import GiveResult, Resolution, recorded_as
from .core.runs import ENDS
from .core.templates import texts
from .core.terms import Terms
from .drive import Driver
from .errors import NotKeptError, Suspend, UsageError
from .gateway import Gateway
from .manifests import check_input
from .ports import (
    Clock,
    EventLog,
    Guest,
    Prepared,
    RunScope,
    RunSpan,
    Sandbox,
    Served,
    Store,
    Telemetry,
    ToolClient,
    ToolSource,
    Trace,
)
from .recording import Recording, guest_for, schemas_of
from .requests import UnderWay
from .schemas import input_check
from .starts import (
    ForkRequest,
    RunRequest,
    Setting,
    forked_as,
    grants_digest,
    started_as,
    with_prompt,
)
from .watching import fork_of, resolved_calls, resume_of, start_of

__all__ = ["ForkRequest", "Host", "RunRequest", "unwatched"]

_NONE_SERVED: Mapping[int, Served] = {}


def unwatched(_run: str, _: ToolProgress) -> None:
    """Do nothing with what is told of a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """
    Starts runs and drives them.

    Attributes:
        stream: The stream of this host process, named in the runs it drives.

        tools: Opened for each run, which keeps them to its end.

        servers: Every server that a grant may speak of now.

        entropy: Returns that many random bytes.

        watch: Called with a run and what is told of a call of it while that lasts.
    """

    store: Store
    tools: ToolSource
    sandbox: Sandbox
    clock: Clock
    entropy: Callable[[int], bytes]
    telemetry: Telemetry
    stream: str | None = None
    servers: Collection[str] = ()
    redact: Redactor = field(default_factory=Redactor)
    admission: Admission = field(default_factory=Admission)
    under_way: UnderWay = field(default_factory=UnderWay)
    watch: Callable[[str, ToolProgress], None] = unwatched

    async def start(
        self,
        request: RunRequest,
        *,
        run_id: str | None = None,
        on_started: Callable[[str], None] | None = None,
        ahead: bool = False,
    ) -> str:
        """
        Run an agent to its end, and return the id of the run.

        The end is durable when this returns; read it from the store.

        Args:
            request: What is to run.

            run_id: Its id, which no run has; by default, a new one.

            on_started: Called with the run's id once its start is durable.

            ahead: It need not be durable for that: it will be with the first call,
                or with the end, before any of these leaves the host.

        Raises:
            UsageError: The module, the input or a name is refused; no event was
                written.

            ServerUnavailable: A required server is down; no event was written.

            BusyError: The host has as many runs as it takes; no event was written.

            StoreError: An event could not be stored.

            asyncio.CancelledError: The caller was cancelled; so was the run, and
                that is recorded.
        """
        run_id = run_id or self.new_id()
        scope = self._scope(
            RunScope(
                run_id=run_id,
                agent=request.agent,
                context=request.context,
                trigger=request.trigger,
            ),
            request.private,
        )
        with self.admission:
            async with self.tools.open(scope) as tools:
                await self._start(scope, request, tools, on_started, ahead=ahead)
        return run_id

    def new_id(self) -> str:
        """Return an id for a run. They sort by time."""
        return uuid7(self.clock.now(), self.entropy(10))

    async def _start(
        self,
        scope: RunScope,
        request: RunRequest,
        tools: ToolClient,
        on_started: Callable[[str], None] | None,
        *,
        ahead: bool,
    ) -> None:
        run_id = scope.run_id
        known = tuple(self.servers)
        request = replace(request, limits=request.limits.of(request.module))
        prepared = await self.sandbox.prepare(
            request.module, request.limits, request.entry
        )
        wanted = request.grant.servers(known)
        named = [server for server, _ in request.names.values()]
        offered = await tools.offered(
            [name for name in known if name in {*wanted, *named}]
        )
        catalogue = catalogue_for(
            request.grant,
            request.names,
            offered.offers,
            offered.options,
            offered.accepted,
        )
        found = merged(
            request.context,
            await tools.resources([name for name in known if name in wanted], scope),
            longest=request.limits.input,
        )
        request = replace(request, context=with_prompt(request, found.context, run_id))
        setting = replace(
            self._setting(prepared, offered), resources=self.redact.value(found.record)
        )
        started = started_as(request, setting, catalogue, self.redact)
        manifest = check_input(request.module, started.input)
        execution = start_of(run_id, started, manifest, request.trace)
        with self.telemetry.run(execution) as span:
            definitions = {
                offer.definition_sha256: offer.definition
                for offer in catalogue.visible.values()
            }
            log = self.store.create(stream_of(run_id), self._trace(span))
            gateway = self._gateway(
                run_id,
                request.agent,
                log,
                tools,
                request.grant,
                catalogue.routes,
                Journal(),
                request.limits,
                catalogue.schemas,
            )
            async with self.under_way.run(
                run_id, log, request.actor, gateway.journal, _telling(span, log)
            ) as run:
                blobs = {
                    prepared.sha256: request.module,
                    **definitions,
                    **found.blobs,
                }
                # law 3: what leaves the host waits for all that is queued before it
                if ahead:
                    log.queue(started, blobs=blobs)
                else:
                    await log.append(started, blobs=blobs)
                guest = guest_for(request.agent, started, definitions, log.recorded_at)
                *run.before, run.end = await self._drive(
                    span, gateway, prepared, guest, on_started
                )

    async def resume(  # noqa: PLR0913 -- each may be left out
        self,
        run_id: str,
        *,
        actor: dict[str, JSON],
        grant: Grant,
        reason: str = "requested",
        private: Mapping[str, JSON] | None = None,
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

            private: Variables that only servers get to see, once more.

            on_started: Called with the run's id once it is ours.

        Raises:
            NotFoundError: There is no such run.

            UsageError: It has ended.

            NotKeptError: The log keeps a digest of an answer that the guest would
                have to get once more. No event was written.

            Suspend: A call is in doubt, and a person has to say what became of it;
                or it waits for an approval. No event was written.

            BusyError: A living host drives it, or this one has as many runs as it
                takes.

            ServerUnavailable: A required server is down; no event was written.

            StoreError: Its log lacks what is needed, or an event could not be stored.

            asyncio.CancelledError: As for `start`.
        """
        with self.admission:
            recording = await self._unended(run_id)
            scope = self._scope(_scope(run_id, recording.started), private or {})
            async with self.tools.open(scope) as tools:
                await self._resume(recording, tools, actor, grant, reason, on_started)

    async def _resume(  # noqa: PLR0913, PLR0917 -- what `resume` was given
        self,
        recording: Recording,
        tools: ToolClient,
        actor: dict[str, JSON],
        grant: Grant,
        reason: str,
        on_started: Callable[[str], None] | None,
    ) -> None:
        started, limits = recording.started, recording.limits
        late = _check_waiting(recording, self.clock.now())
        if error := recording.journal().not_kept:
            raise error
        module = await self.store.blob(started.module_sha256)
        prepared = await self.sandbox.prepare(module, limits, started.entry)
        guest = await recording.guest(started.agent, self.store)
        offered = await self._offered_again(tools, started)
        resumed = RunResumed(
            actor=actor,
            host=self.stream,
            epoch=recording.epoch + 1,
            reason=reason,
            grants_sha256=grants_digest(grant),
        )
        with self.telemetry.run(resume_of(recording)) as span:
            log = await self.store.claim(
                stream_of(recording.run_id),
                *late,
                resumed,
                after=recording.history[-1].seq,
                trace=self._trace(span),
            )
            journal = recording.journal(
                compare_fuel=prepared.engine == started.engine, today=grant
            )
            for event in late:
                journal.apply(event, log.recorded_at)
            gateway = self._gateway(
                recording.run_id,
                started.agent,
                log,
                tools,
                Grant.from_payload(started.grants),
                pinned(started.catalogue, offered),
                journal,
                limits,
                schemas_of(guest),
            )
            async with self.under_way.run(
                recording.run_id, log, actor, gateway.journal, _telling(span, log)
            ) as run:
                *run.before, run.end = await self._drive(
                    span,
                    gateway,
                    prepared,
                    guest,
                    on_started,
                    driven=recording.driven,
                    served=resolved_calls(recording.own),
                )

    async def fork(
        self,
        request: ForkRequest,
        *,
        run_id: str | None = None,
        on_started: Callable[[str], None] | None = None,
    ) -> str:
        """
        Start a run that begins with what another did, and return its id.

        The guest is executed over the events of the parent, up to the one that is
        asked for: nothing of them is sent. From there it goes on under its own
        grants, with other random numbers and other idempotency keys.

        Args:
            request: What the fork is to be.

            run_id: Its id, which no run has; by default, a new one.

            on_started: Called with its id once its start is durable.

        Raises:
            NotFoundError: There is no such run.

            NotKeptError: It was erased, or the log keeps a digest of an answer that
                the fork would begin with. No event was written.

            UsageError: It cannot be forked there, or the module is refused.

            ServerUnavailable: A required server is down; no event was written.

            BusyError: The host has as many runs as it takes; no event was written.

            StoreError: The log lacks what is needed, or an event could not be stored.

            asyncio.CancelledError: As for `start`.
        """
        with self.admission:
            parent = await Recording.load(request.run_id, self.store)
            parent.check_forkable()
            run_id = run_id or self.new_id()
            scope = self._scope(_scope(run_id, parent.started), request.private)
            async with self.tools.open(scope) as tools:
                await self._fork(run_id, parent, request, tools, on_started)
        return run_id

    async def _fork(
        self,
        run_id: str,
        parent: Recording,
        request: ForkRequest,
        tools: ToolClient,
        on_started: Callable[[str], None] | None,
    ) -> None:
        point = forking_point(
            parent.history, request.seq, edit=request.edited is not None
        )
        if error := parent.until(point.last.seq).journal().not_kept:
            raise NotKeptError(
                str(error),
                call=error.call,
                fix="fork before it, or say with --set-result what it answered",
            )
        before = parent.started
        module = request.module or await self.store.blob(before.module_sha256)
        prepared = await self.sandbox.prepare(module, parent.limits, before.entry)
        offered = await self._offered_again(tools, before)
        events = forked_as(request, self._setting(prepared, offered), before, point)
        forked = fork_of(run_id, before.agent, prepared.sha256, parent.own[0])
        with self.telemetry.run(forked) as span:
            log = self.store.create(stream_of(run_id), self._trace(span))
            async with self.under_way.run(
                run_id, log, request.actor, tell=_telling(span, log)
            ) as run:
                await log.append(*events, blobs={prepared.sha256: module})
                recording = await Recording.load(run_id, self.store)
                guest = await recording.guest(before.agent, self.store)
                gateway = self._gateway(
                    run_id,
                    before.agent,
                    log,
                    tools,
                    request.grant,
                    pinned(before.catalogue, offered),
                    recording.journal(compare_fuel=True),
                    parent.limits,
                    schemas_of(guest),
                )
                run.journal = gateway.journal
                *run.before, run.end = await self._drive(
                    span, gateway, prepared, guest, on_started
                )

    async def _offered_again(self, tools: ToolClient, started: RunStarted) -> Offered:
        """Return what the servers of a recorded run offer now."""
        named = {r.server for r in routes_from_payload(started.catalogue).values()}
        return await tools.offered([name for name in self.servers if name in named])

    async def resolve(
        self,
        run_id: str,
        seq: int,
        resolution: Resolution,
        *,
        actor: dict[str, JSON],
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
        journal = recording.journal()
        doubts = {doubt.seq: doubt for doubt in journal.in_doubt}
        if seq not in doubts:
            known = ", ".join(map(str, doubts)) or "none"
            raise UsageError(
                f"event {seq} of run {run_id} is no call in doubt; those are: {known}",
                fix="name one of them; caxton runs show lists the calls",
            )
        invoked = doubts[seq].invoked
        if isinstance(resolution, GiveResult):
            grant = Grant.from_payload(recording.started.grants)
            terms = Terms.of_call(invoked, grant, None)
            given = terms.conceal(resolution.completed, invoked.server)
            resolution = GiveResult(given)
        events = recorded_as(
            invoked.call, resolution, actor, reason, journal.open_calls
        )
        await self.store.claim(
            stream_of(run_id), *events, after=recording.history[-1].seq
        )

    async def _unended(self, run_id: str) -> Recording:
        recording = await Recording.load(run_id, self.store)
        recording.check_unended()
        return recording

    def _scope(self, scope: RunScope, private: Mapping[str, JSON]) -> RunScope:
        """Return *scope* with variables that from now on nobody else gets to see."""
        self.redact.learn(text for value in private.values() for text in texts(value))
        return replace(
            scope, context={**scope.context, **private}, private=frozenset(private)
        )

    def _setting(self, prepared: Prepared, offered: Offered) -> Setting:
        return Setting(
            prepared=prepared,
            servers=offered.servers,
            host=self.stream,
            seed=self.entropy(32),
        )

    def _gateway(  # noqa: PLR0913, PLR0917 -- what tells one run from another
        self,
        run_id: str,
        agent: str,
        log: EventLog,
        tools: ToolClient,
        grant: Grant,
        routes: Mapping[str, Route],
        journal: Journal,
        limits: Limits,
        schemas: Mapping[str, Mapping[str, JSON]],
    ) -> Gateway:
        return Gateway(
            run_id=run_id,
            agent=agent,
            grant=grant,
            routes=routes,
            journal=journal,
            log=log,
            tools=tools,
            inputs={name: input_check(schema) for name, schema in schemas.items()},
            redact=self.redact,
            max_result=limits.result,
            now=self.clock.now,
            wait=asyncio.sleep,
            watch=partial(self.watch, run_id),
        )

    async def _drive(  # noqa: PLR0913 -- what tells one run from another
        self,
        span: RunSpan,
        gateway: Gateway,
        prepared: Prepared,
        guest: Guest,
        on_started: Callable[[str], None] | None,
        *,
        driven: float = 0.0,
        served: Mapping[int, Served] = _NONE_SERVED,
    ) -> Sequence[Event]:
        driver = Driver(sandbox=self.sandbox, span=span, served=served)
        wall = max(guest.limits.wall - driven, 0.0)
        return await driver.drive(
            gateway, prepared, guest, wall=wall, on_started=on_started
        )

    def _trace(self, span: RunSpan) -> Trace:
        fallback = self.telemetry.ids()[0] or self.entropy(16).hex()

        def trace(
            seq: int, events: Sequence[Event]
        ) -> list[tuple[str | None, str | None]]:
            return [(t or fallback, s) for t, s in span.recorded(seq, events)]

        return trace


def _scope(run_id: str, started: RunStarted) -> RunScope:
    return RunScope(run_id=run_id, agent=started.agent, context=started.context)


def _check_waiting(recording: Recording, now: int) -> Sequence[ApprovalDecided]:
    """
    Refuse to take over a run that would do no more than wait again.

    Returns:
        What records that the time is over in which somebody could approve a call.
    """
    if not isinstance(recording.latest.event, RunSuspended):
        return ()
    run_id, call = recording.run_id, recording.latest.event.call
    journal = recording.journal()
    for doubt in journal.in_doubt:
        if doubt.invoked.call == call and not doubt.resolved:
            raise Suspend(
                call,
                f"run {run_id} waits for a word on call {call} (event {doubt.seq})",
                fix=f"caxton runs resolve {run_id} {doubt.seq} --retry",
            )
    late = lapsed(journal.waiting, now)
    if len(late) < len(journal.waiting):
        raise still_waiting(run_id, journal.waiting, now)
    return late


def _telling(span: RunSpan, log: EventLog) -> Callable[[Event], None]:
    """Return what tells *span* how the run ends that has this *log*."""

    def tell(end: Event) -> None:
        span.stored(*log.head)
        kind = end.kind if isinstance(end, RunFailed) else None
        span.ended(ENDS[type(end).__name__], kind)

    return tell
