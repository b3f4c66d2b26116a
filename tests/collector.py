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
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from caxton_host.ports.tools import ToolService
from caxton_host.telemetry import Observer
from caxton_host.telemetry.export import open_spans, wanted
from caxton_host.testing import FakeTools, Script
from tests.answering import HERE, Answers, answering
from tests.conventions import of_log, of_metric, of_resource, of_scope, of_span
from tests.scene import ANSWERS, Scene

Value: TypeAlias = str | int | bool


@dataclass
class Collector:
    """
    What came.

    Attributes:
        refuses: Paths that are answered with `status`.

        status: Of what is refused.

        paths: Where each came to, whether it was refused or not.

        services: Who sent spans.

        resources: Descriptions of who sent anything.

        defects: What is not as the conventions have it.
    """

    url: str = ""
    refuses: set[str] = field(default_factory=set[str])
    status: int = 400
    paths: list[str] = field(default_factory=list[str])
    bodies: list[bytes] = field(default_factory=list[bytes])
    services: set[Value] = field(default_factory=set[Value])
    resources: list[dict[str, Value]] = field(default_factory=list[dict[str, Value]])
    defects: set[str] = field(default_factory=set[str])
    spans: list[Span] = field(default_factory=list[Span])
    metrics: dict[str, Metric] = field(default_factory=dict[str, Metric])
    logs: list[LogRecord] = field(default_factory=list[LogRecord])

    def take(self, path: str, body: bytes) -> None:
        self.bodies.append(body)
        if path.endswith("/v1/logs"):
            self._take_logs(body)
        elif path.endswith("/v1/metrics"):
            self._take_metrics(body)
        else:
            self._take_spans(body)

    def _take_logs(self, body: bytes) -> None:
        for logs in ExportLogsServiceRequest.FromString(body).resource_logs:
            self._check_resource(logs.resource, logs.schema_url)
            for part in logs.scope_logs:
                self._check_scope(part.scope, part.schema_url)
                for one in part.log_records:
                    self.defects |= {*of_log(one.body.string_value, attributes(one))}
                self.logs += part.log_records

    def _take_metrics(self, body: bytes) -> None:
        for metrics in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            self._check_resource(metrics.resource, metrics.schema_url)
            for part in metrics.scope_metrics:
                self._check_scope(part.scope, part.schema_url)
                for one in part.metrics:
                    for point in one.histogram.data_points:
                        self.defects |= {*of_metric(one, attributes(point))}
                    self.metrics[one.name] = one

    def _take_spans(self, body: bytes) -> None:
        for traces in ExportTraceServiceRequest.FromString(body).resource_spans:
            self._check_resource(traces.resource, traces.schema_url)
            self.services.add(attributes(traces.resource)["service.name"])
            for part in traces.scope_spans:
                self._check_scope(part.scope, part.schema_url)
                for one in part.spans:
                    self.defects |= {*of_span(one, attributes(one))}
                self.spans += part.spans

    def _check_resource(self, resource: Resource, schema: str) -> None:
        self.resources.append(attributes(resource))
        self.defects |= {*of_resource(self.resources[-1], schema)}

    def _check_scope(self, scope: InstrumentationScope, schema: str) -> None:
        self.defects |= {*of_scope(scope.name, scope.version, schema)}

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
            self.answer(status=made.status if refused else 200)

    with tidy(), answering(ThreadingHTTPServer(HERE, Handler)) as made.url:
        yield made
    assert not made.defects, sorted(made.defects)


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


def attributes(
    of: Span | Resource | LogRecord | NumberDataPoint | HistogramDataPoint,
) -> dict[str, Value]:
    """Return attributes as Python has them."""
    return {
        item.key: getattr(item.value, item.value.WhichOneof("value") or "string_value")
        for item in of.attributes
    }
