"""What the runs did that answer calls of agents: lanes below these calls."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from .asking import Asking
from .timeline import Lane, Row, place, rows_of

#: Runs that are read for one page, how deep, how many events and rows of each.
_RUNS, _DEPTH, _EVENTS, _ROWS = 20, 3, 200, 50


async def hang(
    asking: Asking, rows: Sequence[Row], events: Sequence[Mapping[str, Any]]
) -> None:
    """
    Hang the calls of the runs that answer calls below these, if the caller may see them.

    Args:
        asking: For the page.

        rows: Of a run.

        events: Of that run.
    """
    coming = deque((row, row.callee, 1) for row in rows if row.callee)
    if not coming:
        return
    until = n = 0
    while coming:
        row, run, depth = coming.popleft()
        n += 1
        if n > _RUNS or depth > _DEPTH:
            row.child = Lane(run=run, rows=(), more="its calls")
            continue
        got = await asking.maybe("runEvents", run=run, limit=_EVENTS)
        if got is None:
            continue
        calls = [one for one in rows_of(got["events"]) if one.call is not None]
        shown, rest = calls[:_ROWS], len(calls[_ROWS:])
        more = "and more" if got["more"] else f"and {rest} more" if rest else ""
        row.child = Lane(run=run, rows=shown, more=more)
        coming += ((one, one.callee, depth + 1) for one in shown if one.callee)
        until = max(until, got["events"][-1]["recorded_at"])
    place(rows, events, until)
