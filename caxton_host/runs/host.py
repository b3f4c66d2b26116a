"""
Runs: start one or take one over, and see it to its recorded end.

    request -> RunStarted -> drive -> RunCompleted, RunFailed, RunCancelled
      run id -> RunResumed -> drive -^                     or RunSuspended
        fork -> RunStarted -> drive -^

Nothing of a run leaves the host before the events that it depends on are durable
(law 3): not its calls, which the gateway sees to, and not its result.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from ..core.calls import JSON
from ..core.grants.call_terms import Terms
from ..core.grants.grants import Grant
from ..core.grants.tool_catalog import shown
from ..core.log.events import RunStarted
from ..core.log.in_doubt import GiveResult, Resolution, recorded_as
from ..core.names import stream_of, uuid7
from ..core.text.templates import texts
from ..errors import RestoredError, UsageError
from ..ports import RunScope, ToolSource
from .admission import Admission
from .executor import Executor
from .recording import Recording
from .run_request import ForkRequest, RunRequest, check_request


@dataclass(frozen=True, slots=True, kw_only=True)
class Host(Executor):
    """
    Starts runs and drives them.

    Attributes:
        tools: Opened for each run, which keeps them to its end.

        admission: Counts the runs.
    """

    tools: ToolSource
    admission: Admission = field(default_factory=Admission)

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
        given = RunScope(
            run_id=run_id,
            agent=request.agent,
            context=request.context,
            trigger=request.trigger,
        )
        with self.admission, self._keeping(run_id):
            scope = self._scope(given, request.private)
            check_request(request, self.redact)
            async with self.tools.open(scope) as tools:
                await self.begin(scope, request, tools, on_started, ahead=ahead)
        return run_id

    def new_id(self) -> str:
        """Return an id for a run. They sort by time."""
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

            restored: A person wants it to go on although its log is a copy.

        Raises:
            NotFoundError: There is no such run.

            UsageError: It has ended.

            RestoredError: Its log is a copy, and nobody said *restored*.

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
        with self.admission, self._keeping(run_id):
            recording = await self._unended(run_id)
            if recording.is_restored and not restored:
                raise RestoredError(run_id)
            scope = self._scope(_scope(run_id, recording.started), private or {})
            async with self.tools.open(scope) as tools:
                await self.go_on(recording, tools, actor, grant, reason, on_started)

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
            scope = self._scope(_scope(run_id, parent.started), request.private)
            async with self.tools.open(scope) as tools:
                await self.branch(run_id, parent, request, tools, on_started)
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
            given = terms.conceal(resolution.completed)
            catalogue = recording.started.catalogue
            resolution = GiveResult(shown(catalogue, invoked.name, given))
        events = recorded_as(
            invoked.call, resolution, actor, reason, journal.open_calls
        )
        await self.store.claim(
            stream_of(run_id), *events, after=recording.history[-1].seq
        )

    @contextmanager
    def _keeping(self, run_id: str) -> Generator[None]:
        """Keep the private variables of a run from others, as long as it lasts."""
        try:
            yield
        finally:
            self.redact.let_go(f"run/{run_id}")

    async def _unended(self, run_id: str) -> Recording:
        recording = await Recording.load(run_id, self.store.reader)
        recording.check_unended()
        return recording

    def _scope(self, scope: RunScope, private: Mapping[str, JSON]) -> RunScope:
        """Return *scope* with variables that nobody else gets to see while it lasts."""
        if private:
            said = [text for value in private.values() for text in texts(value)]
            self.redact.hold(f"run/{scope.run_id}", said)
        return replace(
            scope, context={**scope.context, **private}, private=frozenset(private)
        )


def _scope(run_id: str, started: RunStarted) -> RunScope:
    return RunScope(run_id=run_id, agent=started.agent, context=started.context)
