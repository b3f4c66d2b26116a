"""The text that Prometheus reads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricReader


#: Returns the type and the bytes of all metrics as they are now. It may take a while,
#: and may be called in any thread.
Scrape: TypeAlias = Callable[[], tuple[str, bytes]]

_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def nothing_to_read() -> tuple[str, bytes]:
    """Return what is read where nothing is counted."""
    return _TYPE, b""


def reader() -> tuple[MetricReader, Scrape]:
    """Return what reads metrics, and what writes down all that it reads."""
    from opentelemetry.exporter.prometheus import PrometheusMetricReader
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import generate_latest

    registry = CollectorRegistry()
    made = PrometheusMetricReader(scope_info_enabled=False, registry=registry)

    alone = threading.Lock()  # or two would get each other's metrics

    def scrape() -> tuple[str, bytes]:
        with alone:
            return _TYPE, generate_latest(registry)

    return made, scrape
