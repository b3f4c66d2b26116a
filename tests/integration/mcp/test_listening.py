"""Servers tell that their tools are others now, and how long a list of them is good."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from caxton_host.core.text.redact import Redactor
from caxton_host.core.tools.servers import ServerConfig
from caxton_host.mcp import McpTools, connect
from caxton_host.mcp.connection import Connection

from .changing_server import server as changing
from .conftest import SECRET, request, until
from .faulty_http import FaultyHttp

CHANGING = Path(__file__).with_name("changing_server.py")
TELLS = {"tools": {"listChanged": True}}


def tools_of(**options: Any) -> McpTools:  # noqa: ANN401
    config = ServerConfig(name="web", **options)
    return McpTools({"web": config}, redact=Redactor([SECRET]))


def connection_of(tools: McpTools) -> Connection:
    [server] = tools._pool.values()
    assert server._current
    return server._current


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "_REOPEN_MIN_S", 0.01)


@asynccontextmanager
async def over_http() -> AsyncGenerator[McpTools]:
    app: Any = changing.streamable_http_app()
    config = uvicorn.Config(app, log_level="error", lifespan="on", ws="none")
    serving = uvicorn.Server(config)
    with socket.socket(proto=socket.IPPROTO_TCP) as listening_:
        listening_.bind(("127.0.0.1", 0))
        task = asyncio.create_task(serving.serve([listening_]))
        await until(lambda: serving.started)
        url = f"http://127.0.0.1:{listening_.getsockname()[1]}/mcp"
        async with tools_of(url=url, transport="http") as tools:
            yield tools
        serving.should_exit = True
        await task


@asynccontextmanager
async def over_stdio() -> AsyncGenerator[McpTools]:
    async with tools_of(command=(sys.executable, str(CHANGING))) as tools:
        yield tools


@pytest.mark.parametrize("transport", [over_http, over_stdio])
async def test_a_server_of_the_official_sdk_tells_of_a_new_tool(
    transport: Callable[[], Any],
) -> None:
    name = transport.__name__
    async with transport() as tools:
        before = await tools.offered(["web"])
        connection = connection_of(tools)
        assert name not in {offer.tool for offer in before.offers}
        # The stream is open only soon after the server is.
        for n in range(100):
            await tools.call_tool(
                request("grow", {"name": name + str(n)}, server="web")
            )
            await asyncio.sleep(0.05)
            if connection.stale:
                break
        else:
            raise AssertionError("nothing was told")
        after = await tools.offered(["web"])
        assert name + "0" in {offer.tool for offer in after.offers}
        assert not connection.stale


@asynccontextmanager
async def faulty(
    mode: str = "sound", *, legacy: bool = False
) -> AsyncGenerator[tuple[FaultyHttp, McpTools]]:
    async with FaultyHttp(mode, legacy=legacy) as server:
        server.capabilities = TELLS
        async with tools_of(url=server.url, transport="http") as tools:
            await tools.offered(["web"])
            yield server, tools


@pytest.mark.parametrize("legacy", [False, True])
async def test_a_change_that_is_told_is_seen_before_the_next_call(
    *, legacy: bool
) -> None:
    async with faulty(legacy=legacy) as (server, tools):
        await until(lambda: server.heard == 1)
        assert not connection_of(tools).stale
        server.change.set()
        await until(lambda: connection_of(tools).stale)
        listed = len(server.told("tools/list"))
        for _ in range(3):
            await tools.call_tool(request("echo", server="web"))
        assert len(server.told("tools/list")) == listed + 1


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("mode", ["ends", "silent"])
async def test_a_stream_that_ends_is_opened_again_and_the_tools_are_listed(
    mode: str, *, legacy: bool
) -> None:
    async with faulty(mode, legacy=legacy) as (server, tools):
        for n in range(1, 4):
            await until(lambda n=n: server.heard == n)  # type: ignore[misc]  # mypy cannot tell
            assert server.told("tools/list")
            server.change.set()
        await until(lambda: connection_of(tools).stale)
        assert (await tools.call_tool(request("echo", server="web"))).message == "fine"


@pytest.mark.parametrize("legacy", [False, True])
async def test_a_server_that_has_no_stream_is_asked_for_one_once(
    *, legacy: bool
) -> None:
    async with faulty("deaf", legacy=legacy) as (server, tools):
        await asyncio.sleep(0.2)
        asked = [
            one
            for one in server.asked
            if one.verb == "GET" or one.message["method"] == "subscriptions/listen"
        ]
        assert len(asked) == 1
        assert (await tools.call_tool(request("echo", server="web"))).message == "fine"


async def test_a_stream_takes_no_place_of_a_call_and_ends_with_the_host() -> None:
    async with FaultyHttp() as server:
        server.capabilities = TELLS
        async with tools_of(url=server.url, transport="http", concurrency=1) as tools:
            await tools.offered(["web"])
            await until(lambda: server.heard == 1)
            await tools.call_tool(request("echo", server="web"))
        await until(lambda: server.gone == 1)


async def test_a_list_is_good_for_as_long_as_its_server_says() -> None:
    async with (
        FaultyHttp() as server,
        tools_of(url=server.url, transport="http") as tools,
    ):
        server.ttl = 3_600_000
        await tools.offered(["web"])
        connection = connection_of(tools)
        left = connection._good_until - asyncio.get_running_loop().time()
        assert 3500 < left <= 3600
        for _ in range(5):
            await tools.offered(["web"])
            await tools.call_tool(request("echo", server="web"))
        assert len(server.told("tools/list")) == 1, "a cached list costs no request"
        server.ttl = 20
        connection._good_until = 0.0
        await tools.offered(["web"])
        await asyncio.sleep(0.05)
        await tools.offered(["web"])
        assert len(server.told("tools/list")) == 3


@pytest.mark.parametrize("said", [None, 0, -5, "60", True, [1], 10**15])
async def test_a_list_is_good_for_a_while_whatever_its_server_says(
    said: object,
) -> None:
    # law 9
    async with (
        FaultyHttp() as server,
        tools_of(url=server.url, transport="http") as tools,
    ):
        server.ttl = said
        await tools.offered(["web"])
        left = connection_of(tools)._good_until - asyncio.get_running_loop().time()
        assert 50 < left <= (86_400 if said == 10**15 else 60)
