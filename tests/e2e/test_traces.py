"""What a receiver gets of real runs, with real servers: see `tests.conventions`."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import HTTPServer

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from caxton_host import __version__
from tests import standin
from tests.answering import HERE, Answers, answering
from tests.collector import Collector, attributes, collecting

from .guests import call, guest
from .shell import Shell, toml

DEMO: dict[str, object] = standin.command()
TOP = guest(
    call("mcp__demo__echo", text="one"),
    call("mcp__webhook__forecast", city="Oslo"),
    call("mcp__agents__below"),
    call("mcp__demo__get_weather", location="Oslo"),
    output="done",
)
BELOW = guest(call("mcp__demo__echo", text="two"), output="below")
ALLOW = """
[[agents.top.allow]]
tools = ["demo/echo", "webhook/forecast", "agents/below"]
[[agents.top.allow]]
tools = ["demo/get_weather"]
approve = {}
[[agents.below.allow]]
tools = ["demo/echo"]
"""


class Forecast(Answers):
    def respond(self) -> None:
        assert self.headers["traceparent"]
        self.answer(b'{"summary": "dry"}')


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as made:
        yield made


@pytest.fixture
def told(shell: Shell, collector: Collector) -> Iterator[Shell]:
    """Return a shell with a run that calls everything, and waits for a person."""
    with answering(HTTPServer(HERE, Forecast)) as hook:
        tables: dict[str, dict[str, object]] = {
            "telemetry": {"endpoint": collector.url},
            "servers.demo": DEMO,
            "webhooks.forecast": {
                "method": "GET",
                "url": f"{hook}/of/{{city}}",
                "description": "Tomorrow.",
                "allow_private": True,
                "params": {"properties": {"city": {"type": "string"}}},
                "effect": "read",
            },
            "agents.top": {"module": "top.wasm"},
            "agents.below": {"module": "below.wasm"},
        }
        shell.write("caxton.toml", toml(tables, ALLOW))
        shell.write("top.wasm", TOP)
        shell.write("below.wasm", BELOW)
        assert shell("run", "top").code == 3
        yield shell


def test_every_signal_is_as_the_named_conventions_have_it(
    told: Shell, collector: Collector
) -> None:
    assert told("approval", "approve", "@last").code == 0

    clients = [one for one in collector.spans if one.kind == Span.SPAN_KIND_CLIENT]
    for one in clients:
        said = attributes(one)
        if one.name == "GET":
            assert said["http.response.status_code"] == 200
            assert str(said["url.full"]).endswith("/of/{city}")  # No parameter is said.
        else:
            assert str(said["jsonrpc.request.id"]).isdecimal()
            assert said["network.transport"] == "pipe"
    assert {one.name for one in clients} >= {
        "GET",
        "tools/call echo",
        "tools/call get_weather",
    }
    assert {one["service.version"] for one in collector.resources} == {__version__}
    hosts = {one["service.instance.id"] for one in collector.resources}
    streams = told("events", "export", "--all", "--json").document
    assert {f"host/{one}" for one in hosts} <= {one["stream"] for one in streams}
    assert "gen_ai.execute_tool.duration" in collector.metrics


def test_a_replay_is_sent_with_the_times_of_the_run_and_once(
    told: Shell, collector: Collector
) -> None:  # law 6
    live = {one.span_id: one for one in collector.spans}
    collector.spans.clear()
    events = told("events", "list", "@last", "--json").document

    for _ in range(2):
        sent = told("replay", "@last", "--to-otlp")
        assert (sent.code, sent.out) == (
            0,
            "identical: 3 calls answered from the log\n",
        )
    said = told("replay", "@last", "--to-otlp", collector.url, "--json").document

    spans = {one.span_id: one for one in collector.spans}
    assert (said["verdict"], said["spans"]) == ("identical", len(spans))
    assert len(collector.spans) == 3 * len(spans)  # The same each time.
    assert {one.trace_id.hex() for one in spans.values()} == {said["trace_id"]}
    assert not live.keys() & spans.keys()
    for one in spans.values():
        assert one.kind == Span.SPAN_KIND_INTERNAL
        for link in one.links:
            assert live[link.span_id].name == one.name
        for start in (one.start_time_unix_nano, one.end_time_unix_nano):
            assert start // 1000 in {one["recorded_at"] for one in events}
    top = collector.spans[-1]
    assert attributes(top)["caxton.run.mode"] == "replay"
    assert attributes(top)["caxton.replay.verdict"] == "identical"

    wrong = told("replay", "--to-otlp", "@last", "@last")
    assert (wrong.code, wrong.fix.split(",")[0]) == (
        2,
        "name one with --to-otlp http://localhost:4318",
    )
    assert "@last is not the URL" in wrong.err
    collector.refuses.add("/v1/traces")
    for collector.status in (400, 307):
        nobody = told("replay", "@last", "--to-otlp")
        assert nobody.code == 1
        assert nobody.out.startswith("identical")
        assert "did not take the spans" in nobody.err
        assert "http://localhost:4318" in nobody.fix
    assert told("replay", "@last", "--lines", "--to-otlp").code == 2
    assert told("replay", "--all", "--to-otlp").code == 2
