"""The trace of a client goes on in the run that it asks for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import httpx2
import pytest
from mcp import Client
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from caxton_host.core.text.redact import Redactor
from caxton_host.telemetry import observe
from caxton_host.web.mcp.sessions import SessionServer
from tests.collector import attributes, collecting, connect
from tests.integration.serving.clients import ACCEPT, Mode, meta, serving
from tests.office import ANN, Office
from tests.unit.service.test_sessions import LOOK, TWICE, Desk

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"

TRACE, SPAN = "ab" * 16, "cd" * 8


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize(
    ("sent", "kept"),
    [(f"00-{TRACE}-{SPAN}-01", True), ("00-nonsense", False), ("0" * 600, False)],
)
async def test_a_run_is_part_of_the_trace_of_who_asks(
    tmp_path: Path, mode: Mode, sent: str, *, kept: bool
) -> None:
    office = Office(tmp_path)
    with collecting() as collector:
        telemetry = connect(collector.url, {})
        office.service.host = replace(office.scene.host, telemetry=telemetry)
        async with serving(office.service) as url, Client(url, mode=mode) as served:
            await served.call_tool("sky", {}, meta=meta(traceparent=sent))
        telemetry.close()
        run = collector.named("invoke_agent weather")
        call = collector.named("tools/call sky")

    assert (run.trace_id.hex() == TRACE) is kept
    assert (call.parent_span_id.hex() == SPAN) is kept
    assert (run.trace_id, run.parent_span_id) == (call.trace_id, call.span_id)
    assert call.kind == Span.SPAN_KIND_SERVER
    said = attributes(call)
    assert said["jsonrpc.request.id"]
    assert said["mcp.protocol.version"] >= "2025"  # type: ignore[operator]
    assert (said["mcp.method.name"], said["gen_ai.tool.name"]) == ("tools/call", "sky")
    assert (said["network.transport"], "error.type" in said) == ("tcp", False)


async def test_what_goes_wrong_is_said_by_its_code_and_no_secret_is_shown(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path)
    with collecting() as collector:
        telemetry = observe(None, {ENDPOINT: collector.url}, served=True)
        redact = Redactor(["a canary of a secret"])
        office.service.host = replace(
            office.scene.host, telemetry=telemetry, redact=redact
        )
        async with (
            serving(office.service) as url,
            httpx2.AsyncClient(headers=ACCEPT) as http,
        ):
            for method, params in (
                ("made/up", {}),
                ("tools/call", {"name": "a canary of a secret"}),
                ("tools/call", {"name": "sky", "arguments": {"input": 5, "more": 6}}),
            ):
                body = {"jsonrpc": "2.0", "id": "r1", "method": method}
                await http.post(url, json={**body, "params": params})
            await http.post(url, json={"jsonrpc": "2.0", "method": "notifications/x"})
        telemetry.close()
    served = [one for one in collector.spans if one.kind == Span.SPAN_KIND_SERVER]
    found = [(one.name, attributes(one).get("error.type")) for one in served]
    assert ("_OTHER", "-32601") in found
    assert ("tools/call [redacted]", "-32602") in found
    assert {attributes(one)["jsonrpc.request.id"] for one in served} == {"r1"}
    assert b"canary" not in b"".join(collector.bodies)  # law 8
    points = collector.metrics["mcp.server.operation.duration"].histogram.data_points
    labels = [
        {item.key: item.value.string_value for item in point.attributes}
        for point in points
    ]
    methods = {one["mcp.method.name"] for one in labels}
    assert methods == {"_OTHER", "tools/call"}  # Names that clients make up are not.
    assert sum(point.count for point in points) == len(served)


async def test_the_requests_of_a_session_are_spans_of_a_server() -> None:
    desk = Desk(TWICE)
    with collecting() as collector:
        telemetry = connect(collector.url, {})
        desk.scene.host = replace(desk.scene.host, telemetry=telemetry)
        sessions = desk.started_again()
        it = SessionServer(sessions=sessions, asking=lambda _: (ANN, "dev"))
        async with sessions.running(), Client(it.server) as client:
            await client.call_tool(LOOK, {})
            denied = await client.call_tool("mcp__demo__other", {})
        telemetry.close()
        call = collector.named(f"tools/call {LOOK}")
        other = collector.named("tools/call mcp__demo__other")
        run = collector.named("invoke_agent dev")
    assert (call.kind, run.parent_span_id) == (Span.SPAN_KIND_SERVER, b"")
    assert attributes(call)["network.transport"] == "pipe"
    assert denied.is_error
    assert attributes(other)["error.type"] == "tool_error"
