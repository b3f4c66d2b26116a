"""A host listens: bounds on those who come, TLS, and how it ends."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import signal
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import httpx
import pytest

from caxton_host.errors import UsageError
from caxton_host.web.edge import listen
from caxton_host.web.edge.listen import Room, bind, listening, stopping
from caxton_host.web.edge.tls import Certificate

_WHOLE = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


async def hello(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 -- ASGI
    del scope, receive
    headers = [(b"content-length", b"5")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"hello"})


@asynccontextmanager
async def up(certificate: Certificate | None = None) -> AsyncGenerator[int]:
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        async with listening(hello, listener, certificate):
            yield port


@asynccontextmanager
async def visit(
    port: int, said: bytes = b""
) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, to = await asyncio.open_connection("127.0.0.1", port)
    to.write(said)
    try:
        yield reader, to
    finally:
        to.close()
        with suppress(ConnectionResetError):
            await to.wait_closed()


async def closed(reader: asyncio.StreamReader) -> bool:
    async with asyncio.timeout(20):
        try:
            return await reader.read() == b""
        except ConnectionResetError:
            return True


async def test_it_answers_as_soon_as_it_listens() -> None:
    async with up() as port, httpx.AsyncClient() as client:
        answer = await client.get(f"http://127.0.0.1:{port}/")

    assert answer.text == "hello"
    assert "server" not in answer.headers


async def test_who_does_not_say_what_they_want_does_not_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # attack 42
    monkeypatch.setattr(listen, "_HEAD", 0.05)
    async with (
        up() as port,
        visit(port) as (silent, _),
        visit(port, b"GET / HTTP/1.1\r\nHost: a\r\n") as (slow, _),
    ):
        assert await closed(silent)
        assert await closed(slow)


async def test_many_at_once_are_all_answered_and_health_waits_for_none() -> None:
    # attack 44
    inside, let = asyncio.Semaphore(0), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 -- ASGI
        if scope["path"] != "/healthz":
            inside.release()
            await let.wait()
        await hello(scope, receive, send)

    with bind("127.0.0.1", 0) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with listening(app, listener), httpx.AsyncClient(base_url=url) as client:
            waiting = [asyncio.create_task(client.get(f"/{n}")) for n in range(40)]
            for _ in waiting:
                await inside.acquire()
            assert (await client.get("/healthz")).text == "hello"
            let.set()
            answers = await asyncio.gather(*waiting)

    assert {answer.text for answer in answers} == {"hello"}


async def test_a_second_request_may_not_take_longer_than_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with up() as port, visit(port, _WHOLE) as (reader, to):
        await reader.readuntil(b"hello")
        monkeypatch.setattr(listen, "_HEAD", 0.05)
        to.write(b"GET / HT")

        assert await closed(reader)


async def test_what_is_no_http_is_answered_without_a_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with up() as port, visit(port, b"\0\0\0\r\n\r\n") as (reader, _):
        async with asyncio.timeout(20):
            answer = await reader.read()

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert caplog.records == []


def room_for(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(listen, "Room", lambda: Room(most))


async def test_who_says_nothing_makes_room_for_who_says_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # with ulimit -n 64, 80 idle sockets kept /healthz from being answered
    room_for(monkeypatch, 2)
    async with AsyncExitStack() as stack, up() as port:
        used, to = await stack.enter_async_context(visit(port, _WHOLE))
        await used.readuntil(b"hello")
        silent = [await stack.enter_async_context(visit(port)) for _ in range(40)]
        answering, _ = await stack.enter_async_context(visit(port, _WHOLE))
        assert await answering.readuntil(b"hello")

        to.write(_WHOLE)
        assert await closed(used)  # it was idle, and there for longest
        for reader, _ in silent[:-1]:
            assert await closed(reader)


async def test_health_is_answered_when_every_connection_is_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    room_for(monkeypatch, 3)
    inside, let = asyncio.Semaphore(0), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 -- ASGI
        if scope["path"] == "/slow":
            inside.release()
            await let.wait()
        await hello(scope, receive, send)

    with bind("127.0.0.1", 0) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with listening(app, listener), httpx.AsyncClient(base_url=url) as client:
            waiting = [asyncio.create_task(client.get("/slow")) for _ in range(3)]
            for _ in waiting:
                await inside.acquire()
            full = await client.get("/")
            health = [await client.get(path) for path in ("/healthz", "/readyz")]
            let.set()
            answers = await asyncio.gather(*waiting)

    assert (full.status_code, full.headers["retry-after"]) == (503, "1")
    assert full.json()["type"] == "/problems/overloaded"
    assert {answer.text for answer in health + answers} == {"hello"}


async def test_more_than_there_is_room_for_health_are_hung_up_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    room_for(monkeypatch, 0)
    half = b"POST /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"
    let = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 -- ASGI
        await let.wait()
        await hello(scope, receive, send)

    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        async with listening(app, listener), AsyncExitStack() as stack:
            busy = [
                await stack.enter_async_context(visit(port, half)) for _ in range(8)
            ]
            last, _ = await stack.enter_async_context(visit(port))
            assert await closed(last)
            let.set()
            for reader, _ in busy:
                assert await reader.readuntil(b"hello")


async def test_there_is_room_for_half_of_the_descriptors_that_are_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for soft, most in ((resource.RLIM_INFINITY, 4096), (10**9, 4096), (1, 4)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, soft))
        room = Room()
        assert room.is_for_all(most)
        assert not room.is_for_all(most + 1)


async def test_an_outage_of_descriptors_is_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = asyncio.get_running_loop()
    others: list[Any] = []
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: others.append(context))
    said = {
        "message": "socket.accept() out of system resource",
        "exception": OSError(errno.EMFILE, "Too many open files"),
    }
    async with up() as port, visit(port) as (idle, _):
        async with httpx.AsyncClient() as client:
            await client.get(f"http://127.0.0.1:{port}/")
            for _ in range(30):
                loop.call_exception_handler(said)
            loop.call_exception_handler({"message": "something else"})
        assert await closed(idle)
    loop.set_exception_handler(before)

    (line,) = caplog.records
    assert "Too many open files" in line.getMessage()
    assert "ulimit -n" in line.getMessage()
    assert others == [{"message": "something else"}]


def test_a_port_in_use_is_told() -> None:
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port}") as caught:
            bind("127.0.0.1", port)

    assert "--port" in caught.value.fix


def test_an_address_that_is_none_is_told() -> None:
    with pytest.raises(UsageError, match="not an address"):
        bind("nowhere.invalid", 0)


async def test_the_first_signal_asks_to_stop_and_says_so() -> None:
    before = signal.getsignal(signal.SIGTERM)
    told: list[bool] = []

    with stopping(lambda: told.append(True)) as asked:
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(20):
            await asked.wait()

    assert told == [True]
    assert signal.getsignal(signal.SIGTERM) == before
