"""A server that says exactly what it is told to, byte for byte."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import pytest

from caxton_host.lib.http import Client

Script: TypeAlias = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Server:
    """
    Attributes:
        script: What it answers each request with.

        requests: What it was sent: head and body.

        connections: How many it took.
    """

    port: int = 0
    script: Script | None = None
    requests: list[tuple[str, bytes]] = field(default_factory=list)
    connections: int = 0
    close_after: bool = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def says(self, *chunks: bytes, every: float = 0.0) -> None:
        async def script(writer: asyncio.StreamWriter) -> None:
            for chunk in chunks:
                writer.write(chunk)
                await writer.drain()
                await asyncio.sleep(every)

        self.script = script

    def answers(self, body: bytes, *headers: str, status: str = "200 OK") -> None:
        head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
        self.says("\r\n".join(head).encode() + b"\r\n\r\n" + body)

    @property
    def sent_headers(self) -> dict[str, str]:
        lines = self.requests[-1][0].split("\r\n")[1:]
        return {k.lower(): v for k, _, v in (line.partition(": ") for line in lines)}

    async def handle(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.connections += 1
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    head = (await reader.readuntil(b"\r\n\r\n")).decode().rstrip()
                    size = 0
                    for line in head.lower().split("\r\n"):
                        if line.startswith("content-length: "):
                            size = int(line.partition(": ")[2])
                    self.requests.append((head, await reader.readexactly(size)))
                    if self.script is None:
                        await asyncio.sleep(3600)
                    else:
                        await self.script(writer)
                        if self.close_after:
                            break
        finally:
            writer.close()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    tasks: set[asyncio.Task[None]] = set()

    async def connected(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await made.handle(reader, writer)
        except asyncio.CancelledError:
            pass
        finally:
            tasks.discard(task)

    listening = await asyncio.start_server(connected, "127.0.0.1", 0)
    made.port = listening.sockets[0].getsockname()[1]
    yield made
    listening.close()
    for task in list(tasks):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await listening.wait_closed()


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    made = Client()
    yield made
    await made.aclose()
