"""Where spans, metrics and logs are sent to."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from .ending import nothing
from .null import NoTelemetry
from .spans import OtelTelemetry

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource


logger = logging.getLogger("caxton_host")


def connect(
    endpoint: str | None,
    environ: Mapping[str, str],
    on_lost: Callable[[], None] = nothing,
) -> OtelTelemetry | NoTelemetry:
    """
    Return telemetry that sends spans to an OTLP end point, if there is one.

    Args:
        endpoint: The base URL, such as ``http://localhost:4318``; by default
            what ``OTEL_EXPORTER_OTLP_ENDPOINT`` or its variant for traces says.

        environ: Where to look for it.

        on_lost: Called for each batch of spans that is not taken.
    """
    url = wanted("traces", endpoint, environ)
    if not url:
        return NoTelemetry()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
        OTLPSpanExporter,
    )
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from .tracer import Spans

    own = resource(environ)
    provider = TracerProvider(resource=own, shutdown_on_exit=False)
    hushed()
    exporter = OTLPSpanExporter(endpoint=url)
    warn = _once(f"telemetry: {host(url)} does not take spans; they are lost")

    def lost() -> None:
        on_lost()
        warn()

    reporting(exporter, lost)
    batches = BatchSpanProcessor(exporter)
    provider.add_span_processor(batches)
    content = with_content(environ)
    spans = Spans(batches.on_end, provider.sampler, own, content=content)
    return OtelTelemetry(spans, provider, exporter, warn)


def wanted(signal: str, endpoint: str | None, environ: Mapping[str, str]) -> str:
    """Return where a signal goes, unless telemetry was turned off."""
    off = environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    return "" if off else address(signal, endpoint, environ)


def address(signal: str, endpoint: str | None, environ: Mapping[str, str]) -> str:
    """Return where a signal goes, or ``""``: nowhere."""
    own = environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
    base = endpoint or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    if own and not endpoint:
        return own
    return f"{base.rstrip('/')}/v1/{signal}" if base else ""


def resource(environ: Mapping[str, str]) -> Resource:
    """Return what all signals of a host say of it."""
    from opentelemetry.sdk.resources import Resource

    name = environ.get("OTEL_SERVICE_NAME", "caxton_host")
    return Resource.create({"service.name": name})


def with_content(environ: Mapping[str, str]) -> bool:
    """Return whether parameters and results are wanted on spans."""
    said = environ.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT")
    return said in {"SPAN_ONLY", "SPAN_AND_EVENT"}


def hushed() -> None:
    """Have the vendor say nothing: it would once a batch, and with tracebacks."""
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)


def host(url: str) -> str:
    """Return how to name where *url* leads, without credentials."""
    return urlsplit(url).netloc.rpartition("@")[2] or "an address that is no URL"


def _once(warning: str) -> Callable[[], None]:
    """Return what logs *warning* when it is first called, from any thread."""
    first = threading.Lock()

    def warn() -> None:
        if first.acquire(blocking=False):
            logger.warning(warning)

    return warn


def reporting(exporter: Any, lost: Callable[[], None]) -> None:  # noqa: ANN401 -- of any signal
    """Have *lost* called whenever *exporter* fails."""
    send = exporter.export

    def export(*batch: Any, **options: Any) -> Any:  # noqa: ANN401 -- as it is
        result = send(*batch, **options)
        if result.name != "SUCCESS":
            lost()
        return result

    exporter.export = export
