"""What is told of a call while it lasts: bounded, recorded, shown to who watches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..core.log.events import ToolProgress
from ..core.text.redact import Redactor
from ..errors import StoreError
from ..ports import EventLog, Progress

#: Of one send; what a tool says beyond is dropped.
_MOST = 100
_LONGEST = 500


def unwatched(_: ToolProgress) -> None:
    """Do nothing with a report that nobody watches."""


@dataclass(slots=True, kw_only=True)
class Reports:
    """
    Takes the reports of one send, for as long as it lasts.

    Attributes:
        quiet: The words of the tool may be its answer, which the log is not to hold.
    """

    log: EventLog
    redact: Redactor
    call: int
    watch: Callable[[ToolProgress], None] = unwatched
    quiet: bool = False
    taken: int = field(default=0, init=False)
    over: bool = field(default=False, init=False)

    def take(self, report: Progress) -> None:
        """Record a report, unless it comes too late or is one too many."""
        if self.over or self.taken >= _MOST:
            return
        self.taken += 1
        text = "" if self.quiet else self.redact.text(report.message or "")[:_LONGEST]
        event = ToolProgress(
            call=self.call,
            message=text,
            progress=report.progress,
            total=report.total,
        )
        try:
            self.log.queue(event)
        except StoreError:
            # The call learns of it by its own event; here a transport would.
            return
        self.watch(event)

    def end(self) -> None:
        """Take no more: the call is settled, or about to be sent again."""
        self.over = True
