"""A server of before 2026 costs its probe once, however many hosts come after."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from caxton_host.app.tool_setup import LateServerProtocols
from caxton_host.core.text.redact import Redactor
from caxton_host.core.tools.servers import Restart, ServerConfig
from caxton_host.errors import StoreError
from caxton_host.mcp import McpTools
from caxton_host.ports.log import ServerProtocol, ServerProtocols
from caxton_host.store.memory import MemoryStore
from tests.unit.store.fakes import FakeClock, FakeEntropy

from .conftest import FAULTY, SECRET, noted, request, until
from .faulty_http import FaultyHttp


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(clock=FakeClock(), entropy=FakeEntropy())


def server(mode: str, state: Path, protocols: ServerProtocols | None) -> McpTools:
    config = ServerConfig(
        name="faulty",
        command=(sys.executable, "-S", str(FAULTY), mode, str(state)),
        restart=Restart(backoff=0.01),
    )
    return McpTools({"faulty": config}, redact=Redactor([SECRET]), protocols=protocols)


async def works(tools: McpTools) -> bool:
    return (await tools.call_tool(request("act"))).message == "fine"


async def test_an_old_server_is_probed_by_the_first_host_only(
    state: Path, store: MemoryStore
) -> None:
    for _ in range(3):
        async with server("legacy_ignores", state, store.server_protocols) as tools:
            assert await works(tools)
    assert len(noted(state, "told server/discover")) == 1
    assert len(noted(state, "told notifications/initialized")) == 3


async def test_a_new_server_is_asked_as_before(store: MemoryStore) -> None:
    async with FaultyHttp() as there:
        config = ServerConfig(name="web", url=there.url, transport="http")
        for _ in range(2):
            async with McpTools(
                {"web": config}, redact=Redactor(), protocols=store.server_protocols
            ) as tools:
                await tools.call_tool(request("echo", server="web"))
        assert len(there.told("server/discover")) == 2
        assert there.told("initialize") == []


async def test_an_old_server_over_http_is_greeted_at_once(store: MemoryStore) -> None:
    async with FaultyHttp(legacy=True) as there:
        config = ServerConfig(name="web", url=there.url, transport="http")
        for _ in range(2):
            async with McpTools(
                {"web": config}, redact=Redactor(), protocols=store.server_protocols
            ) as tools:
                await tools.call_tool(request("echo", server="web"))
        assert len(there.told("server/discover")) == 1


async def test_a_server_that_became_a_new_one_is_asked_again(
    store: MemoryStore,
) -> None:
    async with FaultyHttp(legacy=True) as there:
        config = ServerConfig(
            name="web", url=there.url, transport="http", restart=Restart(backoff=0.01)
        )
        async with McpTools(
            {"web": config}, redact=Redactor(), protocols=store.server_protocols
        ) as tools:
            await tools.call_tool(request("echo", server="web"))
        there.legacy = False
        async with McpTools(
            {"web": config}, redact=Redactor(), protocols=store.server_protocols
        ) as tools:
            assert (await tools.offered(["web"])).offers == ()
            assert len((await tools.offered(["web"])).offers) == 2
        async with McpTools(
            {"web": config}, redact=Redactor(), protocols=store.server_protocols
        ) as tools:
            assert len((await tools.offered(["web"])).offers) == 2


async def test_no_secret_is_in_what_a_server_is_remembered_by() -> None:
    # law 8: the digest of a short secret would tell it.
    keys: list[str] = []

    class Seen:
        async def protocol_of(self, key: str) -> ServerProtocol | None:
            keys.append(key)
            return None

        async def learn_protocol(self, key: str, protocol: ServerProtocol) -> None:
            del key, protocol

    async with FaultyHttp() as there:
        for secret in ("geheim-1", "geheim-2"):
            config = ServerConfig(
                name="web",
                url=f"{there.url}?key={secret}",
                headers={"authorization": secret},
                transport="http",
            )
            async with McpTools(
                {"web": config}, redact=Redactor(), protocols=Seen()
            ) as tools:
                await tools.call_tool(request("echo", server="web"))
    assert keys[0] == keys[1]


class Broken:
    """A store that cannot be read, or does not answer."""

    def __init__(self, *, hangs: bool) -> None:
        self.hangs = hangs
        self.asked = 0

    async def protocol_of(self, key: str) -> ServerProtocol | None:
        return await self._fail(key)

    async def learn_protocol(self, key: str, protocol: ServerProtocol) -> None:
        del protocol
        await self._fail(key)

    async def _fail(self, key: str) -> ServerProtocol | None:
        self.asked += 1
        if self.hangs:
            await asyncio.Event().wait()
        raise StoreError(f"{key} cannot be read")


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_server_starts_without_what_could_be_remembered(
    state: Path, *, hangs: bool
) -> None:
    broken = Broken(hangs=hangs)
    async with asyncio.timeout(10), server("legacy", state, broken) as tools:
        assert await works(tools)
        await until(lambda: broken.asked == 2)


async def test_a_server_may_start_before_the_store_is_open(
    state: Path, store: MemoryStore
) -> None:
    late = LateServerProtocols()
    async with server("legacy", state, late) as tools:
        starting = asyncio.create_task(works(tools))
        await asyncio.sleep(0.1)
        late.settle(store.server_protocols)
        assert await starting
    other = LateServerProtocols()
    other.settle(None)
    async with server("legacy", state, other) as tools:
        assert await works(tools)
    async with server("legacy", state, store.server_protocols) as tools:
        assert await works(tools)
    assert len(noted(state, "told server/discover")) == 2
