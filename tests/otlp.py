"""A receiver of spans, metrics and logs over HTTP, in this process."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

__all__ = ["Receiver", "attributes", "receiving"]


@dataclass
class Receiver:
    """
    What came.

    Attributes:
        refuses: Paths that are answered with 400.
    """

    url: str = ""
    refuses: set[str] = field(default_factory=set[str])
    spans: list[Span] = field(default_factory=list[Span])
    metrics: dict[str, Metric] = field(default_factory=dict[str, Metric])
    logs: list[LogRecord] = field(default_factory=list[LogRecord])
    bodies: list[bytes] = field(default_factory=list[bytes])

    def take(self, path: str, body: bytes) -> None:
        self.bodies.append(body)
        if path.endswith("/v1/traces"):
            for traces in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.spans += [s for scope in traces.scope_spans for s in scope.spans]
        elif path.endswith("/v1/logs"):
            for logs in ExportLogsServiceRequest.FromString(body).resource_logs:
                self.logs += [r for s in logs.scope_logs for r in s.log_records]
        elif path.endswith("/v1/metrics"):
            request = ExportMetricsServiceRequest.FromString(body)
            for metrics in request.resource_metrics:
                for scope in metrics.scope_metrics:
                    self.metrics |= {one.name: one for one in scope.metrics}


def attributes(items: Iterable[KeyValue]) -> dict[str, object]:
    """Return attributes as Python has them."""
    return {
        item.key: getattr(item.value, item.value.WhichOneof("value") or "string_value")
        for item in items
    }


@contextlib.contextmanager
def receiving() -> Iterator[Receiver]:
    """Receive, within; the level of the vendor's logger is as before in the end."""
    made = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            refused = self.path in made.refuses
            if not refused:
                made.take(self.path, body)
            self.send_response(400 if refused else 200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            del format, args

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        made.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()
            for other in threading.enumerate():
                if other.name.startswith("Otel"):
                    other.join(10)
            logging.getLogger("opentelemetry").setLevel(logging.NOTSET)
