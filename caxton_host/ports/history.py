"""What is read of a log, wherever that is."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from ..core.log.events import Recorded


class Streams(Protocol):
    """What runs left behind."""

    async def read(self, stream: str) -> list[Recorded]:
        """Return all events of a stream, in order; none if there is no such."""
        ...

    async def blob(self, sha256: str) -> bytes:
        """
        Return the bytes with that digest.

        Raises:
            NotFoundError: They were never kept.
        """
        ...


class Tails(Protocol):
    """A log, as it grows."""

    def tail(
        self,
        after: str | None = None,
        *,
        stream: str | None = None,
        follow: bool,
        patience: float = 0.0,
    ) -> AsyncGenerator[tuple[Recorded, str]]:
        """
        Yield each event once, with the cursor behind it, and miss none.

        Args:
            after: A cursor of an earlier tail of the same stream or of all, ``"end"``,
                or ``None`` for all events.

            stream: Only those of this stream.

            follow: Wait for more; otherwise return after the last one.

            patience: Seconds that the log may be away.

        Raises:
            UsageError: *after* is not a cursor of such a tail.

            StoreError: The log is away for longer.
        """
        ...


class History(Streams, Tails, Protocol):
    """A log, as the commands that only look at it see it."""

    async def find_run(self, name: str) -> str:
        """
        Return the id of the run that *name* identifies.

        Raises:
            NotFoundError: It matches no run, or more than one.
        """
        ...

    def attributed(
        self,
        stream: str | None = None,
        *,
        since: int | None = None,
        until: int | None = None,
        agent: str | None = None,
    ) -> AsyncGenerator[tuple[Recorded, str | None, str | None]]:
        """Yield events with agent and actor of their run, which is JSON."""
        ...

    def stream_events(
        self, stream: str | None = None, *, after: int = 0
    ) -> AsyncGenerator[Recorded]:
        """Yield the events that there are, in the order of their positions."""
        ...
