"""Invariants of the log and the counter after the kill loop."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import sqlalchemy as sa

from caxton_host.core.grants.budgets import Concurrency, Sum, stored_key
from caxton_host.core.grants.freezes import FREEZES
from caxton_host.core.log.events import (
    ApprovalDecided,
    CallResolved,
    Event,
    Frozen,
    RunFailed,
    RunStarted,
    RunSuspended,
    ToolCompleted,
    ToolDenied,
    ToolInvoked,
    ToolRetried,
    outcome_of,
)
from caxton_host.core.names import AGENTS
from caxton_host.core.text.redact import MASK
from caxton_host.lib.machine import SystemClock
from caxton_host.store.schema import budgets, slots
from caxton_host.store.sql import SqlStore
from caxton_host.store.verify import verify

from .scene import CANARY, GRANTS, Place, happened

_MANY = 10_000_000
_OVER = {"completed", "failed", "cancelled"}


def _is_late(call: ToolInvoked) -> bool:
    n = (call.params or {}).get("n")
    return isinstance(n, int) and n >= 30


@dataclass(slots=True)
class Found:
    """
    The contents of the log and the counter.

    Attributes:
        wrong: Violations, one line each.
    """

    runs: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    events: int = 0
    effects: int = 0
    suspensions: int = 0
    retries: int = 0
    words: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    denials: Counter[str] = field(default_factory=Counter)
    masked: int = 0
    spent: Counter[str] = field(default_factory=Counter)
    agents: Counter[str] = field(default_factory=Counter)
    settled: int = 0
    frozen: int = 0
    invoked: dict[str, ToolInvoked] = field(default_factory=dict)
    ok: set[str] = field(default_factory=set)

    def fold(self, run_id: str, events: list[Event]) -> None:
        """Add the events of a run."""
        keys: dict[int, str] = {}
        said: dict[int, str] = {}
        ends: Counter[int] = Counter()
        for event in events:
            if isinstance(event, ToolInvoked):
                keys[event.call] = event.idempotency_key
                self.invoked[event.idempotency_key] = event
                if event.rule == "allow[3]" and _is_late(event) != (event.call in said):
                    self.wrong.append(f"{run_id} call {event.call}: {said}")
            elif isinstance(event, ApprovalDecided):
                said[event.call] = event.verdict
                self.words[event.verdict] += 1
            elif end := outcome_of(event):
                ends[end[0]] += 1
                if said.get(end[0]) == "deny" and not isinstance(event, ToolDenied):
                    self.wrong.append(f"{run_id} call {end[0]} was not approved")
                self._close(event, keys)
            else:
                self._count(event)
        for call in keys:
            if ends[call] != 1:
                self.wrong.append(f"{run_id} call {call} has {ends[call]} ends")
        self._judge(run_id, events)

    def _close(self, event: Event, keys: dict[int, str]) -> None:
        self.outcomes[type(event).__name__] += 1
        if isinstance(event, ToolDenied):
            self.denials[event.code] += 1
        if isinstance(event, ToolCompleted) and not event.is_error:
            self.ok.add(keys[event.call])

    def _judge(self, run_id: str, events: list[Event]) -> None:
        """Compare a run with its grant, and add up its use of shared budgets."""
        used: Counter[str | None] = Counter()
        agent = next(e.agent for e in events if isinstance(e, RunStarted))
        for event in events:
            if isinstance(event, ToolInvoked):
                used[event.rule] += 1
                self.agents[agent] += 1
                for key, amount in (event.spends or {}).items():
                    assert isinstance(amount, int)
                    self.spent[stored_key(agent, key)] += amount
            if isinstance(event, ToolCompleted):
                self.settled += bool(event.settles)
        for rule in GRANTS[agent].allow:
            if rule.calls is not None and used[rule.id] > rule.calls:
                self.wrong.append(f"{run_id} made {used[rule.id]} calls by {rule.id}")
        said = repr([e for e in events if isinstance(e, ToolCompleted)])
        self.masked += MASK in said
        if CANARY in said:
            self.wrong.append(f"{run_id} contains a value that a rule masks")

    def audit(self, books: Mapping[str, int], places: int) -> None:
        """Compare the budgets spent in the log with the store and the limits."""
        limits = {
            f"{agent}/{rule.name}/{budget.key}": budget
            for agent, grant in GRANTS.items()
            for rule in grant.allow
            for budget in rule.budgets
        }
        for key, spent in self.spent.items():
            budget = limits.get(key)
            if budget is None or isinstance(budget, Concurrency):
                continue  # A recount compares what runs share.
            if isinstance(budget, Sum) and budget.estimate is not None:
                continue  # And what answers settled.
            if spent > budget.limit:
                self.wrong.append(f"{key}: {spent} of {budget.limit} are spent")
            if spent != books.get(key):
                self.wrong.append(
                    f"{key}: {spent} in the log, {books.get(key)} in the store"
                )
        if places:
            self.wrong.append(f"{places} ended calls still hold a concurrency slot")

    def _count(self, event: Event) -> None:
        match event:
            case ToolRetried():
                self.retries += 1
            case RunSuspended():
                self.suspensions += 1
            case CallResolved():
                self.words[event.verdict] += 1
            case RunFailed():
                self.failures[f"{event.kind}: {event.message}"] += 1
            case _:
                pass

    def compare(self, effects: list[tuple[str, str]]) -> None:
        """Compare the log with the effects."""
        self.effects = len(effects)
        times = Counter(effects)
        done = {key for _, key in effects}
        for (tool, key), count in times.items():
            intent = self.invoked.get(key)
            if intent is None or intent.tool != tool:
                self.wrong.append(f"an effect of {tool} has no ToolInvoked: {key}")
            if tool != "look" and count > 1:
                self.wrong.append(f"{tool} happened {count} times: {key}")
        self.wrong += [
            f"a successful call has no effect: {key}"
            for key in self.ok - done
            if self.invoked[key].server != AGENTS
        ]


async def unfinished(place: Place) -> list[str]:
    """Return the runs that have not ended, with their newest events."""
    store = SqlStore.open(
        place.store, clock=SystemClock(), entropy=os.urandom, write=False
    )
    try:
        rows = [row for row in await store.reader.runs(_MANY) if row.state not in _OVER]
        return [
            f"{row.run_id} {row.state} {[(one.seq, one.type) for one in history[-4:]]}"
            for row in rows
            for history in [await store.reader.read(f"run/{row.run_id}")]
        ]
    finally:
        await store.aclose()


async def check(place: Place) -> Found:
    """Read the log and the counter of *place*, and check them."""
    found = Found()
    store = SqlStore.open(
        place.store, clock=SystemClock(), entropy=os.urandom, write=False
    )
    try:
        for row in await store.reader.runs(_MANY):
            found.runs[row.state] += 1
            if row.state not in _OVER:
                found.wrong.append(f"{row.run_id} is {row.state}")
            history = await store.reader.read(f"run/{row.run_id}")
            found.fold(row.run_id, [one.event for one in history if one.event])
        verdict = await verify(store.reader)
        found.wrong += [
            f"a list differs: {one}"
            for one in (await store.projections.verify(lambda *_: None))[1]
        ]
        with store.engine.connect() as connection:
            books = _uses(connection)
            places = connection.execute(sa.select(slots)).all()
        history = await store.reader.read(FREEZES)
        frozen = sum(isinstance(one.event, Frozen) for one in history)
    finally:
        await store.aclose()
    counted = await _recounted(place)
    found.events = verdict.events
    found.frozen = frozen
    if counted != books:
        found.wrong.append(f"a recount differs: {sorted(set(counted) ^ set(books))}")
    if verdict.first_bad:
        found.wrong.append(f"the chain is broken: {verdict.first_bad}")
    found.compare(happened(place.counter))
    found.audit(books, len(places))
    return found


def _uses(connection: sa.Connection) -> dict[str, int]:
    rows = connection.execute(sa.select(budgets)).all()
    return {row.key: row.used for row in rows if row.used}


async def _recounted(place: Place) -> dict[str, int]:
    """Return what is spent of each budget, counted again from the log."""
    async with SqlStore.open(
        place.store, clock=SystemClock(), entropy=os.urandom
    ) as store:
        await store.budgets.recount()
        with store.engine.connect() as connection:
            return _uses(connection)
