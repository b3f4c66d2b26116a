"""The invariants that the log of simulated hosts must keep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, cast

from caxton_host.core.clients import ABI
from caxton_host.core.grants.bounds import bounds_of
from caxton_host.core.grants.budgets import stored_key
from caxton_host.core.log.events import (
    ApprovalDecided,
    CallResolved,
    Recorded,
    RunQueued,
    RunResumed,
    RunStarted,
    RunSuspended,
    ToolCompleted,
    ToolFailed,
    ToolInvoked,
    ToolRetried,
    outcome_of,
)
from caxton_host.core.log.runs import ENDS
from caxton_host.core.names import AGENTS, called_run, idempotency_key, run_of
from caxton_host.store.memory import MemoryStore

from .agents import APPROVERS, DENIED, LIMITS
from .world import World, start_of

#: A stream, and the number of a call.
_Call: TypeAlias = tuple[str, int]
_ENDED = {"RunCompleted", "RunFailed", "RunCancelled"}
OVER = {"completed", "failed", "cancelled"}


def check_form(history: list[Recorded], disk: MemoryStore) -> None:
    events = [one.event for one in history]
    types = [one.type for one in history]
    assert [one.seq for one in history] == [*range(1, len(history) + 1)]
    queued = types[0] == "RunQueued"
    ended_early = queued and types[1:] in (["RunCancelled"], ["RunFailed"])
    assert ended_early or types[queued] == "RunStarted", types
    assert types.count("RunStarted") + ended_early == 1
    assert types.count("RunQueued") == queued
    ends = [one for one in types if one in _ENDED]
    assert ends == types[-1:]
    made = [event.call for event in events if isinstance(event, ToolInvoked)]
    closed = Counter(end[0] for event in events if event and (end := outcome_of(event)))
    first = 1 + _inherited(history, disk)
    # A session leaves out the calls that were neither recorded nor asked for again.
    started = start_of(history)
    if started and started.abi == ABI:
        assert len({*made}) == len(made)
    else:
        assert made == [*range(first, first + len(made))]
    # A fork may begin with another outcome of a call that it inherits.
    edited = [call for call in closed if call < first]
    assert len(edited) <= (first > 1)
    assert closed == Counter([*made, *edited])
    epochs = [event.epoch for event in events if isinstance(event, RunResumed)]
    assert epochs == [*range(2, len(epochs) + 2)]


def _inherited(history: Sequence[Recorded], disk: MemoryStore) -> int:
    """Return how many calls a fork begins with."""
    started = start_of(history)
    if not started or not started.forked_from:
        return 0
    run_id, seq = started.forked_from["run"], started.forked_from["seq"]
    above = disk.streams[f"run/{run_id}"]
    calls = sum(isinstance(one.event, ToolInvoked) for one in above[: cast("int", seq)])
    return calls + _inherited(above, disk)


def check_effects(run_id: str, history: list[Recorded], world: World) -> None:
    done = Counter(call for run, call, _ in world.effects if run == run_id)
    for run, call, key in world.effects:
        assert run != run_id or key == idempotency_key(run_id, call)
    intents: dict[int, ToolInvoked] = {}
    said: dict[int, list[ApprovalDecided]] = {}
    for event in (one.event for one in history):
        if isinstance(event, ToolInvoked):
            intents[event.call] = event
        elif isinstance(event, ApprovalDecided):
            assert event.call not in intents
            said.setdefault(event.call, []).append(event)
        elif isinstance(event, ToolCompleted) and event.call in intents:
            intent = intents[event.call]
            assert done[event.call] >= 1 or _has_child(intent, run_id, world)
    _check_doubts(history, intents)
    for number, intent in intents.items():
        asked = intent.tool == "send" and (intent.params or {}).get("n") == 2
        assert not (asked and done[number]) or _is_approved(said[number])
        if intent.effect in {"unsafe", "keyed"}:
            assert done[number] <= 1, f"call {number} of {run_id} happened twice"
    assert set(done) <= set(intents)


def _check_doubts(history: list[Recorded], intents: dict[int, ToolInvoked]) -> None:
    """Check that a person allows what is sent again, and is not asked about agents."""
    words: dict[int, list[str]] = {}
    for event in (one.event for one in history):
        match event:
            case CallResolved():
                assert intents[event.call].server != AGENTS
                words.setdefault(event.call, []).append(event.verdict)
            case RunSuspended(reason="in_doubt", call=int(call)):
                assert intents[call].server != AGENTS
            case RunSuspended(unsent=unsent):
                for number in unsent:
                    words.setdefault(cast("int", number), []).append("retry")
            case ToolRetried() if intents[event.call].effect == "unsafe":
                assert words[event.call].pop() == "retry"
            case _:
                pass


def _has_child(invoked: ToolInvoked, run_id: str, world: World) -> bool:
    """Return whether a run answered a call, and has ended."""
    if invoked.server != AGENTS:
        return False
    row = world.disk.rows[called_run(run_id, invoked.idempotency_key)]
    world.met["child"] += 1
    return row.state in OVER


def _is_approved(said: list[ApprovalDecided]) -> bool:
    if any(one.verdict == "deny" for one in said):
        return False
    people = {str(one.actor["id"]) for one in said}
    return len(people - {"ann"}) >= APPROVERS


def check_bounds(history: list[Recorded]) -> None:
    """Check that each allowed call is one that all grants of the run name."""
    started = start_of(history)
    assert started
    for event in (one.event for one in history):
        if isinstance(event, ToolInvoked) and event.rule:
            target = event.server or "", event.tool or ""
            for bound in bounds_of(started.bounds):
                patterns = (p for rule in bound.grant.allow for p in rule.tools)
                assert any(p.matches(*target) for p in patterns), (bound.name, target)


def check_tightened(history: list[Recorded], world: World) -> None:
    """Check that no host allows what the grant that it has loaded denies."""
    started, host = history[0].event, ""
    assert isinstance(started, RunStarted)
    for recorded in history:
        event = recorded.event
        if isinstance(event, (RunStarted, RunResumed)):
            host = event.host or ""
        if not isinstance(event, ToolInvoked) or not event.rule:
            continue
        if event.server == "demo" and event.tool == DENIED[started.agent]:
            assert not world.was_tight(host, recorded.recorded_at), recorded


def check_families(disk: MemoryStore) -> None:
    """Check that a run sends nothing while a run that called it is not under way."""
    unsent = {
        (one.stream, one.event.call)
        for one in disk.events
        if isinstance(one.event, ToolFailed) and one.event.sent == "no"
    }
    states: dict[str, str] = {}
    callers: dict[str, list[str]] = {}
    for recorded in disk.events:
        run_id, event = run_of(recorded.stream), recorded.event
        if isinstance(event, RunStarted):
            callers[run_id] = [str(one) for one in event.callers]
        # What was being stopped is not sent.
        stopped = (recorded.stream, getattr(event, "call", 0)) in unsent
        # A takeover that its caller gave up may be stored nevertheless.
        acts = isinstance(event, (RunStarted, ToolInvoked, ToolRetried))
        if acts and not stopped:
            for caller in callers[run_id]:
                assert states[caller] == "running", (recorded, caller)
        states[run_id] = ENDS.get(recorded.type, states.get(run_id, ""))


@dataclass
class _Books:
    """
    What is spent, counted from the log: all of it falls into one period.

    Attributes:
        uses: By the key of the store.

        places: Key and holder of each place that a call has.

        spends: What each call reserved, by the same keys.
    """

    uses: Counter[str] = field(default_factory=Counter)
    places: set[tuple[str, _Call]] = field(default_factory=set)
    spends: dict[_Call, dict[str, int]] = field(default_factory=dict)

    def reserve(self, call: _Call, agent: str, taken: dict[str, int]) -> None:
        spent = {stored_key(agent, key): amount for key, amount in taken.items()}
        self.spends[call] = spent
        for key, amount in spent.items():
            if key.endswith("/open"):
                self.places.add((key, call))
            elif _is_kept(key):
                self.uses[key] += amount
                assert self.uses[key] <= _limit(key), (key, self.uses[key], call)

    def close(self, call: _Call, agent: str, settles: dict[str, int]) -> None:
        self.places = {one for one in self.places if one[1] != call}
        for key, amount in settles.items():
            stored = stored_key(agent, key)
            if _is_kept(stored):
                self.uses[stored] += amount - self.spends[call][stored]

    def end(self, stream: str) -> None:
        family = f"#{run_of(stream)}/"
        left = ((k, n) for k, n in self.uses.items() if not k.startswith(family))
        self.uses = Counter(dict(left))
        self.places = {one for one in self.places if one[1][0] != stream}


def check_tables(disk: MemoryStore) -> None:
    """Compare runs, budgets and places with what the log says of them."""
    books = _Books()
    agents: dict[str, str] = {}
    runs: dict[str, tuple[str, int, bool]] = {}
    for recorded in disk.events:
        stream, event = recorded.stream, recorded.event
        if isinstance(event, RunQueued | RunStarted):
            agents[stream] = event.agent
        if isinstance(event, ToolInvoked):
            taken = cast("dict[str, int]", event.spends or {})
            books.reserve((stream, event.call), agents[stream], taken)
        elif event and (end := outcome_of(event)):
            settles = event.settles if isinstance(event, ToolCompleted) else None
            settled = cast("dict[str, int]", settles or {})
            books.close((stream, end[0]), agents[stream], settled)
        elif stream in agents and (state := ENDS.get(recorded.type)):
            _, epoch, _ = runs.get(run_of(stream), ("", 0, False))
            epoch += isinstance(event, RunStarted)
            epoch = event.epoch if isinstance(event, RunResumed) else epoch
            runs[run_of(stream)] = state, epoch, state in OVER
            if state in OVER:
                books.end(stream)
    assert books.uses == Counter({key: use.used for key, use in disk.budgets.items()})
    assert books.places == set(disk.slots)
    assert runs == {
        row.run_id: (row.state, row.epoch, row.ended_at is not None)
        for row in disk.rows.values()
    }


def _is_kept(key: str) -> bool:
    return key.startswith("#") or "/run" not in key


def _limit(key: str) -> int:
    budget = key.partition("/")[2]
    return LIMITS.get(budget, 1_000)


def check_submissions(given: Mapping[int, Sequence[str]], disk: MemoryStore) -> None:
    """
    Check that each accepted request is exactly one run.

    Args:
        given: The ids that clients were given, by the number in their input.
    """
    runs: dict[int, set[str]] = {number: set() for number in given}
    for stream, history in disk.streams.items():
        event = history[0].event
        if isinstance(event, RunQueued | RunStarted) and isinstance(event.input, dict):
            number = event.input.get("number")
            if isinstance(number, int):
                runs[number].add(run_of(stream))
    for number, ids in given.items():
        assert len({*ids}) <= 1, (number, ids)
        assert len(runs[number]) <= 1, (number, runs[number])
        assert {*ids} <= runs[number], (number, ids)
