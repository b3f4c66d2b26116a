"""A run keeps the tools that it began with, whatever is configured meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from caxton_host.app.tool_generations import Generations
from caxton_host.config import Config
from caxton_host.errors import ConfigError
from caxton_host.ports import RunScope, ToolClient
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
