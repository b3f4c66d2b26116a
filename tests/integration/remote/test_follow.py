"""Events as they come, over connections that do not last."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import count

import pytest

from caxton_host.core.calls import JSON
from caxton_host.errors import NotFoundError, ServerUnavailable
from caxton_host.remote import client, log
from caxton_host.remote.address import Address
from caxton_host.remote.client import Remote
from caxton_host.remote.log import RemoteLog
from tests.integration.webhooks.conftest import Server
from tests.unit.remote.test_documents import EVENT

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
LAST = 40


def event(n: int) -> bytes:
    document: dict[str, JSON] = EVENT | {"seq": n, "cursor": f"p-{n}"}
    if n == LAST:
        document |= {
            "type": "RunCancelled",
            "payload": {"actor": {}, "reason": "it is over"},
        }
    return f"id: p-{n}\ndata: {json.dumps(document)}\n\n".encode()


CHUNKED = HEAD[:-2] + b"Transfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def cutting(server: Server, sizes: Iterator[int], *, chunked: bool = False) -> None:
    """Serve the events behind the cursor, cut off after so many bytes."""
    head, framed = (CHUNKED, chunk) if chunked else (HEAD, bytes)

    async def script(writer: asyncio.StreamWriter) -> None:
        after = int(server.sent_headers.get("last-event-id", "p-0")[2:])
        behind = map(event, range(after + 1, LAST + 1))
        data = b"".join(map(framed, (b": caxton\n\n", *behind)))
        writer.write((head + data)[: next(sizes)])
        await writer.drain()

    server.script, server.close_after = script, True


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_PAUSE", 0.0)


@pytest.mark.parametrize("chunked", [False, True])
async def test_none_is_missed_and_none_comes_twice(
    server: Server, remote: Remote, *, chunked: bool
) -> None:
    # Each connection breaks somewhere else: in a head, a line, an event, between two.
    cutting(server, count(0, 37), chunked=chunked)
    found = [one.seq async for one in RemoteLog(remote).follow("1")]
    assert found == [*range(1, LAST + 1)]
    assert server.connections > 10


async def test_the_end_is_where_it_was_when_somebody_asked(
    server: Server, remote: Remote
) -> None:
    # The first connection says where the end is, and breaks before an event comes.
    sent = [HEAD + b"id: p-38\n\n"]

    async def script(writer: asyncio.StreamWriter) -> None:
        after = server.sent_headers["last-event-id"]
        writer.write(sent.pop() if after == "end" else HEAD + event(39) + event(LAST))
        await writer.drain()

    server.script, server.close_after = script, True
    tail = RemoteLog(remote).tail("end", stream="run/1", follow=True)
    assert [(await anext(tail))[1] for _ in range(2)] == ["p-39", "p-40"]
    assert server.sent_headers["last-event-id"] == "p-38"
    await tail.aclose()


async def test_a_run_that_is_over_is_not_asked_for_again(
    server: Server, remote: Remote
) -> None:
    server.says(b"HTTP/1.1 204 No Content\r\n\r\n")
    assert [one async for one in RemoteLog(remote).follow("1")] == []
    assert server.connections == 1


async def test_a_host_that_is_away_for_long_is_given_up(
    server: Server, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_PATIENCE", 0.2)
    cutting(server, count(0, 0))
    with pytest.raises(ServerUnavailable):
        _ = [one async for one in RemoteLog(remote).follow("1")]


async def test_a_host_that_is_not_there_is_not_waited_for() -> None:
    async with Remote(Address.parse("http://127.0.0.1:1"), None, print) as remote:
        with pytest.raises(ServerUnavailable, match="no host at"):
            _ = [one async for one in RemoteLog(remote).follow("1")]


async def test_a_host_that_says_nothing_is_asked_anew(
    server: Server, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_IDLE", 0.05)
    silent = True

    async def script(writer: asyncio.StreamWriter) -> None:
        nonlocal silent
        writer.write(HEAD + (b"" if silent else event(LAST)))
        await writer.drain()
        if silent:
            silent = False
            await asyncio.sleep(3600)

    server.script, server.close_after = script, True
    found = [one.seq async for one in RemoteLog(remote).follow("1")]
    assert found == [LAST]


@pytest.mark.parametrize(
    "sent",
    [
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{}",
        HEAD + b"data: " + b"x" * 2000,
        HEAD + b"data: x\n" * 500,
        HEAD + b"id: 1\ndata: []\n\n",
        HEAD + b'id: 1\ndata: {"type": "\x1b[31m"}\n\n',
        HEAD + event(1).replace(b"run/1", b"run/2"),
    ],
)
async def test_what_are_no_events_end_it(
    server: Server, remote: Remote, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(log, "MOST_BYTES", 1000)
    server.says(sent)
    server.close_after = True
    with pytest.raises(ServerUnavailable) as caught:
        _ = [one async for one in RemoteLog(remote).follow("1")]
    assert "\x1b" not in str(caught.value)
    assert server.connections == 1


async def test_a_host_that_has_no_room_is_asked_again(
    server: Server, remote: Remote
) -> None:
    full = True

    async def script(writer: asyncio.StreamWriter) -> None:
        nonlocal full
        busy = b"HTTP/1.1 503 X\r\nRetry-After: 0\r\nContent-Length: 2\r\n"
        kind = b"Content-Type: application/problem+json\r\n\r\n{}"
        writer.write(busy + kind if full else HEAD + event(LAST))
        full = False

    server.script, server.close_after = script, True
    found = [one.seq async for one in RemoteLog(remote).follow("1")]
    assert found == [LAST]


async def test_a_refusal_is_told_at_once(server: Server, remote: Remote) -> None:
    body = b'{"type": "/problems/not-found", "detail": "no run 1"}'
    server.answers(
        body, "Content-Type: application/problem+json", status="404 Not Found"
    )
    with pytest.raises(NotFoundError, match="no run 1"):
        _ = [one async for one in RemoteLog(remote).follow("1")]
    assert len(body) < client.MOST_BYTES
