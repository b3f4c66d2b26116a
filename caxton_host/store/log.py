"""The log of one run: stamps and seals its events, and hands them to the writer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..core.log.events import Event
from ..ports import Refused, Reservation
from .commit import Group, Line
from .drafts import Drafter
from .leases import Leases
from .writer import Writer


class SqlLog:
    """See `caxton_host.ports.EventLog`. Made by `SqlStore.create`."""

    def __init__(
        self, writer: Writer, drafter: Drafter, line: Line, leases: Leases
    ) -> None:
        self._writer = writer
        self._leases = leases
        self._drafter = drafter
        self._line = line

    @property
    def recorded_at(self) -> int:
        """When the newest event was recorded."""
        return self._drafter.recorded_at

    @property
    def head(self) -> tuple[int, bytes]:
        """Number and hash of the newest durable event."""
        return self._line.head

    def holds(self) -> bool:
        """Return whether this host may still send for the stream."""
        return self._line.error is None and self._leases.holds()

    def queue(self, *events: Event, blobs: Mapping[str, bytes] | None = None) -> None:
        """Add *events* to the stream without waiting."""
        group = self._group(events, blobs, ())
        if not group.is_empty:
            self._writer.queue(group)

    async def append(
        self,
        *events: Event,
        blobs: Mapping[str, bytes] | None = None,
        reserve: Sequence[Reservation] = (),
    ) -> Refused | None:
        """Add *events*, and return once they and all before them are durable."""
        group = self._group(events, blobs, reserve)
        if group.is_empty and not self._line.outstanding:
            return None
        refused = await self._writer.append(group)
        if refused is not None:
            self._drafter.seq -= len(group.drafts)
        return refused

    def _group(
        self,
        events: Sequence[Event],
        blobs: Mapping[str, bytes] | None,
        reserve: Sequence[Reservation],
    ) -> Group:
        self._writer.check(self._line)
        return Group(
            line=self._line,
            drafts=self._drafter.draft(events),
            blobs=blobs or {},
            reserve=reserve,
        )
