"""What clients of protocols before 2026-07-28 are told unasked, over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from caxton_host.config import Agent, Serve
from caxton_host.config.model import Session
from caxton_host.core.grants.grants import Grant
from caxton_host.core.grants.principals import Principal
from caxton_host.service.sessions import Sessions
from caxton_host.web.app import application
from caxton_host.web.edge import authentication, event_stream, middleware
from caxton_host.web.edge.listen import bind, listening
from caxton_host.web.mcp import server
from caxton_host.web.mcp.http_router import agents_app, sessions_app
from tests.office import Names, Office, who
from tests.scene import rule

LISTENS = {
    "accept": "text/event-stream",
    "authorization": "Bearer ann",
    "content-type": "application/json",
    "mcp-session-id": "1" * 32,
}
#: She may call the agent, and open the session.
ANN = Principal(
    kind="oauth",
    id="ann",
    scopes=frozenset({"run"}),
    agents=("weather",),
    sessions=("dev",),
)
KINDS = ("tools", "resources", "prompts")


def told_of(*kinds: str) -> set[str]:
    return {f"notifications/{kind}/list_changed" for kind in kinds}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "EVERY", 0.01)
    monkeypatch.setattr(event_stream, "_TICK", 0.01)


@dataclass
class Desk:
    """An agent and a session on a real port, behind the edge."""

    url: str
    office: Office
    known: dict[str, Principal]
    http: httpx.AsyncClient

    def change(self, name: str, text: str = "another") -> None:
        """Change what clients of an agent or a session are shown."""
        agents = self.office.config.agents
        changed = replace(
            agents[name], description=text, names={text: ("demo", "echo")}
        )
        self.office.config = replace(
            self.office.config, agents={**agents, name: changed}
        )

    async def keep_changing(self) -> None:
        """Change all, again and again: nobody says when a client begins to listen."""
        for number in count():
            self.change("weather", f"w{number}")
            self.change("dev", f"d{number}")
            await asyncio.sleep(0.05)

    def stream(
        self, path: str, **headers: str
    ) -> AbstractAsyncContextManager[httpx.Response]:
        said = LISTENS | {name.replace("_", "-"): of for name, of in headers.items()}
        return self.http.stream("GET", f"{self.url}{path}", headers=said)


@asynccontextmanager
async def desk(
    folder: Path, *tools: str, serve: Serve | None = None
) -> AsyncGenerator[Desk]:
    office = Office(folder)
    dev = Agent(
        name="dev",
        grant=Grant(allow=(rule(*(tools or ("demo/echo",))),)),
        session=Session(),
    )
    agents = {**office.config.agents, "dev": dev}
    office.config = replace(office.config, agents=agents)
    scene = office.scene
    sessions = Sessions.of(scene.host, scene.store, lambda: office.config)
    of_sessions = sessions_app(sessions, lambda: office.service.line.closed)
    of_agents = agents_app(office.service)
    known = {"ann": ANN, "bob": who("bob", "run")}
    app = application(
        office.service,
        Names(known),
        serve or Serve(),
        mcp=of_agents,
        sessions=of_sessions,
    )
    with bind("127.0.0.1", 0) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with (
            sessions.running(),
            of_agents.running(),
            of_sessions.running(),
            listening(app, listener),
            httpx.AsyncClient(timeout=30) as http,
        ):
            yield Desk(url, office, known, http)


@pytest.mark.parametrize("kinds", [KINDS[:2], KINDS[:1], KINDS[::2], KINDS])
async def test_the_official_client_is_told_of_the_lists_that_it_has(
    tmp_path: Path, kinds: tuple[str, ...]
) -> None:
    heard, tools = asyncio.Queue[str](), ["demo/echo"]
    of_agents = kinds == KINDS[:2]
    tools += ["demo/resources/read"] * ("resources" in kinds)
    tools += ["demo/prompts/get"] * ("prompts" in kinds)

    async def hear(message: Any) -> None:  # noqa: ANN401 -- whatever the SDK says
        heard.put_nowait(message.method)

    async with (
        desk(tmp_path, *tools) as at,
        httpx2.AsyncClient(headers={"authorization": "Bearer ann"}) as http,
        Client(
            streamable_http_client(
                f"{at.url}/mcp" if of_agents else f"{at.url}/mcp/dev", http_client=http
            ),
            mode="legacy",
            message_handler=hear,
        ) as client,
        asyncio.timeout(30),
    ):
        said = client.server_capabilities.model_dump(exclude_none=True)
        lists = {kind for kind in KINDS if said.get(kind, {}).get("list_changed")}
        assert lists == {*kinds}
        changing = asyncio.create_task(at.keep_changing())
        assert {await heard.get() for _ in kinds} == told_of(*kinds)
        changing.cancel()


async def test_others_and_other_requests_get_no_stream(tmp_path: Path) -> None:
    """A 2026-07-28 client asks with a request, and one of 2024-11-05 for another."""
    async with desk(tmp_path) as at:
        for path, changes, status in (
            ("/mcp", {"mcp-protocol-version": "2026-07-28"}, 405),
            ("/mcp", {"mcp-session-id": ""}, 405),
            ("/mcp", {"accept": "application/json"}, 405),
            ("/mcp/ops", {}, 404),
            ("/mcp/dev", {"authorization": "Bearer bob"}, 404),
            ("/mcp/dev", {"authorization": "Bearer eve"}, 401),
            ("/mcp/dev", {"origin": "https://evil.example"}, 403),
        ):
            headers = {name: of for name, of in (LISTENS | changes).items() if of}
            found = await at.http.get(f"{at.url}{path}", headers=headers)
            assert found.status_code == status, (path, changes)


async def test_a_session_hears_of_its_own_grant_and_of_no_other(
    tmp_path: Path,
) -> None:
    async with desk(tmp_path) as at, at.stream("/mcp/dev") as found:
        told, lines = asyncio.Queue[str](), found.aiter_lines()
        assert await anext(lines) == ": caxton"
        reading = asyncio.create_task(_read(lines, told))
        at.change("weather")
        done, _ = await asyncio.wait({reading}, timeout=0.2)
        assert not done
        assert told.empty()
        at.change("dev")
        assert await told.get() == "notifications/tools/list_changed"
        reading.cancel()


async def test_a_client_that_was_away_is_told_and_one_that_knows_is_not(
    tmp_path: Path,
) -> None:
    newer = {"mcp-protocol-version": "2025-11-25"}
    async with desk(tmp_path) as at:
        async with at.stream("/mcp/dev", **newer) as found:
            last = await _id(found)
        knows = newer | {"last-event-id": last}
        async with at.stream("/mcp/dev", **knows) as found:
            # What came first would be that it changed.
            at.change("dev")
            assert await _id(found) != last
        async with at.stream("/mcp/dev", **knows) as found:
            assert await _id(found) != last


async def test_streams_are_bounded_and_leave_room_for_calls(  # law 9
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "_STREAMS", 2)
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    headers = {**LISTENS, "accept": "application/json"}
    async with desk(tmp_path, serve=Serve(concurrency=1)) as at:
        async with at.stream("/mcp"), at.stream("/mcp/dev") as second:
            refused = await at.http.get(f"{at.url}/mcp", headers=LISTENS)
            assert refused.status_code == 429
            assert refused.headers["retry-after"] == "1"
            assert "2 of your streams" in refused.json()["detail"]
            answer = await at.http.post(f"{at.url}/mcp", json=ping, headers=headers)
            assert answer.status_code == 200
            async with at.stream("/mcp", authorization="Bearer bob") as other:
                assert other.status_code == 200
            assert second.status_code == 200
        async with asyncio.timeout(30):
            while True:  # The place is free as soon as the host knows.
                async with at.stream("/mcp") as third:
                    if third.status_code == 200:
                        break


async def test_a_token_that_is_revoked_ends_the_stream(  # law 9
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authentication, "_CHECK_EVERY", 0.0)
    monkeypatch.setattr(event_stream, "_HEARTBEAT", 0.02)
    async with desk(tmp_path) as at, at.stream("/mcp/dev") as found:
        lines = found.aiter_lines()
        async with asyncio.timeout(30):
            assert await anext(lines) == ": caxton"
            del at.known["ann"]
            at.change("dev")
            # Nothing, but for what was under way.
            rest = [line async for line in lines if line.startswith("data")]
    assert rest == []


async def test_a_host_that_stops_ends_the_stream(tmp_path: Path) -> None:
    async with desk(tmp_path) as at, at.stream("/mcp") as found:
        at.office.service.line.closed = True
        async with asyncio.timeout(30):
            assert [line async for line in found.aiter_lines()] == [": caxton", ""]


async def _read(lines: AsyncIterator[str], told: asyncio.Queue[str]) -> None:
    async for line in lines:
        if line.startswith("data: "):
            told.put_nowait(json.loads(line[6:])["method"])


async def _id(found: httpx.Response) -> str:
    """Return the first id of a stream, which is soon there."""
    async with asyncio.timeout(30):
        async for line in found.aiter_lines():
            if line.startswith("id: "):
                return line[4:]
    raise AssertionError
