"""A network between one host and the database, which can be cut, stopped and slow."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

_BYTES = 65_536


@dataclass(eq=False)
class Proxy:
    """
    Forwards connections to the socket of a server.

    Attributes:
        target: Returns the socket of the server that is to be reached now.

        port: Where it listens.

        delay: Seconds that each piece of data takes.
    """

    target: Callable[[], Path]
    port: int = 0
    delay: float = 0.0
    _through: asyncio.Event = field(default_factory=asyncio.Event)
    _is_cut: bool = False
    _open: set[asyncio.StreamWriter] = field(default_factory=set[asyncio.StreamWriter])
    _tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    @classmethod
    @contextlib.asynccontextmanager
    async def listening(cls, target: Callable[[], Path]) -> AsyncGenerator[Self]:
        """Forward until the block is left."""
        proxy = cls(target)
        proxy.heal()
        server = await asyncio.start_server(proxy._accept, "127.0.0.1", 0)
        proxy.port = server.sockets[0].getsockname()[1]
        try:
            yield proxy
        finally:
            server.close()
            proxy.heal()
            proxy.drop()
            if proxy._tasks:
                await asyncio.wait(proxy._tasks)

    def cut(self) -> None:
        """Close all connections, and each new one."""
        self._is_cut = True
        self.drop()

    def drop(self) -> None:
        """Close all connections."""
        for writer in [*self._open]:
            writer.transport.abort()

    def black_hole(self) -> None:
        """Accept everything, and forward nothing."""
        self._through.clear()

    def heal(self) -> None:
        """Forward again, also what was held back."""
        self._is_cut, self.delay = False, 0.0
        self._through.set()

    async def _accept(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._open.add(writer)
        try:
            await self._through.wait()
            if not self._is_cut:
                back, to = await asyncio.open_unix_connection(self.target())
                self._open.add(to)
                await asyncio.gather(
                    self._forward(reader, to), self._forward(back, writer)
                )
                self._open.discard(to)
        except OSError:
            pass  # The server is down.
        finally:
            self._tasks.discard(task)
            self._open.discard(writer)
            writer.transport.abort()

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_BYTES):
                await asyncio.sleep(self.delay)
                await self._through.wait()
                writer.write(data)
                await writer.drain()
        writer.transport.abort()
