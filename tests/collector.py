"""A receiver of OTLP over HTTP, in this process, and a scene that sends to it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeAlias

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from caxton_host.ports import ToolService
from caxton_host.telemetry.export import connect
from caxton_host.telemetry.spans import OtelTelemetry
from caxton_host.testing import FakeTools, Script
from tests.scene import ANSWERS, Scene

Value: TypeAlias = str | int | bool


@dataclass
class Collector:
    """An OTLP receiver over HTTP."""

    url: str = ""
    status: int = 200
    paths: list[str] = field(default_factory=list[str])
    spans: list[Span] = field(default_factory=list[Span])
    services: set[str] = field(default_factory=set[str])

    def take(self, path: str, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        self.paths.append(path)
        for resource in request.resource_spans:
            self.services |= {
                item.value.string_value
                for item in resource.resource.attributes
                if item.key == "service.name"
            }
            for scope in resource.scope_spans:
                self.spans += scope.spans

    def named(self, name: str) -> Span:
        [span] = [span for span in self.spans if span.name == name]
        return span


@contextmanager
def collecting() -> Iterator[Collector]:
    """Listen on a port of this machine."""
    made = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            made.take(self.path, self.rfile.read(int(self.headers["content-length"])))
            body = ExportTraceServiceResponse().SerializeToString()
            self.send_response(made.status)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            del format, args

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        made.url = f"http://127.0.0.1:{server.server_port}"
        yield made
        server.shutdown()
        thread.join()


def traced(url: str, script: Script, tools: ToolService | None = None) -> Scene:
    telemetry = connect(url, {})
    assert isinstance(telemetry, OtelTelemetry)
    client = telemetry.traced(tools or FakeTools(ANSWERS))
    return Scene(script, telemetry=telemetry, tools=client)


def close(scene: Scene) -> None:
    assert isinstance(scene.telemetry, OtelTelemetry)
    scene.telemetry.close()


def attributes(span: Span) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for item in span.attributes:
        kind = item.value.WhichOneof("value")
        assert kind
        found[item.key] = getattr(item.value, kind)
    return found
