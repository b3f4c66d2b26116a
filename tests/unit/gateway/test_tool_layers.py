"""A layer passes on what it does not change, and a router asks the right client."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest

from caxton_host.core.calls import Completed
from caxton_host.core.grants.tool_catalog import Offered
from caxton_host.errors import ConfigError, ToolError
from caxton_host.gateway.tool_layers import ToolLayer, ToolRouter
from caxton_host.ports import RunScope, ToolClient, ToolRequest
from caxton_host.testing import FakeTools

REQUEST = ToolRequest(
    run_id="0198",
    call=1,
    server="demo",
    tool="echo",
    params={},
    definition_sha256=None,
    idempotency_key="k",
)
SCOPE = RunScope(run_id="0198", agent="a")


@dataclass(eq=False)
class Shouting(ToolLayer):
    mark: str = "!"

    async def call_tool(self, request: ToolRequest) -> Completed:
        done = await self.tools.call_tool(request)
        return replace(done, message=done.message.upper() + self.mark)


def fake(server: str = "demo") -> FakeTools:
    return FakeTools({(server, "echo"): "echoed"})


async def test_a_layer_changes_what_it_overrides_and_is_no_step_otherwise() -> None:
    tools = fake()
    layer = Shouting(tools)
    assert (await layer.call_tool(REQUEST)).message == "ECHOED!"
    assert layer.offered == tools.offered
    assert layer.resources == tools.resources
    plain = ToolLayer(tools)
    assert plain.call_tool == tools.call_tool


async def test_the_tools_of_a_run_are_under_the_same_layer() -> None:
    own = FakeTools({("demo", "echo"): "own"})

    class Source(FakeTools):
        @asynccontextmanager
        async def open(self, _: RunScope) -> AsyncGenerator[ToolClient]:  # type: ignore[override]
            yield own

    layer = Shouting(Source({("demo", "echo"): "shared"}), mark="?")
    async with layer.open(SCOPE) as tools:
        assert (await tools.call_tool(REQUEST)).message == "OWN?"
    assert (await layer.call_tool(REQUEST)).message == "SHARED?"
    fixed = Shouting(ToolRouter({}))
    async with fixed.open(SCOPE) as tools:
        assert tools is fixed


async def test_a_call_of_a_server_that_nobody_configured_is_not_sent() -> None:
    tools = fake()
    router = ToolRouter({"demo": tools})
    with pytest.raises(ToolError) as error:
        await router.call_tool(replace(REQUEST, server="other"))
    assert (error.value.kind, error.value.sent) == ("transport", "no")
    assert tools.asked == []
    assert (await router.call_tool(REQUEST)).data == "echoed"
    offered = await router.offered(["demo", "gone"])
    assert [offer.tool for offer in offered.offers] == ["echo"]


async def test_each_client_is_asked_once_for_all_its_servers() -> None:
    both = FakeTools({("a", "echo"): "1", ("b", "echo"): "2"})
    router = ToolRouter({"a": both, "b": both, "demo": fake()})
    offered = await router.offered(["a", "demo", "b"])
    assert [offer.server for offer in offered.offers] == ["a", "b", "demo"]
    assert [*offered.servers] == ["a", "b", "demo"]
    assert await router.resources(["a", "demo"], SCOPE) == []


async def test_one_name_for_two_tools_is_an_error() -> None:
    @dataclass
    class Alike(FakeTools):
        async def offered(self, servers: Collection[str]) -> Offered:
            found = await FakeTools.offered(self, servers)
            alike = tuple(replace(one, exposed="x") for one in found.offers)
            return replace(found, offers=alike)

    router = ToolRouter({name: Alike({(name, "t"): "1"}) for name in ("a", "b")})
    with pytest.raises(ConfigError, match="two tools would be called 'x': a/t and b/t"):
        await router.offered(["a", "b"])
    assert len((await router.offered(["a"])).offers) == 1
