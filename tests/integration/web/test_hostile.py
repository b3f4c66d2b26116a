"""Clients that mean harm, on a real port."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from caxton_host.config import Serve
from caxton_host.web.app import application
from caxton_host.web.edge import listen, messages
from caxton_host.web.edge.listen import bind, listening
from tests.office import Names, Office

_HEAD = "POST /api/v1/runs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ann\r\n"
_MOST = 1024 * 1024


@asynccontextmanager
async def up(folder: Path, patience: float = 30.0) -> AsyncGenerator[int]:
    """Yield the port of a service that takes bodies of a mebibyte."""
    app = application(Office(folder).service, Names(), Serve(body=_MOST))
    app.bodies.patience = patience
    with bind("127.0.0.1", 0) as listener:
        async with listening(app, listener):
            yield listener.getsockname()[1]


async def answered(reader: asyncio.StreamReader) -> int:
    """Return the status of an answer."""
    async with asyncio.timeout(30):
        return int((await reader.readline()).split()[1])


async def test_a_body_that_does_not_end_costs_no_memory(tmp_path: Path) -> None:
    # attack 42
    sent, before = 0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"

    async with up(tmp_path) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"{_HEAD}Transfer-Encoding: chunked\r\n\r\n".encode())
        reading = asyncio.create_task(answered(reader))
        try:
            async with asyncio.timeout(30):
                # A reset would drop an answer that has come and is not read yet.
                while not reading.done():
                    writer.write(chunk)
                    await writer.drain()
                    await asyncio.sleep(0)
                    sent += 0x10000
        except ConnectionError:
            pass
        status = await reading
        writer.close()

    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert status == 413
    # What was on its way when it was refused, and no more.
    assert sent < 64 * _MOST
    assert grown * 1024 < 64 * _MOST


async def test_a_body_that_comes_drop_by_drop_is_not_waited_for(
    tmp_path: Path,
) -> None:
    # attack 42
    async with up(tmp_path, patience=0.2) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"{_HEAD}Content-Length: 1000\r\n\r\n".encode())
        reading = asyncio.create_task(answered(reader))
        while not reading.done():
            writer.write(b"{")
            await asyncio.sleep(0.02)
        assert await reading == 408
        writer.close()


async def test_many_announce_a_gigabyte(tmp_path: Path) -> None:
    async def one(port: int) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"{_HEAD}Content-Length: 1000000000\r\n\r\n".encode())
        status = await answered(reader)
        writer.close()
        return status

    async with up(tmp_path) as port:
        assert {*await asyncio.gather(*(one(port) for _ in range(100)))} == {413}


async def test_who_leaves_in_the_middle_of_a_request_leaves_nothing(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path)
    app = application(office.service, Names(), Serve(body=_MOST))
    with bind("127.0.0.1", 0) as listener:
        async with listening(app, listener):
            port = listener.getsockname()[1]
            for _ in range(20):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(f"{_HEAD}Content-Length: 1000\r\n\r\nxxx".encode())
                await writer.drain()
                await asyncio.sleep(0.01)
                writer.close()
            async with asyncio.timeout(20):
                while app.bodies.held:  # noqa: ASYNC110 -- nobody tells
                    await asyncio.sleep(0.01)
    assert app.limit.present == 0


async def test_a_request_with_two_ends_is_refused_with_what_is_behind_it(
    tmp_path: Path,
) -> None:
    # law 9: what a proxy takes for a body would be a request of somebody else
    behind = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    ends = "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    open_ = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n"

    async with up(tmp_path) as port:
        for head in (_HEAD, open_):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"{head}{ends}{behind}".encode())
            async with asyncio.timeout(30):
                answers = await reader.read()
            writer.close()

            assert answers.count(b"HTTP/1.1 ") == answers.count(b"HTTP/1.1 400 ") == 1


async def test_who_asks_for_much_and_reads_nothing_does_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # law 9
    monkeypatch.setattr(messages, "_PATIENCE", 0.1)
    monkeypatch.setattr(listen, "_STUCK", 0.2)
    asks = b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"

    async with up(tmp_path) as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.settimeout(0.0)
            with pytest.raises(ConnectionError):
                await send_for_ever(client, asks)


async def send_for_ever(client: socket.socket, data: bytes) -> None:
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(BlockingIOError):
                client.send(data)
            await asyncio.sleep(0.001)
