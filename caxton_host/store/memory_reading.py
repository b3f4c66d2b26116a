"""How a log in memory is read by others."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Collection

from ..core.log.events import Recorded
from ..core.log.runs import RunRow
from ..errors import CursorError

_CURSOR = re.compile(r"([np])-([0-9]{1,18})", re.ASCII)
_POLL = 0.005


class MemoryReading:
    """
    See `caxton_host.ports.Readings`.

    Attributes:
        notes: Those of checkpoints, by the size of the log.
    """

    def __init__(self) -> None:
        super().__init__()
        self.notes: dict[int, str] = {}
        self._events: list[Recorded] = []
        self._runs: dict[str, RunRow] = {}

    async def runs(
        self,
        limit: int,
        agent: str | None = None,
        state: str | None = None,
        *,
        prefix: str = "",
        before: tuple[int, str] | None = None,
    ) -> list[RunRow]:
        """Return at most *limit* runs, newest first."""
        rows = [
            row
            for row in self._runs.values()
            if agent in {None, row.agent}
            and state in {None, row.state}
            and row.run_id.startswith(prefix)
            and (before is None or _place(row) < before)
        ]
        return sorted(rows, key=_place, reverse=True)[:limit]

    async def newest(
        self, prefix: str, types: Collection[str], limit: int
    ) -> list[Recorded]:
        """Return events of *types*: newest stream first, from its end."""
        found = [
            e for e in self._events if e.stream.startswith(prefix) and e.type in types
        ]
        return sorted(found, key=lambda e: (e.stream, e.seq), reverse=True)[:limit]

    async def tail(
        self,
        after: str | None = None,
        *,
        stream: str | None = None,
        follow: bool,
        patience: float = 0.0,
    ) -> AsyncGenerator[tuple[Recorded, str]]:
        """Yield each event once, with the cursor behind it."""
        del patience
        kind = "p" if stream is None else "n"
        if after == "end":
            after = await self.end(stream)
        place = _number(after, kind, stream)
        while True:
            for event in list(self._events):
                number = event.position if stream is None else event.seq
                if stream in {None, event.stream} and number > place:
                    place = number
                    yield event, f"{kind}-{number}"
            if not follow:
                return
            await asyncio.sleep(_POLL)

    async def end(self, stream: str | None = None) -> str:
        """Return the cursor behind all events."""
        if stream is None:
            return f"p-{len(self._events)}"
        return f"n-{sum(event.stream == stream for event in self._events)}"

    async def checkpoint(self, size: int | None = None) -> str | None:
        """Return the note of a checkpoint, or ``None`` if there is no such."""
        if size is None:
            return self.notes[max(self.notes)] if self.notes else None
        covering = [known for known in self.notes if known >= size]
        return self.notes[min(covering)] if covering else None


def _place(row: RunRow) -> tuple[int, str]:
    return row.started_at, row.run_id


def _number(after: str | None, kind: str, stream: str | None) -> int:
    if after is None:
        return 0
    match = _CURSOR.fullmatch(after)
    if match is None or match[1] != kind:
        raise CursorError(
            f"{after!r} is not a cursor of {stream or 'all streams'}",
            fix="give one that was printed, or none",
        )
    return int(match[2])
