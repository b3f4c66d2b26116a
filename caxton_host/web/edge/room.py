"""
Room for connections: as many as there are descriptors for, and some for health.

    a connection more -> the one that is idle for longest goes
    none is idle      -> it may ask whether the host is well, and nothing else
    no room for that  -> it is hung up on

So whoever opens connections and says nothing makes room for who says something, and
whoever keeps all of them busy does not have an orchestrator end the host.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from asyncio import AbstractEventLoop
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from .problems import Problem
from .sending import Answering, respond

logger = logging.getLogger("caxton_host")

HEALTH = frozenset({"/healthz", "/readyz"})

#: Connections at a time at the most, at the least, and those for health besides.
_MOST, _LEAST, _SPARE = 4096, 4, 8

#: What asyncio says when a connection cannot be taken, and how often at least it does.
_NOT_TAKEN = "socket.accept() out of system resource"
_QUIET = 10.0


class Room:
    """
    The connections of a host, and which of them are idle.

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
        """Hang up on who is idle for longest; return whether there was one."""
        longest = next(iter(self._idle), None)
        if longest is None:
            return False
        self.works(longest)
        longest.abort()
        return True

    def is_for_all(self, present: int) -> bool:
        """Return whether the newest of *present* connections may ask for anything."""
        return present <= self._most or self.shed()

    def is_for_health(self, present: int) -> bool:
        """Return whether it may at least ask for health."""
        return present <= self._most + _SPARE


def _left() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MOST
    return min(_MOST, max(_LEAST, (soft - len([*Path("/dev/fd").iterdir()])) // 2))


def crowded(app: ASGIApp) -> ASGIApp:
    """Return *app* as far as it says whether the host is well."""

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
    """Make room when no connection can be taken, and say so once for each outage."""
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
