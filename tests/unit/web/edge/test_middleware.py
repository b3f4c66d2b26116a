"""The edge: nothing behind it sees a request that is not bounded and vouched for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from caxton_host.config import Serve
from caxton_host.core.grants.principals import Principal
from caxton_host.errors import (
    BadBytes,
    CaxtonError,
    LogBrokenError,
    LogMovedError,
    SandboxError,
    ServerUnavailable,
    StoreError,
)
from caxton_host.web.edge import messages
from caxton_host.web.edge.messages import KINDS, Problem, parsed
from caxton_host.web.edge.middleware import Edge
from tests.office import JSON_SENT, Names, Office, calling

#: Other ways to write text, most of which Python's reader of JSON takes by itself.
UNICODE = ("utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be")
RUNS = "/api/v1/runs"


class Behind:
    """What is behind the edge: remembers what came through."""

    def __init__(self) -> None:
        self.scopes: list[Any] = []
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 -- ASGI
        self.scopes.append(scope)
        if scope["method"] == "POST":
            self.bodies.append((await receive())["body"])
        headers = [(b"content-length", b"2"), (b"cache-control", b"no-cache")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})


def edge_of(
    office: Office, behind: Behind, serve: Serve | None = None
) -> httpx.AsyncClient:
    app = Edge.around(
        behind,
        identity=Names(),
        line=office.service.line,
        serve=serve or Serve(),
        open=frozenset({"/healthz"}),
    )
    return client_of(app)


def client_of(app: Edge) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app),
        base_url="http://127.0.0.1:8080",
        headers={"authorization": "Bearer ann", **JSON_SENT},
    )


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1", "a b", "[::1", ""]
)
async def test_a_request_for_another_name_is_refused(tmp_path: Path, host: str) -> None:
    # attack 41
    # that is how pages reach what only the browser can reach
    behind = Behind()
    async with edge_of(Office(tmp_path), behind) as client:
        refused = await client.get("/healthz", headers={"host": host})

    assert refused.status_code == 421
    assert refused.json()["type"] == "/problems/misdirected"
    assert behind.scopes == []


async def test_names_of_this_machine_and_those_that_are_configured_are_ours(
    tmp_path: Path,
) -> None:
    serve = Serve(allowed_hosts=("caxton.example", "one.example:8443"))
    async with edge_of(Office(tmp_path), Behind(), serve) as client:
        for host in (
            "127.0.0.1:8080",
            "localhost",
            "LOCALHOST:9",
            "[::1]:8080",
            "caxton.example:1",
            "one.example:8443",
        ):
            answered = await client.get("/healthz", headers={"host": host})
            assert answered.status_code == 200, host
        other_port = await client.get("/healthz", headers={"host": "one.example:1"})

    assert other_port.status_code == 421


async def test_two_hosts_or_two_origins_are_refused(tmp_path: Path) -> None:
    # attack 41
    behind = Behind()
    twice = [("host", "127.0.0.1"), ("host", "127.0.0.1")]
    origins = [("origin", "http://localhost"), ("origin", "http://localhost")]
    async with edge_of(Office(tmp_path), behind) as client:
        hosts = await client.get("/healthz", headers=twice)
        both = await client.get("/healthz", headers=origins)

    assert (hosts.status_code, both.status_code) == (400, 403)
    assert behind.scopes == []


@pytest.mark.parametrize(
    "origin", ["null", "https://evil.example", "http://localhost.evil.example", "", "x"]
)
async def test_a_page_of_another_origin_is_refused(tmp_path: Path, origin: str) -> None:
    # attack 41
    behind = Behind()
    async with edge_of(Office(tmp_path), behind) as client:
        refused = await client.post(RUNS, headers={"origin": origin}, json={})

    assert refused.status_code == 403
    assert "access-control-allow-origin" not in refused.headers
    assert behind.scopes == []


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("127.0.0.1:8080", "http://127.0.0.1:8080", 200),
        ("127.0.0.1:8080", "http://localhost:8080", 200),
        ("[::1]:8080", "http://[::1]:8080", 200),
        ("localhost", "http://LOCALHOST:80", 200),
        ("caxton.example:8080", "http://caxton.example:8080", 200),
        ("one.example:8443", "http://one.example:8443", 200),
        ("127.0.0.1:8080", "https://127.0.0.1:8080", 403),
        ("127.0.0.1:8080", "http://127.0.0.1:9999", 403),
        ("127.0.0.1:8080", "http://127.0.0.1", 403),
        ("127.0.0.1:8080", "http://127.0.0.2:8080", 403),
        ("127.0.0.1:8080", "http://[::1]:8", 403),
        ("127.0.0.1:8080", "ftp://127.0.0.1:8080", 403),
        ("127.0.0.1:8080", "127.0.0.1:8080", 403),
        ("127.0.0.1:8080", "http://127.0.0.1:8080/", 403),
    ],
)
async def test_pages_of_this_host_alone_ask_without_being_configured(
    tmp_path: Path, host: str, origin: str, status: int
) -> None:
    # scheme, name and port: a page of another port of this machine is a stranger
    serve = Serve(allowed_hosts=("caxton.example", "one.example:8443"))
    async with edge_of(Office(tmp_path), Behind(), serve) as client:
        answer = await client.post(
            RUNS, headers={"host": host, "origin": origin}, json={}
        )

    assert answer.status_code == status


async def test_only_a_configured_origin_may_read_answers(tmp_path: Path) -> None:
    serve = Serve(allowed_origins=("https://ui.example",))
    asks = {"access-control-request-method": "POST"}
    async with edge_of(Office(tmp_path), Behind(), serve) as client:
        told = await client.get(RUNS, headers={"origin": "https://ui.example"})
        asked = await client.options(
            RUNS, headers={"origin": "https://ui.example", **asks}
        )
        local = await client.get(RUNS, headers={"origin": "http://localhost:8080"})
        refused = await client.options(
            RUNS, headers={"origin": "http://localhost:8080", **asks}
        )

    assert told.headers["access-control-allow-origin"] == "https://ui.example"
    assert told.headers["vary"] == "origin"
    assert asked.status_code == 204
    may = asked.headers["access-control-allow-headers"].split(", ")
    assert {"authorization", "mcp-protocol-version", "mcp-session-id"} <= {*may}
    assert local.status_code == 200
    assert "access-control-allow-origin" not in local.headers
    assert refused.status_code == 403


async def test_who_proves_nothing_is_told_how(tmp_path: Path) -> None:
    behind = Behind()
    async with edge_of(Office(tmp_path), behind) as client:
        for token in ("", "Bearer", "Bearer nobody", "Basic ann"):
            refused = await client.get(RUNS, headers={"authorization": token})
            assert refused.status_code == 401, token
            assert refused.headers["www-authenticate"].startswith("Bearer ")
        twice = [("authorization", "Bearer ann"), ("authorization", "Bearer boss")]
        client.headers.pop("authorization")
        both = await client.get(RUNS, headers=twice)
        healthy = await client.get("/healthz")

    assert both.status_code == 400
    assert healthy.status_code == 200
    assert len(behind.scopes) == 1


async def test_every_answer_says_what_browsers_must_not_do(tmp_path: Path) -> None:
    async with edge_of(Office(tmp_path), Behind()) as client:
        for answered in (
            await client.get(RUNS),
            await client.get(RUNS, headers={"host": "x"}),
        ):
            assert answered.headers["x-content-type-options"] == "nosniff"
            assert "default-src 'none'" in answered.headers["content-security-policy"]
            assert answered.headers["referrer-policy"] == "no-referrer"
        kept = await client.get(RUNS)

    assert kept.headers["cache-control"] == "no-cache"


async def test_headers_and_addresses_are_bounded(tmp_path: Path) -> None:
    # attack 42
    behind = Behind()
    async with edge_of(Office(tmp_path), behind) as client:
        many = await client.get(RUNS, headers={f"x-{n}": "1" for n in range(200)})
        large = await client.get(RUNS, headers={"x-large": "x" * 40_000})
        long = await client.get(f"{RUNS}?{'x' * 10_000}")

    assert (many.status_code, large.status_code) == (431, 431)
    assert long.status_code == 414
    assert behind.scopes == []


async def test_a_large_body_is_refused_before_it_is_read(tmp_path: Path) -> None:
    # attack 42
    behind = Behind()
    async with edge_of(Office(tmp_path), behind, Serve(body=1000)) as client:
        for length in ("1000000000", "9" * 5000, "1001"):
            refused = await client.post(
                RUNS, headers={"content-length": length}, content=never()
            )
            assert refused.status_code == 413, length
            assert refused.headers["connection"] == "close"
        for odd in ("-1", "1e3", "0x10"):
            refused = await client.post(
                RUNS, headers={"content-length": odd}, content=never()
            )
            assert refused.status_code == 400, odd

    assert behind.scopes == []


async def never() -> AsyncIterator[bytes]:
    pytest.fail("somebody reads it")
    yield b""


async def test_a_body_of_unknown_size_is_read_no_further_than_allowed(
    tmp_path: Path,
) -> None:
    read = 0

    async def forever() -> AsyncIterator[bytes]:
        nonlocal read
        while True:
            read += 100
            yield b"x" * 100

    async with edge_of(Office(tmp_path), Behind(), Serve(body=1000)) as client:
        refused = await client.post(RUNS, content=forever())

    assert refused.status_code == 413
    assert read <= 1200


async def test_a_packed_body_is_not_unpacked(tmp_path: Path) -> None:
    # attack 42
    packed = {"content-encoding": "gzip", "content-type": "application/json"}
    async with edge_of(Office(tmp_path), Behind()) as client:
        refused = await client.post(RUNS, headers=packed, content=b"\x1f\x8b")

    assert refused.status_code == 415


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b"[" * 100 + b"]" * 100,
        b'{"n": ' + b"1" * 5000 + b"}",
        b'{"a": 1, "a": 2}',
        b'{"a": NaN}',
        b"{",
        b'{"a": "\\ud800"}',
        b"\xff\xfe",
        *('{"agent": "weather"}'.encode(code) for code in UNICODE),
    ],
)
async def test_json_that_nobody_could_record_is_refused(
    tmp_path: Path, body: bytes
) -> None:
    # attack 42
    kind = {"content-type": "application/json"}
    behind = Behind()
    async with edge_of(Office(tmp_path), behind) as client:
        refused = await client.post(RUNS, headers=kind, content=body)
        message = await client.post("/mcp", headers=kind, content=body)

    assert refused.status_code == 400
    assert refused.json()["type"] == "/problems/bad-request"
    assert message.status_code == 400
    assert message.json()["error"]["code"] == -32700
    assert behind.scopes == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"a":\n x}', "not JSON: line 2, column 2"),
        (b"", "not JSON: line 1, column 1"),
        (b"[" * 100_000, "deeper than 64"),
        (b"1" * 5000, "a number has more than 64 bits"),
        (b"\xff", "not JSON: not UTF-8"),
        (b'{"a": NaN}', "NaN is not a number"),
    ],
)
def test_what_is_wrong_with_a_body_is_not_told_in_words_of_python(
    body: bytes, said: str
) -> None:
    with pytest.raises(BadBytes) as wrong:
        parsed(body, limit=200_000)

    assert str(wrong.value) == said


async def test_a_form_is_no_request(tmp_path: Path) -> None:
    # a page may send one without asking
    async with edge_of(Office(tmp_path), Behind()) as client:
        for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
            refused = await client.post(
                RUNS, headers={"content-type": kind}, content=b"{}"
            )
            assert refused.status_code == 415, kind


async def test_a_call_gets_a_ticket_that_is_given_back(tmp_path: Path) -> None:
    office, behind = Office(tmp_path), Behind()
    call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call"}
    async with edge_of(office, behind) as client:
        answered = await client.post("/mcp", json=call)
        listed = await client.post("/mcp", json={**call, "method": "tools/list"})
        several = await client.post("/mcp", json=[call, call])

    assert (answered.status_code, listed.status_code) == (200, 200)
    assert several.status_code == 400
    tickets = [scope.get("caxton.ticket") for scope in behind.scopes]
    assert [ticket is not None for ticket in tickets] == [True, False]
    assert isinstance(behind.scopes[0]["caxton.principal"], Principal)
    assert [json.loads(body)["id"] for body in behind.bodies] == [7, 7]
    assert office.service.line.present == 0


@pytest.mark.parametrize(
    ("path", "counted"), [("/mcp/dev", True), ("/mcp", False)], ids=str
)
async def test_what_a_session_asks_of_its_servers_counts_as_a_call(
    tmp_path: Path, path: str, *, counted: bool
) -> None:
    office, behind = Office(tmp_path), Behind()
    asking = ("resources/read", "prompts/get", "completion/complete")
    async with edge_of(office, behind) as client:
        for method in asking:
            await client.post(path, json={"jsonrpc": "2.0", "id": 1, "method": method})
    tickets = [scope.get("caxton.ticket") for scope in behind.scopes]
    assert [ticket is not None for ticket in tickets] == [counted] * 3
    assert office.service.line.present == 0


async def test_a_call_for_which_there_is_no_room_is_told_when_to_come_again(
    tmp_path: Path,
) -> None:
    office, behind = Office(tmp_path, places=1), Behind()
    call = {"jsonrpc": "2.0", "id": "c1", "method": "tools/call"}
    tickets = [office.service.line.take("token/bob") for _ in range(3)]
    async with edge_of(office, behind) as client:
        full = await client.post("/mcp", json=call)
        office.service.line.closed = True
        stopping = await client.post("/mcp", json=call)

    assert full.status_code == stopping.status_code == 503
    assert int(full.headers["retry-after"]) >= 1
    assert full.json()["id"] == "c1"
    assert full.json()["error"]["code"] == -32000
    assert behind.scopes == []
    for ticket in tickets:
        ticket.leave()


async def test_nobody_has_too_many_requests_under_way(tmp_path: Path) -> None:
    office = Office(tmp_path)
    async with calling(office, Serve(concurrency=0)) as client:
        refused = await client.get(RUNS)
        healthy = await client.get("/healthz")

    assert refused.status_code == 429
    assert refused.json()["type"] == "/problems/overloaded-principal"
    assert refused.headers["retry-after"] == "1"
    assert healthy.status_code == 200


async def test_what_goes_wrong_inside_is_told_to_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Behind):
        async def __call__(self, *_: object) -> None:
            raise ValueError("the password is hunter2")

    async with edge_of(Office(tmp_path), Broken()) as client:
        failed = await client.get(RUNS)

    assert failed.status_code == 500
    assert "hunter2" not in failed.text
    assert "a request failed" in caplog.text


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/runs/../../x",
        "/api/v1/runs/%2e%2e/events",
        "/api/v1/runs/..%2f..%2fetc",
        "/api/v1/agents/%2e%2e",
        "/api/v1//runs",
        "/api/v1/runs/",
        "/api",
        "/mcp",
    ],
)
async def test_a_path_is_looked_up_and_never_followed(
    tmp_path: Path, path: str
) -> None:
    # attack 43
    async with calling(Office(tmp_path)) as client:
        request = client.build_request("GET", "http://127.0.0.1:8080")
        request.url = request.url.copy_with(raw_path=path.encode())
        answered = await client.send(request)

    assert answered.status_code == 404
    assert answered.headers["content-type"] == "application/problem+json"


async def test_a_path_that_is_there_says_what_can_be_done(tmp_path: Path) -> None:
    async with calling(Office(tmp_path)) as client:
        refused = await client.delete(RUNS)
        head = await client.head(RUNS)

    assert refused.status_code == 405
    assert refused.headers["allow"] == "POST, GET"
    assert head.status_code == 200


async def test_who_does_not_read_is_not_waited_for_forever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "_PATIENCE", 0.01)
    behind = Behind()
    app = Edge.around(
        behind,
        identity=Names(),
        line=Office(tmp_path).service.line,
        serve=Serve(),
        open=frozenset({"/healthz"}),
    )

    async def unread(_: object) -> None:
        await asyncio.Event().wait()

    async def receive() -> Any:  # noqa: ANN401 -- ASGI
        pytest.fail("there is nothing to receive")

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/healthz",
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
        "server": ("127.0.0.1", 1),
    }
    async with asyncio.timeout(20):
        await app(scope, receive, unread)

    assert len(behind.scopes) == 1


async def test_a_websocket_is_closed_at_once(tmp_path: Path) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:  # noqa: ANN401 -- ASGI
        sent.append(message)

    async def receive() -> Any:  # noqa: ANN401 -- ASGI
        return {"type": "websocket.connect"}

    line = Office(tmp_path).service.line
    app = Edge.around(
        Behind(), identity=Names(), line=line, serve=Serve(), open=frozenset()
    )
    await app({"type": "websocket"}, receive, send)

    assert [message["type"] for message in sent] == ["websocket.close"]


async def test_a_large_body_is_read_like_a_small_one(tmp_path: Path) -> None:
    kind = {"content-type": "application/json"}
    behind = Behind()
    async with edge_of(Office(tmp_path), behind) as client:
        text = b'{"a": "' + b"x" * 200_000 + b'"}'
        read = await client.post(RUNS, headers=kind, content=text)
        refused = await client.post(RUNS, headers=kind, content=text[:-1])

    assert (read.status_code, refused.status_code) == (200, 400)
    assert len(behind.scopes[0]["caxton.body"]["a"]) == 200_000
    assert "connection" not in refused.headers


@dataclass(frozen=True)
class Failing:
    """Fails, at the door or behind it, with what only the operator may read."""

    error: CaxtonError

    async def __call__(self, *_: object) -> None:
        raise self.error

    async def principal(self, _: str | None) -> Principal:
        raise self.error


@pytest.mark.parametrize(
    "error",
    [
        ServerUnavailable("the server crm is down: /opt/crm", fix="see [servers.crm]"),
        SandboxError("no /opt/python"),
        LogBrokenError("the database of 10.0.0.5 is broken"),
    ],
)
async def test_how_a_host_is_built_is_told_to_its_admins_alone(
    tmp_path: Path, error: CaxtonError
) -> None:
    # law 9
    failing = Failing(error)
    line, boss = Office(tmp_path).service.line, {"authorization": "Bearer boss"}
    edge = Edge.around(
        failing, identity=Names(), line=line, serve=Serve(), open=frozenset()
    )
    async with client_of(edge) as client:
        theirs = await client.get(RUNS)
        of_boss = await client.get(RUNS, headers=boss)
    async with client_of(replace(edge, identity=failing)) as client:
        strangers = await client.get(RUNS, headers=boss)

    for told in (theirs, strangers):
        assert told.status_code >= 500
        assert told.json()["fix"] == "ask the operator of the host"
        assert str(error) not in told.text
    assert of_boss.json()["detail"] == str(error)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (StoreError("no connection to 10.0.0.5"), "the log cannot be read"),
        (
            LogMovedError("the file /srv/a.db was moved"),
            "the file of the log was moved",
        ),
    ],
)
async def test_where_the_log_is_stands_in_lines_of_the_log_alone(
    tmp_path: Path, error: CaxtonError, said: str
) -> None:
    # docs/how-to/monitor.md: the words of /readyz, to admins too
    error.fix = "mend /srv/a.db"
    line, boss = Office(tmp_path).service.line, {"authorization": "Bearer boss"}
    edge = Edge.around(
        Failing(error), identity=Names(), line=line, serve=Serve(), open=frozenset()
    )
    async with client_of(edge) as client:
        answer = await client.post(RUNS, headers=boss, json={})

    assert answer.status_code == 503
    assert answer.json()["detail"].startswith(said)
    assert answer.json()["fix"] == "ask the operator of the host"


@pytest.mark.parametrize("kind", KINDS)
def test_no_problem_is_without_a_remedy(kind: str) -> None:
    assert Problem(kind=kind).document()["fix"]
