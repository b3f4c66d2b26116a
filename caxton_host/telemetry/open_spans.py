"""Spans under way: what is noted of runs, calls and attempts until they end."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

from opentelemetry import context as current
from opentelemetry.context import Context
from opentelemetry.sdk.trace import Event as Marked
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    TraceFlags,
    format_trace_id,
    set_span_in_context,
)

from ..ports import Served
from .attributes import (
    Fields,
    agent_fields,
    call_fields,
    outcome_fields,
    raised_fields,
    served_fields,
)
from .notes import CallNotes, RunNotes, derived

if TYPE_CHECKING:
    from collections.abc import Generator

    from ..core.calls import Outcome, Route, ToolCall
    from ..core.log.events import Event
    from ..ports import Execution, Origin
    from .tracer import Spans


#: Under which the notes of the call that is watched are kept in the current context.
CALL = current.create_key("caxton-call")

_SERVED = Served()
_ANSWERED = {"ok", "tool_error", "failed"}


@dataclass(frozen=True, slots=True)
class Begun:
    """What is known of a span from its beginning."""

    name: str
    context: SpanContext
    parent: SpanContext | None
    kind: SpanKind
    links: Sequence[Link]
    at: int


class Watched:
    """
    A span that is current for as long as this is entered.

    Attributes:
        fields: What is said of it when it ends.

        within: What is below it begins in this context.
    """

    def __init__(
        self, spans: Spans, begun: Begun, fields: Fields, under: Context
    ) -> None:
        self.fields = fields
        self.within = set_span_in_context(NonRecordingSpan(begun.context), under)
        self._spans = spans
        self._begun = begun
        self._events: Sequence[Marked] = ()

    def __enter__(self) -> Self:
        """Make it the current one."""
        self._token = current.attach(self.within)
        return self

    def __exit__(
        self, _: object, exc: BaseException | None, __: object
    ) -> Literal[False]:
        """End it."""
        current.detach(self._token)
        if exc is not None:
            self.fields.update(raised_fields(exc))
        self.end()
        return False

    def stored(self, seq: int, digest: bytes) -> None:
        """Note the hash of the event that is named, if it is that one."""
        if self.fields.get("caxton.event.seq") == seq:
            self.fields["caxton.event.hash"] = digest.hex()

    def end(self) -> None:
        """End the span, and say what was noted."""
        self._spans.send(self._begun, self.fields, self._events)


class WatchedCall(Watched):
    """The span of a call. See `ports.Span`."""

    def __init__(
        self,
        spans: Spans,
        begun: Begun,
        notes: CallNotes,
        served: Served,
        under: Context,
    ) -> None:
        under = current.set_value(CALL, notes, under)
        super().__init__(spans, begun, notes.fields, under)
        self._notes = notes
        self._served = served

    def settled(self, outcome: Outcome, route: Route | None) -> None:
        """Note how it ended."""
        self.fields.update(outcome_fields(outcome, route))

    def end(self) -> None:
        """End the span, with the decision as an event of it."""
        if self._notes.outcome:  # recorded, whatever was raised afterwards
            self.fields.update(outcome_fields(self._notes.outcome))
        elif self._notes.at is not None:
            self.fields.setdefault("caxton.call.outcome", "in_doubt")
        outcome = self.fields.get("caxton.call.outcome")
        if self._served.by != "upstream" or outcome in _ANSWERED:
            self.fields.update(served_fields(self._served))
        if decision := self._notes.decision(waits=outcome == "waits"):
            at = self._notes.at or self._begun.at
            self._events = [Marked("caxton.acl.decision", decision, at)]
        super().end()


class WatchedRun(Watched):
    """The span of a run. See `ports.RunSpan`."""

    def __init__(
        self, spans: Spans, begun: Begun, execution: Execution, under: Context
    ) -> None:
        self.notes = RunNotes(
            format_trace_id(begun.context.trace_id),
            begun.context.span_id,
            clock=spans.clock,
            content=spans.content,
            fields=agent_fields(execution),
        )
        super().__init__(spans, begun, self.notes.fields, under)
        self._execution = execution

    @contextlib.contextmanager
    def call(
        self, call: ToolCall, route: Route | None, served: Served | None = None
    ) -> Generator[WatchedCall]:
        """Watch one call of it."""
        del route  # its intent says so
        try:
            with self.begin(call.number, call.name, served or _SERVED) as watched:
                yield watched
        finally:
            self.notes.forget(call.number)

    def begin(self, number: int, name: str, served: Served) -> WatchedCall:
        """Begin the span of a call, as of when its intent was recorded, or now."""
        notes = self.notes.of(number)
        notes.fields.update(call_fields(self._execution, number, name))
        begun = self._spans.begin(
            f"execute_tool {name}",
            self._begun.context,
            derived(self.notes.span_id, number),
            links=links_of(served.origin),
            at=notes.at,
        )
        return WatchedCall(self._spans, begun, notes, served, self.within)

    def recorded(self, seq: int, events: Sequence[Event]) -> list[tuple[str, str]]:
        """Take note of events of it."""
        return self.notes.take(seq, events)

    def stored(self, seq: int, digest: bytes) -> None:
        """Note what its log ends with."""
        self.fields["caxton.log.seq"] = seq
        self.fields["caxton.log.head"] = digest.hex()

    def ended(self, state: str, kind: str | None) -> None:
        """Note how it ended."""
        self.fields["caxton.run.state"] = state
        if kind:
            self.fields["error.type"] = kind

    def replayed(self, verdict: str) -> None:
        """Note what a replay found."""
        self.fields["caxton.replay.verdict"] = verdict
        self.fields["caxton.replay.diverged"] = verdict == "diverged"
        if verdict == "diverged":
            self.fields["error.type"] = verdict


def links_of(origin: Origin | None) -> list[Link]:
    """Return the link to what is followed, if its span is known."""
    if origin is None or not (origin.trace_id and origin.span_id):
        return []
    span = SpanContext(
        int(origin.trace_id, 16),
        int(origin.span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )
    return [Link(span, {"caxton.link.type": origin.kind})]
