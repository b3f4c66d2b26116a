"""Begins the spans of runs, calls and attempts, and sends them when they end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from opentelemetry import context as current
from opentelemetry.context import Context
from opentelemetry.sdk.trace import Event as Marked
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    format_span_id,
    format_trace_id,
    get_current_span,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from .attributes import Fields, attempt_fields
from .notes import CallNotes, derived
from .open_spans import CALL, Begun, Watched, WatchedRun, links_of

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.sampling import Sampler

    from ..ports import Execution


_W3C = TraceContextTextMapPropagator()
_RANDOM = RandomIdGenerator()
_SCOPE = InstrumentationScope("caxton_host")
_UNSET, _FAILED = Status(StatusCode.UNSET), Status(StatusCode.ERROR)


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
        links = links_of(execution.origin)
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
        begun = Begun(name, context, parent, SpanKind.INTERNAL, links, self.clock())
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
        notes = current.get_value(CALL, under)
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
    ) -> Begun:
        """Begin a span below *parent*."""
        context = SpanContext(
            parent.trace_id,
            span_id,
            is_remote=False,
            trace_flags=parent.trace_flags,
            trace_state=parent.trace_state,
        )
        at = self.clock() if at is None else at
        return Begun(name, context, parent, kind, links, at)

    def send(self, begun: Begun, fields: Fields, events: Sequence[Marked]) -> None:
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
