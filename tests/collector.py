"""A receiver of spans, metrics and logs over HTTP, and a scene that sends to it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from typing import TypeAlias

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, NumberDataPoint
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from caxton_host.ports.tools import ToolService
from caxton_host.telemetry import Observer
from caxton_host.telemetry.export import open_spans, wanted
from caxton_host.testing import FakeTools, Script
from tests.answering import HERE, Answers, answering
from tests.scene import ANSWERS, Scene

Value: TypeAlias = str | int | bool


@dataclass
class Collector:
    """
    What came.

    Attributes:
        refuses: Paths that are answered with 400.

        paths: Where each came to, whether it was refused or not.

        services: Who sent spans.
    """

    url: str = ""
    refuses: set[str] = field(default_factory=set[str])
    paths: list[str] = field(default_factory=list[str])
    bodies: list[bytes] = field(default_factory=list[bytes])
    services: set[Value] = field(default_factory=set[Value])
    spans: list[Span] = field(default_factory=list[Span])
    metrics: dict[str, Metric] = field(default_factory=dict[str, Metric])
    logs: list[LogRecord] = field(default_factory=list[LogRecord])

    def take(self, path: str, body: bytes) -> None:
        self.bodies.append(body)
        if path.endswith("/v1/logs"):
            for logs in ExportLogsServiceRequest.FromString(body).resource_logs:
                self.logs += [r for s in logs.scope_logs for r in s.log_records]
        elif path.endswith("/v1/metrics"):
            request = ExportMetricsServiceRequest.FromString(body)
            for metrics in request.resource_metrics:
                for scope in metrics.scope_metrics:
                    self.metrics |= {one.name: one for one in scope.metrics}
        else:
            for traces in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.services.add(attributes(traces.resource)["service.name"])
                self.spans += [s for scope in traces.scope_spans for s in scope.spans]

    def named(self, name: str) -> Span:
        [span] = [span for span in self.spans if span.name == name]
        return span


@contextmanager
def tidy() -> Iterator[None]:
    """In the end, wait for the threads that send, and let their vendor log again."""
    yield
    for thread in threading.enumerate():
        if thread.name.startswith("Otel"):
            thread.join(10)
    logging.getLogger("opentelemetry").setLevel(logging.NOTSET)


@contextmanager
def collecting() -> Iterator[Collector]:
    """Listen on a port of this machine."""
    made = Collector()

    class Handler(Answers):
        def respond(self) -> None:
            body = self.body()
            made.paths.append(self.path)
            refused = self.path in made.refuses
            if not refused:
                made.take(self.path, body)
            self.answer(status=400 if refused else 200)

    with tidy(), answering(ThreadingHTTPServer(HERE, Handler)) as made.url:
        yield made


def connect(endpoint: str | None, environ: Mapping[str, str]) -> Observer:
    """Return an observer that sends spans, and nothing else."""
    url = wanted("traces", endpoint, environ)
    if not url:
        return Observer()
    spans, end = open_spans(url, environ, lambda: None)
    return Observer(spans, ending=[end])


def traced(url: str, script: Script, tools: ToolService | None = None) -> Scene:
    telemetry = connect(url, {})
    client = telemetry.traced(tools or FakeTools(ANSWERS))
    return Scene(script, telemetry=telemetry, tools=client)


def close(scene: Scene) -> None:
    assert isinstance(scene.telemetry, Observer)
    scene.telemetry.close()


def attributes(of: Span | Resource | LogRecord | NumberDataPoint) -> dict[str, Value]:
    """Return attributes as Python has them."""
    return {
        item.key: getattr(item.value, item.value.WhichOneof("value") or "string_value")
        for item in of.attributes
    }
