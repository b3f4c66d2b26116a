"""What became of runs that a store lists."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.log.events import Recorded
from ..core.log.runs import RunRow, RunSummary, summarise
from ..core.names import stream_of
from ..errors import LogBrokenError
from ..ports import Streams

#: The state of a run whose events are not what was written.
BROKEN = "broken"


async def summary_of(store: Streams, row: RunRow) -> RunSummary:
    """Return what became of a run. One whose log is damaged is "broken"."""
    try:
        run = summarise(row.run_id, await events_of(store, row.run_id))
    except LogBrokenError as exc:
        return RunSummary(
            run_id=row.run_id,
            agent=row.agent,
            state=BROKEN,
            error={"kind": "log", "message": str(exc)},
            started_at=row.started_at,
        )
    # Of an erased run the row is all that says what ran.
    run.agent = row.agent
    return run


async def events_of(store: Streams, run_id: str) -> list[Recorded]:
    """
    Return the events of a run that *store* lists.

    Raises:
        LogBrokenError: There are none, or one lacks its payload.
    """
    stream = stream_of(run_id)
    history = await store.read(stream)
    if not history:
        raise LogBrokenError(f"{stream} is listed, and its events are gone")
    _refuse_gaps(history)
    return history


def _refuse_gaps(history: Sequence[Recorded]) -> None:
    """
    Return if all payloads of a stream are there, or none: an erasure removes all.

    Raises:
        LogBrokenError: Some are there.
    """
    if 0 < sum(recorded.event is None for recorded in history) < len(history):
        raise LogBrokenError(
            f"a payload of {history[0].stream} is missing, and was not erased",
            fix="caxton audit verify",
        )
