"""A model passes programs to a host that runs them: code as a tool."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult, TextContent, Tool

from tests import standin

from .shell import CAXTON, Shell, toml
from .test_docs import ROOT

#: The runtime is built and compiled once for a test run.
pytestmark = pytest.mark.timeout(400)

SANDBOX = """\
[agents.sandbox]
runtime = "python"
program = "caller"
description = "Computes with the weather."
expose = { mcp = true, name = "run_code" }

[[agents.sandbox.allow]]
tools = ["demo/get_weather"]
"""


@pytest.fixture
def sandbox(runtimes: Shell) -> Shell:
    runtimes.write("caxton.toml", toml({"servers.demo": standin.command()}, SANDBOX))
    return runtimes


@asynccontextmanager
async def serving(shell: Shell) -> AsyncGenerator[Client]:
    started = StdioServerParameters(
        command=CAXTON,
        args=["serve", "--stdio"],
        cwd=shell.folder,
        env=dict(shell.environ),
    )
    async with Client(started) as served:
        yield served


def text(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


def test_description_has_the_tools_that_the_grant_allows(sandbox: Shell) -> None:
    async def listed() -> Tool:
        async with serving(sandbox) as served:
            (tool,) = (await served.list_tools()).tools
            return tool

    tool = asyncio.run(listed())

    assert tool.name == "run_code"
    assert tool.description
    assert tool.description.startswith("Computes with the weather.\n\nRuns a program")
    assert "\ntools.demo.get_weather(location: str" in tool.description
    assert "echo" not in tool.description
    assert [*tool.input_schema["properties"]] == ["code", "input", "narrow"]


def test_program_is_a_run_and_an_error_comes_back_with_its_place(
    sandbox: Shell,
) -> None:
    code = (
        "from caxton_agent import input, tools\n"
        "def run():\n"
        "    weather = tools.demo.get_weather(location=input()['city'])\n"
        "    return {'degrees': weather['degrees']}\n"
    )
    lima = {"city": "Lima"}
    repaired = code.replace("['degrees']", "['temperature']")

    async def called() -> list[CallToolResult]:
        async with serving(sandbox) as served:
            return [
                await served.call_tool("run_code", given)
                for given in (
                    {"code": code, "input": lima},
                    {"code": "x = (1"},
                    {"code": repaired, "input": lima},
                    {"code": repaired, "input": lima, "narrow": ["demo/echo"]},
                    {"code": "#" * 262_145},
                )
            ]

    failed, wrong, worked, denied, large = asyncio.run(called())

    assert failed.is_error
    assert 'File "code.py", line 4, in run' in text(failed)
    assert "KeyError: 'degrees'" in text(failed)
    assert wrong.is_error
    assert 'File "code.py", line 1\n    x = (1\n' in text(wrong)
    assert worked.structured_content == {"degrees": 18}
    assert "has the name 'demo' (granted: none)" in text(denied)
    assert large.is_error
    assert "has more than the 262,144 bytes allowed" in text(large)
    run = str((worked.meta or {})["io.caxton/run-id"])
    assert sandbox("replay", run).out.startswith("identical: 1 call")
    assert sandbox("audit", "verify").code == 0
    states = [one["state"] for one in sandbox("runs", "list", "--json").document]
    assert sorted(states) == ["completed", "failed", "failed", "failed"]


def test_page_shows_what_a_model_sees_and_gets_back(runtimes: Shell) -> None:
    page = (ROOT / "docs" / "how-to" / "code-as-a-tool.md").read_text()
    shown = {
        kind: re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL)
        for kind in ("toml", "json", "text")
    }
    runtimes.write("caxton.toml", python(shown["toml"][0]))

    async def told() -> list[str | None]:
        async with serving(runtimes) as served:
            (tool,) = (await served.list_tools()).tools
            calls = [json.loads(one) for one in shown["json"]]
            results = [await served.call_tool("run_code", call) for call in calls]
            return [tool.description, *map(text, results)]

    lines = "\n".join(f"{one}" for one in asyncio.run(told())) + "\n"
    assert nameless(lines) == nameless("".join(shown["text"]))


def nameless(told: str) -> str:
    return re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID", told)


def python(config: str) -> str:
    """Return a configuration with the programs of this environment."""
    here = sys.executable
    config = config.replace('command = "python"', f'command = "{here}"')
    return config.replace('command = "caxton"', f'command = "{CAXTON}"')
