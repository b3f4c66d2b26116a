"""Brings up what watches a host: spans, metrics and log lines."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from .counting import Counting
from .ending import cut_short
from .export import connect, hushed, reporting, resource, wanted
from .lines import ACTIVITY, ActivityLines
from .null import NoTelemetry
from .observed import Observed, Observer
from .prometheus import nothing_to_read

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricExporter, MetricReader

    from .prometheus import Scrape


def observe(
    endpoint: str | None, environ: Mapping[str, str], *, served: bool = False
) -> Observed | NoTelemetry:
    """
    Return what watches a host. Without anybody who wants to know, nothing does.

    Args:
        endpoint: As of `connect`.

        environ: The same.

        served: Metrics are kept to be read, wherever else they go.
    """
    to_metrics, to_logs = (wanted(s, endpoint, environ) for s in ("metrics", "logs"))
    counts: Counting | NoTelemetry = NoTelemetry()
    scrape = nothing_to_read
    ending: list[Callable[[], None]] = []
    observers: list[Observer] = []
    if served or to_metrics:
        counts, scrape, end = _metrics(to_metrics, environ, served=served)
        observers.append(counts)
        ending.append(end)
    if to_logs:
        ending.append(_logs(to_logs, environ, partial(counts.lost, "logs")))
    if ACTIVITY.isEnabledFor(logging.INFO):
        observers.append(ActivityLines())
    spans = connect(endpoint, environ, partial(counts.lost, "spans"))
    if not observers and isinstance(spans, NoTelemetry):
        return spans
    return Observed(
        spans=spans, observers=observers, counts=counts, scrape=scrape, ending=ending
    )


def _metrics(
    url: str, environ: Mapping[str, str], *, served: bool
) -> tuple[Counting, Scrape, Callable[[], None]]:
    from opentelemetry.sdk.metrics import MeterProvider

    from .metrics import Metrics

    readers: list[MetricReader] = []
    scrape = nothing_to_read
    exporter = _exporter(url) if url else None
    if served:
        from .prometheus import reader

        read, scrape = reader()
        readers.append(read)
    if exporter:
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        readers.append(PeriodicExportingMetricReader(exporter))
    provider = MeterProvider(readers, resource(environ), shutdown_on_exit=False)
    counts = Counting(Metrics(provider.get_meter("caxton_host")))
    if exporter:
        reporting(exporter, partial(counts.lost, "metrics"))

    def cut() -> None:
        if exporter:
            exporter.shutdown(0)  # pyright: ignore[reportUnknownMemberType] -- it takes anything

    return counts, scrape, partial(cut_short, provider.shutdown, cut)


def _exporter(url: str) -> MetricExporter:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import (
        OTLPMetricExporter,
    )

    hushed()
    return OTLPMetricExporter(endpoint=url)


def _logs(
    url: str, environ: Mapping[str, str], lost: Callable[[], None]
) -> Callable[[], None]:
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

    from .records import OtlpHandler

    hushed()
    exporter = OTLPLogExporter(endpoint=url)
    reporting(exporter, lost)
    provider = LoggerProvider(resource(environ), shutdown_on_exit=False)
    provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    handler = OtlpHandler(provider.get_logger("caxton_host"))
    undo = handler.attach()

    def end() -> None:
        undo()
        cut_short(provider.shutdown, exporter.shutdown)

    return end
