"""
What was recorded of a run while it is watched, and the ids that events are given.

The span of a call has an id that follows from the one of its run, and the span of an
attempt one that follows from its call. So an event can name its span before that
begins, and spans that are made again of the log have the ids that they had.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from ..core.calls import Denied, Outcome
from ..core.log.events import (
    Event,
    ToolCompleted,
    ToolDenied,
    ToolFailed,
    ToolInvoked,
    ToolProgress,
    ToolRetried,
    outcome_of,
)
from .attributes import Fields, arguments, result, route_fields

_OF_CALL = (
    ToolInvoked,
    ToolRetried,
    ToolCompleted,
    ToolFailed,
    ToolDenied,
    ToolProgress,
)


def derived(parent: int, number: int) -> int:
    """Return the id of the span that has that number below *parent*."""
    digest = sha256(parent.to_bytes(8, "big") + number.to_bytes(8, "big")).digest()
    return int.from_bytes(digest[:8], "big") or 1


@dataclass(slots=True)
class CallNotes:
    """
    What was recorded of a call.

    Attributes:
        fields: What is to be said of it.

        at: When its intent was recorded, in nanoseconds since 1970.

        rule: The rule that allowed it.

        outcome: How it ended.

        resent: Why its newest further attempt is made.
    """

    fields: Fields = field(default_factory=dict[str, "str | int | bool"])
    at: int | None = None
    rule: str | None = None
    outcome: Outcome | None = None
    resent: str = ""

    def take(self, event: Event, seq: int, at: int, *, content: bool) -> None:
        """Take note of an event of the call."""
        match event:
            case ToolInvoked():
                self.at, self.rule = at, event.rule
                self.fields["caxton.event.seq"] = seq
                if event.server is not None and event.tool is not None:
                    self.fields |= route_fields(event.server, event.tool, event.effect)
                if content:
                    self.fields |= arguments(event)
            case ToolRetried():
                self.resent = event.reason
            case _:
                if end := outcome_of(event):
                    self.outcome = end[1]
                if content and isinstance(event, ToolCompleted):
                    self.fields |= result(event)

    def decision(self, *, waits: bool) -> Fields | None:
        """Return what is said of how the call was judged, if it was."""
        if waits:
            return {"caxton.acl.verdict": "ask"}
        if self.at is None:
            return None
        denied = self.outcome if isinstance(self.outcome, Denied) else None
        fields: Fields = {"caxton.acl.verdict": "deny" if denied else "allow"}
        if rule := denied.rule if denied else self.rule:
            fields["caxton.acl.rule"] = rule
        if denied:
            fields["caxton.acl.code"] = denied.code
        return fields


@dataclass(slots=True)
class RunNotes:
    """
    What was recorded of a run since it is watched.

    Attributes:
        trace_id: In hex.

        span_id: That of its span.

        content: Parameters and results are to be said.

        clock: Returns nanoseconds since 1970.

        fields: What is to be said of it.
    """

    trace_id: str
    span_id: int
    content: bool = False
    clock: Callable[[], int] = time.time_ns
    fields: Fields = field(default_factory=dict[str, "str | int | bool"])
    _calls: dict[int, CallNotes] = field(default_factory=dict[int, CallNotes])

    def take(self, seq: int, events: Sequence[Event]) -> list[tuple[str, str]]:
        """Take note of *events*, the first of them number *seq*; return their ids."""
        self.fields.setdefault("caxton.event.seq", seq)
        now = self.clock()
        ids: list[tuple[str, str]] = []
        for place, event in enumerate(events, seq):
            span_id = self.span_id
            if isinstance(event, _OF_CALL):
                span_id = derived(span_id, event.call)
                notes = self.of(event.call)
                notes.take(event, place, now, content=self.content)
            ids.append((self.trace_id, f"{span_id:016x}"))
        return ids

    def of(self, number: int) -> CallNotes:
        """Return what is known of call *number*."""
        notes = self._calls.get(number)
        if notes is None:
            notes = self._calls[number] = CallNotes()
        return notes

    def forget(self, number: int) -> None:
        """Drop what is known of a call whose span has ended."""
        self._calls.pop(number, None)
