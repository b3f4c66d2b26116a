"""The real agent, in the real sandbox, with tools that answer by a script."""

from __future__ import annotations

import os
import signal
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.limits import Limits
from caxton_host.errors import ToolError, UnexpectedRun, UsageError
from caxton_host.pytest_plugin import CaxtonAgent
from caxton_host.testing import (
    DENIED,
    Answer,
    Harness,
    Tool,
    failure,
    run_agent,
    tool_error,
)
from tests.e2e.guests import SPINS, TRAPS, call, guest, log
from tests.integration.sandbox.support import wasm

from .support import ECHO, WEATHER, batch

OTHERS: dict[str, Answer] = {
    "mcp__webhook__forecast": failure(),
    "mcp__demo__echo": DENIED,
}
ASKS = guest(call("ask", n=1), output="asked")


def fix_of(error: pytest.ExceptionInfo[BaseException]) -> str:
    (note,) = error.value.__notes__
    assert note.startswith("To fix: ")
    return str(note)


def test_an_agent_does_what_its_tools_let_it(caxton_agent: CaxtonAgent) -> None:
    run = caxton_agent(
        WEATHER,
        tools={"weather": "Lima: 18 °C, fog", **OTHERS},
        input={"location": "Lima"},
    )
    assert run.calls == [
        ("weather", {"location": "Lima"}),
        ("mcp__webhook__forecast", {"location": "Lima"}),
        ("mcp__demo__echo", {"text": "is anybody there?"}),
    ]
    assert [reply["status"] for reply in run.replies] == ["ok", "failed", "denied"]
    assert (run.status, run.error) == ("completed", None)
    assert run.logs == [("info", "Lima: 18 °C, fog")]
    assert isinstance(run.output, dict)
    assert run.output["summary"] == "Lima: 18 °C, fog"
    assert run.output["denied"] is True


def result(text: str, **more: JSON) -> dict[str, JSON]:
    return {"content": [{"type": "text", "text": text}], **more}


@pytest.mark.parametrize(
    ("answer", "status", "message", "data"),
    [
        ("clear", "ok", "clear", result("clear")),
        (result("clear"), "ok", "clear", result("clear")),
        (
            {"structuredContent": {"sky": "clear"}},
            "ok",
            "ask returned 1 field",
            {"content": [], "structuredContent": {"sky": "clear"}},
        ),
        (
            {"sky": "clear"},
            "ok",
            '{"sky": "clear"}',
            result('{"sky": "clear"}', structuredContent={"sky": "clear"}),
        ),
        (18, "ok", "18", result("18", structuredContent={"result": 18})),
        (None, "ok", "MCP tool returned no result.", None),
        (tool_error("no city"), "tool_error", "no city", result("no city")),
        (failure("timeout", message="too late"), "failed", "too late", None),
        (DENIED, "denied", "this agent has no grant for that tool", None),
        (["clear"], "ok", "clear", result("clear")),
        (lambda params: f"n is {params['n']}", "ok", "n is 1", result("n is 1")),
        (lambda _: failure("protocol"), "failed", "the connection was lost", None),
        (Tool("clear", "The sky"), "ok", "clear", result("clear")),
    ],
)
def test_an_agent_gets_what_the_script_says(
    caxton_agent: CaxtonAgent,
    answer: Answer,
    status: str,
    message: str,
    data: JSON,
) -> None:
    (reply,) = caxton_agent(ASKS, tools={"ask": answer}).replies
    assert (reply["status"], reply["message"], reply["data"]) == (status, message, data)


def test_a_function_may_raise_a_failure(caxton_agent: CaxtonAgent) -> None:
    def ask(_: dict[str, JSON]) -> Answer:
        raise ToolError("transport", "no", "it is down")

    (reply,) = caxton_agent(ASKS, tools={"ask": ask}).replies
    assert reply["error"] == {"code": "transport", "message": "it is down"}


def test_each_call_gets_its_own_answer(caxton_agent: CaxtonAgent) -> None:
    given: dict[str, JSON] = {"tool": "say", "n": 3, "text": "hi"}
    answers = ["one", tool_error("two"), lambda params: params["text"]]
    run = caxton_agent(ECHO, tools={"say": answers}, input=given)
    assert [reply["message"] for reply in run.replies] == ["one", "two", "hi"]
    assert run.output == 2


def test_a_batch_is_answered_in_order(caxton_agent: CaxtonAgent) -> None:
    agent = batch(["say", {"n": 1}], ["other", {}], ["say", {"n": 2}])
    run = caxton_agent(agent, tools={"say": ["a", "b"], "other": "c"})
    assert [reply["message"] for reply in run.replies] == ["a", "c", "b"]
    assert run.calls == [("say", {"n": 1}), ("other", {}), ("say", {"n": 2})]


def test_a_call_without_a_script_fails_the_test(caxton_agent: CaxtonAgent) -> None:
    with pytest.raises(UnexpectedRun) as error:
        caxton_agent(WEATHER, tools={"weather": "fog"})
    assert str(error.value) == (
        "call 2, mcp__webhook__forecast with {'location': 'Seattle'}, has no script\n"
        "  scripted: weather"
    )
    assert "add 'mcp__webhook__forecast' to tools" in fix_of(error)


def test_a_granted_call_without_a_script_fails_too(caxton_agent: CaxtonAgent) -> None:
    agent = guest(call("mcp__demo__other", n=1))
    allow = ["demo/other"]
    tools = {"demo/one": "1"}
    with pytest.raises(UnexpectedRun, match=r"demo/other with \{'n': 1\}, has no scri"):
        caxton_agent(agent, tools=tools, allow=allow)


def test_one_call_too_many_fails_the_test(caxton_agent: CaxtonAgent) -> None:
    given: dict[str, JSON] = {"tool": "say", "n": 3, "text": "hi"}
    with pytest.raises(UnexpectedRun, match=r"call 3, say .* more than the 2 that"):
        caxton_agent(ECHO, tools={"say": ["one", "two"]}, input=given)


def test_an_answer_that_nobody_asked_for_fails_the_test(
    caxton_agent: CaxtonAgent,
) -> None:
    tools: dict[str, Answer] = {"ask": ["a", "b", "c"], "other": "d", "no": DENIED}
    with pytest.raises(UnexpectedRun) as error:
        caxton_agent(ASKS, tools=tools)
    assert "never called: ask, 2 of 3 answers; other; no\n" in str(error.value)
    assert "the run completed; its calls: [('ask', {'n': 1})]" in str(error.value)
    assert "strict=False" in fix_of(error)
    assert caxton_agent(ASKS, tools=tools, strict=False).output == "asked"


def test_of_a_run_that_failed_the_message_says_why(caxton_agent: CaxtonAgent) -> None:
    with pytest.raises(UnexpectedRun, match="the run failed, trap: "):
        caxton_agent(guest(then=TRAPS), tools={"ask": "a"})


def test_an_agent_that_fails_is_a_run_like_any_other(caxton_agent: CaxtonAgent) -> None:
    run = caxton_agent(guest(log("alas"), then="(i32.const 7)"))
    assert (run.status, run.error) == ("failed", "agent_error: the agent returned 7")
    assert (run.output, run.logs) == (None, [("warning", "alas")])
    # "unreachable" ends it at once; a loop, its fuel.
    assert str(caxton_agent(guest(then=TRAPS)).error).startswith("trap: ")
    spun = caxton_agent(guest(then=SPINS), limits=Limits(fuel=1_000_000))
    assert str(spun.error).startswith("limit: fuel")


def test_what_a_function_raises_is_what_the_test_fails_with(
    caxton_agent: CaxtonAgent,
) -> None:
    def ask(params: dict[str, JSON]) -> Answer:
        assert params == {"n": 2}, "another number"
        return "never"

    def gives_up(_: dict[str, JSON]) -> Answer:
        pytest.fail("not today")

    with pytest.raises(AssertionError, match="another number") as error:
        caxton_agent(ASKS, tools={"ask": ask})
    # Between the test and its own function, there is nothing of ours to read.
    shown = [
        e.name for e in error.traceback if not e.frame.f_locals.get("__tracebackhide__")
    ]
    assert [shown[0], shown[-1]] == [
        test_what_a_function_raises_is_what_the_test_fails_with.__name__,
        "ask",
    ]
    with pytest.raises(pytest.fail.Exception, match="not today"):
        caxton_agent(ASKS, tools={"ask": gives_up})
    assert caxton_agent(ASKS, tools={"ask": "still here"}).output == "asked"


def test_tools_are_named_as_grants_and_agents_do(caxton_agent: CaxtonAgent) -> None:
    agent = guest(call("mcp__demo__echo", text="a"), call("say", text="b"))
    run = caxton_agent(
        agent,
        tools={"demo/echo": "echoed", "demo/say": "said"},
        names={"say": "demo/say"},
    )
    assert [reply["message"] for reply in run.replies] == ["echoed", "said"]
    assert run.calls[1] == ("say", {"text": "b"})


def test_what_is_not_allowed_is_denied(caxton_agent: CaxtonAgent) -> None:  # law 4
    agent = guest(call("mcp__demo__echo"), call("mcp__other__echo"))
    tools = {"demo/echo": "a", "other/echo": "b"}
    run = caxton_agent(agent, tools=tools, allow=["demo/*"])
    assert [reply["status"] for reply in run.replies] == ["ok", "denied"]


def test_bad_parameters_are_for_the_test_to_judge(caxton_agent: CaxtonAgent) -> None:
    agent = guest(("call", b"ask", b"\xc1"))
    run = caxton_agent(agent, tools={"ask": "a"}, strict=False)
    assert run.calls == [("ask", None)]
    assert run.replies[0]["status"] == "bad_request"


def test_an_answer_is_bounded_as_ever(caxton_agent: CaxtonAgent) -> None:  # law 9
    limits = Limits(result=1000)
    run = caxton_agent(ASKS, tools={"ask": "x" * 1000}, limits=limits)
    assert run.replies[0]["error"]["code"] == "too_large"  # type: ignore[index, call-overload]


def test_what_a_script_says_of_a_tool_is_what_the_agent_reads(
    caxton_agent: CaxtonAgent,
) -> None:
    agent = wasm(
        "(local.set $r (call $tools (i32.const 0) (i32.const 9999)))"
        "(call $output (i32.const 0) (i32.wrap_i64 (local.get $r))) (i32.const 0)"
    )
    schema = {"type": "object", "required": ["city"]}
    tools: dict[str, Answer] = {
        "ask": Tool(None, "The sky", input_schema=schema),
        "demo/echo": "a",
        "demo/no": DENIED,
    }
    known = {"description": "", "input_schema": {"type": "object"}}
    assert caxton_agent(agent, tools=tools, strict=False).output == [
        {"name": "ask", "description": "The sky", "input_schema": schema},
        {"name": "mcp__demo__echo", **known},
    ]


def test_time_and_chance_are_what_a_test_says(caxton_agent: CaxtonAgent) -> None:
    agent = wasm(
        """(i64.store (i32.const 0) (i64.shr_u (call $now) (i64.const 40)))
        (call $log (i32.const 1) (i32.const 0) (i32.const 8))
        (call $random (i32.const 0) (i32.const 64))
        (call $log (i32.const 1) (i32.const 0) (i32.const 64)) (i32.const 0)"""
    )
    hour, chance = caxton_agent(agent).logs
    assert caxton_agent(agent).logs == [hour, chance]
    again, other = caxton_agent(agent, seed=1).logs
    assert (again, other != chance) == (hour, True)
    later = datetime(2123, 1, 1, tzinfo=UTC)
    assert caxton_agent(agent, now=later).logs[0] != hour


def test_two_runs_are_the_same(caxton_agent: CaxtonAgent) -> None:
    given: dict[str, Any] = {"tools": {"weather": "fog", **OTHERS}, "seed": 7}
    assert caxton_agent(WEATHER, **given) == caxton_agent(WEATHER, **given)


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        ({"a b": "x"}, "'a b' cannot be the name of a tool"),
        ({"a/b/c": "x"}, "'a/b/c' is not SERVER/TOOL"),
        (
            {"ask": {"content": "text"}},
            "ask is not a CallToolResult: .*list of content",
        ),
        ({"ask": {1, 2}}, "ask is not JSON but set"),
        ({"ask": {"x": object()}}, "ask is not JSON but dict"),
        ({"ask": [float("nan")]}, "ask is not JSON but float: nan is not a number"),
        ({"ask": ["a", DENIED]}, "ask: DENIED is not one answer of several"),
        ({"ask": lambda _: object()}, "ask is not JSON but object"),
        ({"demo/ask": "x", "mcp__demo__ask": "y"}, "two tools would be called"),
    ],
)
def test_a_script_that_cannot_be_is_refused(
    caxton_agent: CaxtonAgent, tools: dict[str, Answer], message: str
) -> None:
    with pytest.raises(UsageError, match=message) as error:
        caxton_agent(guest(call("ask")), tools=tools)
    assert fix_of(error)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"now": datetime(2026, 1, 1)}, "without a time zone"),  # noqa: DTZ001
        ({"now": datetime(1969, 1, 1, tzinfo=UTC)}, "before 1970"),
        ({"seed": -1}, "seed is negative"),
        ({"seed": 1 << 256}, "more than 256 bits"),
        ({"limits": Limits(module=10)}, "larger than 10 bytes"),
        ({"input": "x" * 99, "limits": Limits(input=50)}, "the input has"),
        ({"entry": "start"}, "start"),
    ],
)
def test_a_task_that_cannot_be_is_refused(
    caxton_agent: CaxtonAgent, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        caxton_agent(WEATHER, **given)


def test_a_module_that_is_none_is_refused(
    caxton_agent: CaxtonAgent, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"cannot read the module .*none.wasm"):
        caxton_agent(tmp_path / "none.wasm")
    with pytest.raises(UsageError) as error:
        caxton_agent(b"no module")
    assert fix_of(error)


def test_an_interrupt_stops_the_agent(caxton_agent: CaxtonAgent) -> None:
    limits = Limits(fuel=1 << 60, compute=100)
    usual = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            caxton_agent(guest(then=SPINS), limits=limits)
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, usual)
    assert caxton_agent(ASKS, tools={"ask": "still here"}).output == "asked"


async def test_an_asynchronous_test_may_run_agents(caxton_agent: CaxtonAgent) -> None:
    assert caxton_agent(ASKS, tools={"ask": "a"}).output == "asked"


def test_an_agent_may_be_run_without_pytest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert run_agent(str(WEATHER), tools={"weather": "fog", **OTHERS}).logs
    assert (tmp_path / ".cache" / "caxton" / "modules").is_dir()


def test_a_harness_is_a_context_manager() -> None:
    with pytest.raises(RuntimeError, match="with Harness"):
        Harness().run(ASKS)
