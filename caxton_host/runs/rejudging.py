"""Recorded runs judged again, as their events are read from the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

from ..config import Config
from ..core.analysis.checking import Known, astray
from ..core.analysis.rejudge import RejudgedCall, Rejudger, verdict_rule
from ..core.calls import JSON, Route
from ..core.clients import ABI, table_of
from ..core.grants.bounds import Bound
from ..core.grants.budgets import Concurrency, Sum, Use
from ..core.grants.decisions import Allowed, Refusal
from ..core.grants.grants import Grant
from ..core.grants.settlement import corrections
from ..core.log.events import Event, Recorded, RunStarted, ToolInvoked
from ..core.names import meant_tool, run_of
from ..core.tools.schemas import Mismatch
from ..errors import NotFoundError, NotKeptError
from ..gateway.call_budgets import Out, wants
from ..gateway.ledger import Holder, Ledger, settle
from ..lib.codec import canonical, decode_trusted, encode
from ..lib.json_schema import fits, input_check
from ..ports.history import Streams
from .explain import as_sent
from .recording import Recording

#: The grant whose rules recorded calls are judged by; only its name and owner count.
_OWN = Bound(grant=Grant())
_ENDS = frozenset({"RunCompleted", "RunFailed", "RunCancelled"})
_TYPES = (
    *("RunStarted", "ToolInvoked", "ToolDenied", "ToolFailed", "ApprovalRequested"),
    *sorted(_ENDS),
)


class Spending:
    """
    The budgets that runs share, spent again by recorded calls.

    The store's own rules reserve, at the times of the log. Nothing is spent before the
    first call.
    """

    def __init__(self) -> None:
        self._now = 0  # microseconds since 1970
        self._uses: dict[str, Use] = {}
        self._places: set[tuple[str, Holder]] = set()

    def now(self) -> int:
        """Return when the call that is judged was made."""
        return self._now

    def use(self, key: str) -> Use:
        """Return what is spent of a budget."""
        return self._uses.get(key, Use())

    def holders(self, key: str) -> Collection[Holder]:
        """Return the calls that hold a place of a concurrency budget."""
        return [holder for known, holder in self._places if known == key]

    def reserve(
        self, agent: str, stream: str, allowed: Allowed, invoked: ToolInvoked, at: int
    ) -> Refusal | None:
        """
        Spend what a call takes, or return why its rule cannot allow it.

        Args:
            agent: Owns the budgets.

            stream: The stream of the run.

            allowed: The verdict, with its rule.

            invoked: The call.

            at: When it was made. A call that would wait for its turn is made later.
        """
        if not allowed.rule.budgets:
            return None
        asked, _ = wants([(_OWN, allowed.rule)], invoked.params or {})
        out = Out()
        while True:
            self._now = at + round(out.waited_s * 1e6)
            ledger = Ledger(self)
            items = [want.reservation(agent, invoked.call) for want in asked]
            refused = ledger.reserve(items, stream)
            if refused is None:
                self._uses |= ledger.uses
                self._places |= ledger.opened.keys()
                return None
            if not out.take(asked[refused.index], refused):
                return out.of(_OWN.name)[allowed.rule.id]

    def correct(
        self,
        agent: str,
        spends: Mapping[str, int],
        settles: Mapping[str, int],
        at: int,
        age: int,
    ) -> None:
        """
        Correct what a call took by its answer.

        Args:
            agent: Owns the budgets.

            spends: What the call reserved.

            settles: What it took in truth.

            at: When it was answered.

            age: Microseconds since it was made.
        """
        self._now = at
        ledger = Ledger(self)
        ledger.correct([*corrections(agent, spends, settles, age)])
        self._uses |= ledger.uses

    def settle(self, stream: str, event: Event) -> None:
        """Free the places that an event frees."""
        if not self._places:
            return
        ledger = Ledger(self)
        settle(ledger, stream, event)
        self._places = {
            (key, holder)
            for key, holder in self._places
            if holder not in ledger.freed and holder[0] not in ledger.ended
        }


@dataclass(frozen=True, slots=True)
class LoggedCall:
    """
    A call of a recorded run, judged again.

    Attributes:
        table: The table that describes the agent.

        inherited: A run that this one was forked from made the call.
    """

    agent: str
    table: str
    run_id: str
    judged: RejudgedCall
    inherited: bool

    def to_document(self) -> dict[str, JSON]:
        """Return its ``caxton.changed-decision/v1`` document."""
        judged, call = self.judged, self.judged.invoked
        return {
            "$type": "caxton.changed-decision/v1",
            "run_id": self.run_id,
            "agent": self.agent,
            "seq": judged.seq,
            "call": call.call,
            "recorded_at": judged.at,
            "name": call.name,
            "server": call.server,
            "tool": call.tool,
            "params": call.params,
            "was": {"verdict": judged.was, "rule": judged.rule},
            "now": {"verdict": judged.code, "rule": verdict_rule(judged.now)},
        }


@dataclass(slots=True)
class _OpenRun:
    agent: str
    table: str
    catalogue: Mapping[str, JSON]
    rejudger: Rejudger
    checks: dict[str, Callable[[JSON], Mismatch | None]]

    def judged(
        self, stream: str, call: RejudgedCall, *, inherited: bool = False
    ) -> LoggedCall:
        run_id = run_of(stream)
        return LoggedCall(self.agent, self.table, run_id, call, inherited)


@dataclass(slots=True, kw_only=True)
class LogRejudger:
    """
    Judges recorded runs by the grants of a configuration.

    Only the runs that are open at the place where the log is read are kept.

    Attributes:
        offered: What servers offer. With it, runs of all agents are judged, each by an
            empty grant, and a name leads only to a tool that may exist.

        runs: The number of runs that were judged, by agent.

        calls: The number of calls.

        changed: The number of verdicts that would change.

        erased: The streams of runs that were erased.

        broken: Collects those of runs whose log is damaged, with the error; ``None``:
            one ends everything.

        strangers: Runs of agents that the configuration does not have, by agent.
    """

    log: Streams
    config: Config
    offered: Known | None = None
    runs: Counter[str] = field(default_factory=Counter[str])
    calls: int = 0
    changed: int = 0
    erased: set[str] = field(default_factory=set[str])
    broken: dict[str, Exception] | None = None
    strangers: Counter[str] = field(default_factory=Counter[str])
    _open: dict[str, _OpenRun] = field(default_factory=dict[str, _OpenRun])
    #: By session and actor: the newest one.
    _sessions: dict[tuple[str, bytes], Rejudger] = field(
        default_factory=dict[tuple[str, bytes], Rejudger]
    )
    _spending: Spending = field(default_factory=Spending)
    #: By the digest of a tool's definition.
    _schemas: dict[str, Callable[[JSON], Mismatch | None]] = field(
        default_factory=dict[str, "Callable[[JSON], Mismatch | None]"]
    )

    @property
    def types(self) -> tuple[str, ...]:
        """The events to read. Results may be large, and few rules depend on them."""
        grants = [one.grant for one in self.config.agents.values()]
        ends = self.offered is None and any(
            any(grant.wanted)
            or any(
                rule.only_after
                or any(
                    isinstance(b, Concurrency) or (isinstance(b, Sum) and b.estimate)
                    for b in rule.budgets
                )
                for rule in grant.allow
            )
            for grant in grants
        )
        return (*_TYPES, "ToolCompleted") if ends else _TYPES

    async def calls_of(
        self, source: AsyncGenerator[Recorded]
    ) -> AsyncGenerator[LoggedCall]:
        """Yield each call of the runs whose events *source* has, judged again."""
        async for recorded in source:
            try:
                found = await self._judged(recorded)
            except Exception as exc:
                if self.broken is None:
                    raise
                self.broken[recorded.stream] = exc
                self._open.pop(recorded.stream, None)
                continue
            for call in found:
                yield call

    async def _judged(self, recorded: Recorded) -> list[LoggedCall]:
        """Take an event; return the calls that it ends, or that were inherited."""
        stream, event = recorded.stream, recorded.event
        if recorded.type == "RunStarted":
            return await self._begin(recorded)
        if recorded.type in _ENDS:
            self._open.pop(stream, None)
            if event:
                self._spending.settle(stream, event)
        elif (run := self._open.get(stream)) and event:
            judged = await self._take(run, recorded)
            self._spending.settle(stream, event)
            if judged is not None:
                self.calls += 1
                self.changed += judged.changed
                return [run.judged(stream, judged)]
        return []

    async def _begin(self, recorded: Recorded) -> list[LoggedCall]:
        """Open a run, and return the calls that it inherited."""
        started, stream = recorded.event, recorded.stream
        if not isinstance(started, RunStarted):
            self.erased.add(stream)
            return []
        name = started.agent
        agent = self.config.agents.get(name)
        if self.offered is not None:
            grant = Grant()
        elif agent is not None:
            grant = agent.grant
        else:
            self.strangers[name] += 1
            return []
        sized = any(rule.max_params is not None for rule in grant.allow)
        checks: dict[str, Callable[[JSON], Mismatch | None]] = {}
        rejudger = Rejudger(
            grant=grant,
            leads=partial(self._leads, agent.names if agent else {}),
            matches=fits,
            schemas=checks,
        )
        if sized:
            rejudger.measure = _size
        table = table_of(name, session=started.abi == ABI)
        run = _OpenRun(name, table, started.catalogue, rejudger, checks)
        try:
            inherited = [
                run.judged(stream, judged, inherited=True)
                for one in await _inherited(self.log, recorded, started)
                if (judged := await self._take(run, one))
            ]
        except NotKeptError:
            self.erased.add(stream)
            return []
        rejudger.take(started, recorded.recorded_at, recorded.seq)
        if started.abi == ABI:
            self._count_on(name, started, rejudger)
        self.runs[name] += 1
        self._open[stream] = run
        # The run that made the inherited calls spent what they took.
        rejudger.reserve = partial(self._spending.reserve, name, stream)
        rejudger.settle = partial(self._spending.correct, name)
        return inherited

    def _count_on(self, name: str, started: RunStarted, rejudger: Rejudger) -> None:
        """Let a session count on from the one before it of its client."""
        key = name, canonical(started.actor)
        if started.carried and key in self._sessions:
            rejudger.count_on(self._sessions[key])
        self._sessions[key] = rejudger

    def _leads(self, names: Mapping[str, tuple[str, str]], name: str) -> Route | None:
        """Return where a name leads by the configuration, as far as it says."""
        target = names.get(name) or meant_tool(name, self.config.granted_servers)
        if target is None or (self.offered and astray(name, target, self.offered)):
            return None
        return Route(server=target[0], tool=target[1])

    async def _take(self, run: _OpenRun, recorded: Recorded) -> RejudgedCall | None:
        event = recorded.event
        if event is None:
            return None
        if isinstance(event, ToolInvoked) and event.name not in run.checks:
            await self._learn(run, event)
        return run.rejudger.take(event, recorded.recorded_at, recorded.seq)

    async def _learn(self, run: _OpenRun, invoked: ToolInvoked) -> None:
        """Take the schema that the run had for a name, if it is kept."""
        if self.offered is not None:
            return  # An empty grant compares none.
        entry = run.catalogue.get(invoked.name)
        check = await self._check(entry) if isinstance(entry, dict) else _anything
        run.checks[invoked.name] = as_sent(
            self.config, invoked.server or "", invoked.tool or "", check
        )

    async def _check(self, entry: dict[str, JSON]) -> Callable[[JSON], Mismatch | None]:
        own, digest = entry.get("input_schema"), str(entry.get("definition_sha256"))
        if isinstance(own, dict):
            return input_check(own)
        if digest not in self._schemas:
            self._schemas[digest] = await self._kept(digest)
        return self._schemas[digest]

    async def _kept(self, digest: str) -> Callable[[JSON], Mismatch | None]:
        try:
            definition = decode_trusted(await self.log.blob(digest))
        except NotFoundError:
            return _anything
        return input_check(definition.get("inputSchema") or {})


def _anything(_: JSON) -> None:
    """Accept any parameters: no schema of the tool is kept."""


def _size(params: Mapping[str, JSON]) -> int:
    return len(encode(params))


async def _inherited(
    log: Streams, recorded: Recorded, started: RunStarted
) -> list[Recorded]:
    """
    Return the events that a run inherited from those that it was forked from.

    Raises:
        NotKeptError: One of them is erased.
    """
    if not started.forked_from:
        return []
    recording = await Recording.load(run_of(recorded.stream), log)
    return [one for parent in recording.lineage for one in parent.events]
