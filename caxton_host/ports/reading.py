"""What others read of a log, page by page and as it grows."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from ..core.log.events import Recorded, RunErased
from ..core.log.runs import RunRow
from .history import Streams, Tails


class Readings(Tails, Protocol):
    """A log, for readers."""

    async def runs(
        self,
        limit: int,
        agent: str | None = None,
        state: str | None = None,
        *,
        prefix: str = "",
        before: tuple[int, str] | None = None,
    ) -> list[RunRow]:
        """
        Return at most *limit* runs, newest first.

        Args:
            limit: The most to return.

            agent: Only those of this agent.

            state: Only those in this state.

            prefix: Only those whose ids have this prefix.

            before: Only those after the run with this start time and id.
        """
        ...

    async def row(self, run_id: str) -> RunRow | None:
        """Return the run with that id, or ``None``."""
        ...

    async def newest(
        self, prefix: str, types: Collection[str], limit: int
    ) -> list[Recorded]:
        """
        Return at most *limit* events of *types*: newest stream first, from its end.

        Only of streams whose names begin with *prefix*, which ends in a slash.
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
        Return the note of a checkpoint, or ``None`` if there is no such.

        Args:
            size: The smallest that covers so many events; ``None``: the newest.
        """
        ...


class LogReader(Readings, Streams, Protocol):
    """All that is read of a log that is not a copy."""
