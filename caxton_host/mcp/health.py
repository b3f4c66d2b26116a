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

#: Pings in a row without an answer that end the connection.
_MISSES = 2

#: Seconds that a ping may take.
_PATIENCE_S = 10.0

#: Calls whose durations are kept.
_REMEMBERED = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    """
    The state of a server.

    Attributes:
        up: There is a connection.

        protocol: The protocol of the connection, or ``None``.

        latency_us: The median of its last calls, in microseconds, or ``None``.

        restarts: Restarts in a row.

        disabled: It failed too often, and is not restarted.

        breaker: ``closed``, ``open`` or ``half_open``.

        generation: The number of different tool lists so far; 0 before the first.

        tools: The number of tools in the last list.

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
    The median duration of the last calls.

    >>> latency = Latency()
    >>> for took in (10, 500, 20):
    ...     latency.add(took)
    >>> latency.median
    20
    """

    def __init__(self) -> None:
        self._took: deque[int] = deque(maxlen=_REMEMBERED)

    def add(self, took: int) -> None:
        """Add the duration of a call, in microseconds."""
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
    Ping an idle server at intervals, and end the connection of one that is dead.

    A busy server may have no time to answer, so it is not pinged: its calls have
    deadlines. After a call that timed out it is pinged even while it is busy.

    Args:
        connection: To the server.

        interval: Seconds without a call before a ping.

        rested: Returns for how many seconds there was no call.

        silent: Set after a call that timed out. See `Gate`.
    """
    loop = asyncio.get_running_loop()
    heard, misses = loop.time(), 0
    silent.clear()
    while misses < _MISSES:
        quiet = min(rested(), loop.time() - heard)
        if quiet < interval and not silent.is_set():
            # `wait_for` of Python 3.11 may lose a cancellation.
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
