"""How much one host takes at a time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """
    The size of a host.

    Attributes:
        runs: Runs under way, waiting ones included. One more is refused.

        workers: Worker processes.

        guests: Guests of one worker, waiting for a tool or computing.

        compute: Guests of one worker that compute at the same time; ``None`` for
            as many as there are processors.
    """

    runs: int = 2048
    workers: int = 16
    guests: int = 128
    compute: int | None = None
