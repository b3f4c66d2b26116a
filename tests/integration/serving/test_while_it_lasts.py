"""What clients are told while a run lasts, and what ends it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from caxton_host.core.calls import JSON, Completed
from caxton_host.core.grants.approvals import Approve
from caxton_host.core.grants.grants import Grant
from caxton_host.core.log.events import RunCancelled
from caxton_host.ports.tools import Progress, ToolRequest
from caxton_host.web.mcp import server
from caxton_host.web.mcp.agents import IDEMPOTENCY_KEY, RUN_ID, STATE
from tests.integration.mcp.conftest import until
from tests.integration.serving.clients import ACCEPT, Mode, meta, serving
from tests.office import ANN, BOSS, Office, Slow
from tests.scene import rule

_JSON = {"accept": "application/json", "content-type": "application/json"}


class Telling(Slow):
    """Tools that say how far they are until they are let."""

    async def call_tool(self, request: ToolRequest) -> Completed:
        while not self.let.is_set():
            request.on_progress(Progress(message="looking", progress=5, total=9))
            await asyncio.sleep(0.05)
        return await super().call_tool(request)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_that_asks_is_told_how_far_its_run_is(
    tmp_path: Path, mode: Mode
) -> None:
    tools = Telling()
    office = Office(tmp_path, tools=tools)
    told: list[tuple[float, float | None, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))
        if progress == 2:
            tools.let.set()

    async with serving(office.service) as url, Client(url, mode=mode) as served:
        result = await served.call_tool("sky", {}, progress_callback=hear)

    assert not result.is_error
    # They never go back, whatever a tool says.
    assert [one[0] for one in told[:2]] == [1, 2]
    assert told[0] == (1, None, "call 1: looking (5 of 9)")


def rpc(method: str, number: int | None = None, **params: JSON) -> JSON:
    message: dict[str, JSON] = {"jsonrpc": "2.0", "method": method, "params": params}
    return message if number is None else {**message, "id": number}


async def cancelled(office: Office, run_id: str) -> RunCancelled:
    """Return how a run ended, which is soon."""
    async with asyncio.timeout(10):
        await office.done(run_id)
    last = (await office.scene.store.reader.read(f"run/{run_id}"))[-1].event
    assert isinstance(last, RunCancelled)
    return last


async def test_a_client_that_takes_only_json_gets_json(tmp_path: Path) -> None:
    office = Office(tmp_path)
    async with serving(office.service) as url, httpx2.AsyncClient() as http:
        call = rpc("tools/call", 7, name="sky", arguments={})
        found = await http.post(url, json=call, headers=_JSON)

    assert found.headers["content-type"] == "application/json"
    assert found.json()["id"] == 7
    assert found.json()["result"]["structuredContent"] == {"sky": "clear"}


async def test_a_client_that_hangs_up_on_json_cancels_its_run(tmp_path: Path) -> None:
    tools = Slow()
    office = Office(tmp_path, tools=tools)
    async with serving(office.service) as url:
        async with httpx2.AsyncClient() as http:
            call = rpc("tools/call", 7, name="sky", arguments={})
            waiting = asyncio.create_task(http.post(url, json=call, headers=_JSON))
            await tools.reached.wait()
            (row,) = await office.scene.store.reader.runs(10)
            waiting.cancel()
            await asyncio.wait([waiting])
        assert (await cancelled(office, row.run_id)).reason == "the client hung up"


async def test_an_older_client_cancels_by_a_notification(tmp_path: Path) -> None:
    tools = Slow()
    office = Office(tmp_path, tools=tools)
    hello: dict[str, JSON] = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "curl", "version": "8"},
    }
    stop = rpc("notifications/cancelled", requestId=7, reason="enough")
    async with serving(office.service) as url, httpx2.AsyncClient() as http:
        begun = await http.post(url, json=rpc("initialize", 1, **hello), headers=_JSON)
        session = {**_JSON, "mcp-session-id": begun.headers["mcp-session-id"]}
        call = rpc("tools/call", 7, name="sky", arguments={})
        waiting = asyncio.create_task(http.post(url, json=call, headers=session))
        await tools.reached.wait()
        (row,) = await office.scene.store.reader.runs(10)
        # Somebody else of the same name counts its requests alike.
        other = {**_JSON, "mcp-session-id": "another"}
        assert (await http.post(url, json=stop, headers=other)).status_code == 202
        assert (await office.service.row(ANN, row.run_id)).state == "running"

        assert (await http.post(url, json=stop, headers=session)).status_code == 202
        assert (await cancelled(office, row.run_id)).reason == "enough"
        result = (await waiting).json()["result"]

    assert result["isError"]
    assert result["_meta"] == {RUN_ID: row.run_id, STATE: "cancelled"}


async def test_a_call_that_waits_is_cancelled_too(tmp_path: Path) -> None:
    tools = Slow()
    office = Office(tmp_path, tools=tools, places=1)
    first = await office.start()
    session = {**_JSON, "mcp-session-id": "mine"}
    stop = rpc("notifications/cancelled", requestId=7)
    async with serving(office.service) as url, httpx2.AsyncClient() as http:
        call = rpc("tools/call", 7, name="sky", arguments={})
        waiting = asyncio.create_task(http.post(url, json=call, headers=session))
        await until(lambda: not office.service.placement.is_empty)
        assert (await http.post(url, json=stop, headers=session)).status_code == 202
        await office.service.cancel(ANN, first, "room for others")
        result = (await waiting).json()["result"]

    assert result["_meta"][STATE] == "cancelled"


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
async def test_without_a_session_id_nothing_is_sent_unasked_and_no_session_ended(
    tmp_path: Path, method: str
) -> None:
    async with (
        serving(Office(tmp_path).service) as url,
        httpx2.AsyncClient() as http,
    ):
        found = await http.request(method, url, headers=ACCEPT)

    assert found.status_code == 405
    assert found.headers["allow"] == "GET, POST"


@pytest.mark.parametrize(
    ("body", "status"), [(b"x" * 20_000, 413), (b"[]", 400), (b"{", 400)]
)
async def test_a_body_that_is_no_message_is_refused(
    tmp_path: Path, body: bytes, status: int
) -> None:
    async with (
        serving(Office(tmp_path).service) as url,
        httpx2.AsyncClient() as http,
    ):
        found = await http.post(url, content=body, headers=_JSON)

    assert found.status_code == status


async def test_a_client_that_listens_is_told_of_other_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "EVERY", 0.01)
    office = Office(tmp_path)
    agent = office.config.agents["weather"]
    async with serving(office.service) as url, Client(url) as served:
        assert served.server_capabilities.tools
        assert served.server_capabilities.tools.list_changed
        async with served.listen(tools_list_changed=True) as told:
            office.config = replace(
                office.config, agents={"w": replace(agent, description="Another.")}
            )
            async with asyncio.timeout(10):
                await anext(aiter(told))
        (tool,) = (await served.list_tools()).tools
    assert tool.description == "Another."


async def test_a_host_that_stops_ends_the_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "EVERY", 0.01)
    office = Office(tmp_path)
    async with (
        serving(office.service) as url,
        Client(url) as served,
        served.listen(tools_list_changed=True) as told,
    ):
        office.service.line.closed = True
        async with asyncio.timeout(10):
            assert [event async for event in told] == []


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_run_that_waits_for_a_person_is_gone_on_with(
    tmp_path: Path, mode: Mode
) -> None:
    wanting = replace(rule("demo/*"), approve=Approve())
    office = Office(tmp_path, grant=Grant(allow=(wanting,)))
    async with serving(office.service) as url, Client(url, mode=mode) as served:
        asked = await served.call_tool("sky", {})
        assert asked.meta is not None
        run_id = str(asked.meta[RUN_ID])
        again = await served.call_tool("sky", {}, meta=meta(**{RUN_ID: run_id}))
        await office.service.decide(BOSS, run_id, None, "approve", "fine")
        result = await served.call_tool("sky", {}, meta=meta(**{RUN_ID: run_id}))

    for one in (asked, again):
        assert not one.is_error
        assert one.meta
        assert (one.meta[RUN_ID], one.meta[STATE]) == (run_id, "suspended")
        (content,) = one.content
        assert content.type == "text"
        assert "demo/get_weather) waits for the approval of anyone" in content.text
        assert json.dumps({RUN_ID: run_id}) in content.text
    assert result.structured_content == {"sky": "clear"}


@pytest.mark.parametrize("promises", [False, True])
async def test_a_host_that_stops_says_that_the_run_is_not_over(
    tmp_path: Path, *, promises: bool
) -> None:
    tools = Slow()
    office = Office(tmp_path, tools=tools)
    if promises:
        agent = office.config.agents["weather"]
        expose = replace(agent.expose, output_schema={"type": "object"})
        office.config = replace(
            office.config, agents={"weather": replace(agent, expose=expose)}
        )
    async with serving(office.service) as url, Client(url) as served:
        call = asyncio.create_task(served.call_tool("sky", {}))
        await tools.reached.wait()
        await office.service.background.drain(0)
        result = await call

    assert result.meta
    assert result.meta[STATE] == "suspended"
    assert "its outcome is unknown" in str(result.content)
    # Clients hold an answer against what was promised, unless it is an error.
    assert result.is_error is promises


async def test_one_caller_has_so_many_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_STREAMS", 1)
    async with (
        serving(Office(tmp_path).service) as url,
        Client(url) as served,
        served.listen(tools_list_changed=True),
    ):
        with pytest.raises(MCPError, match="1 streams are open"):
            async with served.listen(tools_list_changed=True):
                pass


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_run_with_a_key_goes_on_when_the_connection_is_lost(
    tmp_path: Path, mode: Mode
) -> None:
    tools = Slow()
    office = Office(tmp_path, tools=tools)
    key = meta(**{IDEMPOTENCY_KEY: "k1"})
    async with serving(office.service) as url:
        async with Client(url, mode=mode) as served:
            call = asyncio.create_task(served.call_tool("sky", {}, meta=key))
            await tools.reached.wait()
            (row,) = await office.scene.store.reader.runs(10)
        call.cancel()
        await asyncio.wait([call])
        tools.let.set()
        async with Client(url, mode=mode) as served:
            result = await served.call_tool("sky", {}, meta=key)

    assert result.meta
    assert (result.meta[RUN_ID], result.meta[STATE]) == (row.run_id, "completed")
