"""Traces of runs that are denied, retried, in doubt, resumed, forked and replayed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from caxton_host.core.calls import JSON, Completed, Effect
from caxton_host.core.calls import Retry as Retries
from caxton_host.core.grants.approvals import Approve
from caxton_host.core.grants.grants import Grant
from caxton_host.core.grants.tool_catalog import Offered
from caxton_host.core.log.events import Recorded, RunSuspended
from caxton_host.core.log.requests import Fail, GiveResult, Resend, Resolution
from caxton_host.core.text.trace_context import trace_of
from caxton_host.errors import CaxtonError, StoreError, ToolError
from caxton_host.lib import codec
from caxton_host.ports.sandbox import Door, Ending, Guest
from caxton_host.ports.tools import ToolRequest, ToolSource
from caxton_host.runs.approvals import Word, say
from caxton_host.runs.recording import Recording
from caxton_host.runs.run_request import ForkRequest
from caxton_host.telemetry import Observer
from caxton_host.telemetry.rebuild_spans import Beside, send_again
from caxton_host.telemetry.tools import ObservedTools
from caxton_host.testing import FakeTools
from tests.collector import Collector, attributes, close, collecting, connect, traced
from tests.family import Family, allowing, asking, child_of, grant
from tests.integration.serving.clients import meta, serving
from tests.office import Office
from tests.office import calling as calling_over_http
from tests.scene import ANSWERS, DEMO, Scene, calling, ended, pack, rule

ANN: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}
CLIENT = Span.SPAN_KIND_CLIENT
CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as made:
        yield made


def again(scene: Scene, collector: Collector, **environ: str) -> None:
    """Trace anew, so that what was traced is there and what comes is apart."""
    close(scene)
    telemetry = connect(collector.url, environ)
    scene.telemetry = telemetry
    assert isinstance(scene.tools, ObservedTools)
    assert isinstance(scene.tools.tools, ToolSource)
    scene.host = replace(
        scene.host, telemetry=telemetry, tools=telemetry.traced(scene.tools.tools)
    )
    collector.spans.clear()


def told(span: Span) -> str:
    """Return a span in a line: what tells it from others."""
    said = attributes(span)
    words = [
        said.get(key)
        for key in (
            "caxton.run.mode" if "invoke" in span.name else "",
            "caxton.run.state",
            "caxton.call.outcome",
            "caxton.call.served_from",
            "caxton.call.attempt",
            "caxton.call.retry_reason",
        )
    ]
    error = [f"({said['error.type']})"] if "error.type" in said else []
    assert bool(error) == (span.status.code == span.status.STATUS_CODE_ERROR)
    return " ".join([span.name, *(str(word) for word in words if word), *error])


def tree(spans: list[Span]) -> list[str]:
    """Return the lines of a trace, each below its parent, in the order of time."""
    known = {span.span_id for span in spans}

    def below(parent: bytes, depth: int) -> Iterator[str]:
        for span in sorted(spans, key=lambda s: (s.start_time_unix_nano, s.name)):
            mine = span.parent_span_id if span.parent_span_id in known else b""
            if mine == parent:
                yield "  " * depth + told(span)
                yield from below(span.span_id, depth + 1)

    assert len({span.trace_id for span in spans}) == 1
    return list(below(b"", 0))


def links(span: Span) -> list[tuple[str, str, str]]:
    return [
        (link.attributes[0].value.string_value, link.trace_id.hex(), link.span_id.hex())
        for link in span.links
    ]


def decision(span: Span) -> dict[str, Any]:
    [event] = span.events
    assert event.name == "caxton.acl.decision"
    return {item.key: item.value.string_value for item in event.attributes}


def intent(recorded: list[Recorded], call: int) -> Recorded:
    [found] = [
        e
        for e in recorded
        if e.type == "ToolInvoked" and e.event.call == call  # type: ignore[union-attr]  # by its type
    ]
    return found


# -- live ----------------------------------------------------------------------


async def test_decisions_are_events_of_calls(collector: Collector) -> None:  # law 4
    scene = traced(collector.url, calling("weather", "rm"))
    await scene.run()
    close(scene)

    assert decision(collector.named("execute_tool weather")) == {
        "caxton.acl.verdict": "allow",
        "caxton.acl.rule": "allow[1]",
    }
    assert decision(collector.named("execute_tool rm")) == {
        "caxton.acl.verdict": "deny",
        "caxton.acl.code": "not_granted",
    }


@dataclass(slots=True)
class Flaky(FakeTools):
    """Tools that are sent again, and fail the first time."""

    async def offered(self, servers: Collection[str]) -> Offered:
        offered = await FakeTools.offered(self, servers)
        retry = Retries(attempts=2, backoff=0.0)
        offers = tuple(replace(o, effect="read", retry=retry) for o in offered.offers)
        return replace(offered, offers=offers)

    async def call_tool(self, request: ToolRequest) -> Completed:
        if request.attempt == 1:
            raise ToolError("transport", "unknown", "it hung up", code=-32000)
        return await FakeTools.call_tool(self, request)


async def test_each_attempt_of_a_call_is_a_client_span(collector: Collector) -> None:
    scene = traced(collector.url, calling("weather"), Flaky(ANSWERS))
    await scene.run()
    close(scene)

    assert tree(collector.spans) == [
        "invoke_agent weather live completed",
        "  execute_tool weather ok upstream",
        "    tools/call get_weather 1 (-32000)",
        "    tools/call get_weather 2 transport",
    ]
    first, _ = (s for s in collector.spans if s.kind == CLIENT)
    assert attributes(first)["rpc.response.status_code"] == "-32000"
    call = collector.named("execute_tool weather")
    assert {e.span_id for e in (await scene.recorded())[1:4]} == {call.span_id.hex()}


async def test_further_send_that_the_server_asks_for_is_an_attempt(
    collector: Collector,
) -> None:
    class Asking(FakeTools):
        async def call_tool(self, request: ToolRequest) -> Completed:
            await request.on_resend()
            return await super().call_tool(request)

    scene = traced(collector.url, calling("weather"), Asking(ANSWERS))
    await scene.run()
    close(scene)

    assert tree(collector.spans)[2:] == [
        "    tools/call get_weather 1",
        "    tools/call get_weather 2 input",
    ]


async def test_number_of_an_error_is_not_said_where_answers_are_not_kept(
    collector: Collector,
) -> None:  # law 8
    answers = {("demo", "get_weather"): ToolError("protocol", "yes", "42", code=42)}
    tools = FakeTools(answers, hashed=[("demo", "get_weather")])
    scene = traced(collector.url, calling("weather"), tools)
    await scene.run()
    close(scene)

    attempt = collector.named("tools/call get_weather")
    assert "rpc.response.status_code" not in attributes(attempt)


async def test_call_that_waits_says_that_somebody_is_asked(
    collector: Collector,
) -> None:
    scene = traced(collector.url, calling("weather"))
    wanting = replace(rule("demo/*"), approve=Approve())
    scene.request = replace(scene.request, grant=Grant(allow=(wanting,)))
    await scene.run()
    close(scene)

    assert tree(collector.spans) == [
        "invoke_agent weather live suspended",
        "  execute_tool weather waits",
    ]
    asked = decision(collector.named("execute_tool weather"))
    assert asked == {"caxton.acl.verdict": "ask"}


async def test_each_call_of_a_batch_that_waits_says_so(collector: Collector) -> None:
    close(await waiting_together(collector))

    assert tree(collector.spans) == [
        "invoke_agent weather live suspended",
        "  execute_tool weather waits",
        "  execute_tool mcp__demo__echo waits",
    ]


# -- who asked -------------------------------------------------------------------

ASKED = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("flags", "names", "passed"),
    [("01", [], {}), ("03", ["tenant"], {"baggage": "tenant=acme"})],
)
async def test_run_is_below_who_asked_for_it(
    collector: Collector, flags: str, names: list[str], passed: dict[str, str]
) -> None:
    class Reading(FakeTools):
        async def call_tool(self, request: ToolRequest) -> Completed:
            assert isinstance(scene.telemetry, Observer)
            seen.append(scene.telemetry.headers())
            return await super().call_tool(request)

    seen: list[dict[str, str]] = []
    scene = traced(collector.url, calling("weather"), Reading(ANSWERS))
    asked = {
        "traceparent": f"00-{ASKED[0]}-{ASKED[1]}-{flags}",
        "tracestate": "vendor=1",
        "baggage": "secret=1,tenant=acme;p=1",
    }
    assert isinstance(scene.telemetry, Observer)
    scene.telemetry.trace_of = partial(trace_of, names=names)
    scene.request = replace(scene.request, trace=asked)
    await scene.run()
    close(scene)

    run = collector.named("invoke_agent weather")
    assert (run.trace_id.hex(), run.parent_span_id.hex()) == ASKED
    assert {e.trace_id for e in await scene.recorded()} == {ASKED[0]}
    [headers] = seen
    assert headers.pop("traceparent").startswith(f"00-{ASKED[0]}-")
    assert headers == {"tracestate": "vendor=1", **passed}  # Other baggage ends here.


async def over_http(office: Office, traceparent: str) -> None:
    async with calling_over_http(office) as client:
        asked = {"traceparent": traceparent, "baggage": "secret=1,tenant=acme"}
        answer = await client.post(
            "/api/v1/runs?wait=20", json={"agent": "weather"}, headers=asked
        )
        assert answer.status_code == 200


async def over_mcp(office: Office, traceparent: str) -> None:
    async with serving(office.service) as url, Client(url) as client:
        asked = meta(traceparent=traceparent, baggage="secret=1,tenant=acme")
        assert not (await client.call_tool("sky", {}, meta=asked)).is_error


@pytest.mark.parametrize("ask", [over_http, over_mcp])
async def test_run_that_is_served_is_below_the_request(
    collector: Collector,
    tmp_path: Path,
    ask: Callable[[Office, str], Awaitable[None]],
) -> None:
    seen: list[str | None] = []
    office = Office(tmp_path)
    telemetry = connect(collector.url, {})
    telemetry.trace_of = partial(trace_of, names=["tenant"])
    office.service.host = replace(office.scene.host, telemetry=telemetry)

    async def script(door: Door, guest: Guest) -> Ending:
        del door, guest
        seen.append(telemetry.headers().get("baggage"))
        return ended()

    office.scene.sandbox.script = script
    await ask(office, f"00-{ASKED[0]}-{ASKED[1]}-01")
    telemetry.close()

    assert seen == ["tenant=acme"]
    top = collector.named("invoke_agent weather")
    if ask is over_mcp:  # The request has a span of its own.
        request = collector.named("tools/call sky")
        assert top.parent_span_id == request.span_id
        top = request
    assert (top.trace_id.hex(), top.parent_span_id.hex()) == ASKED


@pytest.mark.parametrize("asked", ["00-0-0-01", "ff" * 40, ""])
async def test_trace_context_that_is_none_is_ignored(
    collector: Collector, asked: str
) -> None:
    scene = traced(collector.url, calling())
    scene.request = replace(scene.request, trace={"traceparent": asked})
    await scene.run()
    close(scene)

    assert not collector.named("invoke_agent weather").parent_span_id


# -- resumed, forked, replayed ---------------------------------------------------


class Dying(FakeTools):
    """Tools whose host dies while they are asked for the second time."""

    async def call_tool(self, request: ToolRequest) -> Completed:
        if request.call == 2 and request.attempt == 1:
            raise StoreError("the host is gone")
        return await super().call_tool(request)


async def crashed(collector: Collector, **effects: Effect) -> Scene:
    """Return a scene whose run was sent a second call when its host died."""
    names = {("demo", key): value for key, value in effects.items()}
    tools = Dying(ANSWERS, effects=names)
    scene = traced(collector.url, calling("weather", "mcp__demo__echo"), tools)
    with suppress(StoreError):
        await scene.run()
    close(scene)
    return scene


async def test_call_whose_host_died_is_in_doubt(collector: Collector) -> None:
    await crashed(collector)

    assert tree(collector.spans) == [
        "invoke_agent weather live (store)",
        "  execute_tool weather ok upstream",
        "    tools/call get_weather 1",
        "  execute_tool mcp__demo__echo in_doubt (store)",
        "    tools/call echo 1 (store)",
    ]


async def test_resumed_run_is_a_trace_of_its_own_and_linked(
    collector: Collector,
) -> None:  # law 7
    scene = await crashed(collector, echo="read")
    began = collector.named("invoke_agent weather")
    again(scene, collector)

    await scene.host.resume(scene.run_id, actor=ANN, grant=DEMO)
    close(scene)

    assert tree(collector.spans) == [
        "invoke_agent weather resume completed",
        "  execute_tool mcp__demo__echo ok upstream",
        "    tools/call echo 2 resumed",
    ]
    run = collector.named("invoke_agent weather")
    assert run.trace_id != began.trace_id
    assert links(run) == [("resume_of", began.trace_id.hex(), began.span_id.hex())]
    said = attributes(run)
    assert said["caxton.link.type"] == "resume_of"
    assert said["caxton.origin.trace_id"] == began.trace_id.hex()
    assert said["caxton.origin.run_id"] == scene.run_id
    recorded = await scene.recorded()
    later = [e for e in recorded if e.seq >= said["caxton.event.seq"]]  # type: ignore[operator]  # a number
    assert {e.trace_id for e in later} == {run.trace_id.hex()}
    call = collector.named("execute_tool mcp__demo__echo")
    assert {e.span_id for e in later[1:-1]} == {call.span_id.hex()}


async def test_call_in_doubt_that_may_not_be_repeated_suspends_the_run(
    collector: Collector,
) -> None:
    scene = await crashed(collector)
    again(scene, collector)

    await scene.host.resume(scene.run_id, actor=ANN, grant=DEMO)
    close(scene)

    assert tree(collector.spans) == [
        "invoke_agent weather resume suspended",
        "  execute_tool mcp__demo__echo in_doubt (in_doubt)",
    ]


@pytest.mark.parametrize(
    ("resolution", "line"),
    [
        (GiveResult(Completed(message="found")), "ok resolution"),
        (Fail(), "failed resolution (cancelled)"),
    ],
)
async def test_call_that_a_person_resolved_says_who(
    collector: Collector, resolution: Resolution, line: str
) -> None:
    scene = await crashed(collector)
    place = intent(await scene.recorded(), 2).seq
    await scene.host.resolve(scene.run_id, place, resolution, actor=ANN, reason="")
    again(scene, collector)

    await scene.host.resume(scene.run_id, actor=ANN, grant=DEMO)
    close(scene)

    assert tree(collector.spans) == [
        "invoke_agent weather resume completed",
        f"  execute_tool mcp__demo__echo {line}",
    ]
    call = collector.named("execute_tool mcp__demo__echo")
    assert attributes(call)["caxton.resolved_by"] == "ann"


async def test_call_that_is_sent_again_by_a_person_says_who(
    collector: Collector,
) -> None:
    scene = await crashed(collector)
    place = intent(await scene.recorded(), 2).seq
    await scene.host.resolve(scene.run_id, place, Resend(), actor=ANN, reason="")
    again(scene, collector)

    await scene.host.resume(scene.run_id, actor=ANN, grant=DEMO)
    close(scene)

    assert tree(collector.spans)[1:] == [
        "  execute_tool mcp__demo__echo ok upstream",
        "    tools/call echo 2 resolved",
    ]
    call = collector.named("execute_tool mcp__demo__echo")
    assert attributes(call)["caxton.resolved_by"] == "ann"


async def test_fork_is_linked_to_its_parent_and_traces_what_is_new(
    collector: Collector,
) -> None:
    scene = traced(collector.url, calling("weather", "mcp__demo__echo"))
    await scene.run()
    again(scene, collector)
    began = (await scene.recorded())[0]

    request = ForkRequest(run_id=scene.run_id, seq=3, actor=ANN, grant=DEMO)
    run_id = await scene.host.fork(request)
    close(scene)

    assert tree(collector.spans) == [
        "invoke_agent weather live completed",
        "  execute_tool mcp__demo__echo ok upstream",
        "    tools/call echo 1",
    ]
    run = collector.named("invoke_agent weather")
    assert links(run) == [("forked_from", began.trace_id, began.span_id)]
    said = attributes(run)
    assert said["caxton.run.id"] == run_id
    assert said["caxton.origin.run_id"] == scene.run_id


async def test_replay_is_linked_call_by_call_and_reaches_nothing(
    collector: Collector,
) -> None:  # law 6
    scene = traced(collector.url, calling("weather", "rm"))
    await scene.run()
    again(scene, collector)
    recorded = await scene.recorded()

    assert (await scene.replay()).verdict == "identical"
    close(scene)

    assert tree(collector.spans) == [
        "invoke_agent weather replay completed",
        "  execute_tool weather ok log",
        "  execute_tool rm denied log (not_granted)",
    ]
    run = collector.named("invoke_agent weather")
    assert links(run) == [("replay_of", recorded[0].trace_id, recorded[0].span_id)]
    said = attributes(run)
    assert said["caxton.replay.diverged"] is False
    assert said["caxton.replay.verdict"] == "identical"
    before = intent(recorded, 1)
    call = collector.named("execute_tool weather")
    assert links(call) == [("replay_of", before.trace_id, before.span_id)]
    said = attributes(call)
    assert said["caxton.event.stream"] == before.stream
    assert said["caxton.event.seq"] == before.seq
    assert said["caxton.event.hash"] == before.hash.hex()


async def test_replay_that_diverges_says_so_and_not_how(collector: Collector) -> None:
    scene = traced(collector.url, calling("weather"))
    await scene.run()
    again(scene, collector)

    assert (await scene.replay(calling("rm"))).verdict == "diverged"
    close(scene)

    assert tree(collector.spans) == [
        "invoke_agent weather replay completed (diverged)",
        "  execute_tool rm log (diverged)",
    ]
    run = attributes(collector.named("invoke_agent weather"))
    assert run["caxton.replay.diverged"] is True


@pytest.mark.parametrize("dying", [True, False])
async def test_replay_of_a_run_without_an_end_says_where_it_stands(
    collector: Collector, *, dying: bool
) -> None:
    if dying:
        scene = await crashed(collector)
    else:
        scene = traced(collector.url, calling("weather"))
        wanting = replace(rule("demo/*"), approve=Approve())
        scene.request = replace(scene.request, grant=Grant(allow=(wanting,)))
        await scene.run()
    again(scene, collector)

    assert (await scene.replay()).verdict == "identical"
    close(scene)

    last = tree(collector.spans)[-1]
    assert CLIENT not in {span.kind for span in collector.spans}  # law 6
    if dying:
        assert last == "  execute_tool mcp__demo__echo in_doubt log (in_doubt)"
    else:
        assert last == "  execute_tool weather waits"


# -- what is said of content ------------------------------------------------------


async def with_content(collector: Collector, capture: str) -> list[Span]:
    async def script(door: Door, guest: Guest) -> Ending:
        del guest
        await door.call(b"weather", pack(city="Oslo", key="hunter2-hunter2"), 1)
        return ended()

    answers = {("demo", "get_weather"): Completed(message="ok", data="sunny")}
    scene = traced(collector.url, script, FakeTools(answers))
    scene.redact.learn(["hunter2-hunter2"])
    again(scene, collector, **{CAPTURE: capture} if capture else {})
    await scene.run()
    close(scene)
    return collector.spans


@pytest.mark.parametrize("capture", ["", "NO_CONTENT", "EVENT_ONLY", "true"])
async def test_without_a_wish_no_content_is_on_a_span(
    collector: Collector, capture: str
) -> None:  # law 8
    spans = await with_content(collector, capture)
    everything = b"".join(span.SerializeToString() for span in spans)
    assert b"execute_tool weather" in everything
    assert b"Oslo" not in everything
    assert b"sunny" not in everything
    assert b"hunter2" not in everything


@pytest.mark.parametrize("capture", ["SPAN_ONLY", "SPAN_AND_EVENT"])
async def test_who_wants_content_gets_what_the_log_holds(
    collector: Collector, capture: str
) -> None:  # law 8
    spans = await with_content(collector, capture)
    call = attributes(collector.named("execute_tool weather"))
    assert json.loads(str(call["gen_ai.tool.call.arguments"]))["city"] == "Oslo"
    assert json.loads(str(call["gen_ai.tool.call.result"]))["message"] == "ok"
    assert b"hunter2" not in b"".join(span.SerializeToString() for span in spans)


# -- once more, of the log ---------------------------------------------------------


async def live(collector: Collector) -> Scene:
    scene = traced(collector.url, calling("weather", "rm", "mcp__demo__fail"))
    await scene.run()
    return scene


async def retried(collector: Collector) -> Scene:
    scene = traced(collector.url, calling("weather"), Flaky(ANSWERS))
    await scene.run()
    return scene


async def batched(collector: Collector) -> Scene:
    async def script(door: Door, guest: Guest) -> Ending:
        del guest
        names = ("weather", "rm", "mcp__demo__fail")
        await door.call_many(codec.encode([(name, {}) for name in names]), 1)
        return ended()

    scene = traced(collector.url, script)
    await scene.run()
    return scene


async def waiting(collector: Collector) -> Scene:
    scene = traced(collector.url, calling("weather"))
    wanting = replace(rule("demo/*"), approve=Approve())
    scene.request = replace(scene.request, grant=Grant(allow=(wanting,)))
    await scene.run()
    return scene


async def waiting_together(collector: Collector) -> Scene:
    async def script(door: Door, guest: Guest) -> Ending:
        del guest
        names = ("weather", "rm", "mcp__demo__echo")
        await door.call_many(codec.encode([(name, {}) for name in names]), 1)
        return ended()

    scene = traced(collector.url, script)
    wanting = replace(rule("demo/*"), approve=Approve())
    scene.request = replace(scene.request, grant=Grant(allow=(wanting,)))
    await scene.run()
    return scene


async def resumed(collector: Collector) -> Scene:
    scene = await crashed(collector, echo="read")
    again(scene, collector)
    await scene.host.resume(scene.run_id, actor=ANN, grant=DEMO)
    return scene


async def given(collector: Collector) -> Scene:
    scene = await crashed(collector)
    again(scene, collector)
    await scene.host.resume(scene.run_id, actor=ANN, grant=DEMO)
    place = intent(await scene.recorded(), 2).seq
    result = GiveResult(Completed(message="found"))
    await scene.host.resolve(scene.run_id, place, result, actor=ANN, reason="")
    await scene.host.resume(scene.run_id, actor=ANN, grant=DEMO)
    return scene


async def forked(collector: Collector) -> Scene:
    scene = traced(collector.url, calling("weather", "mcp__demo__echo"))
    await scene.run()
    again(scene, collector)
    request = ForkRequest(run_id=scene.run_id, seq=3, actor=ANN, grant=DEMO)
    scene.run_id = await scene.host.fork(request)
    return scene


#: What the log does not hold, or holds though nobody could know it at the time.
_BESIDE = {
    "caxton.event.hash",
    "http.response.status_code",
    "jsonrpc.request.id",
    "rpc.response.status_code",
}


def compared(span: Span) -> tuple[object, ...]:
    said = attributes(span)
    error = said.pop("error.type", None)
    return (
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.kind,
        links(span),
        bool(error),
        {key: value for key, value in said.items() if key not in _BESIDE},
        [decision(span)] if span.events else [],
    )


async def test_long_run_is_sent_in_parts_until_one_is_refused(
    collector: Collector,
) -> None:
    scene = Scene(calling(*["rm"] * 1100))
    scene.limit(host_calls=2000, total_calls=2000)
    await scene.run()
    recording = await Recording.load(scene.run_id, scene.store.reader)
    url = f"{collector.url}/v1/traces"

    assert await asyncio.to_thread(send_again, recording, url, {}) == 1101
    assert len(collector.paths) == 3

    collector.refuses.add("/v1/traces")
    with pytest.raises(CaxtonError, match="did not take"):
        await asyncio.to_thread(send_again, recording, url, {})
    assert len(collector.paths) == 4


async def test_run_without_ids_in_its_log_gets_the_same_each_time(
    collector: Collector,
) -> None:
    scene = Scene(calling("weather"))
    await scene.run()
    recording = await Recording.load(scene.run_id, scene.store.reader)
    url = f"{collector.url}/v1/traces"

    await asyncio.to_thread(send_again, recording, url, {})
    await asyncio.to_thread(send_again, recording, url, {})

    assert len(collector.spans) == 6
    assert len({span.span_id for span in collector.spans}) == 3
    (trace_id,) = {span.trace_id.hex() for span in collector.spans}
    assert trace_id == recording.own[0].trace_id


@pytest.mark.parametrize(
    "made", [live, retried, batched, waiting, waiting_together, resumed, given, forked]
)
async def test_spans_of_the_log_are_those_that_were_sent(
    collector: Collector, made: Callable[[Collector], Any]
) -> None:
    scene = await made(collector)
    close(scene)
    recording = await Recording.load(scene.run_id, scene.store.reader)
    before = {span.span_id: compared(span) for span in collector.spans}
    collector.spans.clear()

    url = f"{collector.url}/v1/traces"
    sent = await asyncio.to_thread(send_again, recording, url, {})

    after = {span.span_id: compared(span) for span in collector.spans}
    assert sent == len(collector.spans) == len(after)
    assert {span_id: after[span_id] for span_id in before} == before
    times = [e.recorded_at * 1000 for e in recording.own]
    for span in collector.spans:
        assert times[0] <= span.start_time_unix_nano <= span.end_time_unix_nano
        assert span.end_time_unix_nano <= times[-1]


async def test_each_part_of_a_run_is_linked_to_the_one_before(
    collector: Collector,
) -> None:
    scene = await given(collector)
    recorded = await scene.recorded()
    close(scene)

    second, third = (s for s in collector.spans if s.name == "invoke_agent weather")
    parts = [e for e in recorded if e.type in {"RunStarted", "RunResumed"}]
    assert links(second) == [("resume_of", parts[0].trace_id, parts[0].span_id)]
    assert links(third) == [("resume_of", parts[1].trace_id, parts[1].span_id)]
    assert third.trace_id.hex() == parts[2].trace_id


async def test_run_that_a_run_calls_is_below_the_call_and_linked_when_resumed(
    collector: Collector, tmp_path: Path
) -> None:
    below = grant(allowing("demo/*", approve=Approve()))
    grants = {"top": grant("agents/*", "demo/*"), "below": below}
    scripts = {"top": asking("agents/below"), "below": asking("demo/echo")}
    family = Family(tmp_path, scripts, grants, ANSWERS)
    telemetry = family.telemetry = connect(collector.url, {})
    run_id = await family.run("top")
    child = child_of(run_id)
    word = Word(verdict="approve", actor=ANN, reason="")
    await say(family.store, child, None, word, now=family.clock.now())
    await family.resume(run_id)
    telemetry.close()

    calls = [s for s in collector.spans if s.name == "execute_tool mcp__agents__below"]
    runs = [s for s in collector.spans if s.name == "invoke_agent below"]
    assert [s.parent_span_id for s in runs] == [calls[0].span_id, b""]
    assert [kind for kind, _, _ in links(runs[1])] == ["resume_of", "called_by"]
    assert links(runs[1])[0][2] == runs[0].span_id.hex()
    assert links(runs[1])[1][2] == calls[1].span_id.hex()
    for one in runs:
        assert attributes(one)["caxton.caller.run_id"] == run_id
        assert attributes(one)["caxton.caller.call"] == 1

    collector.spans.clear()
    recording = await Recording.load(child, family.store.reader)
    beside = await Beside.of(recording, family.store.reader)
    url = f"{collector.url}/v1/traces"
    await asyncio.to_thread(send_again, recording, url, {}, beside)
    again = [s for s in collector.spans if s.name == "invoke_agent below"]
    assert [s.parent_span_id for s in again] == [calls[0].span_id, b""]
    assert [s.span_id for s in again] == [s.span_id for s in runs]


@pytest.mark.parametrize("unsent", [(), (1,)])
async def test_frozen_run_has_no_call_in_doubt(
    collector: Collector, unsent: tuple[int, ...]
) -> None:
    scene = Scene(calling("weather"))
    await scene.run()
    whole, there = await scene.events(), scene.store.create("run/frozen")
    what: dict[str, JSON] = {"kind": "server", "name": "demo"}
    frozen = RunSuspended(reason="frozen", call=1, frozen=what, unsent=unsent)
    await there.append(*whole[: 1 + len(unsent)], frozen)
    recording = await Recording.load("frozen", scene.store.reader)

    url = f"{collector.url}/v1/traces"
    await asyncio.to_thread(send_again, recording, url, {})

    calls = [line for line in tree(collector.spans) if "execute_tool" in line]
    assert calls == ["  execute_tool weather frozen"] * len(unsent)
