"""
The recorder of one run: the only writer of its log.

Each event that it stores is folded into the journal of the run at once, so that the
journal never differs from the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from ..core.grants.journal import Journal
from ..core.grants.settlement import Correction
from ..core.log.events import Event, ToolProgress
from ..core.text.redact import Redactor
from ..errors import StoreError
from ..ports.log import EventLog, Refused, Reservation, was_refused
from ..ports.tools import Progress

#: Reports recorded of one send. A tool that sends more is not worth the disk.
_MAX_REPORTS = 100
#: Characters of a report.
_MAX_REPORT_CHARS = 500


@dataclass(slots=True, eq=False)
class Recorder:
    """
    Stores the events of one run, and keeps its journal in step with its log.

    Attributes:
        log: Where events are stored. Read it; only the recorder writes to it.

        journal: What the log says so far. Only the recorder applies events to it.

        leaving: The host hands the run over to the next host. Open calls stay open,
            because that host decides what to do with them.
    """

    log: EventLog
    journal: Journal
    leaving: bool = False

    @classmethod
    def claimed(cls, log: EventLog, journal: Journal, events: Sequence[Event]) -> Self:
        """Return the recorder of a run that was claimed by recording *events*."""
        recorder = cls(log, journal)
        recorder._applied(events)
        return recorder

    def queue(
        self,
        *events: Event,
        blobs: Mapping[str, bytes] | None = None,
        correct: Sequence[Correction] = (),
    ) -> None:
        """
        Record *events* without waiting; see `EventLog.queue`.

        Raises:
            StoreError: See there. The journal is as before.
        """
        self.log.queue(*events, blobs=blobs, correct=correct)
        self._applied(events)

    async def append(
        self,
        *events: Event,
        blobs: Mapping[str, bytes] | None = None,
        reserve: Sequence[Reservation] = (),
    ) -> Refused | None:
        """
        Record *events*, and return once they are durable; see `EventLog.append`.

        Raises:
            StoreError: See there. The journal is as before.
        """
        try:
            refused = await self.log.append(*events, blobs=blobs, reserve=reserve)
        except Exception:
            raise
        except BaseException as exc:
            # Cancelled while the log committed the events.
            if not was_refused(exc):
                self._applied(events)
            raise
        if refused is None:
            self._applied(events)
        return refused

    def _applied(self, events: Sequence[Event]) -> None:
        """Fold *events*, which the log has, into the journal."""
        at = self.log.recorded_at
        for event in events:
            self.journal.apply(event, at)


def unwatched(_: ToolProgress) -> None:
    """Ignore a report."""


@dataclass(slots=True, kw_only=True)
class Reports:
    """
    Records the progress reports of one send, for as long as it lasts.

    Attributes:
        call: The number of the call.

        watch: Called with each report that is recorded.

        quiet: Leave out the tool's words: they may hold its answer, which the log
            must not hold.

        taken: How many were recorded, which is bounded.

        over: The send has ended. Later reports are dropped.
    """

    recorder: Recorder
    redact: Redactor
    call: int
    watch: Callable[[ToolProgress], None] = unwatched
    quiet: bool = False
    taken: int = field(default=0, init=False)
    over: bool = field(default=False, init=False)

    def take(self, report: Progress) -> None:
        """Record a report, unless it is late or exceeds the bound."""
        if self.over or self.taken >= _MAX_REPORTS:
            return
        self.taken += 1
        text = "" if self.quiet else self.redact.text(report.message or "")
        event = ToolProgress(
            call=self.call,
            message=text[:_MAX_REPORT_CHARS],
            progress=report.progress,
            total=report.total,
        )
        try:
            self.recorder.queue(event)
        except StoreError:
            # The next event of the call raises it again, where it ends the run.
            # Raised here, it would end the connection to the tool server.
            return
        self.watch(event)

    def end(self) -> None:
        """Take no more reports: the call is settled, or about to be sent again."""
        self.over = True
