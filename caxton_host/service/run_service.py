"""
The runs of a host that serves, each in the background and for its principal.

    submit -> ticket -> turn -> Host.start -> ... -> recorded end
    drain  -> no more tickets -> runs end, or are suspended for the next host

The scopes of a principal say what it may do, with which agents. A run that it may not
see is reported as not found.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from ..config import Agent, Config, model
from ..config.narrowing import narrowings
from ..core.calls import JSON, Completed
from ..core.grants.approvals import Verdict
from ..core.grants.principals import Principal, Scope
from ..core.log.events import Event, RunCancelled
from ..core.log.requests import Resolution
from ..core.log.runs import ENDS, GOING_ON, UNDER_WAY, RunRow
from ..core.names import nearest, stream_of
from ..core.questions import Said
from ..core.tools.contexts import CONVERSATION
from ..errors import (
    BusyError,
    ForbiddenError,
    LeaseLost,
    NotFoundError,
    StoreError,
    Suspend,
    UsageError,
)
from ..lib import codec
from ..lib.json_schema import input_check
from ..placement.in_process import InProcess
from ..ports.placement import Placement
from ..ports.serving import ServingStore
from ..runs.admission import RunQueue, Ticket
from ..runs.approvals import Word, say
from ..runs.cancellation import cancel_idle
from ..runs.chats import conversation
from ..runs.host import Host
from ..runs.modules import AgentDescription, Library
from ..runs.questions import answer, meant
from ..runs.recording import Recording
from ..runs.run_request import ForkRequest, RunRequest, check_request
from .calling_lines import CallingLines
from .code_tools import CodeTools
from .placing import Placer
from .read_log import ReadLog
from .readings import LastRecording, Summaries
from .run_tasks import Driving, RunTasks, Watchers


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """
    A request of a principal for a run.

    Attributes:
        agent: The name of the agent.

        input: The input of the run.

        variables: The variables of the run; see ``[context]``.

        key: An idempotency key: a request with the same key is the same run.

        trigger: What started it: ``api``, ``mcp`` or ``schedule``.

        trace: The W3C trace context of the caller; see `RunRequest`.

        ahead: The caller waits for the end, and need not wait until the start is
            durable.

        narrow: Rules that it is given beside those of its agent; see `narrowings`.

        conversation: What it continues; see `conversation`.

        task_ttl: See `RunStarted`.

        run_id: The id of the run, if that follows from what starts it.
    """

    agent: str
    input: JSON = None
    variables: Mapping[str, JSON] = field(default_factory=dict[str, JSON], repr=False)
    key: str | None = None
    trigger: str = "api"
    trace: Mapping[str, str] = field(default_factory=dict[str, str])
    ahead: bool = False
    narrow: JSON = None
    conversation: Mapping[str, JSON] | None = field(default=None, repr=False)
    task_ttl: int | None = None
    run_id: str | None = None

    @property
    def slot(self) -> str:
        """The digest of the key, which is stored instead of the key."""
        return codec.sha256(self._key)

    @property
    def digest(self) -> str:
        """
        The digest of the request, keyed with its idempotency key.

        The key is not stored, so nobody can guess the request from the digest.
        """
        asked: dict[str, JSON] = {
            "agent": self.agent,
            "input": self.input,
            "vars": {**self.variables},
        }
        if self.narrow is not None:
            asked["narrow"] = self.narrow
        if self.conversation is not None:
            asked["continues"] = self.conversation["run"]
        return hmac.digest(self._key, codec.canonical(asked), "sha256").hex()

    @property
    def _key(self) -> bytes:
        return (self.key or "").encode()


logger = logging.getLogger("caxton_host")

#: Who acts when a host goes on by itself.
HOST: Mapping[str, JSON] = {"kind": "service", "id": "host", "authenticated": False}


_NONE: Mapping[str, JSON] = {}

#: Seconds between two looks at a run that another host drives, or that is queued.
_EVERY_S = 0.25


def _ignore(_run: str) -> None:
    """Ignore a run."""


async def _drop(*_events: Event) -> None:
    """Record nothing."""


@dataclass(slots=True, kw_only=True)
class Service:
    """
    Serves the runs of a host to principals.

    Attributes:
        host: Drives the runs.

        store: Where they are recorded.

        config: Returns what is configured now.

        background: Where they are driven.

        watchers: Callbacks for the progress of calls, which `Host.watch` calls.

        library: The modules of agents.

        decided: Called with the id of a run after a decision about it.

        reads: Records who reads runs.

        record: Records what a principal did to the host, and waits until that and what
            the host did before are durable.

        code: Describes the agents that execute what their caller sends.

        placement: Decides which host tries to start those that wait.

        placer: Queues them, and starts those that this host claims.

        summaries: What runs did in short.

        looked_at: The recording that people look at.

        lines: Where programs made their calls.
    """

    host: Host
    store: ServingStore
    config: Callable[[], Config]
    background: RunTasks
    watchers: Watchers = field(default_factory=Watchers)
    library: Library = field(default_factory=Library)
    decided: Callable[[str], None] = _ignore
    reads: ReadLog = field(default_factory=ReadLog)
    record: Callable[..., Awaitable[None]] = _drop
    placement: Placement = field(default_factory=InProcess)
    code: CodeTools = field(init=False)
    placer: Placer = field(init=False)
    summaries: Summaries = field(init=False)
    looked_at: LastRecording = field(init=False)
    lines: CallingLines = field(init=False)

    def __post_init__(self) -> None:
        host = self.host
        self.summaries = Summaries(self.store.reader)
        self.looked_at = LastRecording(self.store.reader)
        self.lines = CallingLines(host=host)
        self.code = CodeTools(
            tools=host.tools, servers=host.servers, config=self.config
        )
        self.placer = Placer(
            host=host,
            store=self.store,
            config=self.config,
            background=self.background,
            placement=self.placement,
        )
        self.line.queued = self.placer.waiting

    @property
    def line(self) -> RunQueue:
        """The queue for running places."""
        return self.background.line

    @property
    def waiting(self) -> int:
        """How many runs wait for a place, as far as this host knows."""
        return self.line.waiting + self.placer.waiting("")[0]

    # -- agents ----------------------------------------------------------------

    def agents(self, who: Principal) -> list[AgentDescription]:
        """Return the agents that *who* may start, by name. Broken ones are left out."""
        found: list[AgentDescription] = []
        for name, agent in sorted(self.config().executed.items()):
            if who.may("run", name):
                try:
                    found.append(self.card(agent))
                except UsageError as exc:
                    logger.warning("agent %s cannot be served: %s", name, exc)
        return found

    def card(self, agent: Agent) -> AgentDescription:
        """
        Return the description of an agent for its callers.

        Raises:
            UsageError: Its files cannot be read. The message names files of this host.
        """
        return self.code.described(agent, self.library.card(agent))

    def agent(self, who: Principal, name: str) -> Agent:
        """
        Return an agent that *who* may start.

        Raises:
            NotFoundError: There is no such agent, or *who* may not start it.
        """
        known = self.config().executed
        if name in known and who.may("run", name):
            return known[name]
        meant = nearest(name, [one for one in known if who.may("run", one)])
        raise NotFoundError(
            f"no agent {name!r}",
            fix=f"did you mean {meant}?" if meant else "ask for the list of agents",
        )

    # -- runs ------------------------------------------------------------------

    async def submit(
        self, who: Principal, wanted: Submission, ticket: Ticket | None = None
    ) -> str:
        """
        Start a run, and return its id once its start is durable, or runs `ahead`.

        It goes on in the background. If the caller is cancelled before it has begun,
        it does not begin. Without a free place it is queued, which is durable then.

        Args:
            who: The principal, which is recorded as the actor.

            wanted: What is to run.

            ticket: Its place in the queue, if it was taken before.

        Raises:
            NotFoundError: There is no such agent, or *who* may not start it.

            UsageError: The input, a variable or the module is refused, or the key was
                used for something else.

            OverloadedError: There is no room.

            ServerUnavailable: A required server is down.

            LeaseLost: The run of that id was started elsewhere.

            StoreError: It could not be recorded.
        """
        agent = self.agent(who, wanted.agent)
        request = self._request(who, agent, wanted)
        run_id = wanted.run_id or self.host.new_id()
        if wanted.key is not None:
            digest, known = await self.store.submissions.register(
                who.key, wanted.slot, wanted.digest, run_id
            )
            if digest != wanted.digest:
                raise UsageError(
                    "the idempotency key was used for another request",
                    fix="make up a new key for each request",
                )
            if await self._has_begun(known):
                return known
            run_id = known

        async def driving(begun: Callable[[str], None]) -> None:
            await self.host.start(
                request, run_id=run_id, on_started=begun, ahead=wanted.ahead
            )

        ticket = ticket or await self.line.enter(who)
        is_free = self.line.present <= self.line.places and self.placement.is_empty
        try:
            if is_free or not self._may_queue(who, wanted):
                await self.background.begin(run_id, ticket, self._for(who, driving))
                return run_id
            ticket.leave()
            await self.host.freezes.check(agent.name, who.actor)
            check_request(request, self.host.redact)
            await self.placer.submit(run_id, request)
        except LeaseLost:
            # The same request has come twice, at the same time.
            if wanted.key is None or await self.store.reader.row(run_id) is None:
                raise
        return run_id

    async def skip(self, who: Principal, wanted: Submission, reason: str) -> None:
        """
        Record that the run of an id is not started, so that nobody starts it.

        Raises:
            UsageError: It could not be started, either.

            LeaseLost: The run of that id was started elsewhere.

            StoreError: It could not be recorded.
        """
        request = self._request(who, self.agent(who, wanted.agent), wanted)
        await self.placer.skip(wanted.run_id or self.host.new_id(), request, reason)

    def _may_queue(self, who: Principal, wanted: Submission) -> bool:
        """Return whether the log may hold all that a run needs to start."""
        config = self.config()
        given = {**wanted.variables, **who.claims}
        private = (
            key
            for key, variable in config.context.items()
            if variable.private and (variable.claim or key) in given
        )
        passed_on = who.token and any(
            server.oauth and server.oauth.flow == "exchange"
            for server in config.servers.values()
        )
        return not passed_on and not any(private)

    def _for(self, who: Principal, driving: Driving) -> Driving:
        """Return *driving*, for which the access token of *who* is kept."""

        async def kept(begun: Callable[[str], None]) -> None:
            with self.host.callers.kept(who):
                await driving(begun)

        return kept

    async def _has_begun(self, run_id: str) -> bool:
        # One that was lost may wait for a place here.
        while await self.store.reader.row(run_id) is None:
            if await self.background.begun(run_id):
                return True
            if not self.background.drives(run_id):
                return False
        return True

    def _request(self, who: Principal, agent: Agent, wanted: Submission) -> RunRequest:
        config = self.config()
        # The operator wrote what a schedule gives.
        scheduled = wanted.trigger == "schedule"
        operator = scheduled or (wanted.trigger == "api" and who.may("admin"))
        given = _NONE if operator else wanted.variables
        found = model.called_variables(config, given, who.claims)
        context, private = model.run_variables(config, {**wanted.variables, **found})
        if wanted.conversation is not None:
            context[CONVERSATION] = {**wanted.conversation}
        schema = agent.expose.input_schema
        # What the module itself wants is compared when the run begins.
        if schema and (wrong := input_check(schema)(wanted.input)):
            raise UsageError(
                f"the input is not what the agent takes: {wrong}",
                fix="pass what its input_schema asks for",
            )
        code = self.library.code(agent, wanted.input)
        return replace(
            RunRequest.of(agent, code, who.actor),
            context=context,
            private=private,
            trigger=wanted.trigger,
            trace=wanted.trace,
            task_ttl=wanted.task_ttl,
            bounds=narrowings(wanted.narrow, code.narrow, trusted=agent.trusted),
            unvouched=() if operator else {CONVERSATION, *wanted.variables},
        )

    async def continuing(
        self, who: Principal, run_id: str, wanted: Submission
    ) -> Submission | None:
        """
        Return the request that continues what a completed run said to its model.

        The same request again is the same run, while that is kept.

        Args:
            who: The principal.

            run_id: The run.

            wanted: A request for a run of the same agent.

        Returns:
            ``None``: the request repeats that of the run.

        Raises:
            NotFoundError, ForbiddenError: *who* did not start the run.

            UsageError: Its agent does not chat, or the conversation is not kept.

            NotKeptError: It was erased.
        """
        recording = await self.recording(who, run_id)
        agent, started = self.agent(who, wanted.agent), recording.started
        given = codec.canonical(self.host.redact.value(wanted.input))
        if agent.program == model.CALLER or given == codec.canonical(started.input):
            return None
        if not who.is_actor(started.actor):
            raise _forbidden("another principal started this run")
        if agent.expose.chat is None:
            raise UsageError(
                f"{agent.name} does not chat, so the arguments of run {run_id} stay",
                fix=f'add expose.chat = "chat" to [agents.{agent.name}]',
            )
        found = conversation(recording, agent.expose.chat)
        if found is None or len(codec.encode(found)) > agent.limits.input:
            raise UsageError(
                f"run {run_id} has no conversation that is kept and fits in an input",
                fix="start another run",
            )
        wanted = replace(wanted, conversation=found)
        # Nobody can guess the key once the run is erased.
        seed = bytes.fromhex(started.seed)
        key = hmac.digest(seed, wanted.digest.encode(), "sha256").hex()
        return replace(wanted, key=wanted.key or key, ahead=False)

    async def row(self, who: Principal, run_id: str) -> RunRow:
        """
        Return a run that *who* may see.

        Raises:
            NotFoundError: There is no such run, or *who* may not see it.
        """
        row = await self._seen(who, run_id)
        if row is None:
            await self.host.under_way.recorded(run_id)
            row = await self._seen(who, run_id)
        if row is None:
            raise NotFoundError(f"no run {run_id}", fix="ask for the list of runs")
        return row

    async def _seen(self, who: Principal, run_id: str) -> RunRow | None:
        row = await self.store.reader.row(run_id)
        return row if row and sees(who, row) else None

    async def over(self, run_id: str) -> Event | None:
        """
        Wait until a run has ended, or is suspended, wherever it is driven.

        Returns:
            The event that says so; ``None`` if it was erased.

        Raises:
            StoreError: Nothing more is recorded of it now.
        """
        while True:
            if end := await self.background.over(run_id):
                return end
            row = await self.store.reader.row(run_id)
            if row is None:
                raise StoreError(f"the start of run {run_id} could not be stored")
            if row.state not in UNDER_WAY:
                history = await self.store.reader.read(stream_of(run_id))
                return next(one.event for one in history[::-1] if one.type in ENDS)
            if row.epoch and row in await self.store.leases.idle():
                raise StoreError(f"no host drives run {run_id}: its log failed")
            await asyncio.sleep(_EVERY_S)

    async def recording(self, who: Principal, run_id: str) -> Recording:
        """
        Return what a run did that *who* may see.

        Raises:
            NotFoundError: There is no such run, or *who* may not see it.

            NotKeptError: It was erased.
        """
        await self.row(who, run_id)
        return await Recording.load(run_id, self.store.reader)

    async def recording_at(self, who: Principal, run_id: str, seq: int) -> Recording:
        """Return the same, for a look at event *seq*; see `LastRecording`."""
        return await self.looked_at.of(await self.row(who, run_id), seq)

    # -- actions on runs --------------------------------------------------------

    async def cancel(self, who: Principal, run_id: str, reason: str) -> str:
        """
        End a run, and return its final state.

        Raises:
            NotFoundError, ForbiddenError: *who* may not end it.

            UsageError: It has ended.

            BusyError: Another host drives it: that one is asked to end it.
        """
        await self._own(who, run_id)
        end = RunCancelled(actor=who.actor, reason=self.host.redact.text(reason))
        if await self.host.under_way.stop(run_id, end) is None:
            if await self.store.leases.owner(run_id):
                await self.store.requests.ask_run(
                    run_id, "cancel", who.actor, end.reason
                )
                raise BusyError(
                    f"another host drives run {run_id}, and is asked to cancel it",
                    fix="look at the run again in a moment",
                )
            await cancel_idle(self.store, run_id, who.actor, end.reason)
            await self.placement.cancel(run_id)
        return (await self.row(who, run_id)).state

    async def resume(
        self,
        who: Principal,
        run_id: str,
        ticket: Ticket | None = None,
        *,
        restored: bool = False,
        variables: Mapping[str, JSON] = _NONE,
    ) -> None:
        """
        Let a run go on in the background; return once it does.

        Args:
            who: The principal, which is recorded as the actor.

            run_id: The run.

            ticket: Its place in the queue, if it was taken before.

            restored: Resume it although its log is a restored copy; *who* needs the
                scope to decide.

            variables: Its private variables, which are not in its log.

        Raises:
            NotFoundError, ForbiddenError: *who* may not resume it.

            UsageError: It has ended, its agent is not configured any more, or a
                variable is refused.

            RestoredError: Its log is a restored copy, and *restored* is false.

            Suspend: It waits for a person.

            BusyError: A host drives it, or there is no room.
        """
        row = await self._own(who, run_id)
        if not who.reaches(row.agent):
            raise _forbidden("the agent of this run is not one of yours")
        if restored:
            await self._allowed(who, "decide", run_id)
        private = self._private(who, row, variables)
        driving = self._resuming(
            row.run_id, row.agent, who.actor, "requested", private, restored=restored
        )
        ticket = ticket or await self.line.enter(who)
        await self.background.begin(run_id, ticket, self._for(who, driving))

    async def fork(
        self,
        who: Principal,
        run_id: str,
        seq: int,
        edited: Completed | None = None,
        narrow: JSON = None,
    ) -> str:
        """
        Start a run that begins with what another did, up to event *seq*.

        Args:
            who: The principal.

            run_id: The run.

            seq: The event.

            edited: The answer of its call, instead of the recorded one.

            narrow: See `Submission`.

        Raises:
            NotFoundError, ForbiddenError: *who* may not fork it, or not with an
                edited answer.

            UsageError: It cannot be forked there.

            OverloadedError: There is no room.
        """
        row = await self._own(who, run_id)
        if edited is not None:
            # The edited answer replaces that of a tool.
            await self._allowed(who, "decide", run_id)
        agent = self.agent(who, row.agent)
        new = self.host.new_id()
        request = ForkRequest(
            run_id=run_id,
            seq=seq,
            actor=who.actor,
            grant=agent.grant,
            edited=edited,
            private=self._private(who, row),
            bounds=narrowings(narrow, trusted=agent.trusted),
        )

        async def driving(begun: Callable[[str], None]) -> None:
            await self.host.fork(request, run_id=new, on_started=begun)

        ticket = await self.line.enter(who)
        await self.background.begin(new, ticket, self._for(who, driving))
        return new

    async def resolve(
        self,
        who: Principal,
        run_id: str,
        seq: int,
        resolution: Resolution,
        reason: str,
    ) -> None:
        """
        Record how *who* resolves a call in doubt.

        Raises:
            NotFoundError, ForbiddenError: *who* may not decide.

            UsageError: The run has ended, or that call is not in doubt.

            BusyError: A host drives the run.
        """
        await self._allowed(who, "decide", run_id)
        await self.host.resolve(
            run_id,
            seq,
            resolution,
            actor=who.actor,
            reason=self.host.redact.text(reason),
        )
        self.decided(run_id)

    async def decide(
        self,
        who: Principal,
        run_id: str,
        seq: int | None,
        verdict: Verdict,
        reason: str,
    ) -> None:
        """
        Record the decision of *who* about a call that waits for an approval.

        The recorded role is one of its roles that the rule names.

        Raises:
            NotFoundError, ForbiddenError: *who* may not decide.

            UsageError: The run has ended, or no such call waits.

            StaleSignInError: To approve it, *who* has to sign in again.

            BusyError: A host drives the run.
        """
        await self._allowed(who, "decide", run_id)
        recording = await Recording.load(run_id, self.store.reader)
        wanted = {
            str(role)
            for asked in recording.journal().waiting
            if seq in {None, asked.seq}
            for role in asked.requested.by
        }
        word = Word(
            verdict=verdict,
            actor=who.actor,
            reason=self.host.redact.text(reason),
            role=_role(who, wanted),
            signed_in_at=who.signed_in_at,
        )
        await say(self.store, run_id, seq, word, now=self.host.clock.now())
        self.decided(run_id)

    async def answer(
        self,
        who: Principal,
        run_id: str,
        seq: int,
        content: dict[str, JSON] | None,
        reason: str,
    ) -> None:
        """
        Answer a question of a tool server for *who*, or decline it without *content*.

        Raises:
            NotFoundError, ForbiddenError: *who* may not answer it.

            UsageError: It does not wait, or the answer does not fit it.

            BusyError: The host that drives the run does not answer.
        """
        await self._allowed(who, "decide", run_id)
        recording = await Recording.load(run_id, self.store.reader)
        question = meant(recording, seq, self.host.clock.now())
        said = Said(
            action="decline" if content is None else "accept",
            content=content,
            actor=who.actor,
            reason=self.host.redact.text(reason),
            role=_role(who, {*map(str, question.asked.by)}),
        )
        await answer(self.store, question, said, self.host.redact)

    async def _own(self, who: Principal, run_id: str) -> RunRow:
        """Return a run that *who* started, or may administer."""
        row = await self.row(who, run_id)
        if who.owns(json.loads(row.actor)) or who.may("admin", row.agent):
            return row
        raise _forbidden("another principal started this run")

    async def _allowed(self, who: Principal, scope: Scope, run_id: str) -> RunRow:
        row = await self.row(who, run_id)
        if who.may(scope, row.agent):
            return row
        raise _forbidden(f"this needs the scope {scope}")

    def _private(
        self, who: Principal, row: RunRow, given: Mapping[str, JSON] = _NONE
    ) -> dict[str, JSON]:
        """Return the private variables of a run that has begun."""
        config = self.config()
        # The claims of another are not those that the run was started with.
        claims = who.claims if who.is_actor(json.loads(row.actor)) else _NONE
        hidden = {key: one for key, one in config.context.items() if one.private}
        found = model.called_variables(replace(config, context=hidden), given, claims)
        return model.private_variables(config, found)

    # -- the life of the service -----------------------------------------------

    async def go_on(
        self, run_id: str, agent: str, reason: str, epoch: int | None = None
    ) -> None:
        """
        Resume a run that no host drives; return once it is driven.

        Args:
            run_id: The run. One that waits for a person is left alone.

            agent: The name of its agent.

            reason: Why; it is recorded.

            epoch: Leave it alone if it is in another one, once there is a place.

        Raises:
            BusyError: It has ended, or another host drives it.

            CaxtonError: It cannot be resumed now.
        """
        private = model.private_variables(self.config())
        resuming = self._resuming(run_id, agent, {**HOST}, reason, private)

        async def driving(begun: Callable[[str], None]) -> None:
            row = await self.store.reader.row(run_id)
            still = row and row.state in GOING_ON and epoch in {None, row.epoch}
            if not still:
                raise BusyError(f"run {run_id} does not wait any more")
            await resuming(begun)

        with contextlib.suppress(Suspend):
            await self.background.begin(
                run_id, self.line.admit(f"host/{agent}"), driving
            )

    def _resuming(  # noqa: PLR0913 -- by name
        self,
        run_id: str,
        name: str,
        actor: dict[str, JSON],
        reason: str,
        private: Mapping[str, JSON],
        *,
        restored: bool = False,
    ) -> Driving:
        agent = self.config().agents.get(name)
        if agent is None:
            raise UsageError(
                f"no agent {name!r} in the configuration: nothing is granted to it now",
                fix="configure it again, or resume the run where it was started",
            )

        async def driving(begun: Callable[[str], None]) -> None:
            await self.host.resume(
                run_id,
                actor=actor,
                grant=agent.grant,
                reason=reason,
                private=private,
                on_started=begun,
                restored=restored,
            )

        return driving


def sees(who: Principal, row: RunRow) -> bool:
    """Return whether *who* may read a run."""
    actor = json.loads(row.actor)
    # The actor of an erased run is deleted; its tenant is not.
    return who.sees(row.agent, {"tenant": row.tenant, **actor})


def _role(who: Principal, wanted: Collection[str]) -> str:
    """Return the role in which *who* decides, of those that may; ``""``: any may."""
    if not wanted:
        return ""
    for role in who.roles:
        if role in wanted:
            return role
    raise ForbiddenError(
        f"this is to be decided by: {', '.join(sorted(wanted))}",
        fix="ask a person who has that role",
    )


def _forbidden(message: str) -> ForbiddenError:
    return ForbiddenError(message, fix="use a token that may")
