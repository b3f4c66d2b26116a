"""Deadlines and rates: alarms, a token bucket, and a throttle of one second."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable


class Alarms:
    """
    Timeouts, most of which are cancelled before they expire.

    One timer of the event loop serves all of them, so cancelling is cheap.
    """

    def __init__(self) -> None:
        self._set: dict[int, tuple[float, Callable[[], None]]] = {}
        self._last = 0
        self._next = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def at(self, when: float, ring: Callable[[], None]) -> int:
        """Call *ring* at a time on the clock of the loop; return its number."""
        self._last += 1
        self._set[self._last] = when, ring
        if when < self._next:
            self._arm(when)
        return self._last

    def off(self, number: int) -> None:
        """Cancel the alarm with that number."""
        self._set.pop(number, None)

    def end(self) -> None:
        """Cancel all alarms."""
        self._set.clear()
        if self._timer:
            self._timer.cancel()

    def _arm(self, when: float) -> None:
        if self._timer:
            self._timer.cancel()
        self._next = when
        self._timer = asyncio.get_running_loop().call_at(when, self._ring)

    def _ring(self) -> None:
        now = asyncio.get_running_loop().time()
        self._timer, self._next = None, math.inf
        due = [number for number, (when, _) in self._set.items() if when <= now]
        rings = [self._set.pop(number)[1] for number in due]
        if self._set:
            self._arm(min(when for when, _ in self._set.values()))
        for ring in rings:
            ring()


class Bucket:
    """
    A token bucket whose tokens can be reserved in advance.

    >>> bucket = Bucket(2, 60.0)
    >>> [bucket.reserve(0.0, latest=45.0) for _ in range(4)]
    [0.0, 0.0, 30.0, None]
    """

    def __init__(self, amount: float, seconds: float) -> None:
        self._most = self._there = float(amount)
        self._a_second = amount / seconds
        self._seen = 0.0

    def reserve(self, now: float, latest: float, cost: float = 1.0) -> float | None:
        """
        Reserve *cost*, and return the seconds to wait until it may be used.

        Args:
            now: On a monotonic clock.

            latest: On the same clock. If the wait ends later, nothing is reserved, and
                ``None`` is returned.

            cost: The number of tokens.
        """
        self._fill(now)
        wait = max(0.0, (cost - self._there) / self._a_second)
        if now + wait > latest:
            return None
        self._there -= cost
        return wait

    def give_back(self) -> None:
        """Return a reserved token that was not used."""
        self._there = min(self._most, self._there + 1)

    def _fill(self, now: float) -> None:
        since = max(0.0, now - self._seen)
        self._there = min(self._most, self._there + since * self._a_second)
        self._seen = max(self._seen, now)


class Throttle:
    """
    Limits what a server sends unsolicited in one second.

    >>> throttle = Throttle(10)
    >>> throttle.spend(10, now=0.25), throttle.spend(1, now=0.5)
    (0.0, 0.75)

    Args:
        a_second: The limit.
    """

    def __init__(self, a_second: float) -> None:
        self._a_second = a_second
        self._since = -math.inf
        self._spent = 0.0

    def spend(self, amount: float, now: float) -> float:
        """Count *amount*, and return the seconds to stop reading."""
        if now - self._since >= 1:
            self._since, self._spent = now, 0.0
        self._spent += amount
        return self._since + 1 - now if self._spent > self._a_second else 0.0
