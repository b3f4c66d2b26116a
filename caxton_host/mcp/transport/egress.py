"""
The proxy of one confined server: the only way out of its network.

It listens on a socket that was made inside, takes CONNECT and plain HTTP requests, and
connects from the host: to hosts that are listed, at addresses that it has checked. What
it carries is neither read nor kept.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from ...core.log.egress_tally import NOBODY, Tally
from ...core.log.events import EgressAllowed, EgressRefused, Event
from ...core.text.redact import Redactor
from ...core.tools.confinement import NOT_CONFINED
from ...core.tools.egress import (
    HEAD,
    AllowList,
    Request,
    Target,
    read_request,
    variables,
)
from ...core.tools.servers import ServerConfig
from ...errors import BadBytes, ServerUnavailable
from ...lib.http_rules import is_public
from ...sandbox.namespace import PORT
from .timing import Throttle

logger = logging.getLogger(__name__)

#: Connections at a time, and a second; others wait in the queue of the kernel.
_MOST, _A_SECOND = 64, 100
#: Bytes a second, both ways together.
_BYTES_A_SECOND = 64 * 1024 * 1024
_CHUNK = 64 * 1024

#: Seconds for the server to begin, for the head of a request, and for a connection.
_BEGIN_S, _HEAD_S, _CONNECT_S = 30.0, 10.0, 10.0
_NEXT_ADDRESS_S, _LINGER_S = 3.0, 1.0
#: Seconds after which a silent connection is closed.
_IDLE_S = 600.0
#: Seconds between two events of a host, and between two looks for silence.
_INTERVAL_S = 60.0

#: Threads for names: one that takes long to resolve delays this server alone.
_RESOLVERS = 2

_Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_SO_NETNS_COOKIE = 71
_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


class _Refused(Exception):  # noqa: N818 -- an answer, not a fault
    """A request gets an answer of the proxy instead of the target's."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        # The phrase of the status is what clients show of a proxy's answer.
        self.answer = f"HTTP/1.1 {status} {why}\r\nConnection: close\r\n\r\n".encode()


class Egress:
    """
    The proxy of a server that is about to be started.

    Args:
        server: Its name.

        connect: What it may connect to.

        emit: Called with each event.

        redact: Removes secrets from the names that it asks for.

    Attributes:
        fd: A descriptor for the server's process, over which it sends the socket.

        variables: Belong into its environment.
    """

    def __init__(
        self,
        server: str,
        connect: Sequence[str],
        emit: Callable[[Event], None],
        redact: Redactor,
    ) -> None:
        self._server = server
        self._allowed = AllowList.parse(connect)
        self.variables = variables(self._allowed, f"http://127.0.0.1:{PORT}")
        self._emit = emit
        self._tally = Tally(server)
        self._redact = redact
        self._channel, self._theirs = socket.socketpair()
        self.fd = self._theirs.fileno()
        self._tasks: list[asyncio.Task[None]] = []
        # When each connection last carried something.
        self._open: dict[asyncio.Task[None], float] = {}
        self._room = asyncio.Semaphore(_MOST)
        self._accepted = Throttle(_A_SECOND)
        self._carried = Throttle(_BYTES_A_SECOND)
        self._resolver = ThreadPoolExecutor(_RESOLVERS, f"egress {server}")

    async def begin(self) -> None:
        """
        Serve, once the process has a network of its own.

        Raises:
            ServerUnavailable: It has none.
        """
        self._theirs.close()
        listener = await self._listener()
        if listener is None:
            raise ServerUnavailable(
                f"{NOT_CONFINED}this machine cannot give a server a network of its own",
                fix="install bubblewrap, or remove connect from "
                f"[servers.{self._server}.confine]; see `caxton doctor`",
            )
        self.serve(listener)

    def serve(self, listener: socket.socket) -> None:
        """Serve on a socket until the end, which closes it."""
        listener.settimeout(0)
        self._tasks = [
            asyncio.create_task(part, name=f"egress of {self._server}")
            for part in (self._accept(listener), self._look_after())
        ]

    async def _listener(self) -> socket.socket | None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(self._channel, ready.set)
        try:
            async with asyncio.timeout(_BEGIN_S):
                await ready.wait()
            _, fds, _, _ = socket.recv_fds(self._channel, 1, 1)
        except (OSError, TimeoutError):
            return None
        finally:
            loop.remove_reader(self._channel)
        found = [socket.socket(fileno=fd) for fd in fds]
        if not found or _network(found[0]) == _network(self._channel):
            # Believed if the kernel says so, whatever the process did.
            for one in found:
                one.close()
            return None
        return found[0]

    async def end(self) -> None:
        """Close every connection."""
        tasks = [*self._tasks, *self._open]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tell()
        self._channel.close()
        self._theirs.close()
        self._resolver.shutdown(wait=False, cancel_futures=True)

    # -- events ----------------------------------------------------------------

    async def _look_after(self) -> None:
        while True:
            await asyncio.sleep(_INTERVAL_S)
            self._tell()
            late = asyncio.get_running_loop().time() - _IDLE_S
            for task, moved in self._open.items():
                if moved < late:
                    task.cancel()

    def _tell(self) -> None:
        for event in self._tally.flush():
            self._record(event)

    def _count(self, target: Target, reason: str = "", **amounts: int) -> None:
        if event := self._tally.add(target, reason, **amounts):
            self._record(event)

    def _record(self, event: EgressAllowed | EgressRefused) -> None:
        self._emit(replace(event, host=self._redact.text(event.host)))

    # -- connections -----------------------------------------------------------

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with listener:
            while True:
                await self._room.acquire()
                try:
                    client, _ = await loop.sock_accept(listener)
                except OSError:  # No descriptor is free.
                    self._room.release()
                    await asyncio.sleep(1)
                    continue
                task = asyncio.create_task(self._serve(client))
                self._open[task] = loop.time()
                task.add_done_callback(self._closed)
                await asyncio.sleep(self._accepted.spend(1, loop.time()))

    def _closed(self, task: asyncio.Task[None]) -> None:
        del self._open[task]
        self._room.release()
        if not task.cancelled() and (problem := task.exception()):
            logger.error("MCP: a connection of %s", self._server, exc_info=problem)

    async def _serve(self, client: socket.socket) -> None:
        streams = await asyncio.open_connection(sock=client, limit=_CHUNK)
        with _held(streams) as (reader, writer), suppress(OSError, EOFError):
            try:
                request = await self._request(reader)
                there = await self._connected(request.target)
            except _Refused as exc:
                writer.write(exc.answer)
            else:
                with _held(there):
                    await self._relay(request, streams, there)
            # Closing with bytes unread would take the answer back.
            await writer.drain()
            writer.write_eof()
            async with asyncio.timeout(_LINGER_S):
                while await reader.read(_CHUNK):
                    pass

    async def _request(self, reader: asyncio.StreamReader) -> Request:
        try:
            async with asyncio.timeout(_HEAD_S):
                return read_request(await reader.readuntil(b"\r\n\r\n"))
        except (BadBytes, asyncio.LimitOverrunError) as exc:
            why = str(exc) if isinstance(exc, BadBytes) else f"over {HEAD} bytes"
            raise self._refusal(NOBODY, "invalid", f"invalid request: {why}") from None

    async def _connected(self, target: Target) -> _Streams:
        if not self._allowed.allows(target):
            why = f"{target} is not listed in [servers.{self._server}.confine] connect"
            raise self._refusal(target, "unlisted", why)
        found: list[str] = []
        with suppress(OSError, UnicodeError):
            async with asyncio.timeout(_CONNECT_S):
                found = await self._resolved(target)
                for address in found:
                    with suppress(OSError):
                        async with asyncio.timeout(_NEXT_ADDRESS_S):
                            return await asyncio.open_connection(
                                address, target.port, limit=_CHUNK
                            )
        # Allowed, but never counted if its name has no address.
        self._count(target, connections=not found, failed=1)
        raise _Refused(502, f"cannot connect to {target}")

    async def _resolved(self, target: Target) -> list[str]:
        host, port = target
        look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._resolver, look_up)
        addresses = [*dict.fromkeys(str(entry[4][0]) for entry in found)]
        for address in addresses:
            listed = self._allowed.lists(Target(address, port))
            if not listed and not is_public(address):
                why = f"{host} has an address that is not public and not listed"
                raise self._refusal(target, "private", why)
        self._count(target, connections=1)
        return addresses

    def _refusal(self, target: Target, reason: str, why: str) -> _Refused:
        self._count(target, reason, attempts=1)
        return _Refused(400 if target is NOBODY else 403, why)

    async def _relay(self, request: Request, client: _Streams, there: _Streams) -> None:
        tunnel = request.head is None
        (client if tunnel else there)[1].write(request.head or _ESTABLISHED)
        me, clock = asyncio.current_task(), asyncio.get_running_loop().time
        assert me  # noqa: S101 -- for the type

        def count(sent: int = 0, received: int = 0) -> None:
            self._open[me] = clock()
            self._count(request.target, sent=sent, received=received)

        count(len(request.head or b""))
        most = None if tunnel else request.body
        out = self._carry(client[0], there[1], count, most)
        back = self._carry(there[0], client[1], partial(count, 0))
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(out)
                both.create_task(back)
        except* OSError:
            pass  # One end broke the connection, so the other one is closed.

    async def _carry(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        count: Callable[[int], None],
        most: int | None = None,
    ) -> None:
        """Carry *most* bytes, or all and their end."""
        clock = asyncio.get_running_loop().time
        while most != 0 and (chunk := await reader.read(most or _CHUNK)):
            if most:
                most -= len(chunk)
            writer.write(chunk)
            count(len(chunk))
            await writer.drain()
            await asyncio.sleep(self._carried.spend(len(chunk), clock()))
        if most is None:
            writer.write_eof()


@contextmanager
def _held(streams: _Streams) -> Generator[_Streams]:
    transport = streams[1].transport
    transport.set_write_buffer_limits(0)  # Nothing is left when both ends are done.
    try:
        yield streams
    finally:
        transport.abort()


def _network(of: socket.socket) -> bytes:
    """Return what identifies the network namespace of a socket. Needs Linux 5.14."""
    with suppress(OSError):
        return of.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8)
    return b""


@asynccontextmanager
async def proxied(
    config: ServerConfig, redact: Redactor, emit: Callable[[Event], None]
) -> AsyncGenerator[Egress | None]:
    """
    Return the proxy of a server during the block; ``None``: it needs none.

    Args:
        config: The server.

        redact: Removes secrets from the names that it asks for.

        emit: Called with each event.
    """
    if not (config.confine and config.confine.connect):
        yield None
        return
    egress = Egress(config.name, config.confine.connect, emit, redact)
    try:
        yield egress
    finally:
        await egress.end()
