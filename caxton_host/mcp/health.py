"""Whether a server that nobody asks still answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .connection import Connection

__all__ = ["watch"]

#: How often in a row it does not answer before it is given up.
_MISSES = 2
_PATIENCE = 10.0


async def watch(
    connection: Connection, interval: float, rested: Callable[[], float]
) -> None:
    """
    Ask a server once an *interval* of rest, and end the connection of a dead one.

    A server that is at work may have no time to answer, so it is let alone; its calls
    have deadlines of their own.

    Args:
        connection: To the server.

        interval: Seconds.

        rested: Returns for how many seconds nothing was asked of it.
    """
    loop = asyncio.get_running_loop()
    heard, misses = loop.time(), 0
    while misses < _MISSES:
        quiet = min(rested(), loop.time() - heard)
        if quiet < interval:
            await asyncio.sleep(interval - quiet)
            continue
        asked = loop.time()
        answered = await connection.ping(asked + min(interval, _PATIENCE))
        missed = not answered and rested() >= loop.time() - heard
        misses = misses + 1 if missed else 0
        heard = loop.time()
    connection.lose("the server does not answer")
