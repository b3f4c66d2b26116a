"""How telemetry ends: soon, whether somebody listens or not."""

from __future__ import annotations

import threading
from collections.abc import Callable

_FLUSH = 0.8  # seconds; a run ends at most a second later when nobody listens


def nothing() -> None:
    """Do nothing."""


def cut_short(
    shut_down: Callable[[], object],
    cut: Callable[[], object],
    lost: Callable[[], None] = nothing,
) -> None:
    """
    Send what is left, for at most a second.

    Args:
        shut_down: Sends it.

        cut: Ends the wait between two attempts.

        lost: Called if that takes longer: it is within an attempt, which nothing
            can end.
    """
    flush = threading.Thread(target=shut_down, name="OtelFlush", daemon=True)
    flush.start()
    flush.join(_FLUSH)
    if flush.is_alive():
        cut()
        flush.join(_FLUSH / 8)
    if flush.is_alive():
        lost()
