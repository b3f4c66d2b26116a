"""Runs, folded from their events: states, summaries, and lines of an export."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from typing import TypeAlias

from ...errors import UsageError
from ..calls import JSON, Completed, Denied, Outcome
from ..names import AGENTS, called_run, is_called, run_of
from .events import (
    ApprovalRequested,
    Recorded,
    RunErased,
    ToolInvoked,
    outcome_of,
)

#: The state of a run after each of these events.
ENDS: Mapping[str, str] = {
    "RunQueued": "queued",
    "RunStarted": "running",
    "RunResumed": "running",
    "RunSuspended": "suspended",
    "RunCompleted": "completed",
    "RunFailed": "failed",
    "RunCancelled": "cancelled",
}

#: The states of a run that has not ended.
GOING_ON = frozenset({"queued", "running", "suspended"})

#: The states of a run that goes on by itself.
UNDER_WAY = frozenset({"queued", "running"})

#: Why a run of a restored log is suspended, until a person resumes it.
RESTORED = "restored"

#: Why a run is suspended whose call is answered by a run that is suspended.
CHILD = "child"

#: All reasons: see `RunSuspended`.
SUSPENSIONS = ("approval", "in_doubt", "host_stopped", RESTORED, "frozen", CHILD)

#: The outcomes of calls; the last is of calls that have not ended.
OUTCOMES = ("ok", "tool_error", "denied", "failed", "in_doubt")

#: Events that name the tool of a call.
NAMING = (ToolInvoked, ApprovalRequested)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """
    A row of the table of runs.

    Attributes:
        actor: JSON.

        state: ``queued``, ``running``, ``suspended``, ``completed``, ``failed``,
            ``cancelled``.

        started_at: Microseconds since 1970, UTC.

        ended_at: The same; ``None`` if it has not ended.

        host: The stream of the host process that started it, or has it in its queue.

        trace_id: That of its start.

        owner: The stream of the host that drives it, or drove it until it died;
            ``None``: none has to.

        epoch: How many times a host has begun to drive it.

        tenant: Of the principal that started it, if that has one. It stays when the
            run is erased.

        kind: ``agent``, ``program`` or ``session``; empty if that was erased.

        reason: Of a suspended run, why; of a failed one, the kind of its failure; or
            ``cancelled``.

        actor_id: The id of the actor; ``None`` if the run is erased.

        parent: The run that called it.

        calls: JSON: the numbers of calls that are not zero; see `RunSummary`.

        tools: JSON: each tool and outcome of its calls. The tool is empty if the name
            of a call led to none.

        events: The number of the last event that changed the row.

        changed_at: When that was recorded.

        due: When a suspended run may go on, in microseconds; 0: at once; ``None``: when
            a person or another run says so.

        phase: State and epoch as the row was written last; others, or none, were
            written by an older release, which leaves the rest as it is.
    """

    run_id: str
    agent: str
    actor: str
    module_sha256: str
    state: str
    started_at: int
    ended_at: int | None
    host: str | None
    trace_id: str | None
    owner: str | None
    epoch: int
    tenant: str | None = None
    kind: str = ""
    reason: str | None = None
    actor_id: str | None = None
    parent: str | None = None
    calls: str = "{}"
    tools: str = "[]"
    events: int = 0
    changed_at: int = 0
    due: int | None = None
    phase: str | None = None

    @property
    def is_erased(self) -> bool:
        """Whether its payloads are."""
        return self.actor == "{}"

    @property
    def numbers(self) -> dict[str, int] | None:
        """The numbers of calls; ``None`` while it runs, for its row does not follow."""
        known = json.loads(self.calls)
        names = ("total", *OUTCOMES, "waits")
        moving = self.state in UNDER_WAY
        return None if moving else {name: known.get(name, 0) for name in names}

    @property
    def duration_ms(self) -> float | None:
        """From its start to its last change; ``None`` while it runs."""
        took = (self.changed_at - self.started_at) / 1000
        return None if self.state in UNDER_WAY else took

    def to_document(self) -> dict[str, JSON]:
        """Return the ``caxton.listed-run/v1`` document."""
        own: dict[str, JSON] = {name: getattr(self, name) for name in LISTED}
        return {
            "$type": "caxton.listed-run/v1",
            **own,
            "actor": json.loads(self.actor),
            "calls": None if self.numbers is None else {**self.numbers},
            "tools": json.loads(self.tools),
            "duration_ms": self.duration_ms,
            "erased": self.is_erased,
        }


#: What a document of a list has of a row as it is.
LISTED = (
    *("run_id", "agent", "kind", "state", "reason", "tenant", "parent"),
    *("module_sha256", "trace_id", "started_at", "changed_at", "ended_at"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """
    Selects runs of a list. An unset field selects every run.

    Attributes:
        tool: ``server/tool``: runs that called it; with *outcome*, with that outcome.

        outcome: One of `OUTCOMES`: runs with such a call.

        actor: The id of who started the run.

        since: Started at this time or later: microseconds since 1970.

        until: Started before this time.

        prefix: Of the ids of runs.

        top: Only runs that no other run called.

        agents: Only runs of these agents; or those of *owner*.

        owner: The id of an actor; see *agents*.
    """

    agent: str | None = None
    state: str | None = None
    reason: str | None = None
    kind: str | None = None
    tool: str | None = None
    outcome: str | None = None
    actor: str | None = None
    since: int | None = None
    until: int | None = None
    prefix: str = ""
    top: bool = False
    tenant: str | None = None
    agents: Collection[str] | None = None
    owner: str | None = None

    @property
    def columns(self) -> dict[str, str]:
        """What columns of a row have to be."""
        told = {name: getattr(self, name) for name in _EQUAL}
        told["actor_id"] = self.actor
        return {name: value for name, value in told.items() if value is not None}

    def takes(self, row: RunRow) -> bool:
        """Return whether *row* is selected."""
        pairs = json.loads(row.tools)
        return (
            all(getattr(row, name) == value for name, value in self.columns.items())
            and (self.since is None or row.started_at >= self.since)
            and (self.until is None or row.started_at < self.until)
            and row.run_id.startswith(self.prefix)
            and not (self.top and is_called(row.run_id))
            and (
                self.agents is None
                or row.agent in self.agents
                or (self.owner is not None and row.actor_id == self.owner)
            )
            and (
                (self.tool is None and self.outcome is None)
                or any(
                    self.tool in {None, tool} and self.outcome in {None, outcome}
                    for tool, outcome in pairs
                )
            )
        )


_EQUAL = ("agent", "state", "reason", "kind", "tenant")
#: All runs.
EVERY = RunFilter()

#: The place of what people are asked: when, in which run, the number of the event.
Mark: TypeAlias = tuple[int, str, int]


@dataclass(slots=True, kw_only=True)
class RunSummary:
    """
    One run, as ``caxton runs list`` and ``caxton run --json`` show it.

    Attributes:
        error: ``{kind, message}`` of a run that failed or was cancelled.

        calls: Numbers of calls: ``total``, ``ok``, ``tool_error``, ``denied``,
            ``failed``, ``in_doubt``, and ``waits`` for an approval.

        forked_from: ``{run, seq, hash}`` of a fork. Inherited calls are not counted.

        signed_by: The keys of what it executes, if its agent wants that signed.

        events: The number of events in the stream.

        duration_ms: From the first event to the last.

        waits_for: Of a suspended run, the reason of its last `RunSuspended`.

        program: What its module, a runtime, executes; see `RunStarted`.

        bounds: The grants that bind it beside that of its agent; see `RunStarted`.

        erased: The payloads were erased, so only state and times are known.

        parent: The run that called it, or ``None``.

        called_by: The number of that call.
    """

    run_id: str
    agent: str = ""
    actor: dict[str, JSON] = field(default_factory=dict[str, JSON])
    module_sha256: str = ""
    state: str = "running"
    output: JSON = None
    error: dict[str, JSON] | None = None
    calls: dict[str, int] = field(default_factory=dict[str, int])
    events: int = 0
    started_at: int = 0
    duration_ms: float = 0.0
    trace_id: str | None = None
    forked_from: dict[str, JSON] | None = None
    waits_for: str | None = None
    program: dict[str, JSON] | None = None
    bounds: list[JSON] = field(default_factory=list[JSON])
    signed_by: list[str] = field(default_factory=list[str])
    erased: bool = False
    parent: str | None = None
    called_by: int | None = None

    def to_document(self) -> dict[str, JSON]:
        """Return the ``caxton.run/v1`` document."""
        own = {one.name: getattr(self, one.name) for one in fields(self)}
        return {"$type": "caxton.run/v1", **own, "calls": dict(self.calls)}


def call_list(history: Iterable[Recorded]) -> list[JSON]:
    """Return a document of each call of the run with the events *history*."""
    calls: dict[int, dict[str, JSON]] = {}
    for recorded in history:
        event = recorded.event
        if isinstance(event, ToolInvoked):
            calls[event.call] = {
                "call": event.call,
                "seq": recorded.seq,
                "name": event.name,
                "tool": f"{event.server}/{event.tool}" if event.server else None,
                "params": event.params,
                "outcome": "in_doubt",
                "message": None,
                "duration_us": None,
                "cached": False,
                "run": callee_of(recorded.stream, event),
            }
        elif event and (end := outcome_of(event)) and (call := calls.get(end[0])):
            call["outcome"], call["message"] = outcome_word(end[1]), end[1].message
            if isinstance(end[1], Completed):
                call["duration_us"] = end[1].duration_us
                call["cached"] = end[1].cached
    return [*calls.values()]


def callee_of(stream: str, invoked: ToolInvoked) -> str | None:
    """Return the run that answers a call of an agent, or ``None`` of another call."""
    if invoked.server != AGENTS or invoked.rule is None:
        return None
    return called_run(run_of(stream), invoked.idempotency_key)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportLine:
    """
    A line of an export: an event, with facts of its run and its call.

    Each line stands alone, so it repeats what other events of the run record.

    Attributes:
        run: The run, or ``None`` for an event of a host.

        agent: The agent of the run.

        actor: Who started the run; ``None`` if that was erased.

        tool: ``server/tool`` of the call that the event is about.

        outcome: How the call ended, on the event that ended it.
    """

    recorded: Recorded
    run: str | None
    agent: str | None
    actor: dict[str, JSON] | None
    tool: str | None
    outcome: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportFilter:
    """
    Selects lines of an export. An unset field selects every line.

    Attributes:
        stream: Events of this stream.

        since: Recorded at this time or later: microseconds since 1970.

        until: Recorded before this time.

        agent: Runs of this agent.

        actor: The id of who started the run, or caused the event.

        tool: A glob of ``server/tool``.

        outcomes: Some of `OUTCOMES`: events that ended a call in one of these ways; of
            a call in doubt, its `ToolInvoked`.
    """

    stream: str | None = None
    since: int | None = None
    until: int | None = None
    agent: str | None = None
    actor: str | None = None
    tool: str | None = None
    outcomes: Collection[str] = ()

    def takes(self, line: ExportLine) -> bool:
        """Return whether *line* is selected."""
        return (not self.outcomes or line.outcome in self.outcomes) and self.concerns(
            line
        )

    def concerns(self, line: ExportLine) -> bool:
        """Return whether *line* matches `until`, `actor` and `tool`."""
        if self.until is not None and line.recorded.recorded_at >= self.until:
            return False
        if self.tool is not None and not fnmatchcase(line.tool or "", self.tool):
            return False
        if self.actor is None:
            return True
        own: dict[str, JSON] | None = getattr(line.recorded.event, "actor", None)
        return any(who["id"] == self.actor for who in (line.actor, own) if who)


@dataclass(slots=True)
class OpenCalls:
    """
    The tools of the calls that are open, folded from events of all runs.

    Attributes:
        most: Most calls in memory. The least recently used are dropped, and have to be
            read from the log again.
    """

    most: int = 10_000
    _open: OrderedDict[tuple[str, int], str | None] = field(
        default_factory=OrderedDict[tuple[str, int], str | None]
    )

    def learn(self, stream: str, event: ToolInvoked | ApprovalRequested) -> None:
        """Remember the tool of a call."""
        tool = f"{event.server}/{event.tool}" if event.server else None
        self._open[stream, event.call] = tool
        if len(self._open) > self.most:
            self._open.popitem(last=False)

    def knows(self, recorded: Recorded) -> bool:
        """Return whether the tool of an event is known, if it needs one."""
        number = call_of(recorded)
        if number is None or isinstance(recorded.event, NAMING):
            return True
        return (recorded.stream, number) in self._open

    def tool(self, recorded: Recorded) -> str | None:
        """Return the tool of the call of an event; drop the call if it ended."""
        event, number = recorded.event, call_of(recorded)
        if isinstance(event, NAMING):
            self.learn(recorded.stream, event)
        if number is None:
            return None
        key = recorded.stream, number
        if event is not None and outcome_of(event):
            return self._open.pop(key, None)
        if key in self._open:
            self._open.move_to_end(key)
        return self._open.get(key)


def event_of_call(history: Iterable[Recorded], number: int) -> int:
    """
    Return the sequence number of the event that names call *number*.

    Raises:
        UsageError: The run has no such call of its own.
    """
    events = {e.event.call: e.seq for e in history if isinstance(e.event, NAMING)}
    if number in events:
        return events[number]
    calls = "1 call" if len(events) == 1 else f"{len(events)} calls"
    raise UsageError(
        f"the run has no call {number}; it has {calls}",
        fix="name a call that caxton runs show lists",
    )


def call_of(recorded: Recorded) -> int | None:
    """Return the number of the call that an event is about, if it is about one."""
    number = getattr(recorded.event, "call", None)
    return number if isinstance(number, int) else None


def outcome_word(outcome: Outcome) -> str:
    """
    Return the name of an outcome, one of `OUTCOMES`.

    >>> outcome_word(Completed(is_error=True))
    'tool_error'
    """
    if isinstance(outcome, Completed):
        return "tool_error" if outcome.is_error else "ok"
    return "denied" if isinstance(outcome, Denied) else "failed"


def erasure_document(erased: RunErased, *, scrubbed: bool) -> dict[str, JSON]:
    """Return the ``caxton.erasure/v1`` document; *scrubbed*: the file lost it too."""
    return {
        "$type": "caxton.erasure/v1",
        "run_id": erased.run,
        "agent": erased.agent,
        "actor": erased.actor,
        "reason": erased.reason,
        "events": erased.events,
        "scrubbed": scrubbed,
    }
