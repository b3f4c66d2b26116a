"""The spans of runs, calls and attempts, while they are driven."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

from opentelemetry import context as current
from opentelemetry.context import Context
from opentelemetry.sdk.trace import Event as Marked
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
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
    from collections.abc import Generator

    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.sampling import Sampler

    from ..core.calls import Outcome, Route, ToolCall
    from ..core.events import Event
    from ..ports import Execution, Origin

__all__ = ["Spans", "Watched", "WatchedCall", "WatchedRun"]

#: Under which the notes of the call that is watched are kept in the current context.
_CALL = current.create_key("caxton-call")

_W3C = TraceContextTextMapPropagator()
_SERVED = Served()
_ANSWERED = {"ok", "tool_error", "failed"}
_RANDOM = RandomIdGenerator()
_SCOPE = InstrumentationScope("caxton_host")
_UNSET, _FAILED = Status(StatusCode.UNSET), Status(StatusCode.ERROR)


@dataclass(frozen=True, slots=True)
class _Begun:
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
        self, spans: Spans, begun: _Begun, fields: Fields, under: Context
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
        begun: _Begun,
        notes: CallNotes,
        served: Served,
        under: Context,
    ) -> None:
        under = current.set_value(_CALL, notes, under)
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
        self, spans: Spans, begun: _Begun, execution: Execution, under: Context
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
            links=_links(served.origin),
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


class Spans:
    """
    Makes spans.

    The tracer of the SDK takes three times as long for each, for what is not needed
    here: attributes from other threads, and of other types than `Fields`.

    Args:
        sink: Takes each that has ended.

        sampler: Says of a run whether anything of it is sent.

        resource: What is said of the host.

        content: Parameters and results are said, as the log holds them.

        clock: Returns nanoseconds since 1970.
    """

    def __init__(
        self,
        sink: Callable[[ReadableSpan], None],
        sampler: Sampler,
        resource: Resource,
        *,
        content: bool = False,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._sink = sink
        self._sampler = sampler
        self._resource = resource
        self.content = content
        self.clock = clock

    def run(
        self, execution: Execution, *, trace_id: int = 0, span_id: int = 0
    ) -> WatchedRun:
        """
        Begin the span of a run.

        Args:
            execution: Of the run.

            trace_id: Its trace, if it is to be that and nobody asked for it.

            span_id: Its own id, if it is to be that.
        """
        under, name = current.get_current(), f"invoke_agent {execution.agent}"
        asked = _asked(execution, under)
        above = get_current_span(asked).get_span_context()
        parent = above if above.is_valid else None
        flags = TraceFlags.DEFAULT if trace_id else TraceFlags.RANDOM_TRACE_ID
        if parent:
            trace_id = parent.trace_id
            flags = parent.trace_flags & TraceFlags.RANDOM_TRACE_ID
        trace_id = trace_id or _RANDOM.generate_trace_id()
        links = _links(execution.origin)
        found = self._sampler.should_sample(asked, trace_id, name, links=links)
        if found.decision is Decision.RECORD_AND_SAMPLE:
            flags |= TraceFlags.SAMPLED
        context = SpanContext(
            trace_id,
            span_id or _RANDOM.generate_span_id(),
            is_remote=False,
            trace_flags=TraceFlags(flags),
            trace_state=found.trace_state,
        )
        begun = _Begun(name, context, parent, SpanKind.INTERNAL, links, self.clock())
        return WatchedRun(self, begun, execution, under)

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
        call = get_current_span(under).get_span_context()
        fields = attempt_fields(server, tool, number) | known
        notes = current.get_value(_CALL, under)
        if isinstance(notes, CallNotes) and notes.resent:
            fields["caxton.call.retry_reason"] = notes.resent
        begun = self.begin(
            f"tools/call {tool}",
            call,
            derived(call.span_id, number),
            kind=SpanKind.CLIENT,
        )
        return Watched(self, begun, fields, under)

    def begin(  # noqa: PLR0913 -- as of a tracer
        self,
        name: str,
        parent: SpanContext,
        span_id: int,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        links: Sequence[Link] = (),
        at: int | None = None,
    ) -> _Begun:
        """Begin a span below *parent*."""
        context = SpanContext(
            parent.trace_id,
            span_id,
            is_remote=False,
            trace_flags=parent.trace_flags,
            trace_state=parent.trace_state,
        )
        at = self.clock() if at is None else at
        return _Begun(name, context, parent, kind, links, at)

    def send(self, begun: _Begun, fields: Fields, events: Sequence[Marked]) -> None:
        """Send a span that ends now."""
        if not begun.context.trace_flags.sampled:
            return
        self._sink(
            ReadableSpan(
                name=begun.name,
                context=begun.context,
                parent=begun.parent,
                resource=self._resource,
                attributes=fields,
                events=events,
                links=begun.links,
                kind=begun.kind,
                status=_FAILED if "error.type" in fields else _UNSET,
                start_time=begun.at,
                end_time=self.clock(),
                instrumentation_scope=_SCOPE,
            )
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
