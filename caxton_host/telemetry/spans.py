"""The spans of a host, and the wrapper around a tool client that makes some."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
    Generator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ..core.approvals import Unapproved
from ..core.calls import Completed, Denied, Outcome, Route, ToolCall
from ..core.catalogue import Offered
from ..core.contexts import ServerResource
from ..errors import ToolError
from ..ports import RunScope, ToolClient, ToolRequest, ToolService

if TYPE_CHECKING:
    from opentelemetry.metrics import Counter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span as OtelSpan
    from opentelemetry.trace import Tracer

__all__ = ["OtelTelemetry", "TracedTools"]

_FLUSH = 0.8  # seconds; a run ends at most a second later when nobody listens


@dataclass(frozen=True, slots=True)
class _Watched:
    """A span, in the words of `ports.Span`."""

    span: OtelSpan

    def settled(self, outcome: Outcome, route: Route | None) -> None:
        """Note how a call ended."""
        how, error = _how(outcome)
        self.span.set_attribute("caxton.call.outcome", how)
        if route:
            self.span.set_attribute("caxton.server.name", route.server)
            self.span.set_attribute("caxton.tool.name", route.tool)
            self.span.set_attribute("caxton.call.effect", route.effect)
        self.fail(error)

    def ended(self, state: str, kind: str | None) -> None:
        """Note how a run ended."""
        self.span.set_attribute("caxton.run.state", state)
        self.fail(kind)

    def fail(self, error: str | None) -> None:
        """Note an error, if there was one, by its name alone."""
        from opentelemetry.trace import StatusCode

        if error:
            self.span.set_attribute("error.type", error)
            self.span.set_status(StatusCode.ERROR)


def _how(outcome: Outcome) -> tuple[str, str | None]:
    if isinstance(outcome, Completed):
        return ("tool_error", "tool_error") if outcome.is_error else ("ok", None)
    if isinstance(outcome, Denied):
        return "denied", outcome.code
    return "failed", outcome.kind


def _reason(exc: BaseException) -> str:
    if isinstance(exc, ToolError):
        return exc.kind
    stopped = isinstance(exc, asyncio.CancelledError)
    return "cancelled" if stopped else type(exc).__name__


class OtelTelemetry:
    """
    Writes spans to a tracer.

    Args:
        provider: Makes the tracer, and is flushed when this is closed.

        exporter: What may keep the flush waiting, to be cut short.

        lost: Called when spans could not be sent.

        metered: Makes the meters, when there is something to count.
    """

    def __init__(
        self,
        provider: TracerProvider,
        exporter: SpanExporter,
        lost: Callable[[], None],
        metered: Callable[[], MeterProvider],
    ) -> None:
        self._provider = provider
        self._exporter = exporter
        self._lost = lost
        self._metered = metered
        self._meters: MeterProvider | None = None
        self._failures: Counter | None = None
        self._tracer: Tracer = provider.get_tracer("caxton_host")

    @contextlib.contextmanager
    def run(
        self, agent: str, run_id: str, mode: Literal["live", "resume", "replay"]
    ) -> Generator[_Watched]:
        """Watch a run from its first event to its last."""
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": "caxton",
            "gen_ai.agent.name": agent,
            "gen_ai.conversation.id": run_id,
            "caxton.run.id": run_id,
            "caxton.run.mode": mode,
        }
        with self._span(f"invoke_agent {agent}", attributes) as span:
            yield span

    @contextlib.contextmanager
    def call(self, call: ToolCall, run_id: str) -> Generator[_Watched]:
        """Watch one call of a run."""
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.type": "extension",
            "gen_ai.tool.call.id": f"{run_id}:{call.number}",
        }
        with self._span(f"execute_tool {call.name}", attributes) as span:
            yield span

    def ids(self) -> tuple[str | None, str | None]:
        """Return trace and span id of the current span."""
        from opentelemetry.trace import (
            format_span_id,
            format_trace_id,
            get_current_span,
        )

        context = get_current_span().get_span_context()
        if not context.is_valid:
            return None, None
        return format_trace_id(context.trace_id), format_span_id(context.span_id)

    def headers(self) -> dict[str, str]:
        """Return the W3C trace context of the current span."""
        from opentelemetry.trace.propagation.tracecontext import (
            TraceContextTextMapPropagator,
        )

        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier)
        return carrier

    @contextlib.contextmanager
    def attempt(self, request: ToolRequest) -> Generator[_Watched]:
        """Watch one attempt to reach a server."""
        attributes: dict[str, str | int] = {
            "mcp.method.name": "tools/call",
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": request.tool,
            "caxton.server.name": request.server,
            "caxton.call.attempt": request.attempt,
        }
        with self._span(f"tools/call {request.tool}", attributes, client=True) as span:
            yield span

    @contextlib.contextmanager
    def _span(
        self, name: str, attributes: Mapping[str, str | int], *, client: bool = False
    ) -> Generator[_Watched]:
        from opentelemetry.trace import SpanKind

        with self._tracer.start_as_current_span(
            name,
            kind=SpanKind.CLIENT if client else SpanKind.INTERNAL,
            attributes=attributes,
            record_exception=False,  # its text may quote parameters
            set_status_on_exception=False,
        ) as span:
            watched = _Watched(span)
            try:
                yield watched
            except Unapproved:
                span.set_attribute("caxton.call.outcome", "waits")
                raise
            except BaseException as exc:
                watched.fail(_reason(exc))
                raise

    def anchor_failed(self) -> None:
        """Count a try to anchor a checkpoint that failed."""
        if self._failures is None:
            self._meters = self._metered()
            self._failures = self._meters.get_meter("caxton_host").create_counter(
                "caxton.anchor.failures", "{try}", "Tries to anchor a checkpoint"
            )
        self._failures.add(1)

    def _shut_down(self) -> None:
        self._provider.shutdown()
        if self._meters:
            self._meters.shutdown()

    def close(self) -> None:
        """Send what is left, for at most a second."""
        flush = threading.Thread(target=self._shut_down, daemon=True)
        flush.start()
        flush.join(_FLUSH)
        if flush.is_alive():
            self._exporter.shutdown()  # ends the wait between two attempts
            flush.join(_FLUSH / 8)
        if flush.is_alive():  # within an attempt, which nothing can end
            self._lost()


@dataclass(frozen=True, slots=True)
class _Traced:
    tools: ToolClient
    telemetry: OtelTelemetry

    async def offered(self, servers: Collection[str]) -> Offered:
        """Return what the servers offer."""
        return await self.tools.offered(servers)

    async def resources(
        self, servers: Collection[str], scope: RunScope
    ) -> Sequence[ServerResource]:
        """Read the resources of *servers*."""
        return await self.tools.resources(servers, scope)

    async def call_tool(self, request: ToolRequest) -> Completed:
        """Send *request*, watched."""
        with self.telemetry.attempt(request) as span:
            done = await self.tools.call_tool(request)
            if done.is_error:
                span.fail("tool_error")
            return done


@dataclass(frozen=True, slots=True)
class TracedTools(_Traced):
    """A tool client whose every attempt is a CLIENT span."""

    tools: ToolService

    @contextlib.asynccontextmanager
    async def open(self, scope: RunScope) -> AsyncGenerator[ToolClient]:
        """Return the tools of one run, watched as well."""
        async with self.tools.open(scope) as tools:
            yield _Traced(tools, self.telemetry)
