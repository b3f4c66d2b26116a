"""Times to wake up at, most of which are taken back before they come."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable


class Alarms:
    """
    Calls back at a time, unless that is taken back.

    One timer of the event loop serves all of them, and what is taken back costs it
    nothing: a timer for each would cost each call some.
    """

    def __init__(self) -> None:
        self._set: dict[int, tuple[float, Callable[[], None]]] = {}
        self._last = 0
        self._next = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def at(self, when: float, ring: Callable[[], None]) -> int:
        """Call *ring* at that time, on the clock of the loop; return its number."""
        self._last += 1
        self._set[self._last] = when, ring
        if when < self._next:
            self._arm(when)
        return self._last

    def off(self, number: int) -> None:
        """Do not call what was given that number, if it was not called yet."""
        self._set.pop(number, None)

    def end(self) -> None:
        """Call nothing any more."""
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
