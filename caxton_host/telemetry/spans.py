"""Telemetry that sends: spans of runs, calls and attempts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .ending import cut_short
from .tools import TracedTools

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

    from ..ports import Execution, ToolService
    from .open_spans import WatchedRun
    from .tracer import Spans


class OtelTelemetry:
    """
    Sends the spans of a host.

    Args:
        spans: Makes them.

        provider: Sends those that wait when this is closed.

        exporter: What may keep the flush waiting, to be cut short.

        lost: Called when spans could not be sent.
    """

    def __init__(
        self,
        spans: Spans,
        provider: TracerProvider,
        exporter: SpanExporter,
        lost: Callable[[], None],
    ) -> None:
        self._spans = spans
        self._provider = provider
        self._exporter = exporter
        self._lost = lost

    def run(self, execution: Execution) -> WatchedRun:
        """Watch a run from its first event to its last."""
        return self._spans.run(execution)

    def ids(self) -> tuple[str | None, str | None]:
        """Return trace and span id of the current span."""
        return self._spans.ids()

    def headers(self) -> dict[str, str]:
        """Return the W3C trace context of the current span."""
        return self._spans.headers()

    def traced(self, tools: ToolService) -> TracedTools:
        """Return *tools*, of which every attempt is watched."""
        return TracedTools(tools, self._spans)

    def close(self) -> None:
        """Send what is left, for at most a second."""
        cut_short(self._provider.shutdown, self._exporter.shutdown, self._lost)
