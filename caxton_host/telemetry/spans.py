"""Telemetry that sends: spans of runs, calls and attempts, and a metric."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from .tools import TracedTools

if TYPE_CHECKING:
    from opentelemetry.metrics import Counter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

    from ..ports import Execution, ToolService
    from .tracer import Spans, WatchedRun

__all__ = ["OtelTelemetry"]

_FLUSH = 0.8  # seconds; a run ends at most a second later when nobody listens


class OtelTelemetry:
    """
    Writes spans to a tracer.

    Args:
        spans: Makes them.

        provider: Of their tracer; it is flushed when this is closed.

        exporter: What may keep the flush waiting, to be cut short.

        lost: Called when spans could not be sent.

        metered: Makes the meters, when there is something to count.
    """

    def __init__(
        self,
        spans: Spans,
        provider: TracerProvider,
        exporter: SpanExporter,
        lost: Callable[[], None],
        metered: Callable[[], MeterProvider],
    ) -> None:
        self.spans = spans
        self._provider = provider
        self._exporter = exporter
        self._lost = lost
        self._metered = metered
        self._meters: MeterProvider | None = None
        self._failures: Counter | None = None

    def run(self, execution: Execution) -> WatchedRun:
        """Watch a run from its first event to its last."""
        return self.spans.run(execution)

    def ids(self) -> tuple[str | None, str | None]:
        """Return trace and span id of the current span."""
        return self.spans.ids()

    def headers(self) -> dict[str, str]:
        """Return the W3C trace context of the current span."""
        return self.spans.headers()

    def traced(self, tools: ToolService) -> TracedTools:
        """Return *tools*, of which every attempt is watched."""
        return TracedTools(tools, self.spans)

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
