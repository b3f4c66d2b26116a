"""Where spans, metrics and log records are sent, and the observer that sends them."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import UUID

from .. import __version__
from ..core.text.trace_context import trace_of
from ..ports.watch import Texts
from .attributes import SCHEMA, SCOPE
from .lines import ACTIVITY, ActivityLines, OtlpHandler
from .metrics import Metrics, Scrape, nothing_to_read
from .observer import NoTelemetry, Observer
from .sinks import Sink

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.resources import Resource

    from .spans import Spans

logger = logging.getLogger("caxton_host")

#: How long the last flush may take: a run whose receiver is down ends a second later.
_FLUSH_S = 0.8

#: Of a process that has no stream in the log.
_PROCESS = str(UUID(bytes=os.urandom(16), version=4))

#: Sends what is left of a signal, for at most a second.
End = Callable[[], None]


def observe(
    endpoint: str | None,
    environ: Mapping[str, str],
    *,
    served: bool = False,
    instance: str = _PROCESS,
    trace: Callable[[Mapping[str, object]], Texts] = trace_of,
) -> Observer:
    """
    Return the observer of a host, with a sink for each signal that is wanted.

    Args:
        endpoint: The base URL of an OTLP receiver, such as ``http://localhost:4318``;
            by default what ``OTEL_EXPORTER_OTLP_ENDPOINT`` or its variant for a signal
            says.

        environ: Where to look for it.

        served: Metrics are kept to be read, wherever else they go.

        instance: Identifies the host among others.

        trace: Returns what of a caller's trace context and baggage is passed on.
    """
    own = partial(resource, environ, instance)
    to_metrics, to_logs = (wanted(s, endpoint, environ) for s in ("metrics", "logs"))
    counts, scrape, ending, sinks = Sink(), nothing_to_read, list[End](), list[Sink]()
    if served or to_metrics:
        counts, scrape, end = _metrics(to_metrics, own, served=served)
        sinks.append(counts)
        ending.append(end)
    if to_logs:
        ending.append(_logs(to_logs, own, partial(counts.lost, "logs")))
    if ACTIVITY.isEnabledFor(logging.INFO):
        sinks.append(ActivityLines())
    spans = None
    if to_spans := wanted("traces", endpoint, environ):
        spans, end = open_spans(
            to_spans, environ, partial(counts.lost, "spans"), instance
        )
        ending.append(end)
    if not sinks and spans is None:
        return NoTelemetry()
    made = Observer(spans, sinks, counts=counts, scrape=scrape, ending=ending)
    if spans:  # Nothing is passed on otherwise, and need not be kept.
        made.trace_of = trace
    return made


def open_spans(
    url: str,
    environ: Mapping[str, str],
    on_lost: Callable[[], None],
    instance: str = _PROCESS,
) -> tuple[Spans, End]:
    """
    Return the sink that sends spans to *url*, and what ends it.

    Args:
        url: In full.

        environ: Names the host, and says whether content is wanted.

        on_lost: Called for each batch of spans that is not taken.

        instance: Identifies the host among others.
    """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
        OTLPSpanExporter,
    )
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from .spans import Spans

    own = resource(environ, instance)
    provider = TracerProvider(resource=own, shutdown_on_exit=False)
    hushed()
    exporter = OTLPSpanExporter(endpoint=url)
    warn = _once(f"telemetry: {host(url)} does not take spans; they are lost")

    def lost() -> None:
        on_lost()
        warn()

    _report_failures(exporter, lost)
    batches = BatchSpanProcessor(exporter)
    provider.add_span_processor(batches)
    content = with_content(environ)
    spans = Spans(batches.on_end, provider.sampler, own, content=content)
    return spans, partial(_cut_short, provider.shutdown, exporter.shutdown, warn)


def _metrics(
    url: str, own: Callable[[], Resource], *, served: bool
) -> tuple[Metrics, Scrape, End]:
    from opentelemetry.sdk.metrics import MeterProvider

    readers: list[MetricReader] = []
    scrape = nothing_to_read
    exporter = None
    if served:
        from .metrics import reader

        read, scrape = reader()
        readers.append(read)
    if url:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import (
            OTLPMetricExporter,
        )
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        hushed()
        exporter = OTLPMetricExporter(endpoint=url)
        readers.append(PeriodicExportingMetricReader(exporter))
    provider = MeterProvider(readers, own(), shutdown_on_exit=False)
    metrics = Metrics(provider.get_meter(*SCOPE))
    if exporter:
        _report_failures(exporter, partial(metrics.lost, "metrics"))

    def cut() -> None:
        if exporter:
            exporter.shutdown(0)  # pyright: ignore[reportUnknownMemberType] -- it takes anything

    return metrics, scrape, partial(_cut_short, provider.shutdown, cut)


def _logs(url: str, own: Callable[[], Resource], lost: Callable[[], None]) -> End:
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

    hushed()
    exporter = OTLPLogExporter(endpoint=url)
    _report_failures(exporter, lost)
    provider = LoggerProvider(own(), shutdown_on_exit=False)
    provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    undo = OtlpHandler(provider.get_logger(*SCOPE)).attach()

    def end() -> None:
        undo()
        _cut_short(provider.shutdown, exporter.shutdown)

    return end


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


def resource(environ: Mapping[str, str], instance: str = _PROCESS) -> Resource:
    """
    Return the description of the host that all its signals carry.

    Args:
        environ: Names it.

        instance: Identifies it among others.
    """
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    own = {
        "service.name": environ.get("OTEL_SERVICE_NAME") or "caxton_host",
        "service.version": __version__,
        "service.instance.id": instance,
    }
    # What the operator says of it counts.
    return Resource.create(own, SCHEMA).merge(OTELResourceDetector().detect())


def with_content(environ: Mapping[str, str]) -> bool:
    """Return whether parameters and results are wanted on spans."""
    said = environ.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT")
    return said in {"SPAN_ONLY", "SPAN_AND_EVENT"}


def hushed() -> None:
    """Silence the SDK's own log lines: one a batch, with tracebacks."""
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)


def host(url: str) -> str:
    """Return how to name where *url* leads, without credentials."""
    return urlsplit(url).netloc.rpartition("@")[2] or "an address that is no URL"


def _once(warning: str) -> Callable[[], None]:
    """Return a function that logs *warning* on its first call, from any thread."""
    first = threading.Lock()

    def warn() -> None:
        if first.acquire(blocking=False):
            logger.warning(warning)

    return warn


def strict(exporter: Any) -> None:  # noqa: ANN401 -- of any signal
    """Make *exporter* take a redirect, which it does not follow, for a failure."""
    client = exporter._client  # noqa: SLF001 -- an exporter does not tell the status
    send = client.export

    def export(data: bytes) -> Any:  # noqa: ANN401 -- as it is
        result = send(data)
        sound = result.success and result.status_code < 300  # noqa: PLR2004 -- taken
        return replace(result, success=sound)

    client.export = export


def _report_failures(exporter: Any, lost: Callable[[], None]) -> None:  # noqa: ANN401 -- of any signal
    """Call *lost* whenever *exporter* fails."""
    strict(exporter)
    send = exporter.export

    def export(*batch: Any, **options: Any) -> Any:  # noqa: ANN401 -- as it is
        result = send(*batch, **options)
        if result.name != "SUCCESS":
            lost()
        return result

    exporter.export = export


def _cut_short(
    shut_down: Callable[[], object],
    cut: Callable[[], object],
    lost: Callable[[], None] | None = None,
) -> None:
    """
    Send what is left, for at most a second.

    Args:
        shut_down: Sends it.

        cut: Ends the wait between two attempts.

        lost: Called if that takes longer: the attempt under way cannot be ended.
    """
    flush = threading.Thread(target=shut_down, name="OtelFlush", daemon=True)
    flush.start()
    flush.join(_FLUSH_S)
    if flush.is_alive():
        cut()
        flush.join(_FLUSH_S / 8)
    if lost and flush.is_alive():
        lost()
