"""The state of a server, and whether one that is idle still answers."""

from __future__ import annotations

import asyncio
import statistics
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from .admission import State
from .connection import Connection

#: How often in a row it does not answer before it is given up.
_MISSES = 2

#: Seconds that it has for an answer.
_PATIENCE_S = 10.0

#: Of how many calls the durations are kept.
_REMEMBERED = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    """
    A server as it is now.

    Attributes:
        up: There is a connection.

        protocol: What is spoken on it, or ``None``.

        latency_us: The median of its last calls, in microseconds, or ``None``.

        restarts: How often it was started again in a row.

        disabled: It failed too often, and is not started again.

        breaker: ``closed``, ``open`` or ``half_open``.

        generation: How many lists of tools it has had; 0: it was not up yet.

        tools: How many there are in the last one.

        problem: Why it is down, or ``None``.
    """

    server: str
    up: bool
    protocol: str | None
    latency_us: int | None
    restarts: int
    disabled: bool
    breaker: State
    generation: int
    tools: int
    problem: str | None


class Latency:
    """
    The middle of the last times.

    >>> latency = Latency()
    >>> for took in (10, 500, 20):
    ...     latency.add(took)
    >>> latency.median
    20
    """

    def __init__(self) -> None:
        self._took: deque[int] = deque(maxlen=_REMEMBERED)

    def add(self, took: int) -> None:
        """Take note of one."""
        self._took.append(took)

    @property
    def median(self) -> int | None:
        """The median, or ``None`` before the first."""
        return round(statistics.median(self._took)) if self._took else None


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
        if await connection.ping(asked + min(interval, _PATIENCE_S)):
            silent.clear()
            misses = 0
        else:
            missed = silent.is_set() or rested() >= loop.time() - heard
            misses = misses + 1 if missed else 0
        heard = loop.time()
    connection.lose("the server does not answer")
