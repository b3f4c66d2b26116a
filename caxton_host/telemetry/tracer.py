"""The spans of runs, calls and attempts, while they are driven."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

from opentelemetry import context as current
from opentelemetry.context import Context
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import (
    Link,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    format_span_id,
    format_trace_id,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ..ports import Served
from .attributes import (
    Fields,
    agent_fields,
    attempt_fields,
    call_fields,
    outcome_fields,
    raised_fields,
    served_fields,
)
from .notes import CallNotes, RunNotes, derived

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from opentelemetry.trace import Span, Tracer

    from ..core.calls import Outcome, Route, ToolCall
    from ..core.events import Event
    from ..ports import Execution, Origin

__all__ = ["Ids", "Spans", "Watched", "WatchedCall", "WatchedRun"]

#: Under which the notes of the call that is watched are kept in the current context.
_CALL = current.create_key("caxton-call")

_W3C = TraceContextTextMapPropagator()
_SERVED = Served()
_ANSWERED = {"ok", "tool_error", "failed"}

#: Returns nanoseconds since 1970.
Clock: TypeAlias = Callable[[], int]


class Ids(RandomIdGenerator):
    """Gives a span the id that was chosen for it, or else a random one."""

    span = 0
    trace = 0

    def generate_span_id(self) -> int:
        """Return the id of the next span."""
        chosen, self.span = self.span, 0
        return chosen or super().generate_span_id()

    def generate_trace_id(self) -> int:
        """Return the id of the next trace."""
        chosen, self.trace = self.trace, 0
        return chosen or super().generate_trace_id()


class Watched:
    """
    A span that is current for as long as this is entered.

    Attributes:
        fields: What is said of it when it ends.

        within: What is below it begins in this context.
    """

    def __init__(
        self, span: Span, fields: Fields, under: Context, clock: Clock
    ) -> None:
        self.span = span
        self.fields = fields
        self.within = set_span_in_context(span, under)
        self._clock = clock

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
        self.span.set_attributes(self.fields)
        if "error.type" in self.fields:
            self.span.set_status(StatusCode.ERROR)
        self.span.end(self._clock())


class WatchedCall(Watched):
    """The span of a call. See `ports.Span`."""

    def __init__(
        self,
        span: Span,
        notes: CallNotes,
        served: Served,
        under: Context,
        clock: Clock,
    ) -> None:
        under = current.set_value(_CALL, notes, under)
        super().__init__(span, notes.fields, under, clock)
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
            self.span.add_event("caxton.acl.decision", decision, self._notes.at)
        super().end()


class WatchedRun(Watched):
    """The span of a run. See `ports.RunSpan`."""

    def __init__(
        self, spans: Spans, span: Span, execution: Execution, under: Context
    ) -> None:
        known = span.get_span_context()
        self.notes = RunNotes(
            format_trace_id(known.trace_id),
            known.span_id,
            clock=spans.clock,
            content=spans.content,
        )
        super().__init__(span, self.notes.fields, under, spans.clock)
        self._spans = spans
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
        span = self._spans.start(
            f"execute_tool {name}",
            self.within,
            call_fields(self._execution, number, name),
            span_id=derived(self.notes.span_id, number),
            links=_links(served.origin),
            at=notes.at,
        )
        return WatchedCall(span, notes, served, self.within, self._clock)

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


class Spans:
    """
    Makes spans.

    Args:
        tracer: Of the host.

        ids: Where that gets its ids from.

        content: Parameters and results are said, as the log holds them.

        clock: Returns nanoseconds since 1970.
    """

    def __init__(
        self,
        tracer: Tracer,
        ids: Ids,
        *,
        content: bool = False,
        clock: Clock = time.time_ns,
    ) -> None:
        self._tracer = tracer
        self._ids = ids
        self.content = content
        self.clock = clock

    def run(self, execution: Execution) -> WatchedRun:
        """Begin the span of a run."""
        under = current.get_current()
        span = self.start(
            f"invoke_agent {execution.agent}",
            _asked(execution, under),
            agent_fields(execution),
            links=_links(execution.origin),
        )
        return WatchedRun(self, span, execution, under)

    def attempt(
        self,
        server: str,
        tool: str,
        number: int,
        known: Fields,
        within: Context | None = None,
    ) -> Watched:
        """
        Begin the span of an attempt to call a tool.

        Args:
            server: Where it is.

            tool: The server's name for it.

            number: 1 for the first attempt.

            known: What is said of the server.

            within: That of the call, if that is not the current one.
        """
        under = current.get_current() if within is None else within
        call = get_current_span(under).get_span_context().span_id
        fields = attempt_fields(server, tool, number) | known
        notes = current.get_value(_CALL, under)
        if isinstance(notes, CallNotes) and notes.resent:
            fields["caxton.call.retry_reason"] = notes.resent
        span = self.start(
            f"tools/call {tool}",
            under,
            fields,
            span_id=derived(call, number),
            kind=SpanKind.CLIENT,
        )
        return Watched(span, {}, under, self.clock)

    def start(  # noqa: PLR0913 -- as of a tracer
        self,
        name: str,
        under: Context,
        fields: Fields,
        *,
        span_id: int = 0,
        kind: SpanKind = SpanKind.INTERNAL,
        links: Sequence[Link] = (),
        at: int | None = None,
    ) -> Span:
        """Start a span, with that id if one is given."""
        self._ids.span = span_id or self._ids.span
        at = self.clock() if at is None else at
        return self._tracer.start_span(
            name, under, kind, attributes=fields, links=links, start_time=at
        )

    def ids(self) -> tuple[str | None, str | None]:
        """Return trace and span id of the current span, in hex."""
        known = get_current_span().get_span_context()
        if not known.is_valid:
            return None, None
        return format_trace_id(known.trace_id), format_span_id(known.span_id)

    def headers(self) -> dict[str, str]:
        """Return the W3C trace context of the current span; never its baggage."""
        carrier: dict[str, str] = {}
        _W3C.inject(carrier)
        return carrier


def _asked(execution: Execution, under: Context) -> Context:
    """Return where the span of a run is below: what goes on is a trace of its own."""
    if execution.origin is not None:
        return Context()
    return _W3C.extract(execution.asked, under) if execution.asked else under


def _links(origin: Origin | None) -> list[Link]:
    if origin is None or not (origin.trace_id and origin.span_id):
        return []
    span = SpanContext(
        int(origin.trace_id, 16),
        int(origin.span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )
    return [Link(span, {"caxton.link.type": origin.kind})]
