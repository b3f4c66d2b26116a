"""What becomes of a call between the gateway and a real server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from caxton_host.core.calls import JSON, Completed, Effect, Failed, ToolCall, cut
from caxton_host.core.grants.grants import Grant
from caxton_host.core.grants.journal import Journal
from caxton_host.core.grants.tool_catalog import catalogue_for
from caxton_host.core.log.events import (
    Event,
    ToolCompleted,
    ToolFailed,
    ToolProgress,
    ToolRetried,
    outcome_of,
)
from caxton_host.core.text.redact import Redactor
from caxton_host.core.tools.servers import Restart, ServerConfig, ToolOptions
from caxton_host.errors import NotFoundError, ToolError
from caxton_host.gateway.gateway import Gateway
from caxton_host.gateway.judge import Judge
from caxton_host.gateway.recorder import Recorder
from caxton_host.lib import codec
from caxton_host.mcp import McpTools
from caxton_host.store.memory import MemoryLog, MemoryStore
from caxton_host.testing import FakeClock, FakeEntropy
from tests.scene import rule

from .conftest import SECRET, Faulty, noted, request
from .faulty_http import FaultyHttp


def tool_call(tool: str = "act", **params: JSON) -> ToolCall:
    return ToolCall(
        number=1,
        name=f"mcp__faulty__{tool}",
        params=params,
        digest=codec.sha256(codec.encode(params)),
    )


async def gate_to(tools: McpTools) -> tuple[Gateway, MemoryLog]:
    """Return a gateway that allows every tool of the server, and its log."""
    grant = Grant(allow=(rule("faulty/*"),))
    offered = await tools.offered(["faulty"])
    catalogue = catalogue_for(grant, {}, offered.offers, offered.options)
    store = MemoryStore(clock=FakeClock(), entropy=FakeEntropy())
    log = store.create("run/1")
    journal = Journal()
    gateway = Gateway(
        judge=Judge(
            run_id="1",
            grant=grant,
            routes=catalogue.routes,
            journal=journal,
            redact=Redactor([SECRET]),
            now=FakeClock().now,
        ),
        recorder=Recorder(log, journal),
        tools=tools,
    )
    return gateway, log


def store_of(log: MemoryLog) -> MemoryStore:
    return log._store


def types(events: Sequence[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


def act(**options: object) -> dict[str, ToolOptions]:
    return {"act": ToolOptions(**options)}  # type: ignore[arg-type]  # of any kind


# -- sent again ----------------------------------------------------------------


@pytest.mark.parametrize("effect", ["read", "idempotent", "keyed"])
async def test_a_call_that_a_server_died_of_is_sent_again_and_recorded(
    faulty: Faulty, state: Path, effect: Effect
) -> None:  # laws 2 and 7
    async with faulty("dies", tools=act(effect=effect)) as tools:
        gate, log = await gate_to(tools)
        outcome = (await gate.call(tool_call())).outcome
    assert isinstance(outcome, Completed)
    assert (outcome.message, outcome.attempts) == ("fine", 2)
    assert types(log.events) == ["ToolInvoked", "ToolRetried", "ToolCompleted"]
    assert log.events[1] == ToolRetried(call=1, attempt=2, reason="transport")
    first, second = map(json.loads, noted(state, "call act "))
    key = "io.caxton/idempotency-key"
    assert first[key] == second[key]


# -- in whose words -------------------------------------------------------------


async def test_a_refusal_is_told_in_the_words_of_the_server_with_its_number(
    faulty: Faulty,
) -> None:
    async with faulty("refuses") as tools:
        gate, log = await gate_to(tools)
        outcome = (await gate.call(tool_call())).outcome
    assert isinstance(outcome, Failed)
    assert outcome.message.startswith("bad [redacted]")
    assert (outcome.kind, outcome.code) == ("protocol", -32602)
    assert isinstance(log.events[-1], ToolFailed)
    assert log.events[-1].code == -32602


async def test_an_empty_answer_is_told_to_be_one(faulty: Faulty) -> None:
    async with faulty("nothing") as tools:
        gate, _ = await gate_to(tools)
        outcome = (await gate.call(tool_call())).outcome
    assert isinstance(outcome, Completed)
    assert (outcome.message, outcome.data) == ("MCP tool returned no result.", None)


# -- kept apart ----------------------------------------------------------------


async def test_large_binary_parts_are_kept_by_digest_for_log_and_agent(
    faulty: Faulty,
) -> None:  # law 5
    async with faulty("pictures") as tools:
        gate, log = await gate_to(tools)
        outcome = (await gate.call(tool_call())).outcome
        await log.append()
    assert isinstance(outcome, Completed)
    assert isinstance(outcome.data, dict)
    content = outcome.data["content"]
    assert isinstance(content, list)
    one, two, small, odd, inner, text = content
    picture = bytes(range(256)) * 400
    named = {
        "sha256": codec.sha256(picture),
        "bytes": 102400,
        "media_type": "image/png",
    }
    assert one == two == {"type": "image", "data": named, "mimeType": "image/png"}
    assert small == {"type": "image", "data": "AA==", "mimeType": "image/png"}
    assert odd == {"type": "audio", "data": "no base64 " * 9000}
    assert isinstance(inner, dict)
    assert isinstance(inner["resource"], dict)
    blob = inner["resource"]["blob"]
    assert isinstance(blob, dict)
    assert blob["media_type"] == "application/octet-stream"
    assert text == {"type": "text", "text": "look"}
    assert outcome.blobs == (named, blob)
    event = log.events[-1]
    assert isinstance(event, ToolCompleted)
    assert (event.data, event.blobs) == (outcome.data, outcome.blobs)
    assert await store_of(log).reader.blob(str(named["sha256"])) == picture
    kept = await store_of(log).reader.blob(str(blob["sha256"]))
    assert kept == b"\xff\x00" * 50_000 + b"[redacted]"  # law 8


@pytest.mark.parametrize("over", [None, 1024 * 1024])
async def test_binary_parts_stay_where_the_operator_wants_that(
    faulty: Faulty, over: int | None
) -> None:
    async with faulty("pictures", blobs_over=over) as tools:
        done = await tools.call_tool(request("act"))
    assert (done.blobs, done.contents) == ((), {})


async def test_of_an_answer_that_is_not_kept_no_blob_is_kept(faulty: Faulty) -> None:
    async with faulty("pictures", tools=act(record="hash")) as tools:
        gate, log = await gate_to(tools)
        outcome = (await gate.call(tool_call())).outcome
        await log.append()
    assert isinstance(outcome, Completed)
    assert len(outcome.blobs) == 2
    with pytest.raises(NotFoundError):
        await store_of(log).reader.blob(str(outcome.blobs[0]["sha256"]))


# -- too large ------------------------------------------------------------------


async def test_an_answer_that_is_too_large_is_cut_where_that_is_wanted(
    faulty: Faulty,
) -> None:
    text = "x" * 2000
    async with faulty("sound", max_result=1000, over_limit="cut") as tools:
        gate, log = await gate_to(tools)
        outcome = (await gate.call(tool_call("echo", text=text))).outcome
    assert isinstance(outcome, Completed)
    whole: JSON = {"content": [{"type": "text", "text": text}]}
    kept = cut(Completed(message=text, data=whole)).data
    assert (outcome.message, outcome.data, outcome.cut) == (text[:1000], kept, False)
    assert outcome_of(log.events[-1]) == (1, outcome)  # law 5


async def test_one_tool_may_be_cut_and_the_others_fail(faulty: Faulty) -> None:
    options = {"echo": ToolOptions(over_limit="cut")}
    async with faulty("large", max_result=1024 * 1024, tools=options) as tools:
        with pytest.raises(ToolError, match="of 1048576 allowed"):
            await tools.call_tool(request("act"))
        done = await tools.call_tool(request("echo", {"text": "y" * 3_000_000}))
        assert done.message == "y" * 64 * 1024
        with pytest.raises(ToolError, match="a line of over"):
            await tools.call_tool(request("echo", {"text": "y" * 5_000_000}))


# -- promised -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ({"structuredContent": {"sky": "purple"}}, r"\$\.sky: "),
        ({"structuredContent": {}}, r"\$: .*sky"),
        ({"structuredContent": {"sky": 7}, "isError": False}, r"\$\.sky: "),
        ({"content": []}, "no structuredContent"),
    ],
)
async def test_an_answer_that_breaks_its_promise_is_an_invalid_result(
    faulty: Faulty, result: dict[str, JSON], why: str
) -> None:
    async with faulty("promises") as tools:
        with pytest.raises(
            ToolError, match=f"not what act promises: .*{why}"
        ) as caught:
            await tools.call_tool(request("act", {"result": result}))
    assert (caught.value.kind, caught.value.sent) == ("invalid_result", "yes")
    assert "purple" not in str(caught.value)


@pytest.mark.parametrize(
    "result",
    [
        {"structuredContent": {"sky": "clear", "more": 1}},
        {"content": [], "isError": True},
    ],
)
async def test_an_answer_that_keeps_its_promise_or_is_an_error_is_taken(
    faulty: Faulty, result: dict[str, JSON]
) -> None:
    async with faulty("promises") as tools:
        done = await tools.call_tool(request("act", {"result": result}))
    assert done.is_error == bool(result.get("isError"))


async def test_what_is_wrong_is_not_told_of_an_answer_that_is_not_kept(
    faulty: Faulty,
) -> None:
    async with faulty("promises", tools=act(record="hash")) as tools:
        with pytest.raises(ToolError, match="promises: which is not kept"):
            await tools.call_tool(request("act", {"result": {"structuredContent": {}}}))


async def test_a_promise_without_a_bound_is_not_interpreted(
    faulty: Faulty, caplog: pytest.LogCaptureFixture
) -> None:  # law 9
    async with faulty("promises_endlessly") as tools:
        done = await tools.call_tool(
            request("act", {"result": {"structuredContent": {"a": 1}}})
        )
    assert done.message == "act returned 1 field"
    assert "faulty/act is not checked: '#' refers to itself" in caplog.text


async def test_an_answer_too_large_for_its_promise_is_taken_unchecked(
    faulty: Faulty, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:  # law 9
    monkeypatch.setattr("caxton_host.core.tools.schemas._STEPS", 20)
    async with faulty("promises") as tools:
        result: JSON = {"structuredContent": {"sky": [*range(50)]}}
        await tools.call_tool(request("act", {"result": result}))
    assert "faulty/act is not checked: the value is too large" in caplog.text


# -- in rounds -----------------------------------------------------------------


async def test_each_round_that_a_server_asks_for_is_recorded_before_it_is_sent(
    faulty: Faulty, state: Path
) -> None:  # law 2
    async with faulty("rounds_by_state") as tools:
        gate, log = await gate_to(tools)
        outcome = (await gate.call(tool_call(n=1))).outcome
    assert isinstance(outcome, Completed)
    assert outcome.attempts == 3
    assert log.events[1:3] == [
        ToolRetried(call=1, attempt=2, reason="input"),
        ToolRetried(call=1, attempt=3, reason="input"),
    ]
    assert types(log.events)[3:] == ["ToolCompleted"]
    assert json.loads(outcome.message) == {
        "name": "act",
        "arguments": {"n": 1},
        "requestState": "\u00fc \u0000 {}2",
    }
    assert len(noted(state, "call act ")) == 3


async def test_a_form_is_answered_with_its_defaults_where_that_is_wanted(
    faulty: Faulty,
) -> None:
    async with faulty("rounds_with_form", elicitation="defaults") as tools:
        done = await tools.call_tool(request("act"))
    said = json.loads(done.message)
    assert said["requestState"] == "\u00fc \u0000 {}"
    assert said["inputResponses"] == {
        "one": {"action": "accept", "content": {"name": "Ann"}}
    }
    async with faulty("rounds_that_want_all", elicitation="defaults") as tools:
        done = await tools.call_tool(request("act"))
    said = json.loads(done.message)
    assert said["inputResponses"] == {"one": {"action": "decline"}}
    assert "requestState" not in said


@pytest.mark.parametrize(
    ("mode", "elicitation", "why"),
    [
        (
            "rounds_with_form",
            "refuse",
            "elicitation/create, which an agent cannot give",
        ),
        ("rounds_with_a_sample", "refuse", "sampling/createMessage, which an agent"),
        ("rounds_with_a_sample", "defaults", "sampling/createMessage, which an agent"),
        ("rounds_with_a_url", "defaults", "elicitation/create, which an agent"),
        ("rounds_for_nothing", "refuse", "does not say which"),
        ("rounds_of_no_shape", "refuse", "does not say which"),
        ("rounds_without_end", "refuse", "after 10 rounds"),
    ],
)
async def test_what_an_agent_has_not_is_refused(
    faulty: Faulty, mode: str, elicitation: str, why: str
) -> None:  # law 9
    async with faulty(mode, elicitation=elicitation) as tools:
        gate, log = await gate_to(tools)
        outcome = (await gate.call(tool_call())).outcome
    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.sent) == ("invalid_result", "yes")
    assert why in outcome.message
    rounds = 10 if mode == "rounds_without_end" else 0
    assert types(log.events).count("ToolRetried") == rounds


async def test_rounds_have_one_deadline(faulty: Faulty) -> None:
    async with faulty("rounds_without_end", timeout=0.3) as tools:
        await tools.offered(["faulty"])
        with pytest.raises(ToolError, match=r"until the deadline|in time") as caught:
            await tools.call_tool(request("act"))
    assert (caught.value.kind, caught.value.sent) == ("timeout", "unknown")


@pytest.mark.parametrize("mode", ["rounds_and_out", "rounds_and_gone"])
async def test_a_server_that_dies_between_rounds_may_have_acted(
    faulty: Faulty, mode: str
) -> None:
    async with faulty(mode, restart=Restart(enabled=False)) as tools:
        gate, log = await gate_to(tools)
        outcome = (await gate.call(tool_call())).outcome
    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.sent) == ("transport", "unknown")
    assert types(log.events) == ["ToolInvoked", "ToolRetried", "ToolFailed"]  # law 7


@pytest.mark.parametrize("elicitation", ["refuse", "defaults"])
async def test_an_old_server_that_asks_a_person_gets_defaults_or_a_refusal(
    faulty: Faulty, elicitation: str
) -> None:
    async with faulty("legacy_elicits", elicitation=elicitation) as tools:
        done = await tools.call_tool(request("act"))
    form, url = json.loads(done.message)
    assert url["error"]["code"] == -32601
    if elicitation == "defaults":
        assert form["result"] == {"action": "accept", "content": {"name": "Ann"}}
    else:
        assert form["error"]["code"] == -32601


# -- told meanwhile ------------------------------------------------------------


@pytest.mark.parametrize("mode", ["reports", "legacy_reports"])
async def test_what_a_server_tells_of_a_call_is_recorded_within_bounds(
    faulty: Faulty, mode: str
) -> None:  # laws 8 and 9
    async with faulty(mode) as tools:
        gate, log = await gate_to(tools)
        shown: list[ToolProgress] = []
        outcome = (await replace(gate, watch=shown.append).call(tool_call())).outcome
        await gate.call(replace(tool_call("echo"), number=2))
    assert isinstance(outcome, Completed)
    assert types(log.events)[:4] == [
        "ToolInvoked",
        "ToolProgress",
        "ToolProgress",
        "ToolCompleted",
    ]
    first, second = shown
    assert log.events[1:3] == shown
    assert (first.call, first.progress, first.total) == (1, 1.0, 4.0)
    assert first.message.startswith(r"[redacted]\n\x1b[31mxxx")
    assert len(first.message) == 500
    assert second == ToolProgress(call=1, message="", progress=3.0)
    assert "ToolProgress" not in types(log.events)[4:]  # nothing once it is settled


@pytest.mark.parametrize("legacy", [False, True])
async def test_progress_over_http_belongs_to_the_request_that_it_names(
    legacy: bool,  # noqa: FBT001 -- a parameter
) -> None:
    async with FaultyHttp("reports", legacy=legacy) as server:
        config = ServerConfig(name="faulty", url=server.url, transport="http")
        async with McpTools({"faulty": config}, redact=Redactor()) as tools:
            gate, log = await gate_to(tools)
            await gate.call(tool_call())
    assert log.events[1] == ToolProgress(call=1, message="half", progress=1.0)
    assert types(log.events) == ["ToolInvoked", "ToolProgress", "ToolCompleted"]


async def test_a_slow_call_is_told_once_in_the_words_of_its_tool(
    faulty: Faulty,
) -> None:
    said = act(slow_response_threshold=0.05, slow_response_message="One moment, {tool}")
    async with faulty("late", tools=said, slow_response_message="of all") as tools:
        gate, log = await gate_to(tools)
        await gate.call(tool_call())
    assert log.events[1] == ToolProgress(call=1, message="One moment, act")
    assert types(log.events) == ["ToolInvoked", "ToolProgress", "ToolCompleted"]


async def test_a_call_is_told_to_be_slow_in_the_words_of_its_server_or_not_at_all(
    faulty: Faulty,
) -> None:
    async with faulty("late", slow_response_threshold=0.05) as tools:
        gate, log = await gate_to(tools)
        await gate.call(tool_call())
    assert log.events[1] == ToolProgress(call=1, message="Still working on act...")
    async with faulty("late", slow_response_threshold=0.0) as tools:
        gate, log = await gate_to(tools)
        await gate.call(tool_call())
    assert types(log.events) == ["ToolInvoked", "ToolCompleted"]


@pytest.mark.parametrize("mode", ["closes", "ends_events", "resets", "breaks"])
@pytest.mark.parametrize("effect", ["read", "unsafe"])
async def test_a_call_over_http_that_broke_off_is_sent_again_if_it_may_be(
    mode: str, effect: Effect
) -> None:  # laws 2 and 7
    async with FaultyHttp(mode) as server:
        config = ServerConfig(
            name="faulty", url=server.url, transport="http", tools=act(effect=effect)
        )
        async with McpTools({"faulty": config}, redact=Redactor()) as tools:
            gate, log = await gate_to(tools)
            outcome = (await gate.call(tool_call())).outcome
        sent = len(server.told("tools/call"))
    if effect == "read":
        assert isinstance(outcome, Completed)
        assert (outcome.attempts, sent) == (2, 2)
        assert types(log.events) == ["ToolInvoked", "ToolRetried", "ToolCompleted"]
    else:
        assert isinstance(outcome, Failed)
        assert (outcome.kind, outcome.sent, sent) == ("transport", "unknown", 1)


async def test_a_call_that_may_have_happened_is_not_sent_again(
    faulty: Faulty, state: Path
) -> None:  # law 7
    async with faulty("dies") as tools:
        gate, log = await gate_to(tools)
        outcome = (await gate.call(tool_call())).outcome
    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.sent) == ("transport", "unknown")
    assert types(log.events) == ["ToolInvoked", "ToolFailed"]
    assert len(noted(state, "call act ")) == 1
