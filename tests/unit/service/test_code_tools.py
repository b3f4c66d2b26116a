"""An agent that executes what its caller sends is described with its tools."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from caxton_host.config import Agent, Config
from caxton_host.core.calls import JSON
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.grants.tool_catalog import Offered
from caxton_host.core.text.globs import Pattern
from caxton_host.errors import ServerUnavailable
from caxton_host.runs.modules import AgentDescription
from caxton_host.service.code_tools import LARGEST_HEADER, CodeTools
from caxton_host.testing.fakes import FakeTools

CARD = AgentDescription(
    name="sandbox",
    tool="run_code",
    description="Computes.",
    version="",
    input_schema=None,
    output_schema=None,
)


@dataclass(slots=True)
class Slow(FakeTools):
    """Servers that answer once they are released, unless they are down."""

    open_now: asyncio.Event = field(default_factory=asyncio.Event)
    problem: str = ""
    unlisted: dict[str, str] = field(default_factory=dict)
    lists: list[Collection[str]] = field(default_factory=list)

    async def offered(self, servers: Collection[str]) -> Offered:
        self.lists.append(servers)
        await self.open_now.wait()
        if self.problem:
            raise ServerUnavailable(self.problem)
        offered = await FakeTools.offered(self, servers)
        silent: dict[str, dict[str, JSON]] = {
            name: {"problem": why} for name, why in self.unlisted.items()
        }
        return replace(offered, servers={**offered.servers, **silent})


def tools(*names: str) -> Slow:
    found = Slow({tuple(name.split("/")): "" for name in names})  # type: ignore[misc]
    found.open_now.set()
    return found


def sandbox(*patterns: str, **keys: Any) -> Agent:  # noqa: ANN401
    rule = Rule(id="allow[1]", tools=tuple(map(Pattern.parse, patterns)))
    known = {"name": "sandbox", "runtime": "python", "program": "caller"}
    return Agent(**{**known, "grant": Grant(allow=(rule,)), **keys})


def code_tools(source: FakeTools, *agents: Agent, patience: float = 10) -> CodeTools:
    config = Config(store_url="memory", agents={one.name: one for one in agents})
    return CodeTools(
        tools=source,
        servers=("crm", "mail"),
        config=lambda: config,
        patience=patience,
    )


async def told(code: CodeTools, agent: Agent) -> str:
    await code.refresh()
    return code.described(agent, CARD).description


async def test_description_names_what_the_grant_allows_and_asks_no_other_server() -> (
    None
):
    source, agent = tools("crm/find", "crm/drop", "mail/read"), sandbox("crm/find")

    said = await told(code_tools(source, agent), agent)

    assert said.startswith("Computes.\n\nRuns a program in Python")
    assert "\ntools.crm.find(" in said
    assert "drop" not in said
    assert source.lists == [["crm"]]


async def test_agents_own_names_apply() -> None:
    agent = sandbox("crm/find", names={"find": ("crm", "find")})

    assert "\ntools.find(" in await told(code_tools(tools("crm/find"), agent), agent)


async def test_javascript_is_described_in_javascript() -> None:
    agent = sandbox("crm/find_all", runtime="typescript")

    said = await told(code_tools(tools("crm/find_all"), agent), agent)

    assert "tools.crm.findAll(" in said
    assert 'from "caxton"' in said


async def test_description_is_bounded() -> None:
    agent = sandbox("crm/*")
    many = tools(*(f"crm/tool_{n}" for n in range(5_000)))

    said = await told(code_tools(many, agent), agent)

    assert len(said) < LARGEST_HEADER + 1_000
    assert "tools not listed: " in said


async def test_without_tools_it_says_so_and_other_agents_stay_as_they_are() -> None:
    agent, source = sandbox(), tools("crm/find")
    module = replace(agent, program=None, runtime=None)

    assert (await told(code_tools(source, agent), agent)).endswith("It has no tools.")
    assert await told(code_tools(source, module), module) == "Computes."
    assert source.lists == [[]]


async def test_description_says_which_tools_are_missing_and_quotes_no_problem() -> None:
    source, agent = tools("crm/find"), sandbox("crm/*", "mail/*")
    source.unlisted = {"mail": "env PASSWORD=hunter2"}

    some = await told(code_tools(source, agent), agent)
    assert some.endswith("Some tools are missing: these servers do not answer: mail.")
    assert "hunter2" not in some  # law 8

    none = await told(code_tools(source, sandbox("mail/*")), sandbox("mail/*"))
    assert none.endswith("It has no tools now: these servers do not answer: mail.")

    source.problem = "the server mail is down: env PASSWORD=hunter2"
    code = code_tools(source, agent)
    down = await told(code, agent)
    assert down.endswith("It has no tools now: one of its servers does not answer.")

    source.open_now.clear()
    code = code_tools(source, agent, patience=0)
    late = await told(code, agent)
    assert late.endswith("It has no tools yet: its servers have not answered.")
    await code.aclose()


async def test_servers_that_start_are_not_waited_for_longer_than_patience() -> None:
    source, agent = tools("crm/find"), sandbox("crm/find")
    source.open_now.clear()
    code = code_tools(source, agent, patience=0)

    assert "tools.crm" not in await told(code, agent)
    assert "tools.crm" not in await told(code, agent)
    source.open_now.set()
    code.patience = 10
    assert "tools.crm.find" in await told(code, agent)
    assert len(source.lists) == 1


async def test_what_was_known_is_kept_while_a_server_is_down(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source, agent = tools("crm/find"), sandbox("crm/find")
    code = code_tools(source, agent)
    before = await told(code, agent)
    source.problem = "crm is down"

    with caplog.at_level(logging.WARNING):
        assert [await told(code, agent) for _ in range(3)] == [before] * 3

    assert [one.message for one in caplog.records] == [
        "the tools in the description of agent sandbox are not up to date: crm is down"
    ]


async def test_stopping_ends_what_is_asked() -> None:
    source, agent = tools("crm/find"), sandbox("crm/find")
    source.open_now.clear()
    code = code_tools(source, agent, patience=0)
    before = asyncio.all_tasks()
    await code.aclose()
    await code.refresh()

    await code.aclose()

    assert asyncio.all_tasks() == before
