"""Clients of sessions that mean harm: what they send, and all that comes of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
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
from tests.office import BOSS, Names, Office, Slow
from tests.scene import ANSWERS, DEMO, Scene, rule

_MOST = 1_000_000
_MODERN, _OLDER = "2026-07-28", "2025-06-18"
_ECHO = "mcp__demo__echo"


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
    mcp = sessions_app(sessions, lambda: False, body=_MOST)
    app = application(
        office.service,
        Names({one.id: one for one in (ANN, BOB, BOSS)}),
        Serve(body=_MOST),
        sessions=mcp,
    )
    with bind("127.0.0.1", 0) as listener:
        async with sessions.running(), mcp.running(), listening(app, listener):
            port = listener.getsockname()[1]
            yield Served(f"http://127.0.0.1:{port}", office)


def message(method: object, number: object = 1, **params: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def call(name: object = _ECHO, number: object = 1, /, **arguments: object) -> bytes:
    return json.dumps(
        message("tools/call", number, name=name, arguments=arguments)
    ).encode()


def modern(method: str, **params: object) -> bytes:
    meta = {
        "io.modelcontextprotocol/protocolVersion": _MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    return json.dumps(message(method, 1, **params, _meta=meta)).encode()


def deep(levels: int) -> bytes:
    inner = b"[" * levels + b"]" * levels
    return call(x=0).replace(b'"x": 0', b'"x": ' + inner)


@dataclass(frozen=True, kw_only=True)
class Harm:
    """
    A request that means harm.

    Attributes:
        status: Of its answer.

        error: The code of its JSON-RPC error, if it has one.

        denied: The answer is a result that says so.

        attempts: The calls that are recorded of it.
    """

    body: bytes = b""
    method: str = "POST"
    path: str = "/mcp/dev"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    status: int = 200
    error: int | None = None
    denied: str | None = None
    attempts: int = 0


INVALID, PARSE, METHOD, PARAMS = -32600, -32700, -32601, -32602
VERSION = {"mcp-protocol-version": _MODERN}
LISTED = json.dumps(message("tools/list")).encode()

HARM: Mapping[str, Harm] = {
    "no body": Harm(status=400, error=PARSE),
    "no JSON": Harm(body=b"{", status=400, error=PARSE),
    "not UTF-8": Harm(body=b'"\xff"', status=400, error=PARSE),
    "UTF-16": Harm(body=LISTED.decode().encode("utf-16"), status=400, error=PARSE),
    "a number": Harm(body=b"1", status=400, error=PARAMS),
    "null": Harm(body=b"null", status=400, error=PARAMS),
    "a batch": Harm(body=b"[" + call() + b"]", status=400, error=INVALID),
    "an empty batch": Harm(body=b"[]", status=400, error=INVALID),
    "two messages": Harm(body=call() + call(), status=400, error=PARSE),
    "two ids": Harm(
        body=call().replace(b'"id": 1', b'"id": 1, "id": 2'), status=400, error=PARSE
    ),
    "two methods": Harm(
        body=LISTED.replace(b'"id": 1', b'"method": "ping", "id": 1'),
        status=400,
        error=PARSE,
    ),
    "an answer to nothing": Harm(
        body=b'{"jsonrpc": "2.0", "id": 1, "result": {}}', status=202
    ),
    "an error of nothing": Harm(
        body=b'{"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "x"}}',
        status=202,
    ),
    "no version": Harm(body=b'{"id": 1, "method": "ping"}', status=400, error=PARAMS),
    "an id that is a map": Harm(body=call(_ECHO, {}), status=202),
    "an id that is a list": Harm(body=call(_ECHO, [1]), status=202),
    "an id of 50 kB": Harm(body=call(_ECHO, "x" * 50_000), attempts=1),
    "no method": Harm(body=b'{"jsonrpc": "2.0", "id": 1}', status=400, error=PARAMS),
    "an unknown method": Harm(
        body=json.dumps(message("tools/steal")).encode(), error=METHOD
    ),
    "a method of 10 kB": Harm(
        body=json.dumps(message("x" * 10_000)).encode(), error=METHOD
    ),
    "a method that is a map": Harm(
        body=json.dumps(message({})).encode(), status=400, error=PARAMS
    ),
    "resources": Harm(
        body=json.dumps(message("resources/read", uri="file:///etc/passwd")).encode(),
        error=-32000,
        attempts=1,
    ),
    "sampling of the host": Harm(
        body=json.dumps(message("sampling/createMessage", messages=[])).encode(),
        error=METHOD,
    ),
    "no parameters": Harm(
        body=b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call"}', error=PARAMS
    ),
    "parameters that are a list": Harm(
        body=b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": []}',
        status=400,
        error=PARAMS,
    ),
    "arguments that are a list": Harm(
        body=json.dumps(message("tools/call", name=_ECHO, arguments=["rm"])).encode(),
        error=PARAMS,
    ),
    "a name that is a number": Harm(body=call(7), error=PARAMS),
    "a name of 10 kB": Harm(body=call("x" * 10_000), denied="bad_request", attempts=1),
    "no name": Harm(body=call(""), denied="bad_request", attempts=1),
    "a name of another kind": Harm(
        body=call("../../etc/passwd"), denied="bad_request", attempts=1
    ),
    "a name with a line break": Harm(
        body=call("mcp__demo__echo\nX"), denied="bad_request", attempts=1
    ),
    "a name with a zero": Harm(body=call("a\0b"), denied="bad_request", attempts=1),
    "a tool of another grant": Harm(
        body=call("mcp__shell__exec"), denied="not_granted", attempts=1
    ),
    "a tool that does not exist": Harm(
        body=call("mcp__demo__none"), denied="not_granted", attempts=1
    ),
    "a deep value": Harm(body=deep(60), attempts=1),
    "a deeper value": Harm(body=deep(100), status=400, error=PARSE),
    "the deepest value": Harm(body=deep(40_000), status=400, error=PARSE),
    "many values": Harm(body=call(x=[0] * 20_000), denied="bad_request", attempts=1),
    "a giant value": Harm(body=call(x="x" * 600_000), denied="bad_request", attempts=1),
    "a giant body": Harm(body=call(x="x" * 2 * _MOST), status=413),
    "a giant number": Harm(
        body=call(x=0).replace(b'"x": 0', b'"x": ' + b"9" * 4_000),
        status=400,
        error=PARSE,
    ),
    "a number that is none": Harm(body=call(x=float("nan")), status=400, error=PARSE),
    "an infinite number": Harm(
        body=call(x=0).replace(b'"x": 0', b'"x": 1e999'), status=400, error=PARSE
    ),
    "half a character": Harm(
        body=call(x=0).replace(b'"x": 0', rb'"x": "\ud800"'), status=400, error=PARSE
    ),
    "the same key twice": Harm(
        body=call(x=0).replace(b'"x": 0', b'"x": 0, "x": 1'), status=400, error=PARSE
    ),
    "a stale cursor": Harm(
        body=json.dumps(message("tools/list", cursor="bm9uZQ")).encode(), error=PARAMS
    ),
    "a cursor of 10 kB": Harm(
        body=json.dumps(message("tools/list", cursor="!" * 10_000)).encode(),
        error=PARAMS,
    ),
    "the cursor of a number": Harm(
        body=json.dumps(message("tools/list", cursor=7)).encode(), error=PARAMS
    ),
    "another principal's session": Harm(path="/mcp/ops", body=LISTED, status=404),
    "a session that does not exist": Harm(path="/mcp/none", body=LISTED, status=404),
    "a path above": Harm(path="/mcp/dev/../ops", body=LISTED, status=404),
    "an escaped path": Harm(path="/mcp/%2e%2e/ops", body=LISTED, status=404),
    "a slash too many": Harm(path="/mcp//dev", body=LISTED, status=404),
    "a name of a session of 5 kB": Harm(
        path="/mcp/" + "x" * 5_000, body=LISTED, status=404
    ),
    "the agents": Harm(path="/mcp", body=LISTED, status=403),
    "the control API": Harm(path="/api/v1/runs", body=b"{}", status=403),
    "no token": Harm(headers={"authorization": ""}, body=LISTED, status=401),
    "a token that is none": Harm(
        headers={"authorization": "Bearer eve"}, body=LISTED, status=401
    ),
    "an administrator": Harm(
        headers={"authorization": "Bearer boss"}, body=LISTED, status=404
    ),
    "two tokens": Harm(
        headers={"authorization": "Bearer ann", "Authorization": "Bearer bob"},
        body=LISTED,
        status=400,
    ),
    "a page of another origin": Harm(
        headers={"origin": "https://evil.example"}, body=LISTED, status=403
    ),
    "another host": Harm(headers={"host": "evil.example"}, body=LISTED, status=421),
    "text": Harm(headers={"content-type": "text/plain"}, body=LISTED, status=415),
    "a form": Harm(
        headers={"content-type": "application/x-www-form-urlencoded"},
        body=LISTED,
        status=415,
    ),
    "a packed body": Harm(
        headers={"content-encoding": "gzip"}, body=LISTED, status=415
    ),
    "an answer that nobody can read": Harm(
        headers={"accept": "image/png"}, body=LISTED, status=406, error=INVALID
    ),
    "a foreign session id": Harm(
        headers={"mcp-session-id": "0" * 32}, body=call(), attempts=1
    ),
    "a session id of 10 kB": Harm(
        headers={"mcp-session-id": "0." + "A" * 10_000}, body=call(), attempts=1
    ),
    "a session id that is no text": Harm(
        headers={"mcp-session-id": "0./////w"}, body=call(), attempts=1
    ),
    "the cancel of a foreign call": Harm(
        headers={"mcp-session-id": "0" * 32},
        body=b'{"jsonrpc": "2.0", "method": "notifications/cancelled",'
        b' "params": {"requestId": 1, "reason": "x"}}',
        status=202,
    ),
    "a cancel without parameters": Harm(
        headers={"mcp-session-id": "0" * 32},
        body=b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {}}',
        status=202,
    ),
    "an unknown notification": Harm(
        body=b'{"jsonrpc": "2.0", "method": "notifications/steal"}', status=202
    ),
    "a call that is a notification": Harm(
        body=call().replace(b'"id": 1, ', b""), status=202
    ),
    "a stream with a foreign event id": Harm(
        method="GET", headers={"last-event-id": "0000_1"}, status=405
    ),
    "a stream of another session": Harm(method="GET", path="/mcp/ops", status=404),
    "an end of another session": Harm(
        method="DELETE", headers={"mcp-session-id": "0" * 32}, status=405
    ),
    "a method of HTTP that nobody knows": Harm(method="STEAL", body=b"{}", status=405),
    "a version that nobody speaks": Harm(
        headers={"mcp-protocol-version": "1999-12-31"},
        body=LISTED,
        status=400,
        error=PARAMS,
    ),
    "two methods in head and body": Harm(
        headers={**VERSION, "mcp-method": "ping"},
        body=modern("tools/list"),
        status=400,
        error=-32020,
    ),
    "two tools in head and body": Harm(
        headers={**VERSION, "mcp-method": "tools/call", "mcp-name": "mcp__demo__fail"},
        body=modern("tools/call", name=_ECHO, arguments={}),
        status=400,
        error=-32020,
    ),
    "many headers": Harm(
        headers={f"x-{number}": "x" for number in range(150)}, body=LISTED, status=431
    ),
    "large headers": Harm(headers={"x": "x" * 40_000}, body=LISTED, status=431),
}


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


GOOD = Harm(body=call(), attempts=1)


@pytest.mark.parametrize("name", [*HARM])
async def test_what_a_client_sends_is_bounded_and_harms_itself_alone(
    tmp_path: Path, name: str
) -> None:  # laws 2, 4 and 9
    harm = HARM[name]
    async with up(tmp_path) as served, httpx.AsyncClient(timeout=30) as http:
        answer, found = await ask(served, harm, http)
        attempts = served.types().count("ToolInvoked")
        after, good = await ask(served, GOOD, http)

    error = found.get("error", {}).get("code")
    assert (answer.status_code, error) == (harm.status, harm.error), answer.text
    assert attempts == harm.attempts
    if harm.denied:
        said = found["result"]["_meta"]["io.caxton/code"]
        assert (said, found["result"]["isError"]) == (harm.denied, True)
    assert len(answer.content) < _MOST
    assert "Traceback" not in answer.text
    # A problem names the address that was asked for.
    assert "ops" not in answer.text or "ops" in harm.path
    assert (after.status_code, good["result"]["isError"]) == (200, False)


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
                    Harm(body=call(_ECHO, number), headers=SAME),
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
        mine = Harm(body=call(_ECHO, 1), headers=SAME)
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
    assert [tool["name"] for tool in found["result"]["tools"]] == [_ECHO]


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
