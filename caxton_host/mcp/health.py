"""Whether a server that nobody asks still answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from .connection import Connection

#: How often in a row it does not answer before it is given up.
_MISSES = 2
_PATIENCE = 10.0


async def watch(
    connection: Connection,
    interval: float,
    rested: Callable[[], float],
    silent: asyncio.Event,
) -> None:
    """
    Ask a server once an *interval* of rest, and end the connection of a dead one.

    A server that is at work may have no time to answer, so it is let alone; its calls
    have deadlines of their own. Once it is *silent* it is asked whatever it does.

    Args:
        connection: To the server.

        interval: Seconds.

        rested: Returns for how many seconds nothing was asked of it.

        silent: Set if it let a deadline pass. See `Gate`.
    """
    loop = asyncio.get_running_loop()
    heard, misses = loop.time(), 0
    silent.clear()
    while misses < _MISSES:
        quiet = min(rested(), loop.time() - heard)
        if quiet < interval and not silent.is_set():
            # `wait_for` of Python 3.11 may lose that it is cancelled.
            with suppress(TimeoutError):
                async with asyncio.timeout(interval - quiet):
                    await silent.wait()
            continue
        asked = loop.time()
        if await connection.ping(asked + min(interval, _PATIENCE)):
            silent.clear()
            misses = 0
        else:
            missed = silent.is_set() or rested() >= loop.time() - heard
            misses = misses + 1 if missed else 0
        heard = loop.time()
    connection.lose("the server does not answer")
