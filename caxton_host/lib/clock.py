"""The clock of the machine."""

from __future__ import annotations

import time


class SystemClock:
    """Asks the operating system for the time."""

    def now(self) -> int:
        """Return microseconds since 1970, UTC."""
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start."""
        return time.monotonic()
