"""
One execution of a run, from what it needs to an end that is recorded.

Tools, module and context are gathered; the log is begun, or taken over; the guest is
driven over what the log holds and beyond.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from ..core.calls import JSON, Route
from ..core.grants.approvals import lapsed
from ..core.grants.forks import forking_point
from ..core.grants.grants import Grant
from ..core.grants.journal import Journal
from ..core.grants.tool_catalog import (
    Offered,
    catalogue_for,
    pinned,
    reaching,
    routes_from_payload,
)
from ..core.limits import Limits
from ..core.log.events import (
    ApprovalDecided,
    Event,
    RunFailed,
    RunResumed,
    RunStarted,
    RunSuspended,
    ToolProgress,
)
from ..core.log.runs import ENDS
from ..core.names import stream_of
from ..core.text.redact import Redactor
from ..core.tools.contexts import merged
from ..errors import NotKeptError, Suspend
from ..gateway.gateway import Gateway
from ..lib.json_schema import input_check
from ..ports import (
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
    Trace,
)
from .approvals import still_waiting
from .cancellation import UnderWay
from .driver import Driver
from .execution_info import fork_of, resolved_calls, resume_of, start_of
from .manifests import read
from .recording import Recording, guest_for, schemas_of
from .run_request import (
    ForkRequest,
    RunRequest,
    Setting,
    forked_as,
    grants_digest,
    started_as,
    with_prompt,
)

_NONE_SERVED: Mapping[int, Served] = {}


def unwatched(_run: str, _: ToolProgress) -> None:
    """Do nothing with what is told of a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    """
    Executes runs.

    Attributes:
        stream: The stream of this host process, named in the runs it drives.

        servers: Every server that a grant may speak of now.

        entropy: Returns that many random bytes.

        watch: Called with a run and what is told of a call of it while that lasts.
    """

    store: Store
    sandbox: Sandbox
    clock: Clock
    entropy: Callable[[int], bytes]
    telemetry: Telemetry
    stream: str | None = None
    servers: Collection[str] = ()
    redact: Redactor = field(default_factory=Redactor)
    under_way: UnderWay = field(default_factory=UnderWay)
    watch: Callable[[str, ToolProgress], None] = unwatched

    async def begin(
        self,
        scope: RunScope,
        request: RunRequest,
        tools: ToolClient,
        on_started: Callable[[str], None] | None,
        *,
        ahead: bool,
    ) -> None:
        """Start the run of *scope*, and see it to its end. See `Host.start`."""
        run_id = scope.run_id
        known = tuple(self.servers)
        limits = request.limits.of(request.module)
        prepared = await self.sandbox.prepare(request.module, limits, request.entry)
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
        context = with_prompt(request, found.context, run_id)
        request = replace(request, limits=limits, context=context)
        setting = self._setting(prepared, offered, self.redact.value(found.record))
        started = started_as(request, setting, catalogue, self.redact)
        execution = start_of(run_id, started, read(request.module), request.trace)
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
                reaching(catalogue.routes, started.unlisted, offered),
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

    async def go_on(  # noqa: PLR0913, PLR0917 -- what `resume` was given
        self,
        recording: Recording,
        tools: ToolClient,
        actor: dict[str, JSON],
        grant: Grant,
        reason: str,
        on_started: Callable[[str], None] | None,
    ) -> None:
        """Take over a run, and see it to its end. See `Host.resume`."""
        started, limits = recording.started, recording.limits
        late = _check_waiting(recording, self.clock.now())
        if error := recording.journal().not_kept:
            raise error
        module = await self.store.reader.blob(started.module_sha256)
        prepared = await self.sandbox.prepare(module, limits, started.entry)
        guest = await recording.guest(started.agent, self.store.reader)
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
                reaching(pinned(started.catalogue, offered), started.unlisted, offered),
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

    async def branch(
        self,
        run_id: str,
        parent: Recording,
        request: ForkRequest,
        tools: ToolClient,
        on_started: Callable[[str], None] | None,
    ) -> None:
        """Start a run with what *parent* did, and see it to its end."""
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
        module = request.module or await self.store.reader.blob(before.module_sha256)
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
                recording = await Recording.load(run_id, self.store.reader)
                guest = await recording.guest(before.agent, self.store.reader)
                gateway = self._gateway(
                    run_id,
                    before.agent,
                    log,
                    tools,
                    request.grant,
                    reaching(
                        pinned(before.catalogue, offered), before.unlisted, offered
                    ),
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
        named.update(map(str, started.unlisted))
        return await tools.offered([name for name in self.servers if name in named])

    def _setting(
        self,
        prepared: Prepared,
        offered: Offered,
        resources: dict[str, JSON] | None = None,
    ) -> Setting:
        return Setting(
            prepared=prepared,
            servers=offered.servers,
            host=self.stream,
            seed=self.entropy(32),
            resources=resources,
            unlisted=offered.unlisted,
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


def _check_waiting(recording: Recording, now: int) -> Sequence[ApprovalDecided]:
    """
    Refuse to take over a run that would do no more than wait again.

    Returns:
        What records that the time is over in which somebody could approve a call.
    """
    if not isinstance(recording.latest.event, RunSuspended):
        return ()
    run_id, asked = recording.run_id, recording.latest.event.call
    journal = recording.journal()
    for doubt in journal.in_doubt:
        call = doubt.invoked.call
        if call == asked and not doubt.resolved:
            raise Suspend(
                doubt.invoked.call,
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
