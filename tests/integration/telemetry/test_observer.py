"""A host that is watched: what Prometheus reads, and what a receiver of OTLP gets."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from caxton_host.app.bootstrap import running
from caxton_host.config import Config, Paths
from caxton_host.config.model import Audit
from caxton_host.core.calls import Completed, Retry
from caxton_host.core.grants.approvals import Approve
from caxton_host.core.grants.grants import Grant
from caxton_host.core.grants.tool_catalog import Offered
from caxton_host.core.log.events import (
    ApprovalRequested,
    Event,
    LogWritten,
    RunFailed,
    ToolInvoked,
    ToolRetried,
    outcome_of,
)
from caxton_host.core.log.runs import outcome_word
from caxton_host.core.text.redact import Redactor
from caxton_host.core.tools.servers import ServerConfig
from caxton_host.errors import StoreError, ToolError
from caxton_host.lib import codec
from caxton_host.lib.logs import of_host
from caxton_host.ports.log import Refused
from caxton_host.ports.sandbox import Door, Ending, Guest
from caxton_host.ports.tools import ToolRequest
from caxton_host.ports.watch import Telemetry
from caxton_host.store import anchors
from caxton_host.store.memory import MemoryLog
from caxton_host.telemetry import NoTelemetry, Observer, observe
from caxton_host.telemetry.instruments import BUDGET
from caxton_host.testing import FakeTools, Script
from tests.collector import Collector, attributes, collecting
from tests.integration.mcp.conftest import FAULTY, processes, until
from tests.scene import ANSWERS, DEMO, Scene, calling, ended, pack, rule

SECRET = "hunter2hunter2"  # noqa: S105 -- it is none


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as made:
        yield made


@pytest.fixture
def served() -> Iterator[Observer]:
    telemetry = observe(None, {}, served=True)
    assert isinstance(telemetry, Observer)
    yield telemetry
    telemetry.close()


def scene_of(telemetry: Telemetry, script: Script, **answers: Any) -> Scene:  # noqa: ANN401
    known = {**ANSWERS, **{("demo", name): value for name, value in answers.items()}}
    tools = FakeTools(known)
    assert isinstance(telemetry, Observer)
    return Scene(script, telemetry=telemetry, tools=telemetry.traced(tools))


def read(telemetry: Observer, name: str) -> dict[tuple[str, ...], float]:
    """Return the points of a metric by the values of their labels, sorted by name."""
    _, text = telemetry.scrape()
    return {
        tuple(v for _, v in sorted(sample.labels.items())): sample.value
        for family in parse(text.decode())
        for sample in family.samples
        if sample.name == name
    }


async def test_counts_are_those_of_the_event_log(served: Observer) -> None:
    async def batch(door: Door, guest: Guest) -> Ending:
        del guest
        names = ("weather", "rm", "mcp__demo__fail", "made_up")
        await door.call_many(codec.encode([(name, {}) for name in names]), 1)
        return ended()

    async def trap(door: Door, guest: Guest) -> Ending:
        del guest
        await door.call(b"weather", pack(), 1)
        return Ending(kind="trap", message="unreachable", fuel=1)

    refusal = Completed(is_error=True, message="no")
    events = []
    for script in (
        calling("weather", "rm", "mcp__demo__fail", "mcp__demo__echo", "made_up"),
        batch,
        trap,
    ):
        scene = scene_of(served, script, echo=refusal)
        events += await scene.run()
    over = scene_of(served, calling("weather", "weather"))
    over.limit(total_calls=1)
    events += await over.run()

    intents = {}
    statuses: Counter[tuple[str, ...]] = Counter()
    decisions: Counter[tuple[str, ...]] = Counter()
    for event in events:
        if isinstance(event, ToolInvoked):
            intents[event.call] = event.server or "unknown", event.tool or "unknown"
        elif end := outcome_of(event):
            server, tool = intents[end[0]]
            status = outcome_word(end[1])
            statuses[server, status, tool] += 1
            code = getattr(end[1], "code", "") if status == "denied" else ""
            decisions[code, "deny" if code else "allow"] += 1
    assert read(served, "caxton_calls_total") == statuses
    assert read(served, "caxton_call_decisions_total") == decisions
    assert {status for _, status, _ in statuses} == {
        *("ok", "tool_error", "denied", "failed")
    }
    assert read(served, "caxton_runs_started_total") == {("weather", "live"): 4}
    assert read(served, "caxton_runs_ended_total") == {
        ("weather", "", "completed"): 2,
        ("weather", "trap", "failed"): 1,
        ("weather", "limit", "failed"): 1,
    }
    assert sum(isinstance(event, RunFailed) for event in events) == 2
    assert read(served, "caxton_runs") == {(): 0}
    calls = read(served, "gen_ai_execute_tool_duration_seconds_count")
    assert sum(calls.values()) == sum(statuses.values())


async def test_name_that_an_agent_made_up_is_in_no_label(served: Observer) -> None:
    made_up = [f"made_up_{n}" for n in range(30)]
    await scene_of(served, calling(*made_up)).run()

    assert read(served, "caxton_calls_total") == {("unknown", "denied", "unknown"): 30}
    assert b"made_up" not in served.scrape()[1]


async def test_name_that_an_agent_made_up_for_a_server_that_is_down_is_in_no_label(
    served: Observer,
) -> None:
    tools = served.traced(FakeTools(ANSWERS, down=["demo"]))
    script = calling(*(f"mcp__demo__made_up_{n}" for n in range(3)))
    await Scene(script, telemetry=served, tools=tools).run()

    assert read(served, "caxton_calls_total") == {("demo", "failed", "unknown"): 3}
    assert b"made_up" not in served.scrape()[1]


class Flaky(FakeTools):
    """Tools that are sent again, and hang up the first time."""

    async def offered(self, servers: Collection[str]) -> Offered:
        offered = await super().offered(servers)
        retry = Retry(attempts=2, backoff=0.0)
        offers = tuple(replace(o, effect="read", retry=retry) for o in offered.offers)
        return replace(offered, offers=offers)

    async def call_tool(self, request: ToolRequest) -> Completed:
        if request.attempt == 1:
            raise ToolError("transport", "unknown", "it hung up")
        return await super().call_tool(request)


async def test_each_send_of_a_call_is_timed_and_the_call_is_one(
    served: Observer,
) -> None:
    tools = served.traced(Flaky(ANSWERS))
    events = await Scene(calling("weather"), telemetry=served, tools=tools).run()

    retries = sum(isinstance(event, ToolRetried) for event in events)
    assert read(served, "mcp_client_operation_duration_seconds_count") == {
        ("demo", "transport", "get_weather", "tools/call"): retries,
        ("demo", "", "get_weather", "tools/call"): 1,
    }
    assert retries == 1
    assert read(served, "caxton_calls_total") == {("demo", "ok", "get_weather"): 1}


async def test_call_of_which_nobody_knows_the_effect_is_in_doubt(
    served: Observer,
) -> None:
    await scene_of(served, calling("mcp__demo__fail", "weather")).run()

    assert read(served, "caxton_call_in_doubt_total") == {
        ("demo", "fail"): 1,
        ("demo", "get_weather"): 0,
    }


async def test_call_whose_host_died_is_in_doubt_until_a_run_is_resumed(
    served: Observer,
) -> None:
    class Dying(FakeTools):
        async def call_tool(self, request: ToolRequest) -> Completed:
            if request.attempt == 1:
                raise StoreError("the host is gone")
            return await super().call_tool(request)

    tools = Dying(ANSWERS, effects={("demo", "echo"): "read"})
    for name in ("mcp__demo__echo", "weather"):
        scene = Scene(calling(name), telemetry=served, tools=served.traced(tools))
        with suppress(StoreError):
            await scene.run()
        await scene.host.resume(scene.run_id, actor={"kind": "local"}, grant=DEMO)

    assert read(served, "caxton_calls_total") == {
        ("demo", "in_doubt", "echo"): 1,
        ("demo", "ok", "echo"): 1,
        ("demo", "in_doubt", "get_weather"): 2,
    }
    assert read(served, "caxton_call_in_doubt_total") == {
        ("demo", "echo"): 1,
        ("demo", "get_weather"): 2,
    }
    assert read(served, "caxton_runs_ended_total") == {
        ("weather", "", "unknown"): 2,
        ("weather", "", "completed"): 1,
        ("weather", "", "suspended"): 1,
    }


async def test_call_that_could_not_be_recorded_was_not_sent_and_is_not_in_doubt(
    served: Observer, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    # law 3
    append = MemoryLog.append

    async def full(log: MemoryLog, *events: Event, **more: Any) -> Refused | None:  # noqa: ANN401
        if any(isinstance(event, ToolInvoked | ToolRetried) for event in events):
            raise StoreError("the disk is full")
        return await append(log, *events, **more)

    sending = sent_to(collector)
    for telemetry in (served, sending):
        tools = FakeTools(ANSWERS)
        traced = telemetry.traced(tools)
        scene = Scene(calling("weather"), telemetry=telemetry, tools=traced)
        with monkeypatch.context() as broken:
            broken.setattr(MemoryLog, "append", full)
            with suppress(StoreError):
                await scene.run()
        assert tools.asked == []
    sending.close()

    status = {("demo", "unrecorded", "get_weather"): 1}
    assert read(served, "caxton_calls_total") == status
    assert set(read(served, "caxton_call_in_doubt_total").values()) == {0}
    assert read(served, "caxton_call_decisions_total") == {}
    [span] = [s for s in collector.spans if s.name == "execute_tool weather"]
    assert attributes(span)["caxton.call.outcome"] == "unrecorded"


async def test_question_to_people_is_a_decision_and_no_call(served: Observer) -> None:
    scene = scene_of(served, calling("weather"))
    wanting = replace(rule("demo/*"), approve=Approve())
    scene.request = replace(scene.request, grant=Grant(allow=(wanting,)))
    events = await scene.run()

    assert sum(isinstance(event, ApprovalRequested) for event in events) == 1
    assert read(served, "caxton_call_decisions_total") == {("", "ask"): 1}
    assert read(served, "caxton_calls_total") == {}
    assert read(served, "caxton_runs_ended_total") == {("weather", "", "suspended"): 1}


async def test_cancelled_run_and_its_call_are_counted_as_the_log_has_them(
    served: Observer,
) -> None:
    class Hanging(FakeTools):
        async def call_tool(self, request: ToolRequest) -> Completed:
            asked.set()
            await asyncio.sleep(30)
            return await super().call_tool(request)

    asked = asyncio.Event()
    tools = served.traced(Hanging(ANSWERS))
    scene = Scene(calling("weather"), telemetry=served, tools=tools)
    task = asyncio.create_task(scene.run())
    await asked.wait()
    assert read(served, "caxton_runs") == {(): 1}
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert read(served, "caxton_calls_total") == {("demo", "failed", "get_weather"): 1}
    assert read(served, "caxton_runs_ended_total") == {("weather", "", "cancelled"): 1}
    assert read(served, "caxton_runs") == {(): 0}


async def test_replay_is_counted_and_its_calls_are_not(served: Observer) -> None:
    # law 6
    scene = scene_of(served, calling("weather", "rm"))
    await scene.run()
    before = read(served, "caxton_calls_total")
    assert (await scene.replay()).verdict == "identical"
    assert (await scene.replay(calling("rm"))).verdict == "diverged"

    assert read(served, "caxton_calls_total") == before
    assert read(served, "caxton_replays_total") == {
        ("identical",): 1,
        ("diverged",): 1,
    }
    assert read(served, "caxton_replay_divergences_total") == {(): 1}
    assert sum(read(served, "caxton_runs_started_total").values()) == 1


# -- over OTLP -----------------------------------------------------------------


def sent_to(collector: Collector, *, served: bool = False) -> Observer:
    telemetry = observe(collector.url, {}, served=served)
    assert isinstance(telemetry, Observer)
    return telemetry


async def test_receiver_gets_what_prometheus_reads(collector: Collector) -> None:
    telemetry = sent_to(collector, served=True)
    await scene_of(telemetry, calling("weather", "rm")).run()
    calls = read(telemetry, "caxton_calls_total")
    telemetry.close()

    points = collector.metrics["caxton.calls"].sum.data_points
    assert {
        tuple(str(v) for _, v in sorted(attributes(p).items())): p.as_int
        for p in points
    } == calls
    assert collector.metrics["caxton.runs"].gauge.data_points[0].as_int == 0


async def test_durations_name_the_span_that_they_are_of(collector: Collector) -> None:
    telemetry = sent_to(collector)
    await scene_of(telemetry, calling("weather")).run()
    telemetry.close()

    for metric, span in (
        ("gen_ai.invoke_agent.duration", "invoke_agent weather"),
        ("gen_ai.execute_tool.duration", "execute_tool weather"),
        ("mcp.client.operation.duration", "tools/call get_weather"),
    ):
        [point] = collector.metrics[metric].histogram.data_points
        [exemplar] = point.exemplars
        [one] = [s for s in collector.spans if s.name == span]
        assert (exemplar.trace_id, exemplar.span_id) == (one.trace_id, one.span_id)
        assert [*point.explicit_bounds][:4] == [0.01, 0.02, 0.05, 0.1]


async def test_log_records_name_the_span_that_they_were_logged_in(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "caxton_host")
    telemetry = sent_to(collector)
    scene = scene_of(telemetry, calling("weather", "rm"))
    await scene.run()
    logging.getLogger("caxton_host.x").warning("apart %s", "\ud800")
    telemetry.close()
    logging.getLogger("caxton_host.activity").info("too late")

    spans = {s.span_id: s.name for s in collector.spans}
    lines = [(r.body.string_value, spans.get(r.span_id)) for r in collector.logs]
    assert lines == [
        ("run began", "invoke_agent weather"),
        ("call settled", "execute_tool weather"),
        ("call settled", "execute_tool rm"),
        ("run ended", "invoke_agent weather"),
        ("apart \\ud800", None),
    ]
    assert {r.trace_id for r in collector.logs[:4]} == {collector.spans[0].trace_id}
    assert collector.logs[1].severity_text == "INFO"
    assert collector.logs[4].severity_text == "WARNING"
    said = attributes(collector.logs[1])
    assert said.pop("caxton.duration_ms")
    assert said == {
        "caxton.logger": "caxton_host.activity",
        "caxton.run.id": scene.run_id,
        "gen_ai.agent.name": "weather",
        "caxton.call.number": 1,
        "caxton.name": "weather",
        "caxton.server.name": "demo",
        "caxton.tool.name": "get_weather",
        "caxton.status": "ok",
    }


async def test_no_secret_is_in_any_metric_or_log_record(collector: Collector) -> None:
    # law 8
    telemetry = sent_to(collector, served=True)
    redact = Redactor([SECRET])
    answers = {("demo", "get_weather"): f"says {SECRET}"}
    scene = Scene(
        calling("weather"),
        telemetry=telemetry,
        tools=telemetry.traced(FakeTools(answers)),
        redact=redact,
    )
    with of_host(redact, telemetry.ids):
        await scene.run()
        logging.getLogger("caxton_host").warning("it said %s", SECRET)
        text = telemetry.scrape()[1]
        telemetry.close()

    everything = text + b"".join(collector.bodies)
    assert b"it said [redacted]" in everything
    assert SECRET.encode() not in everything
    assert b"Oslo" not in everything  # a parameter


@pytest.mark.parametrize("status", [400, 307])  # No redirect is followed.
async def test_what_is_not_taken_is_counted(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    collector.status = status
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")  # milliseconds
    collector.refuses.add("/v1/traces")
    telemetry = sent_to(collector, served=True)
    await scene_of(telemetry, calling("weather")).run()
    await until(lambda: read(telemetry, "caxton_telemetry_lost_total") != {})

    assert read(telemetry, "caxton_telemetry_lost_total") == {("spans",): 1}
    telemetry.close()


# -- when and where ------------------------------------------------------------


def test_without_anybody_who_wants_to_know_nothing_is_watched() -> None:
    telemetry = observe(None, {})
    assert isinstance(telemetry, NoTelemetry)
    telemetry.counts.happened(LogWritten(n=1, level="info", text=""))
    telemetry.counts.look_at(list)
    telemetry.counts.committed(0.1, 1)
    telemetry.counts.look(list, BUDGET, what="budgets")
    telemetry.counts.forget()
    telemetry.counts.delayed(0.1)
    telemetry.counts.requested("GET", "http", "/", 200, 0.1)
    telemetry.counts.anchor_failed()
    telemetry.counts.worker("died")
    telemetry.counts.lost("spans")
    assert telemetry.scrape()[1] == b""


def test_without_anybody_who_wants_to_know_nothing_is_imported() -> None:
    code = """
import sys
from caxton_host.telemetry import observe
observe(None, {})
print([name for name in sys.modules if name.startswith(("opentelemetry", "prom"))])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


async def test_metrics_alone_may_have_an_end_point(collector: Collector) -> None:
    url = f"{collector.url}/v1/metrics"
    telemetry = observe(None, {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": url})
    await scene_of(telemetry, calling("weather")).run()
    telemetry.close()
    assert "caxton.calls" in collector.metrics
    assert (collector.spans, collector.logs) == ([], [])


async def test_host_tells_of_its_log_and_its_anchor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(anchors, "_GRACE", 0.1)
    config = Config(
        store_url=f"sqlite:///{tmp_path}/caxton.db",
        audit=Audit(anchor=f"file:{tmp_path}"),
    )
    paths = Paths(config=tmp_path, data=tmp_path, state=tmp_path, cache=tmp_path)
    async with running(config, paths, {}, served=True) as up:
        await up.store.create("host/1").append(LogWritten(n=1, level="info", text=""))
        await up.store.seal()
        assert isinstance(up.telemetry, Observer)
        async with asyncio.timeout(30):
            while not read(up.telemetry, "caxton_anchor_failures_total")[()]:  # noqa: ASYNC110 -- told a moment later
                await asyncio.sleep(0.01)
        assert read(up.telemetry, "caxton_eventstore_events_total")[()] >= 1
        count = "caxton_eventstore_append_duration_seconds_count"
        assert read(up.telemetry, count)[()] >= 1


async def test_host_counts_the_restarts_of_its_servers(tmp_path: Path) -> None:
    state = tmp_path / "state"
    words = (sys.executable, "-S", str(FAULTY), "sound", str(state))
    config = Config(
        store_url=f"sqlite:///{tmp_path}/caxton.db",
        servers={"faulty": ServerConfig(name="faulty", command=words)},
    )
    paths = Paths(config=tmp_path, data=tmp_path, state=tmp_path, cache=tmp_path)
    async with running(config, paths, {}, start={"a": ["faulty"]}, served=True) as up:
        telemetry = up.telemetry
        assert isinstance(telemetry, Observer)
        await until(lambda: read(telemetry, "caxton_server_up") == {("faulty",): 1})
        assert read(telemetry, "caxton_server_restarts_total") == {}
        os.kill(processes(str(state))[0], signal.SIGKILL)
        await until(lambda: bool(read(telemetry, "caxton_server_restarts_total")))
        await until(lambda: read(telemetry, "caxton_server_up") == {("faulty",): 1})
        assert read(telemetry, "caxton_server_restarts_total") == {("faulty",): 1}
        assert read(telemetry, "caxton_server_breaker") == {("faulty",): 0}


# -- log lines -----------------------------------------------------------------


async def test_run_and_each_of_its_calls_are_a_line_if_somebody_wants_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "caxton_host")
    telemetry = observe(None, {})
    scene = scene_of(telemetry, calling("weather", "rm"))
    scene.request = replace(scene.request, grant=DEMO)
    await scene.run()
    await scene.replay()

    lines = [(r.getMessage(), r.__dict__["caxton_fields"]) for r in caplog.records]
    assert [message for message, _ in lines] == [
        *("run began", "call settled", "call settled", "run ended"),
        *("run began", "run ended"),
    ]
    assert lines[2][1].pop("duration_ms") > 0
    assert lines[2][1] == {
        "name": "rm",
        "server": "shell",
        "tool": "exec",
        "status": "denied",
        "code": "not_granted",
    }
    assert lines[5][1]["verdict"] == "identical"
    assert json.dumps(lines)
