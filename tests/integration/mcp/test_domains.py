"""A confined server has a process for each trust domain: an agent, for one tenant."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from caxton_host.app.tool_setup import Tooling
from caxton_host.config import load
from caxton_host.core.calls import JSON
from caxton_host.core.log.events import Event, ServerConnected
from caxton_host.core.text.redact import Redactor
from caxton_host.core.tools.confinement import Confine
from caxton_host.core.tools.servers import ServerConfig
from caxton_host.errors import ToolError
from caxton_host.mcp import McpTools
from caxton_host.mcp.pool import Pool
from caxton_host.ports.tools import RunScope
from caxton_host.telemetry import NoTelemetry

from .conftest import processes, request, until

#: Keeps what it is told, in its memory and its scratch, and answers with what it had.
KEEPER = """
import json, os, pathlib, sys
kept, notes = [], pathlib.Path(os.environ["HOME"]) / "notes"
TOOL = {"name": "keep", "inputSchema": {"type": "object"}}
START = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
    "serverInfo": {"name": "keeper", "version": "1"}}
for line in sys.stdin:
    asked = json.loads(line)
    match asked.get("method"):
        case "initialize":
            said = START
        case "tools/list":
            said = {"tools": [TOOL]}
        case "tools/call":
            text = asked["params"]["arguments"]["text"]
            had = [*kept, notes.read_text() if notes.exists() else ""]
            kept.append(text)
            notes.write_text(text)
            said = {"content": [{"type": "text", "text": json.dumps(had)}]}
        case _:
            said = {}
    if "id" in asked:
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": said}
        print(json.dumps(answer), flush=True)
"""
NOTHING, ALL = '[""]', '["one", "one"]'


@pytest.fixture
def config(tmp_path: Path) -> ServerConfig:
    program = tmp_path / "keeper.py"
    program.write_text(KEEPER)
    words = (sys.executable, "-I", "-S", str(program))
    return ServerConfig(name="keeper", command=words, confine=Confine())


def of(agent: str, tenant: str | None = None) -> RunScope:
    actor: dict[str, JSON] = {} if tenant is None else {"tenant": tenant}
    return RunScope(run_id="0198", agent=agent, actor=actor)


async def keep(tools: McpTools, scope: RunScope, text: str) -> str:
    wanted = request("keep", {"text": text}, server="keeper")
    async with tools.open(scope) as own:
        return (await own.call_tool(wanted)).message


async def test_another_agent_or_tenant_has_another_process_with_its_own_scratch(
    config: ServerConfig, events: list[Event]
) -> None:
    # law 8
    pool = Pool()
    tools = McpTools(
        {"keeper": config}, redact=Redactor(), on_event=events.append, pool=pool
    )
    async with tools:
        assert await keep(tools, of("a"), "one") == NOTHING
        assert await keep(tools, of("b"), "two") == NOTHING
        assert await keep(tools, of("a", "acme"), "three") == NOTHING
        assert await keep(tools, of("a"), "four") == ALL
        assert len(pool.status()) == 3
        with pytest.raises(ToolError, match="each agent has a process of its own"):
            await tools.call_tool(request("keep", server="keeper"))
    domains = [e.domain for e in events if isinstance(e, ServerConnected)]
    assert domains == ["a", "b", "@acme/a"]
    assert pool.status() == []
    assert not processes(config.command[-1])


async def test_what_a_run_did_not_use_is_not_kept_for_the_next_one(
    config: ServerConfig,
) -> None:
    pool, other = Pool(), replace(config, name="other")
    tools = McpTools({"keeper": config, "other": other}, redact=Redactor(), pool=pool)
    async with tools:
        assert await keep(tools, of("a"), "one") == NOTHING
        assert [one.server for one in pool.status()] == ["keeper"]


async def test_shared_it_is_one_process_and_so_is_one_that_is_not_confined(
    config: ServerConfig, events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(Path(config.command[-1]).parent))
    for confine in (Confine(shared=True), None):
        one = replace(config, confine=confine)
        tools = McpTools({"keeper": one}, redact=Redactor(), on_event=events.append)
        async with tools:
            assert await keep(tools, of("a"), "one") == NOTHING
            assert await keep(tools, of("b"), "two") == ALL
    domains = [e.domain for e in events if isinstance(e, ServerConnected)]
    assert domains == [None, None]


async def test_its_process_is_kept_for_an_agent_that_is_told_of_beforehand(
    config: ServerConfig, events: list[Event]
) -> None:
    tools = McpTools({"keeper": config}, redact=Redactor(), on_event=events.append)
    async with tools, tools.kept("a", ["keeper"]):
        await until(lambda: events)
        assert await keep(tools, of("a"), "one") == NOTHING
    assert [e.domain for e in events if isinstance(e, ServerConnected)] == ["a"]


@pytest.mark.parametrize(
    ("start", "domains"), [(None, ["a"]), ({"c": ["keeper"]}, ["c"]), ({}, [])]
)
async def test_an_eager_server_is_started_for_the_agents_that_may_use_it(
    config: ServerConfig,
    events: list[Event],
    tmp_path: Path,
    start: Mapping[str, Collection[str]] | None,
    domains: list[str],
) -> None:
    path = tmp_path / "caxton.toml"
    path.write_text(
        f"""
        version = 1
        [servers.keeper]
        command = {json.dumps(config.command)}
        start = "eager"
        confine = "strict"
        [agents.a]
        module = "a.wasm"
        allow = [{{ tools = ["keeper/*"] }}]
        [agents.b]
        module = "b.wasm"
        """
    )
    tooling = Tooling(
        redact=Redactor(), telemetry=NoTelemetry(), on_event=events.append, start=start
    )
    async with tooling.open(load(path, environ={}, cwd=tmp_path)):
        await until(lambda: len(events) >= len(domains))
    assert [e.domain for e in events if isinstance(e, ServerConnected)] == domains
