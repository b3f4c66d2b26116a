"""Recorded runs, judged again one event after the other, as a stream of the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from ..app.tool_setup import server_names
from ..core.analysis.rejudge import Judged, Retrial
from ..core.calls import JSON, Route
from ..core.grants.budgets import Concurrency
from ..core.log.events import Recorded, RunStarted, ToolInvoked
from ..core.names import meant_tool, run_of
from ..core.tools.schemas import Mismatch
from ..errors import NotFoundError, NotKeptError
from ..lib.codec import decode_trusted, encode
from ..lib.json_schema import fits, input_check
from ..runs.explain import as_sent
from ..runs.recording import Recording
from .budget_replay import Spending

if TYPE_CHECKING:
    from ..config import Agent, Config
    from ..core.grants.grants import Rule
    from ..store.sql import SqlStore


ENDS = frozenset({"RunCompleted", "RunFailed", "RunCancelled"})
TYPES = (
    *("RunStarted", "ToolInvoked", "ToolDenied", "ToolFailed", "ApprovalRequested"),
    *sorted(ENDS),
)


@dataclass(frozen=True, slots=True)
class Changed:
    """A decision that another grant would change."""

    agent: str
    run_id: str
    judged: Judged


@dataclass(slots=True)
class _Trial:
    agent: str
    catalogue: Mapping[str, JSON]
    retrial: Retrial
    checks: dict[str, Callable[[JSON], Mismatch | None]]


@dataclass(slots=True, kw_only=True)
class Trials:
    """
    Judges recorded runs by the grants of another configuration.

    What is kept is of the runs that are open where the log is read.

    Attributes:
        runs: How many runs were judged.

        calls: How many calls.

        changed: How many decisions would be others.

        erased: How many runs are not there any more.

        strangers: Runs of agents that the configuration does not have, by agent.
    """

    store: SqlStore
    config: Config
    runs: int = 0
    calls: int = 0
    changed: int = 0
    erased: int = 0
    strangers: Counter[str] = field(default_factory=Counter[str])
    _open: dict[str, _Trial] = field(default_factory=dict[str, _Trial])
    _spending: Spending = field(default_factory=Spending)
    _schemas: dict[str, Callable[[JSON], Mismatch | None]] = field(
        default_factory=dict[str, "Callable[[JSON], Mismatch | None]"]
    )

    @property
    def types(self) -> tuple[str, ...]:
        """The events that matter: answers may be large, and few rules ask for them."""
        rules = [r for one in self.config.agents.values() for r in one.grant.allow]
        ends = any(rule.only_after or _has_places(rule) for rule in rules)
        return (*TYPES, "ToolCompleted") if ends else TYPES

    async def changes(
        self, source: AsyncGenerator[Recorded]
    ) -> AsyncGenerator[Changed]:
        """Yield each decision that changes, of the runs whose events *source* has."""
        async for recorded in source:
            stream, event = recorded.stream, recorded.event
            if recorded.type == "RunStarted":
                if begun := await self._begun(recorded):
                    self._open[stream] = begun
            elif recorded.type in ENDS:
                self._open.pop(stream, None)
                if event:
                    self._spending.settle(stream, event)
            elif (trial := self._open.get(stream)) and event:
                judged = await self._take(trial, recorded)
                self._spending.settle(stream, event)
                if judged is None:
                    continue
                self.calls += 1
                if judged.changed:
                    self.changed += 1
                    yield Changed(trial.agent, run_of(stream), judged)

    def document(self) -> dict[str, JSON]:
        """Return the ``caxton.what-if/v1`` document: what was looked at."""
        return {
            "$type": "caxton.what-if/v1",
            "runs": self.runs,
            "calls": self.calls,
            "changed": self.changed,
            "erased": self.erased,
            "without_agent": {**self.strangers},
        }

    async def _begun(self, recorded: Recorded) -> _Trial | None:
        started = recorded.event
        if not isinstance(started, RunStarted):
            self.erased += 1
            return None
        agent = self.config.agents.get(started.agent)
        if agent is None:
            self.strangers[started.agent] += 1
            return None
        checks: dict[str, Callable[[JSON], Mismatch | None]] = {}
        sized = any(rule.max_params is not None for rule in agent.grant.allow)
        retrial = Retrial(
            grant=agent.grant,
            leads=partial(leads, self.config, agent),
            measure=_size if sized else _nothing,
            matches=fits,
            schemas=checks,
        )
        trial = _Trial(agent.name, started.catalogue, retrial, checks)
        try:
            for one in await inherited(self.store, recorded):
                await self._take(trial, one)
        except NotKeptError:
            self.erased += 1
            return None
        self.runs += 1
        # What was inherited was spent by another run.
        spend, stream = self._spending.reserve, recorded.stream
        retrial.reserve = partial(spend, agent.name, stream)
        return trial

    async def _take(self, trial: _Trial, recorded: Recorded) -> Judged | None:
        event = recorded.event
        if event is None:
            return None
        if isinstance(event, ToolInvoked) and event.name not in trial.checks:
            await self._learn(trial, event)
        return trial.retrial.take(event, recorded.recorded_at, recorded.seq)

    async def _learn(self, trial: _Trial, invoked: ToolInvoked) -> None:
        """Take the schema that the run had for a name, if it is kept."""
        entry = trial.catalogue.get(invoked.name)
        check = await self._check(entry) if isinstance(entry, dict) else _anything
        trial.checks[invoked.name] = as_sent(
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
            definition = decode_trusted(await self.store.reader.blob(digest))
        except NotFoundError:
            return _anything
        return input_check(definition.get("inputSchema") or {})


def _has_places(rule: Rule) -> bool:
    return any(isinstance(budget, Concurrency) for budget in rule.budgets)


def _anything(_: JSON) -> None:
    """Take any parameters: no schema of the tool is kept."""


def _size(params: Mapping[str, JSON]) -> int:
    return len(encode(params))


def _nothing(_: Mapping[str, JSON]) -> int:
    return 0


async def inherited(store: SqlStore, recorded: Recorded) -> list[Recorded]:
    """
    Return what a run inherited from those that it was forked from.

    Args:
        store: Has them all.

        recorded: The beginning of the run.

    Raises:
        NotKeptError: One of them is erased.
    """
    started = recorded.event
    if not isinstance(started, RunStarted) or not started.forked_from:
        return []
    recording = await Recording.load(run_of(recorded.stream), store.reader)
    return [one for parent in recording.lineage for one in parent.events]


def leads(config: Config, agent: Agent | None, name: str) -> Route | None:
    """Return where a name would lead by a configuration, as far as it says."""
    own = agent.names.get(name) if agent else None
    target = own or meant_tool(name, server_names(config))
    return Route(server=target[0], tool=target[1]) if target else None
