"""Sends spans that were made of a log, and says whether they were taken."""

from __future__ import annotations

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from ..errors import CaxtonError
from .export import host, hushed, strict

#: Spans in one request.
_BATCH = 512
#: For each request, with its retries.
_TIMEOUT_S = 5.0


def send(spans: list[ReadableSpan], url: str) -> int:
    """
    Send *spans* to *url*, the end point in full, and return how many they are.

    Raises:
        CaxtonError: The receiver refused them.
    """
    hushed()
    exporter = OTLPSpanExporter(endpoint=url, timeout=_TIMEOUT_S)
    strict(exporter)
    for start in range(0, len(spans), _BATCH):
        done = exporter.export(spans[start : start + _BATCH])
        if done is not SpanExportResult.SUCCESS:
            raise CaxtonError(
                f"{host(url)} did not take the spans",
                fix="see that an OTLP receiver listens there, over HTTP: "
                "http://localhost:4318",
            )
    return len(spans)
