"""Where spans are sent to."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from .ending import nothing
from .none import NoTelemetry
from .receivers import address, hushed, reporting, resource
from .spans import OtelTelemetry

__all__ = ["connect"]

_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_ON_SPANS = {"SPAN_ONLY", "SPAN_AND_EVENT"}

logger = logging.getLogger("caxton_host")


def connect(
    endpoint: str | None,
    environ: Mapping[str, str],
    on_lost: Callable[[], None] = nothing,
) -> OtelTelemetry | NoTelemetry:
    """
    Return telemetry that sends to an OTLP end point, if there is one.

    Args:
        endpoint: The base URL, such as ``http://localhost:4318``; by default
            what ``OTEL_EXPORTER_OTLP_ENDPOINT`` or its variant for traces says.

        environ: Where to look for it.

        on_lost: Called for each batch of spans that is not taken.
    """
    url = address("traces", endpoint, environ)
    if not url:
        return NoTelemetry()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
        OTLPSpanExporter,
    )
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from .tracer import Ids, Spans

    ids = Ids()
    provider = TracerProvider(
        resource=resource(environ), shutdown_on_exit=False, id_generator=ids
    )
    hushed()
    exporter = OTLPSpanExporter(endpoint=url)
    warn = _once(f"telemetry: {_host(url)} does not take spans; they are lost")

    def lost() -> None:
        on_lost()
        warn()

    reporting(exporter, lost)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = provider.get_tracer("caxton_host")
    spans = Spans(tracer, ids, content=environ.get(_CONTENT) in _ON_SPANS)
    return OtelTelemetry(spans, provider, exporter, warn)


def _host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]


def _once(warning: str) -> Callable[[], None]:
    """Return what logs *warning* when it is first called, from any thread."""
    first = threading.Lock()

    def warn() -> None:
        if first.acquire(blocking=False):
            logger.warning(warning)

    return warn
