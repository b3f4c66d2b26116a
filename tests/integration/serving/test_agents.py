"""Agents are tools of MCP, and a call of one is a run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from caxton_host.core.calls import JSON
from caxton_host.core.log.events import RunCancelled, RunStarted, ToolDenied
from caxton_host.web.mcp.agents import IDEMPOTENCY_KEY, NARROW, RUN_ID, STATE
from tests.integration.serving.clients import Mode, meta, serving
from tests.office import ANN, BOB, Office, Slow, who

pytestmark = pytest.mark.parametrize("mode", ["auto", "legacy"])


@asynccontextmanager
async def client(office: Office, mode: Mode) -> AsyncGenerator[Client]:
    async with serving(office.service) as url, Client(url, mode=mode) as found:
        yield found


def run_of(result: CallToolResult) -> str:
    assert result.meta is not None
    return str(result.meta[RUN_ID])


async def test_an_agent_is_listed_as_it_describes_itself(
    tmp_path: Path, mode: Mode
) -> None:
    async with client(Office(tmp_path), mode) as served:
        (tool,) = (await served.list_tools()).tools

    assert (tool.name, tool.title) == ("sky", "weather")
    assert tool.description == "Says what the sky is like."
    assert tool.input_schema == {"type": "object"}
    assert tool.annotations is None


async def test_a_call_is_a_run_of_who_calls(tmp_path: Path, mode: Mode) -> None:
    office = Office(tmp_path)
    async with client(office, mode) as served:
        result = await served.call_tool("sky", {"city": "Oslo"})

    assert not result.is_error
    assert result.structured_content == {"sky": "clear"}
    assert result.meta is not None
    assert result.meta[STATE] == "completed"
    recorded = await office.scene.store.reader.read(f"run/{run_of(result)}")
    started = recorded[0].event
    assert isinstance(started, RunStarted)
    assert started.actor == ANN.actor
    assert started.input == {"city": "Oslo"}


async def test_what_a_client_may_not_call_does_not_exist_for_it(
    tmp_path: Path, mode: Mode
) -> None:
    stranger = who("carl", agents=("bank*",))
    async with (
        serving(Office(tmp_path).service, stranger) as url,
        Client(url, mode=mode) as served,
    ):
        assert (await served.list_tools()).tools == []
        for name in ("sky", "weather", "nothing"):
            with pytest.raises(MCPError, match="no tool") as caught:
                await served.call_tool(name, {})
            assert caught.value.error.code == -32602


async def test_the_list_comes_in_pages(tmp_path: Path, mode: Mode) -> None:
    office = Office(tmp_path)
    agent = office.config.agents["weather"]
    names = [f"w{number:03}" for number in range(550)]
    many = {
        name: replace(agent, name=name, expose=replace(agent.expose, name=None))
        for name in reversed(names)
    }
    office.config = replace(office.config, agents=many)

    found: list[str] = []
    async with client(office, mode) as served:
        page = await served.list_tools()
        found += [tool.name for tool in page.tools]
        assert page.next_cursor is not None
        rest = await served.list_tools(cursor=page.next_cursor)
        found += [tool.name for tool in rest.tools]
        with pytest.raises(MCPError, match="no such cursor"):
            await served.list_tools(cursor="?")

    assert found == names
    assert rest.next_cursor is None


@pytest.mark.parametrize("given", [{"y": 1}, {"x": 1, "y": 1}, {"x": None}])
async def test_arguments_that_do_not_fit_start_no_run(
    tmp_path: Path, mode: Mode, given: dict[str, object]
) -> None:
    office = Office(tmp_path)
    agent = office.config.agents["weather"]
    schema: dict[str, JSON] = {
        "type": "object",
        "properties": {"x": {"type": "integer"}},
        "required": ["x"],
        "additionalProperties": False,
    }
    expose = replace(agent.expose, input_schema=schema)
    office.config = replace(
        office.config, agents={"weather": replace(agent, expose=expose)}
    )

    async with client(office, mode) as served:
        result = await served.call_tool("sky", given)

    assert result.is_error
    assert [*given][-1] in str(result.content)
    assert await office.scene.store.reader.runs(10) == []


async def test_a_module_that_is_gone_is_no_business_of_clients(
    tmp_path: Path, mode: Mode
) -> None:
    office = Office(tmp_path)
    async with client(office, mode) as served:
        (office.folder / "weather.wasm").unlink()
        with pytest.raises(MCPError) as caught:
            await served.call_tool("sky", {})

    assert str(tmp_path) not in str(caught.value)


async def test_who_has_no_room_is_told_when_to_come_again(
    tmp_path: Path, mode: Mode
) -> None:
    office = Office(tmp_path)
    office.service.line.closed = True
    async with client(office, mode) as served:
        with pytest.raises(MCPError, match="about to stop") as caught:
            await served.call_tool("sky", {})

    assert caught.value.error.data == {"retryAfter": 5.0}


async def test_a_client_that_hangs_up_cancels_its_run(
    tmp_path: Path, mode: Mode
) -> None:
    tools = Slow()
    office = Office(tmp_path, tools=tools)
    async with client(office, mode) as served:
        call = asyncio.create_task(served.call_tool("sky", {}))
        await tools.reached.wait()
        call.cancel()
        await asyncio.wait([call])
        (row,) = await office.scene.store.reader.runs(10)
        await asyncio.wait_for(office.done(row.run_id), 10)

    last = (await office.scene.store.reader.read(f"run/{row.run_id}"))[-1].event
    assert isinstance(last, RunCancelled)
    assert last.actor == ANN.actor
    assert last.reason


async def test_a_call_with_a_key_can_be_made_again(tmp_path: Path, mode: Mode) -> None:
    tools = Slow()
    office = Office(tmp_path, tools=tools)
    key = meta(**{IDEMPOTENCY_KEY: "k1"})
    async with client(office, mode) as served:
        calls = [
            asyncio.create_task(served.call_tool("sky", {}, meta=key)) for _ in range(3)
        ]
        await tools.reached.wait()
        tools.let.set()
        first, *others = await asyncio.gather(*calls)
        again = await served.call_tool("sky", {}, meta=key)
        other = await served.call_tool("sky", {"x": 1}, meta=key)

    assert {run_of(first)} == {run_of(one) for one in (*others, again)}
    assert other.is_error
    assert "key was used" in str(other.content)


async def test_a_run_of_somebody_else_is_not_gone_on_with(
    tmp_path: Path, mode: Mode
) -> None:
    office = Office(tmp_path)
    run_id = await office.start(BOB)
    async with client(office, mode) as served:
        with pytest.raises(MCPError, match="no run"):
            await served.call_tool("sky", {}, meta=meta(**{RUN_ID: run_id}))
        mine = await office.start(ANN)
        result = await served.call_tool("sky", {}, meta=meta(**{RUN_ID: mine}))

    assert run_of(result) == mine
    assert result.structured_content == {"sky": "clear"}


@pytest.mark.parametrize("key", ["", "k" * 257])
async def test_a_key_has_its_bounds(tmp_path: Path, mode: Mode, key: str) -> None:
    office = Office(tmp_path)
    async with client(office, mode) as served:
        result = await served.call_tool("sky", {}, meta=meta(**{IDEMPOTENCY_KEY: key}))

    assert result.is_error
    assert await office.scene.store.reader.runs(10) == []


async def test_a_caller_narrows_the_run_of_its_call(tmp_path: Path, mode: Mode) -> None:
    office = Office(tmp_path)
    less = {"allow": [{"tools": ["demo/echo"]}]}
    async with client(office, mode) as served:
        result = await served.call_tool("sky", {}, meta=meta(**{NARROW: less}))
        wrong = await served.call_tool("sky", {}, meta=meta(**{NARROW: "demo/echo"}))

    recorded = await office.scene.store.reader.read(f"run/{run_of(result)}")
    (denied,) = (e.event for e in recorded if isinstance(e.event, ToolDenied))
    assert denied.rule == "narrow"
    assert wrong.is_error
    assert "io.caxton/narrow is an object" in str(wrong.content)
