"""The configuration read again, and the tools of each generation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest

from caxton_host.app.reload import Generations, Reloader
from caxton_host.config import Agent, Config
from caxton_host.core.calls import JSON
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.log.events import ConfigLoaded, Event, GrantChanged
from caxton_host.core.text.globs import Pattern
from caxton_host.errors import ConfigError
from caxton_host.ports import RunScope, ToolClient
from caxton_host.runs.run_request import grants_digest
from caxton_host.testing import FakeTools

SCOPE = RunScope(run_id="0198", agent="a")


def config(name: str) -> Config:
    return Config(store_url=name)


@dataclass(slots=True)
class Opening:
    """Opens tools, and remembers which are open."""

    opened: list[str] = field(default_factory=list)
    fault: Exception | None = None

    @asynccontextmanager
    async def __call__(self, it: Config) -> AsyncGenerator[FakeTools]:
        if it.store_url == "broken":
            raise ConfigError("two tools would have the same name")
        self.opened.append(it.store_url)
        yield FakeTools({(it.store_url, "echo"): "echoed"})
        self.opened.remove(it.store_url)
        if self.fault:
            raise self.fault


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 -- a task in the background does
            await asyncio.sleep(0)


async def servers(tools: ToolClient) -> list[str]:
    return [offer.server for offer in (await tools.offered(["one", "two"])).offers]


def names(it: Config) -> list[str]:
    return [it.store_url]


async def test_run_keeps_its_generation_and_the_next_one_has_the_new() -> None:
    opening = Opening()
    async with Generations(opening, names) as tools:
        await tools.publish(config("one"))
        known = tools.servers
        async with tools.open(SCOPE) as first:
            await tools.publish(config("two"))
            assert [*known] == ["two"]
            assert (tools.number, tools.config.store_url) == (2, "two")
            async with tools.open(SCOPE) as second:
                assert await servers(first) == ["one"]
                assert await servers(second) == ["two"]
            assert opening.opened == ["one", "two"]
        await until(lambda: opening.opened == ["two"])
    assert opening.opened == []


async def test_generation_that_no_run_has_ends_with_the_next_one() -> None:
    opening = Opening()
    async with Generations(opening, names) as tools:
        await tools.publish(config("one"))
        await tools.publish(config("two"))
        await until(lambda: opening.opened == ["two"])


async def test_configuration_that_fails_leaves_the_one_that_there_was() -> None:
    opening = Opening()
    async with Generations(opening, names) as tools:
        await tools.publish(config("one"))
        with pytest.raises(ConfigError, match="the same name"):
            await tools.publish(config("broken"))
        assert (tools.number, [*tools.servers]) == (1, ["one"])
        async with tools.open(SCOPE) as client:
            assert await servers(client) == ["one"]


async def test_host_that_ends_ends_every_generation_even_if_one_makes_trouble(
    caplog: pytest.LogCaptureFixture,
) -> None:
    opening = Opening(fault=OSError("it does not stop"))
    async with Generations(opening, names) as tools:
        await tools.publish(config("one"))
        async with tools.open(SCOPE):
            await tools.publish(config("two"))
            await tools.__aexit__(None, None, None)
            assert opening.opened == []
    assert "the tools of generation 1 did not end" in caplog.text


async def test_tools_that_nobody_published_are_a_fault_of_the_program() -> None:
    tools = Generations(Opening(), names)
    with pytest.raises(RuntimeError, match="nothing is published"):
        await tools.open(SCOPE).__aenter__()


ANN: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}
MORE, LESS = (
    Grant(allow=(Rule(id="allow[1]", tools=(Pattern.parse(tools),)),))
    for tools in ("demo/*", "demo/echo")
)
NONE = Grant()


def granting(name: str, **grants: Grant) -> Config:
    agents = {agent: Agent(name=agent, grant=it) for agent, it in grants.items()}
    return replace(config(name), agents=agents)


async def test_each_agent_whose_grants_are_others_is_recorded() -> None:
    # law 4: what was granted when can be read from the log
    now = granting("one", same=MORE, cut=MORE, gone=LESS, empty=NONE)
    told: list[Event] = []
    async with Generations(Opening(), lambda it: [it.store_url]) as tools:
        reloader = Reloader(load=lambda: now, tools=tools, on_event=told.append)
        await tools.publish(now)
        await reloader.reload(ANN)
        assert told == []

        now = granting("two", same=MORE, cut=LESS, new=MORE, bare=NONE)
        await reloader.reload(ANN)
        loaded, *changed = told
        told.clear()
        now = replace(now, store_url="three")
        await reloader.reload(ANN)

    assert isinstance(loaded, ConfigLoaded)
    assert changed == [
        GrantChanged(
            agent=agent,
            actor=ANN,
            grants_sha256=grants_digest(after),
            former_sha256=grants_digest(before),
        )
        for agent, before, after in (
            ("cut", MORE, LESS),
            ("gone", LESS, NONE),
            ("new", NONE, MORE),
        )
    ]
    assert [type(event) for event in told] == [ConfigLoaded]
