"""The clock of a run: the time of the last reply, and what the agent has slept."""

from __future__ import annotations

from ._bridge import host

__all__ = ["nanoseconds", "seconds", "sleep"]

_slept = 0


def nanoseconds() -> int:
    """Return the time since 1970."""
    return host().now() * 1_000 + _slept


def seconds() -> float:
    """Return the time since 1970."""
    micros, rest = divmod(nanoseconds(), 1_000)
    return micros / 1_000_000 + rest / 1_000_000_000


def sleep(seconds: float, /) -> None:
    """Move the clock forward without waiting."""
    global _slept  # noqa: PLW0603 -- there is one run
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    _slept += round(seconds * 1_000_000_000)
