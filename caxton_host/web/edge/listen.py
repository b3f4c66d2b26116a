"""
Listening: socket, uvicorn, bounds on connections, and signals.

    bound -> listening -> (stopping: the first signal) -> no new ones -> closed

Clients have so long to say what they want; what they say after that is bounded by
`edge`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
from asyncio import AbstractEventLoop
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from ...errors import UsageError
from ...lib.fair_loop import Pace, paced
from .messages import Answering, Problem, respond
from .tls import Certificate, LiveCertificate

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


logger = logging.getLogger("caxton_host")

HEALTH = frozenset({"/healthz", "/readyz"})

#: Connections at a time at the most, at the least, and those for health besides.
_MOST, _LEAST, _SPARE = 4096, 4, 8

#: What asyncio says when a connection cannot be taken, and how often at least it does.
_NOT_TAKEN = "socket.accept() out of system resource"
_QUIET = 10.0


class Room:
    """
    Tracks a host's connections, and which of them are idle.

    Args:
        most: How many there may be; by default half as many as there are descriptors
            left. The others are for workers, servers, files and the database.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = _left() if most is None else most
        self._idle: dict[asyncio.Transport, None] = {}

    def rests(self, transport: asyncio.Transport) -> None:
        """Note that a connection is idle, if it was not before."""
        self._idle.setdefault(transport)

    def works(self, transport: asyncio.Transport) -> None:
        """Note that a connection is not idle, or gone."""
        self._idle.pop(transport, None)

    def shed(self) -> bool:
        """Close the connection that is idle for longest; return whether one was."""
        longest = next(iter(self._idle), None)
        if longest is None:
            return False
        self.works(longest)
        longest.abort()
        return True

    def is_for_all(self, present: int) -> bool:
        """Return whether the newest of *present* connections may send any request."""
        return present <= self._most or self.shed()

    def is_for_health(self, present: int) -> bool:
        """Return whether it may send health checks."""
        return present <= self._most + _SPARE


def _left() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MOST
    return min(_MOST, max(_LEAST, (soft - len([*Path("/dev/fd").iterdir()])) // 2))


def health_only(app: ASGIApp) -> ASGIApp:
    """Return *app* restricted to health checks."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in HEALTH:
            await app(scope, receive, send)
            return
        full = Problem(
            kind="overloaded",
            detail="too many connections are open",
            fix="try again later",
            headers={"retry-after": "1"},
        )
        await respond(Answering(send, unread=True), full, scope["path"])

    return answer


@contextmanager
def shedding(room: Room) -> Generator[None]:
    """Close idle connections when none can be accepted, and log it once an outage."""
    loop = asyncio.get_running_loop()
    before, last = loop.get_exception_handler(), -_QUIET

    def handle(loop: AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal last
        if context.get("message") != _NOT_TAKEN:
            if before is not None:
                before(loop, context)
            else:
                loop.default_exception_handler(context)
            return
        room.shed()
        if loop.time() - last >= _QUIET:
            logger.error(
                "no connection can be taken: %s. To fix: raise the limit of open files "
                "(ulimit -n, or LimitNOFILE= of systemd)",
                context.get("exception"),
            )
        last = loop.time()

    loop.set_exception_handler(handle)
    try:
        yield
    finally:
        loop.set_exception_handler(before)


#: Connections that may wait to be taken.
_BACKLOG = 2048
#: Connections accepted, and requests resumed, in one turn of the event loop.
_AT_ONCE = 8

#: Seconds in which the head of a request must be there, and between two requests.
_HEAD = 10.0
_IDLE = 75
#: Seconds that an answer may be stuck in a connection; `sending` gives up before.
_STUCK = 75.0

_STOPS = (signal.SIGTERM, signal.SIGINT)

#: Seconds for answers that are under way when everything else is over.
_LAST = 5


def bind(host: str, port: int) -> socket.socket:
    """
    Return a listening socket.

    Raises:
        UsageError: It cannot be.
    """
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, proto, _, where = found[0]
        # With the protocol named, or asyncio leaves Nagle's algorithm on.
        listener = socket.socket(family, kind, proto)
    except OSError as exc:
        raise UsageError(
            f"{host!r} is not an address to listen on: {exc.strerror}",
            fix="name one of this machine, as 127.0.0.1",
        ) from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
        # A client that reads the address may connect at once.
        listener.listen(_BACKLOG)
    except OSError as exc:
        listener.close()
        raise UsageError(
            f"cannot listen on port {port} of {host}: {exc.strerror}",
            fix="choose another with --port; 0 takes one that is free",
        ) from None
    return listener


@contextlib.asynccontextmanager
async def listening(
    app: ASGIApp, listener: socket.socket, certificate: Certificate | None = None
) -> AsyncGenerator[None]:
    """Serve *app*; at the end, let answers in progress finish."""
    room = Room()
    live = LiveCertificate(certificate) if certificate else None
    server = _Server(
        Config(
            _Paced(app),
            http=partial(_Bounded, room),  # type: ignore[arg-type]  # it is called
            ws="none",
            lifespan="off",
            # Callers are authenticated by a token, never by a header of a proxy.
            proxy_headers=False,
            server_header=False,
            access_log=False,
            log_config=None,
            # What is no HTTP is answered, and not worth a line.
            log_level="error",
            # asyncio takes in as many before it does anything else.
            backlog=_AT_ONCE,
            timeout_keep_alive=_IDLE,
            timeout_graceful_shutdown=_LAST,
            ssl_context_factory=live.for_listener if live else None,
        )
    )
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(shedding(room))
        if live:
            await stack.enter_async_context(live.watched())
        serving = asyncio.create_task(server.serve([listener]))
        try:
            await server.up.wait()
            yield
        finally:
            server.should_exit = True
            await serving


class _Server(Server):
    """
    A uvicorn server that leaves signals to `stopping`.

    Attributes:
        up: Set when it takes requests.
    """

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(_BACKLOG)
        self.up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class _Bounded(H11Protocol):
    """Bounds the number of connections, and closes silent or stuck ones."""

    _late: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None

    def __init__(self, room: Room, **given: Any) -> None:  # noqa: ANN401 -- uvicorn's
        super().__init__(**given)
        self._room = room

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        present = len(self.connections)
        if not self._room.is_for_all(present):
            if not self._room.is_for_health(present):
                transport.abort()
                return
            self.app = cast("Any", health_only(self.app))
        self._await_head()
        self._room.rests(transport)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_idle():
            self._await_head()
        else:
            self._has_come()
            self._room.works(self.transport)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_idle():
            self._room.rests(self.transport)

    def _is_idle(self) -> bool:
        # It is unset before the first request.
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is None or cycle.response_complete

    def connection_lost(self, exc: Exception | None) -> None:
        self._has_come()
        self._is_taken()
        self._room.works(self.transport)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        # To close it would wait until all is taken.
        self._stuck = self.loop.call_later(_STUCK, self.transport.abort)
        super().pause_writing()

    def resume_writing(self) -> None:
        self._is_taken()
        super().resume_writing()

    def _is_taken(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def _await_head(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(_HEAD, self.transport.abort)

    def _has_come(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class _Paced:
    """
    Lets a few requests proceed in each turn of the loop.

    When a thousand come at once, none of the others waits for all of them.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._pace = Pace(_AT_ONCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        work = self._app(scope, receive, send)
        # Whether the host is well is answered at once.
        await (work if scope["path"] in HEALTH else paced(work, self._pace))


@contextlib.contextmanager
def stopping(told: Callable[[], None]) -> Generator[asyncio.Event]:
    """
    Yield an event set by the first SIGTERM or SIGINT; a second one exits.

    Args:
        told: Called with the first.
    """
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        if asked.is_set():
            os._exit(128 + number)
        asked.set()
        told()

    before = {number: signal.getsignal(number) for number in _STOPS}
    if before[signal.SIGINT] == signal.SIG_IGN:  # As in the background of a script.
        del before[signal.SIGINT]
    for number in before:
        loop.add_signal_handler(number, stop, number)
    try:
        yield asked
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
