"""Invariants of the log, its tables and the answers after sessions were killed."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from caxton_host.core.log.events import (
    Event,
    Recorded,
    RunResumed,
    RunStarted,
    ToolCompleted,
    ToolInvoked,
    ToolRetried,
    outcome_of,
)
from caxton_host.core.log.runs import ENDS
from caxton_host.lib.machine import SystemClock
from caxton_host.runs.recording import Recording
from caxton_host.store.schema import budgets, slots
from caxton_host.store.sql import SqlStore
from caxton_host.store.verify import verify
from caxton_host.web.mcp.sessions import result_of

from .check import Found
from .scene import CANARY, Place, happened
from .sessions import GRANT, Answers, Said

_MANY = 10_000_000


@dataclass(slots=True)
class Ledger(Found):
    """
    What the log holds of sessions.

    Attributes:
        said: The outcomes of the calls of each client, as it is told them.

        used: The calls of each client, by their rule.

        doubts: The calls that are in doubt.
    """

    said: dict[str, Counter[Said]] = field(default_factory=dict[str, Counter[Said]])
    used: Counter[tuple[str, str]] = field(default_factory=Counter)
    doubts: int = 0
    places: set[tuple[str, int]] = field(default_factory=set)

    def add(self, run_id: str, state: str, history: list[Recorded]) -> set[int]:
        """Add the events of a stream, and return the calls that are open."""
        events = [one.event for one in history if one.event]
        started = events[0]
        assert isinstance(started, RunStarted)
        who = str(started.actor["id"])
        calls: dict[int, ToolInvoked] = {}
        ended: set[int] = set()
        before: set[int] = set()
        for event in events:
            if isinstance(event, ToolInvoked):
                calls[event.call] = self.invoked[event.idempotency_key] = event
                self.used[who, event.rule or ""] += 1
            elif isinstance(event, RunResumed):
                before = calls.keys() - ended
            elif isinstance(event, ToolRetried) and event.call in before:
                self.wrong.append(f"{run_id} call {event.call} is sent again")
            elif end := outcome_of(event):
                self._end(who, event, calls[end[0]])
                if end[0] in ended:
                    self.wrong.append(f"{run_id} call {end[0]} ended twice")
                ended.add(end[0])
        self.runs[state] += 1
        told = [ENDS[one.type] for one in history if one.type in ENDS]
        if told[-1] != state:
            self.wrong.append(f"{run_id} is {state} in the table, not {told[-1]}")
        left = calls.keys() - ended
        if state != "completed":
            self.places |= {
                (f"run/{run_id}", n) for n in left if calls[n].tool == "send"
            }
        return {*left}

    def _end(self, who: str, event: Event, invoked: ToolInvoked) -> None:
        found: Any = outcome_of(event)
        told: Any = result_of(found[1])
        said = told["isError"], told["content"][0]["text"]
        self.said.setdefault(who, Counter())[said] += 1
        self.outcomes[type(event).__name__] += 1
        if isinstance(event, ToolCompleted) and not event.is_error:
            self.ok.add(invoked.idempotency_key)
        if CANARY in repr(event):
            self.wrong.append("the log has a value that a rule masks")

    def judge(self, answers: Answers) -> None:
        """Compare with what clients were answered, and with what they may do."""
        for who, said in answers.said.items():
            for (_, text), count in (said - self.said.get(who, Counter())).items():
                self.wrong.append(f"{who} got {count} times what is not logged: {text}")
            if any(CANARY in text for _, text in said):
                self.wrong.append(f"{who} got a value that a rule masks")
        for rule in GRANT.allow:
            for (who, name), count in self.used.items():
                if rule.calls is not None and name == rule.id and count > rule.calls:
                    self.wrong.append(f"{who} made {count} calls by {name}")


async def check(place: Place, answers: Answers) -> Ledger:
    """Read the log, its tables and the counter of *place*, and check them."""
    found = Ledger()
    async with SqlStore.open(
        place.store, clock=SystemClock(), entropy=os.urandom
    ) as store:
        for row in await store.reader.runs(_MANY):
            history = await store.reader.read(f"run/{row.run_id}")
            left = found.add(row.run_id, row.state, history)
            recording = await Recording.load(row.run_id, store.reader)
            doubts = {one.invoked.call for one in recording.journal().in_doubt}
            if doubts != left:
                found.wrong.append(f"{row.run_id}: {left} are open, {doubts} in doubt")
            found.doubts += len(doubts)
        verdict = await verify(store.reader)
        found.wrong += [
            f"a list differs: {one}"
            for one in (await store.projections.verify(lambda *_: None))[1]
        ]
        books = _tables(store)
        if books[1] != found.places:
            found.wrong.append(f"places differ: {books[1] ^ found.places}")
        await store.budgets.recount()
        if _tables(store) != books:
            found.wrong.append("budgets differ from the log")
    found.events = verdict.events
    if verdict.first_bad:
        found.wrong.append(f"the chain is broken: {verdict.first_bad}")
    found.judge(answers)
    found.compare(happened(place.counter))
    return found


def _tables(store: SqlStore) -> tuple[dict[str, int], set[tuple[str, int]]]:
    with store.engine.connect() as connection:
        spent = connection.execute(sa.select(budgets)).all()
        held = connection.execute(sa.select(slots)).all()
    return (
        {row.key: row.used for row in spent if row.used},
        {(row.stream, row.call) for row in held},
    )
