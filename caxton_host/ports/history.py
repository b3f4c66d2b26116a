"""Reading a log, local or remote."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection
from typing import Protocol

from ..core.log.events import Recorded, RunErased
from ..core.log.runs import EVERY, Mark, RunFilter, RunRow


class Streams(Protocol):
    """Recorded streams and blobs."""

    async def read(self, stream: str) -> list[Recorded]:
        """Return all events of a stream, in order; an empty list if it has none."""
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

    def stream_events(
        self, stream: str | None = None, *, after: int = 0
    ) -> AsyncGenerator[Recorded]:
        """Yield the events that there are, in the order of their positions."""
        ...

    def tail(
        self,
        after: str | None = None,
        *,
        stream: str | None = None,
        follow: bool,
        patience: float = 0.0,
    ) -> AsyncGenerator[tuple[Recorded, str]]:
        """
        Yield each event exactly once, with the cursor behind it.

        Args:
            after: A cursor of an earlier tail of the same stream or of all, ``"end"``,
                or ``None`` for all events.

            stream: Only those of this stream.

            follow: Wait for more; otherwise return after the last one.

            patience: Seconds for which the log may be unavailable.

        Raises:
            UsageError: *after* is not a cursor of such a tail.

            StoreError: The log is unavailable for longer.
        """
        ...


class History(Streams, Tails, Protocol):
    """A log, for commands that only read."""

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


class Readings(Tails, Protocol):
    """A log, for clients: page by page, and as it grows."""

    def tail(
        self,
        after: str | None = None,
        *,
        stream: str | None = None,
        tenant: str | None = None,
        follow: bool,
        patience: float = 0.0,
    ) -> AsyncGenerator[tuple[Recorded, str]]:
        """Yield events as `Tails.tail` does; with *tenant*, only those of its runs."""
        ...

    async def runs(
        self,
        limit: int,
        only: RunFilter = EVERY,
        *,
        before: tuple[int, str] | None = None,
    ) -> list[RunRow]:
        """
        Return at most *limit* runs, newest first.

        Args:
            limit: The most to return.

            only: Which ones.

            before: Only those after the run with this start time and id.
        """
        ...

    async def row(self, run_id: str) -> RunRow | None:
        """Return the run with that id, or ``None``."""
        ...

    async def waiting(
        self, limit: int, only: RunFilter = EVERY, *, after: Mark | None = None
    ) -> list[tuple[Mark, RunRow]]:
        """
        Return at most *limit* places of what people are asked, and the runs.

        Approvals and questions, the oldest first.

        Args:
            limit: The most to return.

            only: Of which runs: by agent, tenant, *agents* and *owner*.

            after: Only those behind this place.
        """
        ...

    async def due(self, now: int) -> dict[str, int]:
        """
        Return the suspended runs that may go on, and the epoch of each.

        Those that are due by *now*, those whose caller has ended, and those that wait
        for a run which is not suspended any more.
        """
        ...

    async def next_due(self, now: int) -> int | None:
        """Return when the next suspended run is due after *now*, if one is."""
        ...

    async def going_on(self, only: RunFilter) -> int:
        """
        Return how many runs are queued or running, without sessions and called runs.

        Args:
            only: Of which tenant and actor.
        """
        ...

    async def newest(
        self, prefix: str, types: Collection[str], limit: int
    ) -> list[Recorded]:
        """
        Return at most *limit* events of *types*: newest stream first, from its end.

        Only of streams whose names begin with *prefix*, which ends in a slash.
        """
        ...

    def of_runs(
        self,
        types: Collection[str],
        only: RunFilter = EVERY,
        broken: Callable[[str, Exception], None] | None = None,
    ) -> AsyncGenerator[Recorded]:
        """
        Yield events of runs, in the order of positions.

        Args:
            types: Only those of these types.

            only: Of which runs.

            broken: Called with the stream of an event that was changed, and the error.
        """
        ...

    async def end(self, stream: str | None = None) -> str:
        """Return the cursor behind all events that a tail can see now."""
        ...

    async def erased(self) -> dict[str, RunErased]:
        """Return what was erased, by the stream of the run."""
        ...

    async def checkpoint(self, size: int | None = None) -> str | None:
        """
        Return the note of a checkpoint, or ``None`` if there is none.

        Args:
            size: The smallest that covers so many events; ``None``: the newest.
        """
        ...

    async def tree(self) -> tuple[int, bytes]:
        """Return how many events the log has, and the root of the tree over them."""
        ...

    async def leaf(self, stream: str, seq: int) -> int | None:
        """
        Return the index of an event in the tree, from 0.

        Returns:
            ``None``: The tree does not have it yet, or it has a million newer ones.
        """
        ...


class LogReader(Readings, Streams, Protocol):
    """All that a host reads of its log."""
