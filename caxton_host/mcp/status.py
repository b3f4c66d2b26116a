"""How a server does, for whoever looks after it."""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass

from .breaker import State

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
