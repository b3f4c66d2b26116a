"""
OpenTelemetry spans of runs and calls, as wrappers around the ports, and a metric.

    invoke_agent weather                INTERNAL
      execute_tool weather              INTERNAL, one a call, denied ones too
        tools/call get_weather          CLIENT, one an attempt; none in a replay

Names follow the conventions for generative AI and for MCP
(https://github.com/open-telemetry/semantic-conventions-genai); what they do not
know is under ``caxton.``. Parameters and results are never put on a span: the
event log has them. The only owner of opentelemetry, which is imported when an end
point is set.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
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
from functools import partial
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from .core.approvals import Unapproved
from .core.calls import Completed, Denied, Outcome, Route, ToolCall
from .core.catalogue import Offered
from .core.contexts import ServerResource
from .errors import ToolError
from .ports import RunScope, ToolClient, ToolRequest, ToolService

if TYPE_CHECKING:
    from opentelemetry.metrics import Counter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
    from opentelemetry.trace import Span as OtelSpan
    from opentelemetry.trace import Tracer

__all__ = ["NoTelemetry", "OtelTelemetry", "TracedTools", "connect"]

_FLUSH = 0.8  # seconds; a run ends at most a second later when nobody listens

logger = logging.getLogger("caxton_host")


class NoTelemetry:
    """Watches nothing."""

    @contextlib.contextmanager
    def run(
        self, agent: str, run_id: str, mode: Literal["live", "resume", "replay"]
    ) -> Generator[NoTelemetry]:
        """Watch nothing of a run."""
        del agent, run_id, mode
        yield self

    def call(
        self, call: ToolCall, run_id: str
    ) -> contextlib.AbstractContextManager[NoTelemetry]:
        """Watch nothing of a call."""
        del call, run_id
        return contextlib.nullcontext(self)

    def ids(self) -> tuple[str | None, str | None]:
        """Return no trace."""
        return None, None

    def settled(self, outcome: Outcome, route: Route | None) -> None:
        """Note nothing."""

    def ended(self, state: str, kind: str | None) -> None:
        """Note nothing."""

    def headers(self) -> dict[str, str]:
        """Return no trace context."""
        return {}

    def anchor_failed(self) -> None:
        """Count nothing."""

    def close(self) -> None:
        """Do nothing."""


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


def connect(
    endpoint: str | None, environ: Mapping[str, str]
) -> OtelTelemetry | NoTelemetry:
    """
    Return telemetry that sends to an OTLP end point, if there is one.

    Args:
        endpoint: The base URL, such as ``http://localhost:4318``; by default
            what ``OTEL_EXPORTER_OTLP_ENDPOINT`` or its variants for traces and
            metrics say.

        environ: Where to look for it.
    """
    url = _url("traces", endpoint, environ)
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or not url:
        return NoTelemetry()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
        OTLPSpanExporter,
    )
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    name = environ.get("OTEL_SERVICE_NAME", "caxton_host")
    resource = Resource.create({"service.name": name})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    # The exporter's own reports come once a batch and as tracebacks; ours once.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    exporter = OTLPSpanExporter(endpoint=url)
    lost = _once(f"telemetry: {_host(url)} does not take spans; they are lost")
    provider.add_span_processor(BatchSpanProcessor(_reporting(exporter, lost)))
    metered = partial(_meters, _url("metrics", endpoint, environ), resource)
    return OtelTelemetry(provider, exporter, lost, metered)


def _url(signal: str, endpoint: str | None, environ: Mapping[str, str]) -> str:
    own = environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
    base = endpoint or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    if own and not endpoint:
        return own
    return f"{base.rstrip('/')}/v1/{signal}" if base else ""


def _meters(url: str, resource: Resource) -> MeterProvider:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import (
        OTLPMetricExporter,
    )
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    exporters = [OTLPMetricExporter(endpoint=url)] if url else []
    readers = [PeriodicExportingMetricReader(exporter) for exporter in exporters]
    return MeterProvider(readers, resource, shutdown_on_exit=False)


def _host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]


def _once(warning: str) -> Callable[[], None]:
    """Return what logs *warning* when it is first called, from any thread."""
    first = threading.Lock()

    def warn() -> None:
        if first.acquire(blocking=False):
            logger.warning(warning)

    return warn


def _reporting(exporter: SpanExporter, lost: Callable[[], None]) -> SpanExporter:
    """Return *exporter*, calling *lost* when it fails."""
    send = exporter.export

    def export(spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = send(spans)
        if result.name != "SUCCESS":
            lost()
        return result

    exporter.export = export  # type: ignore[method-assign]  # of this one only
    return exporter
