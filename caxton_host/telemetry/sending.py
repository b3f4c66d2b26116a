"""Sends the spans of a recorded run once more, and says whether they were taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from ..errors import CaxtonError
from .export import host, hushed, resource, with_content
from .rebuild_spans import Again
from .tracer import Spans

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.sdk.trace import ReadableSpan

    from ..runs.recording import Recording


_AT_ONCE = 512
_PATIENCE = 5.0  # seconds for each request, with what is tried again


class _Sending:
    """
    Sends spans many at a time, as they end.

    Attributes:
        sent: How many were taken.

        failed: Some were not, so no more are tried.
    """

    def __init__(self, exporter: OTLPSpanExporter) -> None:
        self.sent = 0
        self.failed = False
        self._exporter = exporter
        self._waiting: list[ReadableSpan] = []

    def take(self, span: ReadableSpan) -> None:
        """Take a span that has ended."""
        self._waiting.append(span)
        if len(self._waiting) >= _AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Send what waits."""
        spans, self._waiting = self._waiting, []
        if self.failed or not spans:
            return
        if self._exporter.export(spans) is SpanExportResult.SUCCESS:
            self.sent += len(spans)
        else:
            self.failed = True


def send_again(recording: Recording, url: str, environ: Mapping[str, str]) -> int:
    """
    Send the spans of a recorded run, and return how many they are.

    Args:
        recording: The run.

        url: Where to, in full.

        environ: Says how the host is called, and whether content is wanted.

    Raises:
        CaxtonError: They were not taken.
    """
    hushed()
    sending = _Sending(OTLPSpanExporter(endpoint=url, timeout=_PATIENCE))
    again = Again(recording)
    again.make(
        Spans(
            sending.take,
            ALWAYS_ON,
            resource(environ),
            content=with_content(environ),
            clock=again.clock,
        )
    )
    sending.flush()
    if sending.failed:
        raise CaxtonError(
            f"{host(url)} did not take the spans",
            fix="see that an OTLP receiver listens there, over HTTP: --endpoint "
            "http://localhost:4318",
        )
    return sending.sent
