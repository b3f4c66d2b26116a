"""Spans of a run, as a collector on the network gets them."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Iterator, Sized
from dataclasses import replace
from functools import partial

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from caxton_host.core.calls import Completed
from caxton_host.core.grants.approvals import Approve
from caxton_host.core.grants.grants import Grant
from caxton_host.core.log.events import RunStarted, ToolInvoked
from caxton_host.errors import ToolError
from caxton_host.lib import codec
from caxton_host.ports.sandbox import Door, Ending, Guest
from caxton_host.ports.tools import ToolRequest
from caxton_host.telemetry import NoTelemetry, Observer, observe
from caxton_host.testing import FakeTools
from tests.collector import (
    Collector,
    attributes,
    close,
    collecting,
    connect,
    tidy,
    traced,
)
from tests.integration.mcp.conftest import until
from tests.scene import ANSWERS, Scene, calling, ended, pack, rule

INTERNAL, CLIENT = Span.SPAN_KIND_INTERNAL, Span.SPAN_KIND_CLIENT
ERROR = Status.STATUS_CODE_ERROR


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as made:
        yield made


@pytest.fixture(autouse=True)
def _tidied() -> Iterator[None]:
    with tidy():
        yield


USUAL = calling("weather", "rm", "mcp__demo__fail")


async def test_run_is_one_trace_of_agent_calls_and_attempts(
    collector: Collector,
) -> None:
    scene = traced(collector.url, USUAL)
    await scene.run()
    close(scene)

    run = collector.named("invoke_agent weather")
    parents = {span.span_id: span.name for span in collector.spans}
    tree = sorted(
        (s.name, s.kind, parents.get(s.parent_span_id, "")) for s in collector.spans
    )
    assert tree == [
        ("execute_tool mcp__demo__fail", INTERNAL, run.name),
        ("execute_tool rm", INTERNAL, run.name),
        ("execute_tool weather", INTERNAL, run.name),
        ("invoke_agent weather", INTERNAL, ""),
        ("tools/call fail", CLIENT, "execute_tool mcp__demo__fail"),
        ("tools/call get_weather", CLIENT, "execute_tool weather"),
    ]
    assert {span.trace_id for span in collector.spans} == {run.trace_id}
    assert set(collector.paths) == {"/v1/traces"}
    assert collector.services == {"caxton_host"}


async def test_spans_have_the_attributes_of_the_conventions(
    collector: Collector,
) -> None:
    scene = traced(collector.url, USUAL)
    await scene.run()
    close(scene)

    recorded = await scene.recorded()
    ours = {"caxton.event.stream": f"run/{scene.run_id}"}
    assert isinstance(recorded[0].event, RunStarted)
    sha256 = recorded[0].event.module_sha256
    assert attributes(collector.named("invoke_agent weather")) == ours | {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "caxton",
        "gen_ai.agent.id": sha256,
        "gen_ai.agent.name": "weather",
        "gen_ai.conversation.id": scene.run_id,
        "caxton.run.id": scene.run_id,
        "caxton.run.mode": "live",
        "caxton.module.sha256": sha256,
        "caxton.event.seq": 1,
        "caxton.log.seq": 8,
        "caxton.log.head": recorded[-1].hash.hex(),
        "caxton.run.state": "completed",
    }
    assert attributes(collector.named("execute_tool weather")) == ours | {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "weather",
        "gen_ai.tool.type": "extension",
        "gen_ai.tool.call.id": f"{scene.run_id}:1",
        "caxton.event.seq": 2,
        "caxton.call.outcome": "ok",
        "caxton.call.effect": "unsafe",
        "caxton.call.served_from": "upstream",
        "caxton.server.name": "demo",
        "caxton.tool.name": "get_weather",
    }
    assert attributes(collector.named("tools/call get_weather")) == {
        "mcp.method.name": "tools/call",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "get_weather",
        "caxton.server.name": "demo",
        "caxton.call.attempt": 1,
    }


async def test_denied_call_is_an_error_without_a_client_span(
    collector: Collector,
) -> None:  # law 4
    scene = traced(collector.url, calling("rm", "nothing"))
    await scene.run()
    close(scene)

    denied = collector.named("execute_tool rm")
    assert attributes(denied)["caxton.call.outcome"] == "denied"
    assert attributes(denied)["error.type"] == "not_granted"
    assert denied.status.code == ERROR
    assert "caxton.server.name" not in attributes(
        collector.named("execute_tool nothing")
    )
    assert CLIENT not in {span.kind for span in collector.spans}


async def test_call_that_waits_for_an_approval_is_no_error(
    collector: Collector,
) -> None:
    scene = traced(collector.url, calling("weather"))
    wanting = replace(rule("demo/*"), approve=Approve())
    scene.request = replace(scene.request, grant=Grant(allow=(wanting,)))
    await scene.run()
    close(scene)

    waits = collector.named("execute_tool weather")
    assert attributes(waits)["caxton.call.outcome"] == "waits"
    assert waits.status.code != ERROR


async def test_failed_call_is_an_error_of_call_and_attempt(
    collector: Collector,
) -> None:
    scene = traced(collector.url, calling("mcp__demo__fail"))
    await scene.run()
    close(scene)

    for name in ("execute_tool mcp__demo__fail", "tools/call fail"):
        span = collector.named(name)
        assert attributes(span)["error.type"] == "timeout"
        assert span.status.code == ERROR
        assert b"no answer" not in span.SerializeToString()  # it may quote parameters


async def test_error_of_a_tool_is_an_error_of_call_and_attempt(
    collector: Collector,
) -> None:
    answers = {("demo", "get_weather"): Completed(is_error=True, message="no city")}
    scene = traced(collector.url, calling("weather"), FakeTools(answers))
    await scene.run()
    close(scene)

    for name in ("execute_tool weather", "tools/call get_weather"):
        span = collector.named(name)
        assert attributes(span)["error.type"] == "tool_error"
        assert span.status.code == ERROR


async def test_failed_run_is_an_error_of_its_kind(collector: Collector) -> None:
    async def script(door: Door, guest: Guest) -> Ending:
        del door, guest
        return Ending(kind="trap", message="unreachable", fuel=1)

    scene = traced(collector.url, script)
    await scene.run()
    close(scene)

    run = collector.named("invoke_agent weather")
    assert attributes(run)["caxton.run.state"] == "failed"
    assert attributes(run)["error.type"] == "trap"
    assert run.status.code == ERROR


async def test_cancelled_run_ends_its_spans(collector: Collector) -> None:
    class Hanging(FakeTools):
        async def call_tool(self, request: ToolRequest) -> Completed:
            asked.set()
            await asyncio.sleep(30)
            return await super().call_tool(request)

    asked = asyncio.Event()
    scene = traced(collector.url, calling("weather"), Hanging(ANSWERS))
    task = asyncio.create_task(scene.run())
    await asked.wait()

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    close(scene)

    for span in collector.spans:
        assert attributes(span)["error.type"] == "cancelled"
        assert span.status.code == ERROR
    assert len(collector.spans) == 3
    run = attributes(collector.named("invoke_agent weather"))
    assert run["caxton.run.state"] == "cancelled"


async def test_no_parameter_and_no_result_is_on_a_span(collector: Collector) -> None:
    # law 8, and the log has them: not even where an error quotes one
    async def script(door: Door, guest: Guest) -> Ending:
        del guest
        await door.call(b"weather", pack(city="Timbuktu"), 1)
        return ended("Timbuktu")

    async def other(door: Door, guest: Guest) -> Ending:
        del guest
        await door.call(b"weather", pack(city="Ouagadougou"), 1)
        return ended()

    answers = {("demo", "get_weather"): "sunny in Timbuktu"}
    scene = traced(collector.url, script, FakeTools(answers))
    await scene.run()
    assert (await scene.replay(other)).verdict == "diverged"
    close(scene)

    everything = b"".join(span.SerializeToString() for span in collector.spans)
    assert b"execute_tool weather" in everything
    for text in (b"Timbuktu", b"Ouagadougou", b"sunny"):
        assert text not in everything


async def test_replay_emits_no_client_span(collector: Collector) -> None:  # law 6
    scene = traced(collector.url, USUAL)
    await scene.run()
    assert isinstance(scene.telemetry, Observer)
    scene.telemetry.close()
    live = len(collector.spans)
    scene.telemetry = again = connect(collector.url, {})

    assert (await scene.replay()).verdict == "identical"
    again.close()

    replayed = collector.spans[live:]
    assert len(replayed) == 4
    assert {span.kind for span in replayed} == {INTERNAL}
    [run] = [span for span in replayed if span.name == "invoke_agent weather"]
    assert attributes(run)["caxton.run.mode"] == "replay"
    assert attributes(run)["caxton.run.state"] == "completed"
    assert attributes(run)["caxton.replay.diverged"] is False


async def test_events_name_the_spans_they_were_recorded_under(
    collector: Collector,
) -> None:
    scene = traced(collector.url, USUAL)
    await scene.run()
    close(scene)

    recorded = await scene.recorded()
    run = collector.named("invoke_agent weather")
    assert {r.trace_id for r in recorded} == {run.trace_id.hex()}
    assert recorded[0].span_id == recorded[-1].span_id == run.span_id.hex()
    for entry in recorded:
        if isinstance(entry.event, ToolInvoked):
            span = collector.named(f"execute_tool {entry.event.name}")
            assert entry.span_id == span.span_id.hex()


async def test_each_item_of_a_batch_has_a_span_with_its_attempt_below(
    collector: Collector,
) -> None:
    async def script(door: Door, guest: Guest) -> Ending:
        del guest
        names = ("weather", "rm", "mcp__demo__fail")
        await door.call_many(codec.encode([(name, {}) for name in names]), 1)
        return ended()

    class Meeting(FakeTools):
        async def call_tool(self, request: ToolRequest) -> Completed:
            came.add(request.tool)
            while len(came) < 2:  # noqa: ASYNC110 -- or the test ends by its timeout
                await asyncio.sleep(0)
            return await super().call_tool(request)

    came: set[str] = set()
    scene = traced(collector.url, script, Meeting(ANSWERS))
    await scene.run()
    close(scene)

    run = collector.named("invoke_agent weather")
    items = {
        name: collector.named(f"execute_tool {name}")
        for name in ("weather", "rm", "mcp__demo__fail")
    }
    assert {span.parent_span_id for span in items.values()} == {run.span_id}
    outcomes = [attributes(s)["caxton.call.outcome"] for s in items.values()]
    assert outcomes == ["ok", "denied", "failed"]
    for tool, name in (("get_weather", "weather"), ("fail", "mcp__demo__fail")):
        attempt = collector.named(f"tools/call {tool}")
        assert attempt.parent_span_id == items[name].span_id
    assert len(collector.spans) == 6
    # All intents are one append, made before the spans begin, and each names its own.
    spans = [span.span_id.hex() for span in items.values()]
    recorded = await scene.recorded()
    intents = [e for e in recorded if isinstance(e.event, ToolInvoked)]
    assert [entry.span_id for entry in intents] == spans
    assert {e.span_id for e in recorded[2:-1]} == set(spans)
    assert [attributes(s)["caxton.event.seq"] for s in items.values()] == [
        entry.seq for entry in intents
    ]


async def test_tool_server_is_given_the_trace_context(collector: Collector) -> None:
    class Reading(FakeTools):
        async def call_tool(self, request: ToolRequest) -> Completed:
            assert isinstance(telemetry, Observer)
            seen.append(telemetry.headers())
            return await super().call_tool(request)

    seen: list[dict[str, str]] = []
    scene = traced(collector.url, calling("weather"), Reading(ANSWERS))
    telemetry = scene.telemetry
    await scene.run()
    close(scene)

    span = collector.named("tools/call get_weather")
    [headers] = seen
    assert headers["traceparent"].startswith(
        f"00-{span.trace_id.hex()}-{span.span_id.hex()}-"
    )


async def test_offers_pass_through() -> None:
    telemetry = connect("http://127.0.0.1:9", {})
    tools = FakeTools(ANSWERS)

    assert await telemetry.traced(tools).offered(["demo"]) == (
        await tools.offered(["demo"])
    )
    assert telemetry.ids() == (None, None)
    telemetry.close()


# -- nobody listens ------------------------------------------------------------


@pytest.fixture
def deaf() -> Iterator[str]:
    """Return the address of somebody who takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def nobody() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("who", ["nobody", "deaf"])
async def test_run_ends_at_once_with_one_warning_when_nobody_listens(
    who: str, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    url: str = request.getfixturevalue(who)
    scene = traced(url.replace("//", "//user:hunter2@"), USUAL)
    await scene.run()

    with caplog.at_level(logging.DEBUG):
        before = time.monotonic()
        close(scene)
        took = time.monotonic() - before

    assert took < 8  # about one second, promised; the rest is a slow machine
    warnings = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    host = url.removeprefix("http://")
    assert warnings == [f"telemetry: {host} does not take spans; they are lost"]
    assert "hunter2" not in caplog.text  # law 8


def _more_than(items: Sized, number: int) -> bool:
    return len(items) > number


async def test_collector_that_refuses_is_told_of_once(
    collector: Collector,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")  # milliseconds
    collector.refuses.add("/v1/traces")
    scene = traced(collector.url, USUAL)
    for _ in range(3):
        seen = len(collector.paths)
        await scene.run()
        await until(partial(_more_than, collector.paths, seen))
    close(scene)

    told = [r for r in caplog.records if "does not take spans" in r.getMessage()]
    assert len(told) == 1


async def test_closing_after_everything_was_sent_says_nothing(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    scene = traced(collector.url, USUAL)
    await scene.run()
    close(scene)

    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []


# -- where to ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("endpoint", "environ"),
    [
        (None, {}),
        (
            None,
            {"OTEL_SDK_DISABLED": "True", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"},
        ),
        ("http://x", {"OTEL_SDK_DISABLED": "true"}),
        ("", {}),
    ],
)
def test_without_an_end_point_there_is_no_telemetry(
    endpoint: str | None, environ: dict[str, str]
) -> None:
    assert isinstance(observe(endpoint, environ), NoTelemetry)


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "{url}/"}, "/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "{url}/base"}, "/base/v1/traces"),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "{url}/mine",
                "OTEL_SERVICE_NAME": "caxton-test",
            },
            "/mine",
        ),
    ],
)
async def test_environment_says_where_to(
    collector: Collector, environ: dict[str, str], path: str
) -> None:
    filled = {key: value.format(url=collector.url) for key, value in environ.items()}
    telemetry = connect(None, filled)
    scene = Scene(calling(), telemetry=telemetry)
    await scene.run()
    telemetry.close()

    assert collector.paths == [path]
    assert collector.services == {environ.get("OTEL_SERVICE_NAME", "caxton_host")}


async def test_without_telemetry_a_run_is_the_same() -> None:
    telemetry = NoTelemetry()
    scene = Scene(USUAL, telemetry=telemetry)

    events = await scene.run()

    assert len(events) == 8
    assert (telemetry.ids(), telemetry.headers()) == ((None, None), {})
    telemetry.close()


def test_tool_error_has_a_kind_that_spans_can_name() -> None:
    assert ToolError("changed", "no", "x").kind == "changed"
