"""
The spans of a recorded run, made once more of its log.

They have the ids that the events name, and the times at which these were recorded.
What asked for the run is not in the log, so its own span has no parent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, cast

from ..core.calls import Denied, Effect, Failed, Outcome, Route
from ..core.grants.approvals import Unapproved
from ..core.log.events import (
    ApprovalRequested,
    Recorded,
    RunFailed,
    RunResumed,
    RunSuspended,
    ToolInvoked,
    ToolRetried,
)
from ..core.log.payloads import outcome_of
from ..core.log.runs import ENDS
from ..core.names import stream_of
from ..errors import Suspend
from ..ports import Execution, Served
from ..runs.executor import fork_of, resolved_calls, resume_of, start_of
from .attributes import error_of, raised_fields, server_fields

if TYPE_CHECKING:
    from ..runs.recording import Recording
    from .open_spans import Watched, WatchedCall, WatchedRun
    from .tracer import Spans


_UPSTREAM = Served()


@dataclass(slots=True)
class _Open:
    """A call that has not ended yet, and its newest attempt."""

    span: WatchedCall
    attempt: Watched | None = None


@dataclass(slots=True)
class Again:
    """
    Makes the spans of a recorded run once more.

    Attributes:
        now: When the event was recorded that is looked at.
    """

    recording: Recording
    now: int = 0
    _spans: Spans = field(init=False)
    _run: WatchedRun = field(init=False)
    _served: Mapping[int, Served] = field(default_factory=dict[int, Served])
    _asked: dict[int, ToolInvoked | ApprovalRequested] = field(
        default_factory=dict[int, "ToolInvoked | ApprovalRequested"]
    )
    _outcomes: dict[int, Outcome] = field(default_factory=dict[int, Outcome])
    _waiting: set[int] = field(default_factory=set[int])
    _open: dict[int, _Open] = field(default_factory=dict[int, _Open])

    def clock(self) -> int:
        """Return nanoseconds since 1970, as of the recording."""
        return self.now

    def make(self, spans: Spans) -> None:
        """Make them, one execution after the other."""
        self._spans = spans
        for recorded in self.recording.history:
            event = recorded.event
            if isinstance(event, (ToolInvoked, ApprovalRequested)):
                self._asked[event.call] = event
            elif event and (end := outcome_of(event)):
                self._outcomes[end[0]] = end[1]
        own = self.recording.own
        starts = [0, *(n for n, e in enumerate(own) if isinstance(e.event, RunResumed))]
        for start, stop in zip(starts, [*starts[1:], len(own)], strict=True):
            self._execution(own[:start], own[start:stop])

    def _execution(
        self, before: Sequence[Recorded], events: Sequence[Recorded]
    ) -> None:
        first, self._served = events[0], resolved_calls(before)
        self._waiting.clear()
        self.now = first.recorded_at * 1000
        self._run = self._spans.run(
            self._described(resumed=bool(before)),
            trace_id=_id(first, first.trace_id, 16),
            span_id=_id(first, first.span_id, 8),
        )
        for number, served in self._served.items():
            if served.by == "resolution":
                self._begin(number)
                self._settle(number, self._outcomes[number])
        last = first
        for last in events:
            self._take(last)
            if last.type in ENDS and last is not first:
                break  # what comes behind it was recorded by others
        self._end(last)

    def _described(self, *, resumed: bool) -> Execution:
        recording = self.recording
        if resumed:
            return resume_of(recording)
        started, run_id = recording.started, recording.run_id
        if started.forked_from is None:
            return start_of(run_id, started)
        parent = recording.lineage[-1]
        first = next(e for e in parent.events if e.stream == stream_of(parent.run_id))
        return fork_of(run_id, started.agent, started.module_sha256, first)

    def _take(self, recorded: Recorded) -> None:
        event = recorded.event
        assert event is not None  # noqa: S101 -- see `Recording.load`
        self.now = recorded.recorded_at * 1000
        self._run.recorded(recorded.seq, [event])
        match event:
            case ToolInvoked():
                self._begin(event.call)
                self._run.notes.of(event.call).fields["caxton.event.hash"] = (
                    recorded.hash.hex()
                )
                if _was_sent(self._outcomes.get(event.call)):
                    self._attempt(event.call, 1)
            case ToolRetried():
                if event.call not in self._open:
                    self._begin(event.call)
                lost = "_OTHER" if event.reason == "transport" else None
                self._end_attempt(event.call, lost)
                self._attempt(event.call, event.attempt)
            case ApprovalRequested():
                self._waiting.add(event.call)
            case RunSuspended(reason="approval", call=int(call)):
                for number in sorted({call, *self._waiting}):
                    self._stop(number, Unapproved(number))
            case RunSuspended(call=int(call)):
                self._stop(call, Suspend(call, ""))
            case _:
                if end := outcome_of(event):
                    self._settle(*end)

    def _begin(self, number: int) -> None:
        asked = self._asked[number]
        served = self._served.get(number, _UPSTREAM)
        self._open[number] = _Open(self._run.begin(number, asked.name, served))

    def _attempt(self, number: int, attempt: int) -> None:
        asked, opened = self._asked[number], self._open[number]
        server, tool = asked.server or "", asked.tool or ""
        known = self.recording.started.servers.get(server)
        fields = server_fields(known) if isinstance(known, dict) else {}
        opened.attempt = self._spans.attempt(
            server, tool, attempt, fields, opened.span.within
        )

    def _end_attempt(self, number: int, error: str | None) -> None:
        opened = self._open[number]
        if opened.attempt:
            if error:
                opened.attempt.fields["error.type"] = error
            opened.attempt.end()
            opened.attempt = None

    def _settle(self, number: int, outcome: Outcome) -> None:
        if number not in self._open:
            return  # it was closed by others, after the crash
        asked = self._asked[number]
        route = None
        if isinstance(asked, ToolInvoked) and asked.server and asked.tool:
            effect = cast("Effect", asked.effect)
            route = Route(server=asked.server, tool=asked.tool, effect=effect)
        self._end_attempt(number, error_of(outcome))
        opened = self._open.pop(number)
        opened.span.settled(outcome, route)
        opened.span.end()

    def _stop(self, number: int, why: BaseException) -> None:
        """End a call that nothing closed."""
        if number not in self._open:
            self._begin(number)
        self._end_attempt(number, "in_doubt")
        opened = self._open.pop(number)
        opened.span.fields.update(raised_fields(why))
        opened.span.end()

    def _end(self, last: Recorded) -> None:
        """End what is open, and the span of the execution."""
        for number in [*self._open]:
            self._stop(number, Suspend(number, ""))
        kind = last.event.kind if isinstance(last.event, RunFailed) else None
        self._run.ended(ENDS.get(last.type, "running"), kind)
        self._run.stored(last.seq, last.hash)
        self._run.end()


def _was_sent(outcome: Outcome | None) -> bool:
    """Return whether a server was tried for a call that ended so."""
    if isinstance(outcome, Failed):
        return not (outcome.kind == "cancelled" and outcome.sent == "no")
    return not isinstance(outcome, Denied)


def _id(recorded: Recorded, known: str | None, size: int) -> int:
    """Return an id that is recorded, or else one that follows from the event."""
    if known:
        return int(known, 16)
    digest = sha256(f"{recorded.stream} {recorded.seq}".encode()).digest()
    return int.from_bytes(digest[:size], "big")
