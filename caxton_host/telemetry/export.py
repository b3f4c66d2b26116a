"""Where spans and metrics are sent to."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from .none import NoTelemetry
from .spans import OtelTelemetry

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

__all__ = ["connect"]

_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_ON_SPANS = {"SPAN_ONLY", "SPAN_AND_EVENT"}

logger = logging.getLogger("caxton_host")


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

    from .tracer import Ids, Spans

    name = environ.get("OTEL_SERVICE_NAME", "caxton_host")
    resource = Resource.create({"service.name": name})
    ids = Ids()
    provider = TracerProvider(
        resource=resource, shutdown_on_exit=False, id_generator=ids
    )
    # The exporter's own reports come once a batch and as tracebacks; ours once.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    exporter = OTLPSpanExporter(endpoint=url)
    lost = _once(f"telemetry: {_host(url)} does not take spans; they are lost")
    provider.add_span_processor(BatchSpanProcessor(_reporting(exporter, lost)))
    metered = partial(_meters, _url("metrics", endpoint, environ), resource)
    tracer = provider.get_tracer("caxton_host")
    spans = Spans(tracer, ids, content=environ.get(_CONTENT) in _ON_SPANS)
    return OtelTelemetry(spans, provider, exporter, lost, metered)


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
