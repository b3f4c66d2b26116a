"""What became of a run, folded from its events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from ..calls import JSON, Completed
from .attribution import OUTCOMES, how
from .events import (
    ApprovalRequested,
    Event,
    Recorded,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    RunSuspended,
    ToolInvoked,
)
from .payloads import outcome_of
from .runs import ENDS


@dataclass(slots=True, kw_only=True)
class RunSummary:
    """
    One run, as ``caxton runs list`` and ``caxton run --json`` show it.

    Attributes:
        error: ``{kind, message}`` of a run that failed or was cancelled.

        calls: How many ended how: ``total``, ``ok``, ``tool_error``, ``denied``,
            ``failed``, ``in_doubt``; or that it ``waits``: a person has not approved
            it yet, and nothing was sent.

        forked_from: ``{run, seq, hash}`` of a fork; what it inherited from there is
            not counted here.

        events: How many the stream holds.

        duration_ms: From the first event to the last.

        waits_for: Of a suspended run, the reason of its last `RunSuspended`.

        erased: What the run said was deleted; so only state and times are known.
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
    erased: bool = False

    def to_document(self) -> dict[str, JSON]:
        """Return the ``caxton.run/v1`` document."""
        return {
            "$type": "caxton.run/v1",
            "run_id": self.run_id,
            "agent": self.agent,
            "actor": self.actor,
            "module_sha256": self.module_sha256,
            "state": self.state,
            "output": self.output,
            "error": self.error,
            "calls": dict(self.calls),
            "events": self.events,
            "started_at": self.started_at,
            "duration_ms": self.duration_ms,
            "trace_id": self.trace_id,
            "forked_from": self.forked_from,
            "waits_for": self.waits_for,
            "erased": self.erased,
        }


def summarise(run_id: str, history: Iterable[Recorded]) -> RunSummary:
    """Return what became of the run whose events are *history*."""
    run, ends, own = RunSummary(run_id=run_id), Counter[str](), set[int]()
    waits = set[int]()
    for recorded in history:
        run.events += 1
        run.started_at = run.started_at or recorded.recorded_at
        run.duration_ms = (recorded.recorded_at - run.started_at) / 1000
        event = recorded.event
        if recorded.type in ENDS:
            run.state = ENDS[recorded.type]
            run.waits_for = _waits_for(event)
        match event:
            case RunStarted():
                run.agent, run.actor = event.agent, event.actor
                run.module_sha256 = event.module_sha256
                run.trace_id = recorded.trace_id
                run.forked_from = event.forked_from
            case ApprovalRequested():
                waits.add(event.call)
            case ToolInvoked():
                waits.discard(event.call)
                own.add(event.call)
                ends["total"] += 1
                ends["in_doubt"] += 1
            case RunCompleted():
                run.output = event.output
            case RunFailed() | RunCancelled():
                run.error = _error(event)
            case None:
                run.erased = True
                run.trace_id = run.trace_id or recorded.trace_id
            case _:
                # Of a call that a fork inherited, only the outcome may be its own.
                if (end := outcome_of(event)) and end[0] in own:
                    ends["in_doubt"] -= 1
                    ends[how(end[1])] += 1
    ends["total"] += len(waits)
    ends["waits"] = len(waits)
    run.calls = {name: ends[name] for name in ("total", *OUTCOMES, "waits")}
    return run


def _error(event: RunFailed | RunCancelled) -> dict[str, JSON]:
    if isinstance(event, RunFailed):
        return {"kind": event.kind, "message": event.message}
    return {"kind": "cancelled", "message": event.reason}


def _waits_for(event: Event | None) -> str | None:
    return event.reason if isinstance(event, RunSuspended) else None


def call_list(history: Iterable[Recorded]) -> list[JSON]:
    """Return what each call of the run with the events *history* came to."""
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
            }
        elif event and (end := outcome_of(event)) and (call := calls.get(end[0])):
            call["outcome"], call["message"] = how(end[1]), end[1].message
            if isinstance(end[1], Completed):
                call["duration_us"] = end[1].duration_us
                call["cached"] = end[1].cached
    return [*calls.values()]
