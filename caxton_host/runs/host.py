"""
The host of runs: starts, resumes and forks them, and returns at their recorded end.

    RunRequest  -> RunStarted -\
    run id      -> RunResumed ---> Executor -> RunCompleted, RunFailed, RunCancelled
    ForkRequest -> RunStarted -/               or RunSuspended

Each of the three gathers what the run is given, an `Assignment`, which the executor
carries out. Nothing of a run leaves the host before the events that it depends on are
durable (law 3): neither its calls, which the gateway guards, nor its result.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from ..core.calls import JSON
from ..core.commands import entry_of
from ..core.grants.approvals import lapsed
from ..core.grants.bounds import TODAY, Bound, beside, bounds_of, reached
from ..core.grants.call_terms import Terms
from ..core.grants.forks import forking_point
from ..core.grants.grants import Grant
from ..core.grants.journal import Journal
from ..core.grants.principals import Callers, trust_domain
from ..core.grants.tool_catalog import (
    Offered,
    catalogue_for,
    pinned,
    reaching,
    routes_from_payload,
    shown,
)
from ..core.limits import Limits
from ..core.log.events import (
    ApprovalDecided,
    RunResumed,
    RunStarted,
    RunSuspended,
    ToolProgress,
)
from ..core.log.requests import GiveResult, Resolution, closing, recorded_as
from ..core.names import stream_of, uuid7
from ..core.provenance import unvouched
from ..core.text.redact import Redactor
from ..core.text.templates import texts
from ..core.tools.contexts import merged
from ..errors import (
    ChildSuspended,
    NotFoundError,
    NotKeptError,
    RestoredError,
    Suspend,
    UsageError,
)
from ..lib.json_schema import fits
from ..ports.log import Store
from ..ports.sandbox import Prepared, Sandbox
from ..ports.tools import RunScope, ToolClient, ToolSource
from ..ports.watch import Clock, Telemetry
from .admission import Admission
from .approvals import still_waiting
from .cancellation import UnderWay
from .desk import Client, no_client
from .executor import (
    Assignment,
    Executor,
    fork_of,
    resolved_calls,
    resume_of,
    start_of,
    unwatched,
)
from .freezing import FreezeWatch
from .modules import read_manifest
from .recording import Recording, guest_for, schemas_of
from .run_request import (
    ForkRequest,
    RunRequest,
    Setting,
    check_request,
    forked_as,
    grants_digest,
    started_as,
    with_prompt,
)


@dataclass(slots=True, kw_only=True, eq=False)
class Host:
    """
    Starts, resumes and forks runs.

    Attributes:
        store: Where runs are recorded.

        tools: Opened for each run, which keeps them to its end.

        sandbox: Where guests are executed.

        clock: Where time comes from.

        entropy: Returns that many random bytes.

        telemetry: Watches runs and calls.

        stream: The stream of this host process, which is named in the runs it drives.

        servers: Every server that a grant may name now; a view that stays up to date.

        redact: Removes configured secrets from what is recorded.

        callers: The access tokens of those who ask for runs.

        under_way: The runs that this host executes now, so that they can be stopped.

        admission: Bounds how many that are.

        watch: Called with a run and each progress report of a call of it.

        client: See `Executor`.

        freezes: What is frozen.

        present: See `Executor`.

        sessions: The runs are sessions, and `sandbox` serves their clients.

        executor: Executes each run once it is known what that is given.
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
    callers: Callers = field(default_factory=Callers)
    under_way: UnderWay = field(default_factory=UnderWay)
    admission: Admission = field(default_factory=Admission)
    watch: Callable[[str, ToolProgress], None] = unwatched
    client: Client = no_client
    freezes: FreezeWatch = field(default_factory=FreezeWatch)
    present: Callable[[str], Grant | None] = lambda _: None
    sessions: bool = False
    executor: Executor = field(init=False)

    def __post_init__(self) -> None:
        self.executor = Executor(
            store=self.store,
            sandbox=self.sandbox,
            clock=self.clock,
            entropy=self.entropy,
            telemetry=self.telemetry,
            redact=self.redact,
            under_way=self.under_way,
            watch=self.watch,
            client=self.client,
            freezes=lambda: self.freezes.of_calls,
            present=self.present,
        )

    async def start(
        self,
        request: RunRequest,
        *,
        run_id: str | None = None,
        on_started: Callable[[str], None] | None = None,
        ahead: bool = False,
        queued: bool = False,
    ) -> str:
        """
        Run an agent to its end, and return the id of the run.

        The end is durable when this returns; read it from the store.

        Args:
            request: What is to run.

            run_id: Its id, which no run has; by default, a new one.

            on_started: Called with the run's id once its start is durable.

            ahead: Call *on_started* before the start is durable: it becomes durable
                with the first call, or with the end, before any of these leaves the
                host.

            queued: The run was queued: `RunQueued` is all that its stream has.

        Raises:
            UsageError: The module, the input or a name is refused, or the agent is
                frozen; no event was written.

            ServerUnavailable: A required server is down; no event was written.

            BusyError: The host has as many runs as it takes, or a queued run was
                started elsewhere, or cancelled; no event was written.

            StoreError: An event could not be stored.

            asyncio.CancelledError: The caller was cancelled; so was the run, and
                that is recorded.
        """
        run_id = run_id or self.new_id()
        asked = RunScope(
            run_id=run_id,
            agent=request.agent,
            context=request.context,
            trigger=request.trigger,
            actor=request.actor,
            callers=request.callers,
            limits=request.limits,
            unvouched=request.unvouched,
        )
        with self.admission, self._keeping(run_id):
            scope = self._scope(asked, request.private)
            check_request(request, self.redact)
            await self.freezes.check(request.agent, request.actor)
            async with self.tools.open(scope) as tools:
                given = await self._started(scope, request, tools)
                given = replace(given, ahead=ahead, after=1 if queued else None)
                await self.executor.execute(given, tools, on_started)
        return run_id

    def new_id(self) -> str:
        """Return a new id for a run. Ids sort by time."""
        return uuid7(self.clock.now(), self.entropy(10))

    async def resume(  # noqa: PLR0913 -- each may be left out
        self,
        run_id: str,
        *,
        actor: dict[str, JSON],
        grant: Grant,
        reason: str = "requested",
        private: Mapping[str, JSON] | None = None,
        on_started: Callable[[str], None] | None = None,
        restored: bool = False,
        above: Sequence[Bound] | None = None,
    ) -> None:
        """
        Take over a run that no host drives, and execute it to its end.

        The guest is executed again over what the log holds: nothing of that is
        sent again. From there it goes on, and both its recorded grants and *grant*
        have to allow each call.

        Args:
            run_id: The run.

            actor: Who asks.

            grant: What the operator grants the agent now.

            reason: Recorded with it.

            private: Variables for servers only, never for the agent or the log.

            on_started: Called with the run's id once it is ours.

            restored: Resume it although its log is a restored copy.

            above: The grants of its callers that bind it now, if its caller resumes
                it. A run that was called is resumed by its caller alone.

        Raises:
            NotFoundError: There is no such run.

            UsageError: It has ended, or it is for its caller to resume it.

            RestoredError: Its log is a restored copy, and *restored* is false.

            NotKeptError: The log keeps a digest of an answer that the guest would
                have to get again. No event was written.

            Suspend: A call is in doubt, and a person has to resolve it; or a call
                waits for an approval; or the run is frozen. No event was written.

            BusyError: A living host drives it, or this one has as many runs as it
                takes.

            ServerUnavailable: A required server is down; no event was written.

            StoreError: Its log lacks what is needed, or an event could not be stored.

            asyncio.CancelledError: As for `start`.
        """
        with self.admission, self._keeping(run_id):
            recording = await self._unended(run_id)
            self.under_way.check_over(run_id)
            if not self.sessions:
                recording.check_executable()
            if recording.is_restored and not restored:
                raise RestoredError(run_id)
            if above is None and (parent := recording.started.parent):
                raise UsageError(
                    f"run {run_id} answers a call of run {parent}, which resumes it",
                    fix=f"caxton runs resume {parent}",
                )
            await self.freezes.check_resumable(recording)
            scope = self._scope(_scope(run_id, recording.started), private or {})
            async with self.tools.open(scope) as tools:
                today = [Bound(name=TODAY, grant=grant), *_new(recording, above or ())]
                given = await self._resumed(recording, tools, actor, today, reason)
                await self.executor.execute(given, tools, on_started)

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
        run_id = run_id or self.new_id()
        with self.admission, self._keeping(run_id):
            parent = await Recording.load(request.run_id, self.store.reader)
            parent.check_forkable()
            await self.freezes.check(parent.started.agent, request.actor)
            asked = _scope(run_id, parent.started)
            asked = replace(asked, actor=request.actor, callers=())
            scope = self._scope(asked, request.private)
            async with self.tools.open(scope) as tools:
                given = await self._forked(run_id, parent, request, tools)
                await self.executor.execute(given, tools, on_started)
        return run_id

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
        Record how a person resolves a call in doubt. Does not drive the run.

        Args:
            run_id: The run.

            seq: The number of the call's `ToolInvoked`.

            resolution: What happened to the call.

            actor: Who resolves it.

            reason: Why; it is recorded.

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
                f"event {seq} of run {run_id} is not a call in doubt; calls in doubt: "
                f"{known}",
                fix="name one of them; caxton runs show lists the calls",
            )
        invoked = doubts[seq].invoked
        if callee := recording.callees.get(doubts[seq].invoked.call):
            raise UsageError(
                f"event {seq} of run {run_id} is not in doubt: run {callee} answers it",
                fix=f"caxton runs show {callee}",
            )
        if isinstance(resolution, GiveResult):
            grant = Grant.from_payload(recording.started.grants)
            others = [bound.grant for bound in bounds_of(recording.started.bounds)]
            terms = Terms.of_call(invoked, grant, others)
            given = terms.conceal(resolution.completed)
            catalogue = recording.started.catalogue
            resolution = GiveResult(shown(catalogue, invoked.name, given))
        events = recorded_as(
            invoked.call, resolution, actor, reason, journal.open_calls
        )
        await self.store.claim(
            stream_of(run_id), *events, after=recording.history[-1].seq
        )

    async def _started(
        self, scope: RunScope, request: RunRequest, tools: ToolClient
    ) -> Assignment:
        """Gather what a new run is given."""
        run_id = scope.run_id
        known = tuple(self.servers)
        limits = request.limits.of(request.module)
        entry = entry_of(request.module, request.entry)
        prepared = await self.sandbox.prepare(request.module, limits, entry)
        others = [bound.grant for bound in request.bounds]
        wanted = reached([request.grant, *others], known)
        offered = await tools.offered(request.servers(known))
        catalogue = catalogue_for(
            request.grant,
            request.names,
            offered.offers,
            offered.options,
            offered.accepted,
            others=others,
        )
        found = merged(
            request.context,
            await tools.resources([name for name in known if name in wanted], scope),
            longest=request.limits.input,
        )
        context = with_prompt(request, found.context, run_id)
        request = replace(request, entry=entry, limits=limits, context=context)
        resources = self.redact.value(found.record)
        setting = self._setting(prepared, offered, resources)
        started = started_as(request, setting, catalogue, self.redact)
        definitions = {
            offer.definition_sha256: offer.definition
            for offer in catalogue.visible.values()
        }
        manifest = read_manifest(request.module)
        return Assignment(
            run_id=run_id,
            agent=request.agent,
            actor=request.actor,
            execution=start_of(
                run_id, started, manifest, self.telemetry.trace_of(request.trace)
            ),
            prepared=prepared,
            guest=guest_for(
                _domain(started),
                started,
                definitions,
                0,
                program=request.program,
                files=request.files,
            ),
            grant=request.grant,
            routes=reaching(catalogue.routes, started.unlisted, offered),
            schemas=catalogue.schemas,
            journal=Journal(bounds=request.bounds, matches=fits, grant=request.grant),
            events=(started,),
            blobs={
                prepared.sha256: request.module,
                **(request.program.blobs if request.program else {}),
                **definitions,
                **found.blobs,
                **request.files,
            },
            callers=request.callers,
        )

    async def _resumed(
        self,
        recording: Recording,
        tools: ToolClient,
        actor: dict[str, JSON],
        today: Sequence[Bound],
        reason: str,
    ) -> Assignment:
        """Gather what a resumed run is given."""
        started, limits = recording.started, recording.limits
        late = await _check_resumable(recording, self)
        module = await self.store.reader.blob(started.module_sha256)
        prepared = await self.sandbox.prepare(module, limits, started.entry)
        guest = await recording.guest(_domain(started), self.store.reader)
        offered = await self._offered_again(tools, started)
        resumed = RunResumed(
            actor=actor,
            host=self.stream,
            epoch=recording.epoch + 1,
            reason=reason,
            grants_sha256=grants_digest(today[0].grant),
        )
        # Nobody waits for the answers of a session that was interrupted.
        given_up = recording.journal().open_calls if recording.is_session else ()
        return Assignment(
            run_id=recording.run_id,
            agent=started.agent,
            actor=actor,
            execution=resume_of(recording, recording.own),
            prepared=prepared,
            guest=guest,
            grant=Grant.from_payload(started.grants),
            routes=reaching(
                pinned(started.catalogue, offered), started.unlisted, offered
            ),
            schemas=schemas_of(guest),
            journal=recording.journal(
                compare_fuel=prepared.engine == started.engine,
                today=today,
                judging=True,
            ),
            events=(*late, *closing(given_up, resumed)),
            after=recording.history[-1].seq,
            driven_s=recording.driven,
            served=resolved_calls(recording.own),
            callers=tuple(map(str, started.callers)),
        )

    async def _forked(
        self, run_id: str, parent: Recording, request: ForkRequest, tools: ToolClient
    ) -> Assignment:
        """Gather what a fork of *parent* is given."""
        point = forking_point(
            parent.history, request.seq, edit=request.edited is not None
        )
        if error := parent.until(point.last.seq).journal().not_kept:
            raise NotKeptError(
                str(error),
                call=error.call,
                fix="fork before it, or pass its answer with --set-result",
            )
        bounds = parent.started.bounds
        more = beside(bounds_of(bounds), request.bounds)
        bounds = (*bounds, *(bound.to_payload() for bound in more))
        before = replace(parent.started, bounds=bounds)
        module = request.module or await self.store.reader.blob(before.module_sha256)
        prepared = await self.sandbox.prepare(module, parent.limits, before.entry)
        offered = await self._offered_again(tools, before)
        setting = self._setting(prepared, offered)
        started, *edited = forked_as(request, setting, before, point)
        fork = parent.forked(run_id, started, point.last.seq)
        guest = await fork.guest(_domain(started), self.store.reader, request.program)
        return Assignment(
            run_id=run_id,
            agent=before.agent,
            actor=request.actor,
            execution=fork_of(run_id, before.agent, prepared.sha256, parent.own[0]),
            prepared=prepared,
            guest=guest,
            grant=request.grant,
            routes=reaching(
                pinned(before.catalogue, offered), before.unlisted, offered
            ),
            schemas=schemas_of(guest),
            journal=fork.journal(compare_fuel=True, judging=True),
            events=(started, *edited),
            blobs={
                prepared.sha256: module,
                **(request.program.blobs if request.program else {}),
            },
        )

    async def _offered_again(self, tools: ToolClient, started: RunStarted) -> Offered:
        """Return what the servers of a recorded run offer now."""
        named = {r.server for r in routes_from_payload(started.catalogue).values()}
        named.update(map(str, started.unlisted))
        for bound in bounds_of(started.bounds):
            named.intersection_update(bound.grant.servers(self.servers))
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

    @contextmanager
    def _keeping(self, run_id: str) -> Generator[None]:
        """Forget the private variables of a run when it is over."""
        try:
            yield
        finally:
            self.redact.let_go(f"run/{run_id}")

    async def _unended(self, run_id: str) -> Recording:
        recording = await Recording.load(run_id, self.store.reader)
        recording.check_unended()
        return recording

    def _scope(self, scope: RunScope, private: Mapping[str, JSON]) -> RunScope:
        """Return *scope* with private variables, which are redacted while it lasts."""
        if private:
            said = [text for value in private.values() for text in texts(value)]
            self.redact.hold(f"run/{scope.run_id}", said)
        return replace(
            scope, context={**scope.context, **private}, private=frozenset(private)
        )


def _domain(started: RunStarted) -> str:
    return trust_domain(started.agent, started.actor)


def _scope(run_id: str, started: RunStarted) -> RunScope:
    return RunScope(
        run_id=run_id,
        agent=started.agent,
        context=started.context,
        actor=started.actor,
        callers=tuple(map(str, started.callers)),
        limits=Limits.from_payload(started.limits),
        unvouched=tuple(unvouched(started)),
    )


def _new(recording: Recording, above: Sequence[Bound]) -> Iterator[Bound]:
    """Yield those of *above* that did not bind the run when it started."""
    known = {bound.name for bound in bounds_of(recording.started.bounds)}
    yield from (bound for bound in above if bound.name not in known)


async def _check_resumable(
    recording: Recording, host: Host
) -> Sequence[ApprovalDecided]:
    """
    Refuse to resume a run that would only wait again, or that lacks an answer.

    A session waits for nothing, and its answers are not needed again.
    """
    if recording.is_session:
        return ()
    late = await _check_waiting(recording, host)
    if error := recording.journal().not_kept:
        raise error
    return late


async def _check_waiting(recording: Recording, host: Host) -> Sequence[ApprovalDecided]:
    """
    Refuse to resume a run that would only wait again.

    Returns:
        What records that the time to approve a call is over.
    """
    last = recording.latest.event
    if not isinstance(last, RunSuspended):
        return ()
    run_id, asked = recording.run_id, None if last.frozen else last.call
    journal, now = recording.journal(), host.clock.now()
    if child := recording.waits_for:
        await _check_child(recording, child, host)
        return ()
    for doubt in journal.in_doubt:
        call = doubt.invoked.call
        if call == asked and not doubt.resolved:
            raise Suspend(
                doubt.invoked.call,
                f"run {run_id} waits for a decision about call {call} "
                f"(event {doubt.seq})",
                fix=f"caxton runs resolve {run_id} {doubt.seq} --retry",
            )
    late = lapsed(journal.waiting, now)
    if len(late) < len(journal.waiting):
        raise still_waiting(run_id, journal.waiting, now)
    return late


async def _check_child(caller: Recording, child: str, host: Host) -> None:
    """Refuse to resume a run while the one that answers its call only waits."""
    call = getattr(caller.latest.event, "call", 0)
    try:
        recording = await Recording.load(child, host.store.reader)
    except (NotFoundError, NotKeptError):
        return  # It was not started, or was erased: the call says so.
    if recording.end is not None:
        return
    if error := recording.journal().not_kept:
        raise error
    try:
        await host.freezes.check_resumable(recording)
        await _check_waiting(recording, host)
    except Suspend as exc:
        raise ChildSuspended(
            call, f"run {caller.run_id} waits for run {child}: {exc}", fix=exc.fix
        ) from None
