"""What the runs did that answer calls of agents: lanes below these calls."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from .asking import Asking
from .timeline import Lane, Row, place, rows_of

#: Runs that are read for one page, how deep, and how many events of each.
_RUNS, _DEPTH, _EVENTS = 20, 3, 200
#: Rows of one of them, and of all: a page is sent again whenever it changes.
_ROWS, _ALL = 50, 100


async def hang(
    asking: Asking, rows: Sequence[Row], events: Sequence[Mapping[str, Any]]
) -> None:
    """
    Hang the calls of runs below the calls that they answer, as far as they may be seen.

    Args:
        asking: For the page.

        rows: Of a run.

        events: Of that run.
    """
    coming = deque((row, row.callee, 1) for row in rows if row.callee)
    if not coming:
        return
    until, runs, room = 0, _RUNS, _ALL
    while coming:
        row, run, depth = coming.popleft()
        if depth > _DEPTH or not (runs and room):
            row.child = Lane(run=run, rows=(), more="its calls")
            continue
        runs -= 1
        got = await asking.maybe("runEvents", run=run, limit=_EVENTS)
        if got is None:
            continue
        calls = [one for one in rows_of(got["events"]) if one.call is not None]
        shown = calls[: min(_ROWS, room)]
        room, rest = room - len(shown), len(calls) - len(shown)
        more = "and more" if got["more"] else f"and {rest} more" if rest else ""
        row.child = Lane(run=run, rows=shown, more=more)
        coming += ((one, one.callee, depth + 1) for one in shown if one.callee)
        until = max(until, got["events"][-1]["recorded_at"])
    place(rows, events, until)
