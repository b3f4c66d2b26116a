"""The proxy of a confined server: what it carries, and what it refuses."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias

import pytest

from caxton_host.core.log.events import EgressAllowed, EgressRefused, Event
from caxton_host.core.text.redact import Redactor
from caxton_host.mcp.transport import egress

REDACT = Redactor(["secret-secret"])
Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Serve: TypeAlias = Callable[
    [asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]
]


class There:
    """A host on this machine, which returns in capitals what it got until its end."""

    port = 0
    serve: Serve

    def __init__(self) -> None:
        self.serve = self.echo

    async def take(self, *streams: *Streams) -> None:
        await self.serve(*streams)

    async def echo(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write((await reader.read()).upper())
        writer.close()

    @property
    def authority(self) -> str:
        return f"127.0.0.1:{self.port}"


@pytest.fixture
async def there() -> AsyncIterator[There]:
    one = There()
    server = await asyncio.start_server(one.take, "127.0.0.1", 0)
    one.port = server.sockets[0].getsockname()[1]
    yield one
    server.close()


class Proxied:
    """A server's side of its proxy, without its network."""

    def __init__(self, *connect: str) -> None:
        self.events: list[Event] = []
        self.proxy = egress.Egress("crm", connect, self.events.append, REDACT)
        listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = listener.getsockname()[1]
        self.proxy.serve(listener)

    async def dial(self) -> Streams:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, request: bytes) -> tuple[bytes, Streams]:
        """Return the head of the answer, and the connection after it."""
        reader, writer = await self.dial()
        writer.write(request)
        return await reader.readuntil(b"\r\n\r\n"), (reader, writer)

    async def tunnel(self, authority: str) -> tuple[bytes, Streams]:
        return await self.ask(f"CONNECT {authority} HTTP/1.1\r\n\r\n".encode())

    @property
    def refused(self) -> list[tuple[str, int, str]]:
        found = [event for event in self.events if isinstance(event, EgressRefused)]
        return [(event.host, event.port, event.reason) for event in found]

    def total(self, field: str) -> int:
        found = [event for event in self.events if isinstance(event, EgressAllowed)]
        return sum(getattr(event, field) for event in found)


@asynccontextmanager
async def proxied(*connect: str) -> AsyncIterator[Proxied]:
    one = Proxied(*connect)
    try:
        yield one
    finally:
        await one.proxy.end()


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[list[str]]]:
    """The addresses of each name, look-up by look-up."""
    known: dict[str, list[list[str]]] = {}
    real = socket.getaddrinfo

    def look_up(host: str, port: int, **options: int) -> list[Any]:
        if host not in known:
            return real(host, port, **options)
        if not known[host]:
            raise socket.gaierror
        return [(0, 0, 0, "", (address, port)) for address in known[host].pop(0)]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return known


async def test_a_tunnel_carries_both_ways_and_passes_ends_on(there: There) -> None:
    async with proxied(there.authority) as server:
        head, (reader, writer) = await server.tunnel(there.authority)
        writer.write(b"abc")
        writer.write_eof()

        assert head == b"HTTP/1.1 200 Connection established\r\n\r\n"
        assert await reader.read() == b"ABC"
        writer.close()
    assert server.events == [
        EgressAllowed(server="crm", host="127.0.0.1", port=there.port, connections=1),
        EgressAllowed(
            server="crm", host="127.0.0.1", port=there.port, sent=3, received=3
        ),
    ]


async def test_what_comes_with_the_request_for_a_tunnel_is_carried(
    there: There,
) -> None:
    async with proxied(there.authority) as server:
        request = f"CONNECT {there.authority} HTTP/1.1\r\n\r\nearly".encode()
        _, (reader, writer) = await server.ask(request)
        writer.write_eof()

        assert await reader.read() == b"EARLY"
        writer.close()


async def test_a_plain_request_is_one_request_to_one_host(there: There) -> None:
    got, ended = bytearray(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.extend(await reader.readuntil(b"\r\n\r\n"))
        got.extend(await reader.readexactly(2))
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nyes")
        writer.write_eof()
        got.extend(await reader.read())
        ended.set()
        writer.close()

    there.serve = serve
    async with proxied(there.authority) as server:
        # What follows the body would be a request that was not looked at.
        head, (reader, writer) = await server.ask(
            f"POST http://{there.authority}/a?b HTTP/1.1\r\nHost: evil.test\r\n"
            "Content-Length: 2\r\n\r\nhiGET http://evil.test/ HTTP/1.1\r\n\r\n".encode()
        )
        assert head.startswith(b"HTTP/1.1 200 OK")
        assert await reader.read() == b"yes"
        writer.close()
        await ended.wait()
    assert got.decode() == (
        f"POST /a?b HTTP/1.1\r\nHost: {there.authority}\r\n"
        "Content-Length: 2\r\nConnection: close\r\n\r\nhi"
    )
    assert server.refused == []


@pytest.mark.parametrize(
    ("request_", "refused"),
    [
        ("CONNECT evil.test:443 HTTP/1.1", ("evil.test", 443, "unlisted")),
        ("GET http://evil.test/?key=1 HTTP/1.1", ("evil.test", 80, "unlisted")),
        ("CONNECT 169.254.169.254:80 HTTP/1.1", ("169.254.169.254", 80, "unlisted")),
        ("CONNECT [::ffff:7f00:1]:22 HTTP/1.1", ("127.0.0.1", 22, "unlisted")),
        ("CONNECT localhost:9 HTTP/1.1", ("localhost", 9, "private")),
        ("CONNECT 2130706433:22 HTTP/1.1", ("", 0, "invalid")),
        ("CONNECT listed.test:443\0.evil.test:443 HTTP/1.1", ("", 0, "invalid")),
        ("GET / HTTP/1.1", ("", 0, "invalid")),
        ("\x16\x03\x01", ("", 0, "invalid")),
        (f"CONNECT a.test:443 HTTP/1.1\r\nA: {'b' * 9000}", ("", 0, "invalid")),
        (f"CONNECT a.test:443 HTTP/1.1\r\nA: {'b' * 200_000}", ("", 0, "invalid")),
    ],
)
async def test_a_refusal_is_an_answer_and_an_event_without_a_path(
    request_: str, refused: tuple[str, int, str]
) -> None:
    async with proxied("listed.test:443", "localhost:9") as server:
        head, (reader, writer) = await server.ask(f"{request_}\r\n\r\n".encode())

        assert head.startswith(b"HTTP/1.1 400 " if not refused[0] else b"HTTP/1.1 403 ")
        assert await reader.read() == b""
        writer.close()
    assert server.refused == [refused]
    assert "key" not in str(server.events)


@pytest.mark.parametrize(
    "addresses",
    [
        *(["10.0.0.1"], ["9.9.9.9", "127.0.0.1"], ["169.254.169.254"], ["0.0.0.7"]),
        *(["::1"], ["::ffff:10.0.0.1"], ["64:ff9b::a00:1"], ["fe80::1%1"], ["fec0::1"]),
        *(["224.0.0.1"], ["168.63.129.16"], ["100.100.100.200"], ["fd00:ec2::254"]),
    ],
)
async def test_a_name_of_a_private_address_is_refused(
    names: dict[str, list[list[str]]], addresses: list[str]
) -> None:
    names["a.test"] = [addresses]
    async with proxied("a.test:443") as server:
        head, (_, writer) = await server.tunnel("a.test:443")

        assert b" 403 a.test has an address that is not public" in head
        writer.close()
    assert server.refused == [("a.test", 443, "private")]


async def test_the_address_that_was_checked_is_the_one_that_is_connected_to(
    there: There, names: dict[str, list[list[str]]]
) -> None:
    names["a.test"] = [["127.0.0.1"], ["169.254.169.254"]]
    async with proxied(f"a.test:{there.port}", there.authority) as server:
        head, (reader, writer) = await server.tunnel(f"a.test:{there.port}")
        writer.write_eof()

        assert head.startswith(b"HTTP/1.1 200 ")
        assert await reader.read() == b""
        writer.close()
    assert names["a.test"] == [["169.254.169.254"]]


async def test_the_next_address_is_tried(
    there: There, names: dict[str, list[list[str]]]
) -> None:
    names["a.test"] = [["::1", "127.0.0.1"]]  # Nothing listens on the first.
    listed = f"a.test:{there.port}", f"[::1]:{there.port}", there.authority
    async with proxied(*listed) as server:
        head, (_, writer) = await server.tunnel(f"a.test:{there.port}")

        assert head.startswith(b"HTTP/1.1 200 ")
        writer.close()


async def test_a_host_that_does_not_answer_is_a_failure_and_no_refusal(
    names: dict[str, list[list[str]]], unused_port: int
) -> None:
    names["a.test"] = []
    async with proxied(f"127.0.0.1:{unused_port}", "a.test:443") as server:
        for authority in (f"127.0.0.1:{unused_port}", "a.test:443"):
            head, (_, writer) = await server.tunnel(authority)
            assert head.startswith(
                f"HTTP/1.1 502 cannot connect to {authority}".encode()
            )
            writer.close()
    assert server.total("connections") == server.total("failed") == 2
    assert server.refused == []


@pytest.fixture
def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        port: int = one.getsockname()[1]
        return port


async def test_a_client_that_says_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(egress, "_HEAD_S", 0.05)
    async with proxied() as server:
        reader, writer = await server.dial()
        writer.write(b"CONNECT ")

        assert await reader.read() == b""
        writer.close()
    assert server.events == []


async def test_a_silent_connection_is_closed(
    there: There, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(egress, "_IDLE_S", 0.1)
    monkeypatch.setattr(egress, "_INTERVAL_S", 0.05)
    async with proxied(there.authority) as server:
        _, (reader, writer) = await server.tunnel(there.authority)

        assert await reader.read() == b""
        writer.close()


async def test_connections_beyond_the_most_wait_without_one_of_the_hosts_descriptors(
    there: There, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(egress, "_MOST", 3)
    async with proxied(there.authority) as server:
        idle = [await server.dial() for _ in range(50)]
        late = asyncio.create_task(server.tunnel(there.authority))
        await asyncio.sleep(0.1)

        assert len(server.proxy._open) == 3
        assert not late.done()
        for _, writer in idle:
            writer.close()
        head, (_, writer) = await late
        assert head.startswith(b"HTTP/1.1 200 ")
        writer.close()


async def test_a_reader_that_stops_stops_the_sender(there: There) -> None:
    amount = 64 * 1024 * 1024
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        del reader
        with suppress(OSError):
            for _ in range(amount // 65536):
                writer.write(bytes(65536))
                await writer.drain()
                sent += 65536

    there.serve = serve
    async with proxied(there.authority) as server:
        _, (_, writer) = await server.tunnel(there.authority)
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.1)

        assert 0 < sent < amount // 2
        writer.transport.abort()


async def test_a_secret_in_a_name_is_not_recorded() -> None:
    async with proxied() as server:
        _, (_, writer) = await server.tunnel("secret-secret.evil.test:443")
        writer.close()

    assert server.refused == [("[redacted].evil.test", 443, "unlisted")]  # law 8


async def test_a_flood_of_names_is_a_few_events() -> None:
    async with proxied() as server:
        for n in range(50):
            _, (_, writer) = await server.tunnel(f"{n}.test:443")
            writer.close()

    assert len(server.events) < 20
    refused = [event for event in server.events if isinstance(event, EgressRefused)]
    assert sum(event.attempts for event in refused) == 50


async def test_the_end_of_the_server_is_the_end_of_its_connections(
    there: There,
) -> None:
    async with proxied(there.authority) as server:
        _, (reader, writer) = await server.tunnel(there.authority)

    assert await reader.read() == b""
    writer.close()
    with pytest.raises(ConnectionRefusedError):
        await server.dial()
