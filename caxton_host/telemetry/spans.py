"""
The spans of runs, calls and attempts.

The span of a call has an id that follows from the one of its run, and the span of an
attempt one that follows from its call. So an event can name its span before that
begins, and spans that are made again from the log have the ids that they had.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, Self

from opentelemetry import context as current
from opentelemetry.context import Context
from opentelemetry.sdk.trace import Event as SpanEvent
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
from ..ports.watch import Execution, Fields
from .attributes import (
    SCOPE,
    agent_fields,
    arguments,
    attempt_fields,
    attempt_name,
    call_fields,
    outcome_fields,
    raised_fields,
    result,
    route_fields,
    served_fields,
)
from .sinks import Sink

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.sampling import Sampler

    from ..ports.watch import Origin
    from .sinks import ObservedCall, ObservedRun

_W3C = TraceContextTextMapPropagator()
_RANDOM = RandomIdGenerator()
_SCOPE = InstrumentationScope(*SCOPE)
_UNSET, _FAILED = Status(StatusCode.UNSET), Status(StatusCode.ERROR)

#: Stands for a request of a client, which is no run.
_REQUEST = Execution(run_id="", agent="", mode="live", module_sha256="")

#: Under which the notes of the current call are kept in the context.
_CALL = current.create_key("caxton-call")
#: Under which baggage that is passed on is kept there.
_BAGGAGE = current.create_key("caxton-baggage")

_OF_CALL = (
    ToolInvoked,
    ToolRetried,
    ToolCompleted,
    ToolFailed,
    ToolDenied,
    ToolProgress,
)
#: Outcomes of calls whose answer came from a server.
_ANSWERED = {"ok", "tool_error", "failed"}


def derived(parent: int, number: int) -> int:
    """Return the id of the span that has that number below *parent*."""
    digest = sha256(parent.to_bytes(8, "big") + number.to_bytes(8, "big")).digest()
    return int.from_bytes(digest[:8], "big") or 1


@dataclass(slots=True)
class CallNotes:
    """
    What the recorded events of a call say of it.

    Attributes:
        fields: The fields of its span.

        at_ns: When its intent was recorded, in nanoseconds since 1970.

        rule: The rule that allowed it.

        outcome: How it ended.

        resent: Why its newest further attempt is made.
    """

    fields: Fields = field(default_factory=dict[str, "str | int | bool"])
    at_ns: int | None = None
    rule: str | None = None
    outcome: Outcome | None = None
    resent: str = ""

    def take(self, event: Event, seq: int, at_ns: int, *, content: bool) -> None:
        """Take note of an event of the call."""
        match event:
            case ToolInvoked():
                self.at_ns, self.rule = at_ns, event.rule
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
        """Return the fields of the decision about the call, if there was one."""
        if waits:
            return {"caxton.acl.verdict": "ask"}
        if self.at_ns is None:
            return None
        denied = self.outcome if isinstance(self.outcome, Denied) else None
        fields: Fields = {"caxton.acl.verdict": "deny" if denied else "allow"}
        if rule := denied.rule if denied else self.rule:
            fields["caxton.acl.rule"] = rule
        if denied:
            fields["caxton.acl.code"] = denied.code
        return fields


@dataclass(slots=True, eq=False, kw_only=True)
class OpenSpan:
    """
    A span that has begun. It is the current one for as long as this is entered.

    Attributes:
        began_ns: In nanoseconds since 1970.

        under: The context that it began in.

        within: What is below it begins in this context.

        fields: Its attributes, which are sent when it ends.
    """

    spans: Spans
    name: str
    context: SpanContext
    parent: SpanContext | None
    began_ns: int
    fields: Fields
    under: Context
    kind: SpanKind = SpanKind.INTERNAL
    links: Sequence[Link] = ()
    within: Context = field(init=False)
    _token: object = field(init=False)

    def __post_init__(self) -> None:
        self.within = set_span_in_context(NonRecordingSpan(self.context), self.under)

    def __enter__(self) -> Self:
        self._token = current.attach(self.within)
        return self

    def __exit__(
        self, _: object, exc: BaseException | None, __: object
    ) -> Literal[False]:
        self.leave()
        if exc is not None:
            self.fields.update(raised_fields(exc))
        self.end()
        return False

    def leave(self) -> None:
        """Make the span above it the current one."""
        current.detach(self._token)  # type: ignore[arg-type]

    def end(self, events: Sequence[SpanEvent] = ()) -> None:
        """End it now, and send it."""
        self.spans.send(self, events)


@dataclass(slots=True, eq=False, kw_only=True)
class RunSpan(OpenSpan):
    """The span of a run, and the notes of its calls whose spans have not ended."""

    notes: dict[int, CallNotes] = field(default_factory=dict[int, CallNotes])

    def note(self, number: int) -> CallNotes:
        """Return what is known of call *number*."""
        notes = self.notes.get(number)
        if notes is None:
            notes = self.notes[number] = CallNotes()
        return notes

    def take(self, seq: int, events: Sequence[Event]) -> list[tuple[str, str]]:
        """Take note of *events*, the first of them number *seq*; return their ids."""
        self.fields.setdefault("caxton.event.seq", seq)
        now_ns = self.spans.clock()
        trace_id = format_trace_id(self.context.trace_id)
        ids: list[tuple[str, str]] = []
        for place, event in enumerate(events, seq):
            span_id = self.context.span_id
            if isinstance(event, _OF_CALL):
                span_id = derived(span_id, event.call)
                notes = self.note(event.call)
                notes.take(event, place, now_ns, content=self.spans.content)
            ids.append((trace_id, format_span_id(span_id)))
        return ids


class Spans(Sink):
    """
    Makes spans of what is observed.

    The tracer of the SDK takes three times as long for each, for what is not needed
    here: attributes from other threads, and of other types than `Fields`.

    Args:
        take: Takes each that has ended.

        sampler: Decides of each run whether its spans are sent.

        resource: Describes the host.

        content: Parameters and results become attributes, as the log holds them.

        clock: Returns nanoseconds since 1970.
    """

    def __init__(
        self,
        take: Callable[[ReadableSpan], None],
        sampler: Sampler,
        resource: Resource,
        *,
        content: bool = False,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._take = take
        self._sampler = sampler
        self._resource = resource
        self.content = content
        self.clock = clock
        # Spans of the runs and calls that are observed now.
        self._runs: dict[ObservedRun, RunSpan] = {}
        self._calls: dict[ObservedCall, OpenSpan] = {}

    # -- as a sink -------------------------------------------------------------

    def run_began(self, run: ObservedRun) -> None:
        """Begin the span of a run, and make it the current one."""
        self._runs[run] = self.open_run(run.execution).__enter__()

    def run_ended(self, run: ObservedRun) -> None:
        """End the span of a run."""
        span = self._runs.pop(run)
        span.leave()
        self.close_run(span, run)

    def call_began(self, call: ObservedCall) -> None:
        """Begin the span of a call, and make it the current one."""
        self._calls[call] = self.open_call(self._runs[call.run], call).__enter__()

    def call_ended(self, call: ObservedCall) -> None:
        """End the span of a call."""
        run, span = self._runs[call.run], self._calls.pop(call)
        span.leave()
        self.close_call(run, span, call)
        run.notes.pop(call.number, None)

    def recorded(
        self, run: ObservedRun, seq: int, events: Sequence[Event]
    ) -> list[tuple[str, str]]:
        """Take note of events of a run; return trace and span id of each, in hex."""
        return self._runs[run].take(seq, events)

    # -- spans of runs and calls -----------------------------------------------

    def open_run(
        self, execution: Execution, *, trace_id: int = 0, span_id: int = 0
    ) -> RunSpan:
        """
        Begin the span of a run.

        Args:
            execution: Of the run.

            trace_id: Its trace, if it is known and no caller has one.

            span_id: Its own id, if it is known.
        """
        under, name = current.get_current(), f"invoke_agent {execution.agent}"
        if baggage := execution.asked.get("baggage"):
            under = current.set_value(_BAGGAGE, baggage, under)
        asked = _asked(execution, under)
        above = get_current_span(asked).get_span_context()
        parent = above if above.is_valid else None
        flags = TraceFlags.DEFAULT if trace_id else TraceFlags.RANDOM_TRACE_ID
        if parent:
            trace_id = parent.trace_id
            flags = parent.trace_flags & TraceFlags.RANDOM_TRACE_ID
        trace_id = trace_id or _RANDOM.generate_trace_id()
        links = _links(execution.origin)
        calling = get_current_span(under).get_span_context()
        if links and execution.caller and calling.is_valid:
            links.append(Link(calling, {"caxton.link.type": "called_by"}))
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
        return RunSpan(
            spans=self,
            name=name,
            context=context,
            parent=parent,
            began_ns=self.clock(),
            fields=agent_fields(execution),
            under=under,
            links=links,
        )

    def open_served(self, fields: Fields, asked: Mapping[str, str]) -> OpenSpan:
        """Begin the span of a request of an MCP client: sampled as that of a run."""
        span = self.open_run(replace(_REQUEST, asked=asked))
        span.kind, span.fields = SpanKind.SERVER, fields
        return span

    @staticmethod
    def close_run(span: RunSpan, run: ObservedRun) -> None:
        """End the span of a run, and send what is known of it."""
        if run.head:
            seq, digest = run.head
            span.fields["caxton.log.seq"] = seq
            span.fields["caxton.log.head"] = digest.hex()
        if run.state:
            span.fields["caxton.run.state"] = run.state
        if run.kind:
            span.fields["error.type"] = run.kind
        if run.verdict:
            diverged = run.verdict == "diverged"
            span.fields["caxton.replay.verdict"] = run.verdict
            span.fields["caxton.replay.diverged"] = diverged
            if diverged:
                span.fields["error.type"] = run.verdict
        if run.error is not None:
            span.fields.update(raised_fields(run.error))
        span.end()

    def open_call(self, run: RunSpan, call: ObservedCall) -> OpenSpan:
        """Begin the span of a call, as of when its intent was recorded, or now."""
        notes = run.note(call.number)
        notes.fields.update(call_fields(call.run.execution, call.number, call.name))
        return OpenSpan(
            spans=self,
            name=f"execute_tool {call.name}",
            context=_below(run.context, call.number),
            parent=run.context,
            began_ns=self.clock() if notes.at_ns is None else notes.at_ns,
            fields=notes.fields,
            under=current.set_value(_CALL, notes, run.within),
            links=_links(call.served.origin),
        )

    @staticmethod
    def close_call(run: RunSpan, span: OpenSpan, call: ObservedCall) -> None:
        """End the span of a call, with the decision as an event of it."""
        notes, fields = run.note(call.number), span.fields
        if call.outcome:
            fields.update(outcome_fields(call.outcome, call.route))
        if call.head and fields.get("caxton.event.seq") == call.head[0]:
            fields["caxton.event.hash"] = call.head[1].hex()
        if call.error is not None:
            fields.update(raised_fields(call.error))
        if notes.outcome:  # recorded, whatever was raised afterwards
            fields.update(outcome_fields(notes.outcome))
        elif notes.at_ns is not None:
            fields.setdefault("caxton.call.outcome", "in_doubt")
        outcome = fields.get("caxton.call.outcome")
        if call.served.by != "upstream" or outcome in _ANSWERED:
            fields.update(served_fields(call.served))
        events: list[SpanEvent] = []
        if decision := notes.decision(waits=outcome == "waits"):
            at_ns = notes.at_ns or span.began_ns
            events = [SpanEvent("caxton.acl.decision", decision, at_ns)]
        span.end(events)

    def attempt(
        self,
        server: str,
        tool: str,
        number: int,
        known: Fields,
        within: Context | None = None,
    ) -> OpenSpan:
        """
        Begin the span of an attempt to call a tool.

        Args:
            server: Where it is.

            tool: The server's name for it.

            number: 1 for the first attempt.

            known: Fields of the server.

            within: That of the call, if that is not the current one.
        """
        under = current.get_current() if within is None else within
        call = get_current_span(under).get_span_context()
        fields = attempt_fields(server, tool, number) | known
        notes = current.get_value(_CALL, under)
        if isinstance(notes, CallNotes) and notes.resent:
            fields["caxton.call.retry_reason"] = notes.resent
        return OpenSpan(
            spans=self,
            name=attempt_name(fields),
            context=_below(call, number),
            parent=call,
            began_ns=self.clock(),
            fields=fields,
            under=under,
            kind=SpanKind.CLIENT,
        )

    @staticmethod
    def close_served(span: OpenSpan) -> None:
        """End the span of a request, which is known by now."""
        span.name = attempt_name(span.fields)
        span.end()

    def send(self, span: OpenSpan, events: Sequence[SpanEvent]) -> None:
        """Send a span that ends now, if its run is sampled."""
        if not span.context.trace_flags.sampled:
            return
        self._take(
            ReadableSpan(
                name=span.name,
                context=span.context,
                parent=span.parent,
                resource=self._resource,
                attributes=span.fields,
                events=events,
                links=span.links,
                kind=span.kind,
                status=_FAILED if "error.type" in span.fields else _UNSET,
                start_time=span.began_ns,
                end_time=self.clock(),
                instrumentation_scope=_SCOPE,
            )
        )

    # -- the current span ------------------------------------------------------

    @staticmethod
    def ids() -> tuple[str | None, str | None]:
        """Return trace and span id of the current span, in hex."""
        known = get_current_span().get_span_context()
        if not known.is_valid:
            return None, None
        return format_trace_id(known.trace_id), format_span_id(known.span_id)

    @staticmethod
    def headers(within: Context | None = None) -> dict[str, str]:
        """Return the W3C trace context of the current span, and allowed baggage."""
        carrier: dict[str, str] = {}
        _W3C.inject(carrier, within)
        if baggage := current.get_value(_BAGGAGE, within):
            carrier["baggage"] = str(baggage)
        return carrier


def _below(parent: SpanContext, number: int) -> SpanContext:
    """Return the context of the span that has that number below *parent*."""
    return SpanContext(
        parent.trace_id,
        derived(parent.span_id, number),
        is_remote=False,
        trace_flags=parent.trace_flags,
        trace_state=parent.trace_state,
    )


def _asked(execution: Execution, under: Context) -> Context:
    """Return the context above a run's span: a continued run has its own trace."""
    if execution.origin is not None:
        return Context()
    return _W3C.extract(execution.asked, under) if execution.asked else under


def remote(trace_id: str, span_id: str) -> SpanContext:
    """Return the context of a span that was recorded."""
    return SpanContext(
        int(trace_id, 16),
        int(span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )


def _links(origin: Origin | None) -> list[Link]:
    """Return the link to what is followed, if its span is known."""
    if origin is None or not (origin.trace_id and origin.span_id):
        return []
    span = remote(origin.trace_id, origin.span_id)
    return [Link(span, {"caxton.link.type": origin.kind})]
