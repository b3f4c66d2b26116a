"""What a host may say, and what becomes of it: hosts are not believed."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.log.events import event_document
from caxton_host.core.log.runs import RunFilter
from caxton_host.errors import (
    BusyError,
    CaxtonError,
    ForbiddenError,
    LogBrokenError,
    NotFoundError,
    NotKeptError,
    OverloadedError,
    ServerUnavailable,
    StoreError,
    Suspend,
    UsageError,
)
from caxton_host.lib.codec import sha256
from caxton_host.remote import client, log
from caxton_host.remote.address import Address
from caxton_host.remote.client import Remote, TooMuch, path
from caxton_host.remote.log import RemoteLog
from tests.certificates import Authority
from tests.integration.web.test_listen import up
from tests.integration.web.test_tls import certified
from tests.integration.webhooks.conftest import Server
from tests.scene import Scene, calling
from tests.unit.remote.test_documents import EVENT

PROBLEM = "Content-Type: application/problem+json"
OK = "Content-Type: application/json"


def refuse(server: Server, status: str, kind: str, *headers: str, **more: JSON) -> None:
    document = {"type": f"/problems/{kind}", "detail": "no", "fix": "do", **more}
    server.answers(json.dumps(document).encode(), PROBLEM, *headers, status=status)


async def test_a_document_is_what_the_host_said(server: Server, remote: Remote) -> None:
    server.answers(b'{"runs": []}', OK)
    assert await remote.get("/runs", limit=3, agent=None) == {"runs": []}
    assert server.requests[-1][0].startswith("GET /api/v1/runs?limit=3 HTTP/1.1")
    assert server.sent_headers["authorization"] == "Bearer cx_token"


async def test_no_name_leaves_its_place_in_a_path(
    server: Server, remote: Remote
) -> None:
    server.answers(b"{}", OK)
    await remote.get(path("servers", "../runs?x=1#\r\nHost: evil"))
    head = server.requests[-1][0].split("\r\n")[0]
    assert head.startswith("GET /api/v1/servers/..%2Fruns%3Fx%3D1%23%0D%0AHost%3A%20")


@pytest.mark.parametrize(
    ("status", "kind", "error"),
    [
        ("400 No", "bad-request", UsageError),
        ("403 No", "forbidden", ForbiddenError),
        ("403 No", "stale-sign-in", ForbiddenError),
        ("404 No", "not-found", NotFoundError),
        ("409 No", "conflict", BusyError),
        ("409 No", "waiting", Suspend),
        ("410 No", "erased", NotKeptError),
        ("422 No", "refused", UsageError),
        ("500 No", "internal", CaxtonError),
        ("500 No", "broken-log", LogBrokenError),
        ("502 No", "server-unavailable", ServerUnavailable),
        ("503 No", "store", StoreError),
        ("404 No", "of-tomorrow", NotFoundError),
        ("418 No", "of-tomorrow", UsageError),
        ("599 No", "of-tomorrow", CaxtonError),
    ],
)
async def test_a_problem_becomes_the_error_that_it_would_be_here(
    server: Server, remote: Remote, status: str, kind: str, error: type[CaxtonError]
) -> None:
    refuse(server, status, kind)
    with pytest.raises(error) as caught:
        await remote.get("/runs")
    assert type(caught.value) is error
    assert "no" in str(caught.value)
    assert caught.value.fix == "do"


async def test_who_has_no_token_is_told_where_to_put_one(
    server: Server, remote: Remote
) -> None:
    refuse(server, "401 No", "unauthenticated", fix="send a header")
    with pytest.raises(UsageError) as caught:
        await remote.get("/runs")
    assert "$CAXTON_TOKEN" in caught.value.fix
    assert "cx_token" not in f"{caught.value}{caught.value.fix}"  # law 8


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ((), b"{}", "200 OK"),
        (("Content-Type: text/html",), b"<html>", "200 OK"),
        (("Content-Type: text/html",), b"<html>", "404 Not Found"),
        ((PROBLEM,), b"[", "404 Not Found"),
        ((PROBLEM,), b"[]", "404 Not Found"),
        ((OK,), b'{"a": NaN}', "200 OK"),
        ((OK,), b'{"a": 1, "a": 2}', "200 OK"),
        ((OK,), b"[" * 100 + b"]" * 100, "200 OK"),
        ((OK, "Content-Encoding: gzip"), b"\x1f\x8b", "200 OK"),
        (("Location: http://127.0.0.1:1/",), b"", "307 Temporary Redirect"),
    ],
)
async def test_what_is_no_host_is_told_so(
    server: Server, remote: Remote, headers: tuple[str, ...], body: bytes, status: str
) -> None:
    server.answers(body, *headers, status=status)
    with pytest.raises(ServerUnavailable, match="no caxton that serves"):
        await remote.get("/runs")
    assert server.connections == 1  # A redirect is not followed.


async def test_an_answer_without_end_is_cut(
    server: Server, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MOST_BYTES", 1000)
    server.answers(b" " * 1001, OK)
    with pytest.raises(TooMuch):
        await remote.get("/runs")


async def test_an_answer_that_never_comes_is_given_up(
    server: Server, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_DEADLINE", 0.1)
    server.says(b"HTTP/1.1 200 OK\r\n")
    with pytest.raises(ServerUnavailable, match="its answer is lost"):
        await remote.get("/runs")


async def test_nobody_there_is_told_at_once(told: list[str]) -> None:
    async with Remote(Address.parse("http://127.0.0.1:1"), None, told.append) as it:
        with pytest.raises(ServerUnavailable, match=r"no host at http://127.0.0.1:1"):
            await it.post("/runs", {})


async def test_https_to_a_host_that_speaks_plain_http_is_told() -> None:
    async with up() as port:
        url = f"https://127.0.0.1:{port}"
        async with Remote(Address.parse(url), "cx_token", print) as it:
            with pytest.raises(ServerUnavailable, match=f"--host {url}: .* TLS") as why:
                await it.get("/runs")
    assert why.value.fix.startswith(f"write --host http://127.0.0.1:{port}, if ")


async def test_http_to_a_host_that_speaks_tls_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_PAUSES", ())
    async with up(certified(Authority(tmp_path))) as port:
        url = f"http://127.0.0.1:{port}"
        async with Remote(Address.parse(url), "cx_token", print) as it:
            with pytest.raises(ServerUnavailable, match=f"--host {url}: ") as why:
                await it.get("/runs")
    assert f"if it speaks TLS, write --host https://127.0.0.1:{port}" in why.value.fix


async def test_a_host_with_a_certificate_of_a_stranger_is_told(tmp_path: Path) -> None:
    async with up(certified(Authority(tmp_path))) as port:
        url = f"https://localhost:{port}"
        async with Remote(Address.parse(url), "cx_token", print) as it:
            with pytest.raises(ServerUnavailable, match="certificate") as why:
                await it.get("/runs")
    assert "SSL_CERT_FILE" in why.value.fix


async def test_a_host_that_has_no_room_is_asked_again_when_it_says(
    server: Server, remote: Remote, told: list[str]
) -> None:
    refuse(server, "503 No", "overloaded", "Retry-After: 0")
    asking = asyncio.create_task(remote.post("/runs", {"agent": "a"}))
    while not told:  # noqa: ASYNC110 -- of the client
        await asyncio.sleep(0.01)
    server.answers(b'{"run_id": "1"}', OK)
    assert await asking == {"run_id": "1"}
    assert told[0] == "no; asking again in 0.1 s"
    assert {body for _, body in server.requests} == {b'{"agent": "a"}'}


@pytest.mark.parametrize("status", ["429 No", "503 No"])
async def test_a_host_that_has_no_room_for_long_is_not_waited_for(
    server: Server, remote: Remote, status: str
) -> None:
    refuse(server, status, "overloaded", "Retry-After: 3600")
    with pytest.raises(OverloadedError) as caught:
        await remote.get("/runs")
    assert caught.value.retry_after == 3600
    assert len(server.requests) == 1


async def test_what_was_lost_is_asked_again_with_its_key(
    server: Server, remote: Remote
) -> None:
    lost = 0

    async def script(writer: asyncio.StreamWriter) -> None:
        nonlocal lost
        lost += 1
        if lost < 3:
            writer.transport.abort()
            return
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + OK.encode())
        writer.write(b"\r\n\r\n{}")

    server.script = script
    assert await remote.post("/runs", {}, key="k") == {}
    assert len(server.requests) == 3
    assert all("idempotency-key: k" in head.lower() for head, _ in server.requests)


async def test_a_start_that_waits_for_its_turn_is_asked_again(
    server: Server, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_DEADLINE", 0.2)
    asking = asyncio.create_task(remote.post("/runs", {}, key="k"))
    while not server.requests:  # noqa: ASYNC110 -- of the client
        await asyncio.sleep(0.01)
    server.answers(b"{}", OK)
    assert await asking == {}
    assert len(server.requests) >= 2  # a slow machine may take longer than that


async def test_what_was_lost_without_a_key_is_not_asked_again(  # law 3
    server: Server, remote: Remote
) -> None:
    async def script(writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    server.script = script
    with pytest.raises(ServerUnavailable, match="its answer is lost"):
        await remote.post("/runs/1/fork", {})
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "page",
    [
        b"[]",
        b"{}",
        b'{"runs": {}}',
        b'{"runs": [1], "next": null}',
        b'{"runs": [{"run_id": "1; rm -rf /"}], "next": null}',
        b'{"runs": [{"run_id": "1", "state": []}], "next": null}',
        b'{"runs": [{}], "next": 3}',
    ],
)
async def test_a_list_of_runs_of_wrong_types_is_refused(
    server: Server, remote: Remote, page: bytes
) -> None:
    server.answers(page, OK)
    with pytest.raises(ServerUnavailable):
        await RemoteLog(remote).runs(20, RunFilter())


@pytest.mark.parametrize(
    "page",
    [
        b'{"events": [{"cursor": 1}], "more": false}',
        b'{"events": [{"cursor": "1"}], "more": false}',
        b'{"events": "all", "more": false}',
    ],
)
async def test_events_of_wrong_types_are_refused(
    server: Server, remote: Remote, page: bytes
) -> None:
    server.answers(page, OK)
    with pytest.raises(ServerUnavailable):
        await RemoteLog(remote).read("run/1")


async def test_bytes_are_those_of_their_digest(server: Server, remote: Remote) -> None:
    known = RemoteLog(remote)
    with pytest.raises(NotFoundError):
        await known.blob("00")
    scene = Scene(calling())
    await scene.run()
    (start, *_) = await scene.recorded()
    page = {"events": [event_document(start) | {"cursor": "1"}], "more": False}
    server.answers(json.dumps(page).encode(), OK)
    await known.read(start.stream)
    digest = sha256(scene.request.module)
    server.answers(scene.request.module, "Content-Type: application/octet-stream")
    assert await known.blob(digest) == scene.request.module
    where = f"/api/v1/runs/{scene.run_id}/blobs/{digest} "
    assert where in server.requests[-1][0]
    for sent in (b"others", "application/octet-stream"), (b"{}", "application/json"):
        server.answers(sent[0], f"Content-Type: {sent[1]}")
        with pytest.raises(ServerUnavailable):
            await known.blob(digest)


def send(writer: asyncio.StreamWriter, document: JSON) -> None:
    body = json.dumps(document).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n{OK}\r\n\r\n"
    writer.write(head.encode() + body)


async def paged(server: Server, writer: asyncio.StreamWriter, size: int | None) -> None:
    """Answer with pages of so many events without end, or with one as is asked."""
    asked = int(server.requests[-1][0].partition("limit=")[2].split()[0])
    cursor = f"p-{len(server.requests)}"
    events: list[JSON] = [EVENT | {"cursor": cursor}] * (size or asked)
    send(writer, {"events": events, "more": size is not None, "cursor": cursor})


async def test_a_run_without_end_is_not_read_to_its_end(
    server: Server, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_MOST_BYTES", 5000)
    server.script = partial(paged, server, size=1)
    with pytest.raises(ServerUnavailable, match="no end of events"):
        await RemoteLog(remote).read("run/1")


async def test_a_page_that_is_too_much_is_asked_for_in_parts(
    server: Server, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MOST_BYTES", 1000)

    server.script = partial(paged, server, size=None)
    assert len(await RemoteLog(remote).read("run/1")) == 1


async def test_a_host_that_says_more_and_sends_nothing_is_not_asked_for_ever(
    server: Server, remote: Remote
) -> None:
    server.answers(b'{"events": [], "more": true, "cursor": "p-1"}', OK)
    assert await RemoteLog(remote).read("run/1") == []
    assert len(server.requests) == 2


async def test_a_page_without_anything_for_us_is_not_the_last(
    server: Server, remote: Remote
) -> None:
    event = EVENT | {"cursor": "p-2"}
    pages: list[JSON] = [
        {"events": [], "more": True, "cursor": "p-1"},
        {"events": [event], "more": False, "cursor": "p-2"},
    ]

    async def script(writer: asyncio.StreamWriter) -> None:
        send(writer, pages.pop(0))

    server.script = script
    assert len(await RemoteLog(remote).read("run/1")) == 1
    assert "after=p-1" in server.requests[-1][0]
