"""What a run did before each of its events, for those who look at one after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock

from ..core.grants.journal import Journal, Tallies
from ..core.log.events import Recorded

#: Events between two marks.
_EACH = 4096


@dataclass(slots=True)
class Past:
    """
    The tallies of a run at marks along it. The rest is counted from the mark before.

    Attributes:
        events: Those of the run, behind those that the journal has at first. None of
            them was erased.

        journal: Has no sources: these cannot be counted from a mark on.
    """

    events: Sequence[Recorded]
    journal: Journal
    _marks: list[Tallies] = field(default_factory=list[Tallies], init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def before(self, seq: int) -> Tallies:
        """Return what the run did before event *seq*."""
        index = seq - self.events[0].seq
        with self._lock:
            self._marks = self._marks or [self.journal.tallies.copy()]
            while (done := _EACH * (len(self._marks) - 1)) < index:
                for one in self.events[done : done + _EACH]:
                    assert one.event is not None  # noqa: S101 -- see above
                    self.journal.apply(one.event, one.recorded_at, one.seq)
                self._marks.append(self.journal.tallies.copy())
            mark = index // _EACH
            tallies = self._marks[mark].copy()
            for one in self.events[mark * _EACH : index]:
                assert one.event is not None  # noqa: S101 -- see above
                self.journal.recount(one.event, one.recorded_at, tallies)
            return tallies
