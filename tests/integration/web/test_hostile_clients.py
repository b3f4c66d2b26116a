"""Clients of sessions that mean harm: what they do at the same time, or half."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from caxton_host.config import Agent, Serve
from caxton_host.config.model import Session
from caxton_host.core.grants.grants import Grant
from caxton_host.core.grants.principals import Principal
from caxton_host.core.log.events import RunStarted
from caxton_host.service.sessions import Sessions
from caxton_host.testing import FakeTools
from caxton_host.web.app import application
from caxton_host.web.edge.listen import bind, listening
from caxton_host.web.mcp import server
from caxton_host.web.mcp.http_router import sessions_app
from tests.harm import ECHO, GOOD, LISTED, MOST, VERSION, Harm, call, message, modern
from tests.office import BOSS, Names, Office, Slow
from tests.scene import ANSWERS, DEMO, Scene, rule

_OLDER = "2025-06-18"


def client_of(name: str, *sessions: str) -> Principal:
    return Principal(
        kind="token", id=name, scopes=frozenset(), agents=(), sessions=sessions
    )


ANN, BOB = client_of("ann", "dev"), client_of("bob", "ops")


@dataclass
class Served:
    """Two sessions on a real port, on fakes."""

    url: str
    office: Office

    @property
    def scene(self) -> Scene:
        return self.office.scene

    def types(self) -> list[str]:
        """Return what the log holds of all sessions."""
        streams = self.scene.store.streams.items()
        return [
            type(one.event).__name__
            for stream, events in streams
            if stream.startswith("run/")
            for one in events
            if one.event
        ]


@asynccontextmanager
async def up(folder: Path, tools: FakeTools | None = None) -> AsyncGenerator[Served]:
    office = Office(folder, tools=tools or FakeTools(ANSWERS), places=64)
    agents = {
        name: Agent(name=name, grant=DEMO, session=Session()) for name in ("dev", "ops")
    }
    office.config = replace(office.config, agents={**office.config.agents, **agents})
    sessions = Sessions.of(office.scene.host, office.scene.store, lambda: office.config)
    mcp = sessions_app(sessions, lambda: False, body=MOST)
    app = application(
        office.service,
        Names({one.id: one for one in (ANN, BOB, BOSS)}),
        Serve(body=MOST),
        sessions=mcp,
    )
    with bind("127.0.0.1", 0) as listener:
        async with sessions.running(), mcp.running(), listening(app, listener):
            port = listener.getsockname()[1]
            yield Served(f"http://127.0.0.1:{port}", office)


async def ask(
    served: Served, harm: Harm, http: httpx.AsyncClient
) -> tuple[httpx.Response, dict[str, Any]]:
    said = {
        "authorization": "Bearer ann",
        "content-type": "application/json",
        "accept": "application/json",
    }
    headers = [*(said | dict(harm.headers)).items()]
    headers = [pair for pair in headers if pair[1]]
    # As it is written: a client would tidy up the path.
    url = httpx.URL(served.url).copy_with(raw_path=harm.path.encode())
    answer = await http.request(harm.method, url, content=harm.body, headers=headers)
    found: object = None
    with contextlib.suppress(ValueError):
        found = answer.json()
    return answer, cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def cancelling(number: int) -> Harm:
    params = {"requestId": number, "reason": "x"}
    said = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
    return Harm(body=json.dumps(said).encode(), headers=SAME, status=202)


SAME = {"mcp-session-id": "1" * 32}


async def until(served: Served, kind: str, count: int = 1) -> None:
    async with asyncio.timeout(30):
        while served.types().count(kind) < count:  # noqa: ASYNC110 -- nobody tells
            await asyncio.sleep(0.001)


async def test_calls_with_the_same_id_are_each_answered(tmp_path: Path) -> None:
    async with up(tmp_path) as served, httpx.AsyncClient(timeout=30) as http:
        harm = Harm(body=call(), headers=SAME)
        found = await asyncio.gather(*(ask(served, harm, http) for _ in range(10)))
    assert [one["result"]["isError"] for _, one in found] == [False] * 10
    assert served.types().count("ToolCompleted") == 10


async def test_calls_that_race_with_their_cancels_are_each_recorded_to_their_end(
    tmp_path: Path,
) -> None:  # law 2
    async with up(tmp_path) as served, httpx.AsyncClient(timeout=30) as http:
        found = await asyncio.gather(
            *(
                ask(served, one, http)
                for number in range(10)
                for one in (
                    Harm(body=call(ECHO, number), headers=SAME),
                    cancelling(number),
                )
            )
        )
        _, good = await ask(served, GOOD, http)
        types = served.types()

    assert {answer.status_code for answer, _ in found} == {200, 202}
    assert good["result"]["isError"] is False
    ends = sum(types.count(end) for end in ("ToolCompleted", "ToolFailed"))
    assert ends == types.count("ToolInvoked")


async def test_nobody_else_cancels_a_call_by_its_id(tmp_path: Path) -> None:
    tools = Slow()
    async with up(tmp_path, tools) as served, httpx.AsyncClient(timeout=30) as http:
        mine = Harm(body=call(ECHO, 1), headers=SAME)
        waiting = asyncio.create_task(ask(served, mine, http))
        await tools.reached.wait()
        theirs = replace(
            cancelling(1),
            path="/mcp/ops",
            headers={**SAME, "authorization": "Bearer bob"},
        )
        other, _ = await ask(served, theirs, http)
        tools.let.set()
        _, found = await waiting

    assert other.status_code == 202
    assert found["result"]["isError"] is False


async def test_a_flood_is_refused_and_leaves_room_for_others(tmp_path: Path) -> None:
    tools = Slow()
    async with (
        up(tmp_path, tools) as served,
        httpx.AsyncClient(
            timeout=30, limits=httpx.Limits(max_connections=None)
        ) as http,
    ):
        asking = [asyncio.create_task(ask(served, GOOD, http)) for _ in range(200)]
        # Of what is refused, all is answered while nothing else is.
        async with asyncio.timeout(30):
            while sum(one.done() for one in asking) < 190:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        refused = [one.result()[0] for one in asking if one.done()]
        theirs = replace(
            GOOD,
            path="/mcp/ops",
            body=json.dumps(message("tools/list")).encode(),
            headers={"authorization": "Bearer bob"},
        )
        other, _ = await ask(served, theirs, http)
        tools.let.set()
        await asyncio.gather(*asking)

    assert other.status_code == 200
    assert {one.status_code for one in refused} == {429}
    assert all("retry-after" in one.headers for one in refused)


async def test_requests_that_are_given_up_half_way_leave_nothing(
    tmp_path: Path,
) -> None:
    head = (
        "POST /mcp/dev HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ann\r\n"
        "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
    )
    async with up(tmp_path) as served, httpx.AsyncClient(timeout=30) as http:
        port = httpx.URL(served.url).port
        writers: list[asyncio.StreamWriter] = []
        for sent in ("", head[:40], head, f"{head}{{"):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent.encode())
            await writer.drain()
            writers.append(writer)
        _, good = await ask(served, GOOD, http)
        for writer in writers:
            writer.close()
    assert good["result"]["isError"] is False
    assert served.types().count("ToolInvoked") == 1


async def test_hanging_up_in_a_call_ends_it_and_not_the_session(
    tmp_path: Path,
) -> None:  # law 2
    tools = Slow()
    async with up(tmp_path, tools) as served, httpx.AsyncClient(timeout=30) as http:
        for _ in range(3):
            leaving = asyncio.create_task(ask(served, GOOD, http))
            await tools.reached.wait()
            tools.reached.clear()
            leaving.cancel()
        await until(served, "ToolFailed", 3)
        tools.let.set()
        _, good = await ask(served, GOOD, http)
    assert good["result"]["isError"] is False
    assert served.types().count("RunStarted") == 1


async def test_a_listening_client_is_told_of_its_own_grant_and_of_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "EVERY", 0.02)
    wanted = {"toolsListChanged": True}
    body = modern("subscriptions/listen", notifications=wanted)
    head = {
        "authorization": "Bearer ann",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        **VERSION,
        "mcp-method": "subscriptions/listen",
    }

    def grant(served: Served, name: str) -> None:
        agents = served.office.config.agents
        less = replace(agents[name], grant=Grant(allow=(rule("demo/echo"),)))
        served.office.config = replace(
            served.office.config, agents={**agents, name: less}
        )

    async with (
        up(tmp_path) as served,
        httpx.AsyncClient(timeout=30) as http,
        http.stream(
            "POST", f"{served.url}/mcp/dev", content=body, headers=head
        ) as answer,
    ):
        lines = answer.aiter_lines()

        async def told() -> str:
            async for line in lines:
                if line.startswith("data:") and "notifications/" in line:
                    return line
            raise AssertionError

        assert "acknowledged" in await told()
        grant(served, "ops")
        hearing = asyncio.create_task(told())
        done, _ = await asyncio.wait({hearing}, timeout=0.2)
        assert not done
        grant(served, "dev")
        assert "notifications/tools/list_changed" in await hearing
        _, found = await ask(served, replace(GOOD, body=LISTED), http)
    assert [tool["name"] for tool in found["result"]["tools"]] == [ECHO]


async def test_an_older_client_is_known_by_what_it_said_first(tmp_path: Path) -> None:
    hello = message(
        "initialize",
        protocolVersion=_OLDER,
        capabilities={},
        clientInfo={"name": "Grüße\n" + "x" * 500, "version": "1.2"},
    )
    async with up(tmp_path) as served, httpx.AsyncClient(timeout=30) as http:
        first, _ = await ask(served, Harm(body=json.dumps(hello).encode()), http)
        session = {"mcp-session-id": first.headers["mcp-session-id"]}
        await ask(served, replace(GOOD, headers=session), http)
        (stream,) = (
            events
            for name, events in served.scene.store.streams.items()
            if name.startswith("run/")
        )
    started = stream[0].event
    assert isinstance(started, RunStarted)
    client = started.input["client"]  # type: ignore[index,call-overload]
    assert client == {"name": "Grüße" + "x" * 122, "version": "1.2"}
