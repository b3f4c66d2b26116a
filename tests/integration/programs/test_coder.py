"""The coder: a model writes programs, reads their errors, and repairs them."""

from __future__ import annotations

import runpy
from typing import Any

import caxton_agent as ca
import pytest
from caxton_agent.testing import FakeHost

from caxton_host.building import find_shared
from caxton_host.core.calls import Completed
from tests.programs import Programs, text

#: The runtime is built and compiled once for a test run.
pytestmark = pytest.mark.timeout(400)

SOURCE = find_shared("agents/coder/agent.py").read_text()
AGENT: dict[str, Any] = runpy.run_path(str(find_shared("agents/coder/agent.py")))
MODEL: dict[str, Any] = runpy.run_path(str(find_shared("agents/coder/model_server.py")))
TASK = {"task": "What is the mean temperature of Lima and Tokyo?"}
CODE = {"type": "object", "properties": {"code": {"type": "string"}}}
OFFERED: list[dict[str, Any]] = [
    {"name": name, "description": "", "input_schema": CODE}
    for name in ("chat", "mcp__sandbox__run_code")
]
WEATHER: dict[str, Any] = {
    "name": "mcp__demo__get_weather",
    "description": "The weather in a city.",
    "input_schema": {
        "type": "object",
        "properties": {"location": {"type": "string"}},
        "required": ["location"],
    },
}
DEGREES = {"Lima": 18, "Tokyo": 16}


def model(params: dict[str, Any]) -> dict[str, Any]:
    return {
        "choices": [{"message": MODEL["complete"](params["messages"], params["tools"])}]
    }


def weather(params: dict[str, Any]) -> Completed:
    city = params["location"]
    return text("", {"location": city, "temperature": DEGREES[city]})


def sandbox(programs: Programs, params: dict[str, Any]) -> ca.Reply | ca.ToolError:
    """Run a program of the model in the runtime."""
    ran = programs(params["code"], {WEATHER["name"]: weather}, catalogue=[WEATHER])
    if ran.ending.message:
        return ca.ToolError("tool_error", ran.error)
    return ca.Reply(str(ran.output))


def test_the_coder_repairs_its_programs_until_one_works(
    python_programs: Programs,
) -> None:
    host = FakeHost(
        {
            "chat": lambda params: ca.Reply("", {"structuredContent": model(params)}),
            "mcp__sandbox__run_code": lambda params: sandbox(python_programs, params),
        },
        input=TASK,
    )
    assert host.run(AGENT["run"]) is None
    assert host.output == {
        "answer": "The mean temperature is 17.0 °C.",
        "programs": 3,
    }
    messages = host.calls[-1][1]["messages"]
    syntax, key, output = [one["content"] for one in messages if one["role"] == "tool"]
    assert "SyntaxError: expected ':'" in syntax
    assert "line 5" in syntax
    assert "KeyError: 'degrees'" in key
    assert "line 7" in key
    assert output == "17.0"


def test_the_coder_is_a_program_that_the_runtime_executes(
    python_programs: Programs,
) -> None:
    errors = iter(["SyntaxError", "KeyError"])

    def run_code(_: dict[str, Any]) -> Completed:
        error = next(errors, None)
        return Completed(is_error=True, message=error) if error else text("17.0")

    ran = python_programs(
        SOURCE,
        {
            "chat": lambda params: text("", model(params)),
            "mcp__sandbox__run_code": run_code,
        },
        input=dict(TASK),
        catalogue=OFFERED,
    )
    assert ran.output == {"answer": "The mean temperature is 17.0 °C.", "programs": 3}


def test_the_coder_stops_when_no_program_works() -> None:
    host = FakeHost(
        {
            "chat": lambda params: ca.Reply("", {"structuredContent": model(params)}),
            "mcp__sandbox__run_code": ca.ToolError("tool_error", "no memory"),
        },
        input=TASK,
    )
    assert host.run(AGENT["run"]) is None
    assert "I do not understand this error" in host.output["answer"]
