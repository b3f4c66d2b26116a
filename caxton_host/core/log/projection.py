"""
What a run's events say about it, folded one by one: a row of a list, and a summary.

A row changes only with an event that turns the run, never with a call. So it is that of
the last such event, however a writer put events together in transactions.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from .. import clients
from ..calls import JSON
from .asked import Asked
from .events import (
    ApprovalDecided,
    ApprovalRequested,
    CallResolved,
    Event,
    QuestionAnswered,
    QuestionAsked,
    Recorded,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunQueued,
    RunResumed,
    RunStarted,
    RunSuspended,
    ToolCompleted,
    ToolDenied,
    ToolFailed,
    ToolInvoked,
    ToolRetried,
)
from .runs import CHILD, ENDS, GOING_ON, OUTCOMES, RESTORED, RunRow, RunSummary

#: Types of events that may change a row of any run.
TURNS = frozenset(
    {
        *ENDS,
        *("ApprovalRequested", "ApprovalDecided", "CallResolved"),
        *("QuestionAsked", "QuestionAnswered"),
    }
)

#: What only the row of an erased run still tells, and what it loses.
_KEPT = ("agent", "module_sha256", "host", "tenant", "kind", "epoch")
FORGOTTEN: Mapping[str, Any] = {
    "actor": "{}",
    "actor_id": None,
    "parent": None,
    "reason": None,
    "calls": "{}",
    "tools": "[]",
}

Kind: TypeAlias = Literal["approval", "in_doubt", "question"]

#: A tool, ``server/tool`` or ``""``, and an outcome of a call of it.
Pair: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True, order=True)
class Wait:
    """
    Something in a run that a person has to decide.

    Attributes:
        asked_at: When that was recorded, in microseconds since 1970.

        seq: The number of the event: the request, the question, the call in doubt.

        until: When nobody can decide any more; ``None``: never.
    """

    asked_at: int
    seq: int
    kind: Kind
    call: int
    tool: str
    until: int | None = None


@dataclass(slots=True)
class Projection:
    """
    The events of one run so far.

    Attributes:
        row: As of the last event that changed it; ``None`` before the run starts.

        waits: The same.

        events: How many there were.

        erased: The payloads are.

        starts: How often it started, which is once.
    """

    run_id: str
    row: RunRow | None = None
    waits: tuple[Wait, ...] = ()
    events: int = 0
    erased: bool = False
    starts: int = 0
    _total: int = 0
    #: How often each tool ended so.
    _ended: Counter[Pair] = field(default_factory=Counter[Pair])
    #: Calls that have not ended, and when and as which event they were recorded.
    _open: dict[int, tuple[int, int, ToolInvoked]] = field(
        default_factory=dict[int, tuple[int, int, ToolInvoked]]
    )
    #: Those that a person let be sent again.
    _resolved: set[int] = field(default_factory=set[int])
    #: Calls that need an approval and are not made yet, and when that was asked.
    _asked: dict[int, tuple[Asked, int]] = field(
        default_factory=dict[int, tuple[Asked, int]]
    )
    _questions: dict[tuple[int, int], Wait] = field(
        default_factory=dict[tuple[int, int], Wait]
    )
    _suspended: RunSuspended | None = None

    @property
    def asks(self) -> bool:
        """Whether the next event of a call may change the row."""
        return bool(self._questions or self._asked or self._suspended)

    @property
    def calls(self) -> dict[str, int]:
        """The numbers of calls; see `RunSummary`."""
        found = {"total": self._total + len(self._asked), **dict.fromkeys(OUTCOMES, 0)}
        for (_, word), count in self._ended.items():
            found[word] += count
        return found | {"in_doubt": len(self._open), "waits": len(self._asked)}

    def copy(self) -> Projection:
        """Return a copy that goes on by itself."""
        return replace(
            self,
            _ended=self._ended.copy(),
            _open={**self._open},
            _resolved={*self._resolved},
            _asked={**self._asked},
            _questions={**self._questions},
        )

    def apply(
        self, type_: str, event: Event | None, at: int, trace_id: str | None = None
    ) -> None:
        """
        Fold the next event.

        Args:
            type_: Its type.

            event: Itself; ``None`` if its payload was erased.

            at: When it was recorded.

            trace_id: Its trace.
        """
        self.events += 1
        # What is most frequent comes first: this is on the path of every call.
        if isinstance(event, ToolInvoked):
            self._total += 1
            self._open[event.call] = at, self.events, event
            turns = bool(self._asked) and self._asked.pop(event.call, None) is not None
        elif isinstance(event, (ToolCompleted, ToolDenied, ToolFailed)):
            turns = self._settle(event)
        else:
            turns = type_ in TURNS
            self._turn(event, at)
            if type_ in ENDS:
                self._move(type_, event, at, trace_id)
        if turns and self.row:
            self._show(self.row, at)

    def _settle(self, event: ToolCompleted | ToolDenied | ToolFailed) -> bool:
        """Note the end of a call, and return whether people had to decide about it."""
        # Of a call that a fork inherited, only the outcome may be its own.
        if call := self._open.pop(event.call, None):
            self._ended[_tool_of(call[2]), _word(event)] += 1
        asked = [key for key in self._questions if key[0] == event.call]
        for key in asked:
            del self._questions[key]
        return bool(asked or self._suspended)

    def _turn(self, event: Event | None, at: int) -> None:
        match event:
            case None:
                self.erased = True
            case ToolRetried():
                self._resolved.discard(event.call)
            case ApprovalRequested():
                before = self._asked.get(event.call, (Asked(event), at))[0]
                self._asked[event.call] = before.again(event, self.events), at
            case ApprovalDecided() if event.call in self._asked:
                asked, since = self._asked[event.call]
                self._asked[event.call] = asked.after(event), since
            case CallResolved() if event.verdict == "retry":
                self._resolved.add(event.call)
            case QuestionAsked() if event.to == "people" and event.form is not None:
                tool = f"{event.server}/{event.tool}"
                self._questions[event.call, event.question] = Wait(
                    at, self.events, "question", event.call, tool, event.until
                )
            case QuestionAnswered():
                self._questions.pop((event.call, event.question), None)
            case RunResumed():
                self._questions.clear()
            case RunSuspended():
                self._resolved |= {*self._open}.intersection(event.unsent)
            case _:
                pass

    def _move(
        self, type_: str, event: Event | None, at: int, trace_id: str | None
    ) -> None:
        """Change the state of the run."""
        self._suspended = event if isinstance(event, RunSuspended) else None
        state = ENDS[type_]
        begins = type_ in {"RunQueued", "RunStarted"}
        if begins and self.row is None:
            begun = event if isinstance(event, RunQueued | RunStarted) else None
            self.row = _began(self.run_id, begun, at)
        if self.row is None:
            return
        driven = event if isinstance(event, RunResumed | RunStarted) else None
        self.row = replace(
            self.row,
            state=state,
            ended_at=None if state in GOING_ON else at,
            owner=driven.host if driven else None,
            reason=_reason(event),
        )
        if type_ == "RunStarted":
            self.starts += 1
            host = driven.host if driven else self.row.host
            self.row = replace(self.row, epoch=1, host=host, trace_id=trace_id)
        elif begins:
            self.row = replace(self.row, trace_id=trace_id)
        elif isinstance(event, RunResumed):
            self.row = replace(self.row, epoch=event.epoch)

    def _show(self, row: RunRow, at: int) -> None:
        doubtful = {(_tool_of(call), "in_doubt") for *_, call in self._open.values()}
        self.waits = tuple(sorted(self._waits(row)))
        self.row = replace(
            row,
            calls=json.dumps({key: n for key, n in self.calls.items() if n}),
            tools=json.dumps(sorted(doubtful.union(self._ended))),
            events=self.events,
            changed_at=at,
            due=self._due(row),
            phase=f"{row.state}/{row.epoch}",
        )

    def _waits(self, row: RunRow) -> Iterable[Wait]:
        if row.state == "running":
            yield from self._questions.values()
        # A session serves other calls meanwhile.
        if row.state == "suspended" or (row.state, row.kind) == ("running", "session"):
            for asked, at in self._asked.values():
                if asked.waits:
                    one = asked.requested
                    tool, seq = f"{one.server}/{one.tool}", asked.seq or 0
                    yield Wait(at, seq, "approval", one.call, tool, one.until)
        if doubt := self._doubt():
            yield doubt

    def _doubt(self) -> Wait | None:
        """Return the call in doubt that a suspended run waits for."""
        last = self._suspended
        if last is None or last.frozen or last.call in self._resolved:
            return None
        if known := self._open.get(last.call or 0):
            at, seq, call = known
            return Wait(at, seq, "in_doubt", call.call, _tool_of(call))
        return None

    def _due(self, row: RunRow) -> int | None:
        """Return when a run may go on without a person; see `RunRow`."""
        is_held = row.kind == "session" or row.reason in {RESTORED, CHILD}
        if row.state != "suspended" or is_held or self._doubt():
            return None
        waiting = [asked for asked, _ in self._asked.values() if asked.waits]
        ends = [asked.requested.until or 0 for asked in waiting]
        return max(ends, default=0) if all(ends) else None


def _began(run_id: str, event: RunQueued | RunStarted | None, at: int) -> RunRow:
    """Return the row of a run that starts; without *event*, of an erased one."""
    actor = event.actor if event else {}
    who, tenant = actor.get("id"), actor.get("tenant")
    kind = "program" if event and event.program else "agent" if event else ""
    return RunRow(
        run_id=run_id,
        agent=event.agent if event else "",
        actor=json.dumps(actor, ensure_ascii=False, sort_keys=True),
        module_sha256=event.module_sha256 if event else "",
        state="queued",
        started_at=at,
        ended_at=None,
        host=event.host if event else None,
        trace_id=None,
        owner=None,
        epoch=0,
        tenant=None if tenant is None else str(tenant),
        kind="session" if _is_session(event) else kind,
        actor_id=None if who is None else str(who),
        parent=event.parent if isinstance(event, RunStarted) else None,
    )


def _is_session(event: RunQueued | RunStarted | None) -> bool:
    return isinstance(event, RunStarted) and event.abi == clients.ABI


def _reason(event: Event | None) -> str | None:
    if isinstance(event, RunSuspended):
        return event.reason
    if isinstance(event, RunFailed):
        return event.kind
    return "cancelled" if isinstance(event, RunCancelled) else None


def _tool_of(call: ToolInvoked) -> str:
    return f"{call.server}/{call.tool}" if call.server else ""


def _word(event: ToolCompleted | ToolDenied | ToolFailed) -> str:
    if isinstance(event, ToolCompleted):
        return "tool_error" if event.is_error else "ok"
    return "denied" if isinstance(event, ToolDenied) else "failed"


def should_be(stored: RunRow, projection: Projection) -> RunRow:
    """Return what the row of a run should be by its events."""
    row = projection.row or stored  # Its events may be gone.
    if not row.agent:
        row = replace(row, **{name: getattr(stored, name) for name in _KEPT})
    return replace(row, phase=f"{row.state}/{row.epoch}")


@dataclass(slots=True)
class Summing:
    """
    The summary of a run, of its events so far.

    Attributes:
        last: The event that was folded last.
    """

    run_id: str
    last: Recorded | None = None
    _run: RunSummary = field(init=False)
    _projection: Projection = field(init=False)

    def __post_init__(self) -> None:
        self._run, self._projection = (
            RunSummary(run_id=self.run_id),
            Projection(self.run_id),
        )

    def apply(self, recorded: Recorded) -> None:
        """Fold the next event."""
        run, event, at = self._run, recorded.event, recorded.recorded_at
        self.last = recorded
        self._projection.apply(recorded.type, event, at, recorded.trace_id)
        run.started_at = run.started_at or at
        run.duration_ms = (at - run.started_at) / 1000
        if recorded.type in ENDS:
            run.state = ENDS[recorded.type]
            run.waits_for = event.reason if isinstance(event, RunSuspended) else None
        match event:
            case RunQueued() | RunStarted():
                _begin(run, event)
                run.trace_id = recorded.trace_id
            case RunCompleted():
                run.output = event.output
            case RunFailed() | RunCancelled():
                run.error = _error(event)
            case None:
                run.trace_id = run.trace_id or recorded.trace_id
            case _:
                pass

    def summary(self) -> RunSummary:
        """Return the summary."""
        known = self._projection
        return replace(
            self._run, events=known.events, erased=known.erased, calls=known.calls
        )


def summarise(run_id: str, history: Iterable[Recorded]) -> RunSummary:
    """Return the summary of the run with the events *history*."""
    summing = Summing(run_id)
    for recorded in history:
        summing.apply(recorded)
    return summing.summary()


def _begin(run: RunSummary, event: RunQueued | RunStarted) -> None:
    run.agent, run.actor = event.agent, event.actor
    run.module_sha256 = event.module_sha256
    run.program, run.bounds = event.program, [*event.bounds]
    run.signed_by = [
        str(one.get("signer")) for one in event.signatures if isinstance(one, dict)
    ]
    if isinstance(event, RunStarted):
        run.forked_from = event.forked_from
        run.parent, run.called_by = event.parent, event.called_by


def _error(event: RunFailed | RunCancelled) -> dict[str, JSON]:
    if isinstance(event, RunFailed):
        return {"kind": event.kind, "message": event.message}
    return {"kind": "cancelled", "message": event.reason}
