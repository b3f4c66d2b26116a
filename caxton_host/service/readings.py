"""What people look at: long runs are not read from the log each time."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import aclosing
from dataclasses import dataclass, field

from ..core.log.projection import Summing
from ..core.log.runs import GOING_ON, RunRow, RunSummary
from ..core.names import stream_of
from ..errors import LogBrokenError
from ..ports.history import LogReader
from ..runs.recording import Recording, broken_summary, events_of

#: Runs that are remembered, and from how many events on: short ones are read again.
_REMEMBERED = 64
_LONG = 200
#: Seconds for which the recording of an ended run is kept after it was looked at.
_KEPT_S = 30.0


@dataclass(slots=True)
class Summaries:
    """
    Summarises runs. Of a long run it reads only what is new since it was asked last.

    Attributes:
        reader: The log.
    """

    reader: LogReader
    _known: OrderedDict[str, Summing] = field(
        default_factory=OrderedDict[str, Summing], init=False
    )

    async def of(self, row: RunRow) -> RunSummary:
        """Return the summary of a run. Its state is "broken" if its log is damaged."""
        # Taken out meanwhile: nobody else may continue it.
        summing = self._known.pop(row.run_id, None)
        try:
            if summing is None or row.is_erased:
                summing = Summing(row.run_id)
                for recorded in await events_of(self.reader, row.run_id):
                    summing.apply(recorded)
            else:
                await self._continue(summing)
        except LogBrokenError as exc:
            return broken_summary(row, exc)
        run = summing.summary()
        # The row is the only place that names the agent of an erased run.
        run.agent = row.agent
        if run.events >= _LONG and not run.erased:
            self._known[row.run_id] = summing
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return run

    async def _continue(self, summing: Summing) -> None:
        assert summing.last is not None  # noqa: S101 -- it was long
        stream, after = stream_of(summing.run_id), summing.last.position
        async with aclosing(self.reader.stream_events(stream, after=after)) as found:
            async for recorded in found:
                summing.apply(recorded)


@dataclass(slots=True)
class LastRecording:
    """
    The recording that was looked at last, for those who look at its next call.

    Attributes:
        reader: The log.
    """

    reader: LogReader
    _of: object = field(default=None, init=False)
    _loading: asyncio.Task[Recording] | None = field(default=None, init=False)
    _due: asyncio.TimerHandle | None = field(default=None, init=False)

    async def of(self, row: RunRow, seq: int) -> Recording:
        """
        Return the recording of a run, for a look at event *seq*.

        Raises:
            CaxtonError: See `Recording.load`.
        """
        is_kept = not (row.is_erased or row.state in GOING_ON)
        # Otherwise shared by those who look at the same event at the same time.
        wanted: object = row if is_kept else (row, seq)
        if self._loading is None or self._of != wanted:
            self._of = wanted
            self._loading = asyncio.create_task(Recording.load(row.run_id, self.reader))
        try:
            found = await asyncio.shield(self._loading)
        except BaseException:
            self._forget(wanted)
            raise
        if is_kept:
            if self._due:
                self._due.cancel()
            loop = asyncio.get_running_loop()
            self._due = loop.call_later(_KEPT_S, self._forget, wanted)
        else:
            self._forget(wanted)
        return found

    def _forget(self, wanted: object) -> None:
        if self._of == wanted:
            self._of = self._loading = None
