"""
Makes the spans of a recorded run again from its log, and sends them.

They have the ids that the events name, and the times at which these were recorded.
The log does not hold the trace of a client that asked for the run: its own span has no
parent then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Self, cast

from opentelemetry import context as current
from opentelemetry.context import Context
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import NonRecordingSpan, set_span_in_context

from ..core.calls import Denied, Effect, Failed, Outcome, Route
from ..core.grants.approvals import Unapproved
from ..core.grants.freezes import Halted, frozen_in
from ..core.log.events import (
    ApprovalRequested,
    Recorded,
    RunFailed,
    RunResumed,
    RunSuspended,
    ToolInvoked,
    ToolRetried,
    outcome_of,
)
from ..core.log.runs import ENDS
from ..core.names import stream_of
from ..core.tools.webhooks import SERVER as WEBHOOK
from ..errors import Suspend
from ..ports.watch import Execution, Fields, Served
from ..runs.executor import fork_of, resolved_calls, resume_of, start_of
from .attributes import error_of, server_fields, webhook_fields
from .export import resource, with_content
from .sending import send
from .sinks import ObservedCall, ObservedRun
from .spans import OpenSpan, RunSpan, Spans, remote

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

    from ..ports.history import Streams
    from ..runs.recording import Recording


_UPSTREAM = Served()


@dataclass(frozen=True, slots=True)
class Beside:
    """
    What the spans of a run say that is not in its own events.

    Attributes:
        webhooks: The attributes of each webhook that it was offered.

        caller: The call that it answers.
    """

    webhooks: Mapping[str, Fields] = field(default_factory=dict[str, Fields])
    caller: Recorded | None = None

    @classmethod
    async def of(cls, recording: Recording, store: Streams) -> Self:
        """Return it for a run, from *store*."""
        started, webhooks, caller = recording.started, dict[str, Fields](), None
        for route in started.catalogue.values():
            if isinstance(route, dict) and route["server"] == WEBHOOK:
                definition = await store.blob(str(route["definition_sha256"]))
                webhooks[str(route["tool"])] = webhook_fields(definition)
        for one in (
            await store.read(stream_of(started.parent)) if started.parent else ()
        ):
            match one.event:
                case ToolInvoked(call=started.called_by):
                    caller = one
                case _:
                    pass
        return cls(webhooks, caller)

    @property
    def under(self) -> Context:
        """The context that the run began in."""
        if not (self.caller and self.caller.trace_id and self.caller.span_id):
            return Context()
        above = remote(self.caller.trace_id, self.caller.span_id)
        return set_span_in_context(NonRecordingSpan(above), Context())


_NOTHING = Beside()


@dataclass(slots=True)
class _Open:
    """A call that has not ended yet, its span, and that of its newest attempt."""

    call: ObservedCall
    span: OpenSpan
    attempt: OpenSpan | None = None


@dataclass(slots=True)
class _Rebuild:
    """
    Makes the spans of a recorded run again.

    Attributes:
        beside: What its own events do not say.

        now_ns: When the current event was recorded, in nanoseconds since 1970.
    """

    recording: Recording
    beside: Beside
    now_ns: int = 0
    _spans: Spans = field(init=False)
    _run: ObservedRun = field(init=False)
    _span: RunSpan = field(init=False)
    _served: Mapping[int, Served] = field(default_factory=dict[int, Served])
    _asked: dict[int, ToolInvoked | ApprovalRequested] = field(
        default_factory=dict[int, "ToolInvoked | ApprovalRequested"]
    )
    _outcomes: dict[int, Outcome] = field(default_factory=dict[int, Outcome])
    _waiting: set[int] = field(default_factory=set[int])
    _open: dict[int, _Open] = field(default_factory=dict[int, _Open])

    def clock(self) -> int:
        """Return nanoseconds since 1970, as of the recording."""
        return self.now_ns

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
        self.now_ns = first.recorded_at * 1000
        self._run = ObservedRun(self._described(before))
        under = current.attach(Context() if before else self.beside.under)
        self._span = self._spans.open_run(
            self._run.execution,
            trace_id=_id(first, first.trace_id, 16),
            span_id=_id(first, first.span_id, 8),
        )
        current.detach(under)
        for number, served in self._served.items():
            if served.by == "resolution":
                self._begin(number)
                self._settle(number, self._outcomes[number])
        last = first
        for last in events:
            self._take(last)
            if last.type in ENDS and last is not first:
                break  # other hosts recorded what follows
        self._end(last)

    def _described(self, before: Sequence[Recorded]) -> Execution:
        recording = self.recording
        if before:
            return resume_of(recording, before)
        started, run_id = recording.started, recording.run_id
        if started.forked_from is None:
            return start_of(run_id, started)
        parent = recording.lineage[-1]
        first = next(e for e in parent.events if e.stream == stream_of(parent.run_id))
        return fork_of(run_id, started.agent, started.module_sha256, first)

    def _take(self, recorded: Recorded) -> None:
        event = recorded.event
        assert event is not None  # noqa: S101 -- see `Recording.load`
        self.now_ns = recorded.recorded_at * 1000
        self._span.take(recorded.seq, [event])
        match event:
            case ToolInvoked():
                self._begin(event.call)
                fields = self._span.note(event.call).fields
                fields["caxton.event.hash"] = recorded.hash.hex()
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
            case RunSuspended():
                self._suspend(event)
            case _:
                if end := outcome_of(event):
                    self._settle(*end)

    def _suspend(self, event: RunSuspended) -> None:
        if frozen := frozen_in(event):
            for number in [*self._open]:
                self._stop(number, Halted(number, frozen))
        elif event.call is None:
            return
        elif event.reason == "approval":
            for number in sorted({event.call, *self._waiting}):
                self._stop(number, Unapproved(number))
        else:
            self._stop(event.call, Suspend(event.call, ""))

    def _begin(self, number: int) -> None:
        asked = self._asked[number]
        served = self._served.get(number, _UPSTREAM)
        call = ObservedCall(self._run, number, asked.name, None, served)
        self._open[number] = _Open(call, self._spans.open_call(self._span, call))

    def _attempt(self, number: int, attempt: int) -> None:
        asked, opened = self._asked[number], self._open[number]
        server, tool = asked.server or "", asked.tool or ""
        known = self.recording.started.servers.get(server)
        fields = self.beside.webhooks.get(tool, {}) if server == WEBHOOK else {}
        if server != WEBHOOK and isinstance(known, dict):
            fields = server_fields(known)
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
            return  # another host closed it, after a crash
        asked = self._asked[number]
        route = None
        if isinstance(asked, ToolInvoked) and asked.server and asked.tool:
            effect = cast("Effect", asked.effect)
            route = Route(server=asked.server, tool=asked.tool, effect=effect)
        self._end_attempt(number, error_of(outcome))
        self._open[number].call.settled(outcome, route)
        self._close(number)

    def _stop(self, number: int, why: BaseException) -> None:
        """End a call that nothing closed."""
        if number not in self._open:
            self._begin(number)
        self._end_attempt(number, None if isinstance(why, Halted) else "in_doubt")
        self._open[number].call.error = why
        self._close(number)

    def _close(self, number: int) -> None:
        opened = self._open.pop(number)
        self._spans.close_call(self._span, opened.span, opened.call)

    def _end(self, last: Recorded) -> None:
        """End what is open, and the span of the execution."""
        for number in [*self._open]:
            self._stop(number, Suspend(number, ""))
        kind = last.event.kind if isinstance(last.event, RunFailed) else None
        self._run.ended(ENDS.get(last.type, "running"), kind)
        self._run.stored(last.seq, last.hash)
        self._spans.close_run(self._span, self._run)


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


def send_again(
    recording: Recording,
    url: str,
    environ: Mapping[str, str],
    beside: Beside = _NOTHING,
) -> int:
    """
    Send the spans of a recorded run, and return how many they are.

    Args:
        recording: The run.

        url: The end point, in full.

        environ: Names the host, and says whether content is wanted.

        beside: What its own events do not say.

    Raises:
        CaxtonError: The receiver refused them.
    """
    made: list[ReadableSpan] = []
    again = _Rebuild(recording, beside)
    again.make(
        Spans(
            made.append,
            ALWAYS_ON,
            resource(environ),
            content=with_content(environ),
            clock=again.clock,
        )
    )
    return send(made, url)
