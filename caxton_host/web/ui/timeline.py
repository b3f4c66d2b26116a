"""
The rows of a run's timeline: a call and its answer are one row.

Each row has a bar: when it began and how long it took, in millionths of the time that
the rows cover. The time for which the run was suspended is left out.

Calls of a program with the same fuel are a batch: a call of the host burns some.
Sessions use none, so of their calls no more is said than that they overlap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from ...core.log.events import ToolInvoked, from_payload
from ...core.log.runs import callee_of
from ...core.names import AGENTS

SCALE = 1_000_000
_ENDS: Mapping[str, str] = {
    "ToolCompleted": "ok",
    "ToolDenied": "denied",
    "ToolFailed": "failed",
}
_RUN_STATES: Mapping[str, str] = {
    "RunStarted": "started",
    "RunQueued": "queued",
    "RunSuspended": "suspended",
    "RunResumed": "resumed",
    "RunCompleted": "ok",
    "RunFailed": "failed",
    "RunCancelled": "failed",
}
#: After these, no host drives the run.
_ASLEEP = {"RunSuspended", "RunQueued"}


@dataclass(slots=True, kw_only=True)
class Row:
    """
    A row of the timeline.

    Attributes:
        seq: The first event of the row.

        seqs: All of them.

        title: The tool, or what happened to the run.

        text: The parameters, or the words of a line.

        outcome: ``ok``, ``tool_error``, ``denied``, ``failed``; ``open`` of a call
            without an end among the events; a state of the run; ``log``.

        began: Microseconds since 1970.

        ended: The same; ``None``: it is open.

        notes: What else happened: retries, approvals, questions, a run that answers.

        lane: 0, or more for what was under way beside others.

        fuel: What the program had used when it made the call; 0: unknown.

        batch: The first and the last call of its batch; ``None``: it is in none.

        callee: The run that answers it.

        child: The calls of that run, if they are shown.
    """

    seq: int
    call: int | None
    title: str
    text: Any
    outcome: str
    began: int
    ended: int | None
    seqs: list[int] = field(default_factory=list[int])
    notes: list[str] = field(default_factory=list[str])
    lane: int = 0
    fuel: int = 0
    batch: tuple[int, int] | None = None
    callee: str | None = None
    child: Lane | None = None
    left: int = 0
    width: int = 0

    @property
    def took_us(self) -> int | None:
        """How long it took."""
        return None if self.ended is None else self.ended - self.began


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """
    The calls of a run that answers a call.

    Attributes:
        run: Its id.

        rows: The first of its calls.

        more: Words for those that are not among them; empty: there are no others.
    """

    run: str
    rows: Sequence[Row]
    more: str


def rows_of(events: Sequence[Mapping[str, Any]]) -> list[Row]:
    """
    Return the rows of events, which are in order.

    >>> at = {"recorded_at": 5, "seq": 2, "type": "ToolInvoked"}
    >>> said = {"call": 1, "name": "weather", "params": {}}
    >>> [row] = rows_of([{**at, "payload": said}])
    >>> row.title, row.outcome, row.ended
    ('weather', 'open', None)
    """
    calls: dict[int, Row] = {}
    found: list[Row] = []
    asleep: Row | None = None
    for event in events:
        said: Any = event["payload"] or {}
        call = said.get("call")
        if event["type"] in _RUN_STATES:
            found.append(_of_run(event, said))
            if asleep:
                # Until a host drives it again.
                asleep.ended = event["recorded_at"]
            asleep = found[-1] if found[-1].ended is None else None
        elif call is None:
            found.append(_line(event, said))
        elif call in calls:
            _goes_on(calls[call], event, said)
        else:
            calls[call] = _of_call(event, said)
            found.append(calls[call])
    made = [row for row in found if row.call is not None]
    _batches(made)
    _side_by_side(made, events)
    place(found, events)
    return found


def _of_call(event: Mapping[str, Any], said: Mapping[str, Any]) -> Row:
    row = Row(
        seq=event["seq"],
        call=said["call"],
        title=said.get("name") or "made earlier",
        text=said.get("params"),
        outcome="open",
        began=event["recorded_at"],
        ended=None,
    )
    # Its beginning may be on an earlier page.
    _goes_on(row, event, said)
    return row


def _goes_on(row: Row, event: Mapping[str, Any], said: Mapping[str, Any]) -> None:
    row.seqs.append(event["seq"])
    kind = event["type"]
    if kind in _ENDS:
        row.ended = event["recorded_at"]
        row.outcome = "tool_error" if said.get("is_error") else _ENDS[kind]
        if said.get("cached"):
            row.notes.append("cached")
    elif kind == "ApprovalRequested":
        row.outcome = "waits"
    elif kind == "ToolInvoked":
        row.outcome = "open"
        row.fuel = said.get("fuel") or 0
        if said.get("server") == AGENTS and (callee := _callee(event)):
            row.callee = callee
            row.notes.append("by a run of its own")
    elif kind == "ToolRetried":
        row.notes.append(f"attempt {said['attempt']}: {said['reason']}")
    elif kind == "ApprovalDecided":
        verdict = "approved" if said["verdict"] == "approve" else "denied"
        row.notes.append(f"{verdict} by {said['actor'].get('id')}")
    elif kind == "CallResolved":
        row.notes.append(f"resolved by {said['actor'].get('id')}: {said['verdict']}")
    elif kind == "QuestionAsked":
        row.notes.append("asked a person")


def _of_run(event: Mapping[str, Any], said: Mapping[str, Any]) -> Row:
    kind, at = event["type"], event["recorded_at"]
    texts = {
        "RunStarted": said.get("agent"),
        "RunQueued": said.get("agent"),
        "RunSuspended": said.get("reason"),
        "RunResumed": f"{said.get('reason')}, on {said.get('host')}",
        "RunFailed": f"{said.get('kind')}: {said.get('message')}",
        "RunCancelled": said.get("reason"),
    }
    return Row(
        seq=event["seq"],
        call=None,
        title=kind.removeprefix("Run").lower(),
        text=texts.get(kind),
        outcome=_RUN_STATES[kind],
        began=at,
        ended=None if kind in _ASLEEP else at,
        seqs=[event["seq"]],
    )


def _line(event: Mapping[str, Any], said: Mapping[str, Any]) -> Row:
    is_log = event["type"] == "LogWritten"
    return Row(
        seq=event["seq"],
        call=None,
        title=said.get("level", "") if is_log else event["type"],
        text=said.get("text") if is_log else said,
        outcome="log",
        began=event["recorded_at"],
        ended=event["recorded_at"],
        seqs=[event["seq"]],
    )


def _callee(event: Mapping[str, Any]) -> str | None:
    invoked = from_payload(event["type"], event["schema_version"], event["payload"])
    assert isinstance(invoked, ToolInvoked)  # noqa: S101 -- by its type
    return callee_of(event["stream"], invoked)


def _batches(calls: Iterable[Row]) -> None:
    """Say of each call which batch it is in."""
    fueled = sorted((row for row in calls if row.fuel), key=lambda row: row.call or 0)
    for _, same in groupby(fueled, key=lambda row: row.fuel):
        batch = [*same]
        first, last = batch[0].call or 0, batch[-1].call or 0
        for row in batch if last > first else ():
            row.batch = (first, last)
            row.notes.append(f"in a batch: calls {first} to {last}")


def _side_by_side(calls: Iterable[Row], events: Sequence[Mapping[str, Any]]) -> None:
    """Give each call its lane."""
    lanes: list[int] = []
    for row in calls:
        if not row.batch and any(until > row.began for until in lanes):
            row.notes.append("at the same time as another")
        free = (n for n, until in enumerate(lanes) if until <= row.began)
        row.lane = next(free, len(lanes))
        end = events[-1]["recorded_at"] if row.ended is None else row.ended
        lanes[row.lane : row.lane + 1] = [end]


def place(
    rows: Iterable[Row], events: Sequence[Mapping[str, Any]], until: int = 0
) -> None:
    """
    Give each row its bar, and those of the runs that answer calls.

    Args:
        rows: Of a run.

        events: Of that run.

        until: When the last of all these runs recorded something.
    """
    _draw(rows, _Scale(events, until))


def _draw(rows: Iterable[Row], scale: _Scale) -> None:
    for row in rows:
        end = scale.end if row.ended is None else row.ended
        row.left = scale.at(row.began)
        row.width = max(scale.at(end) - row.left, 1)
        _draw(row.child.rows if row.child else (), scale)


class _Scale:
    """Maps times to places, without the times of suspension."""

    def __init__(self, events: Sequence[Mapping[str, Any]], until: int) -> None:
        self._times: list[int] = []
        self._places: list[int] = []
        asleep, place = False, 0
        for event in events:
            now = event["recorded_at"]
            if self._times and not asleep:
                place += max(now - self._times[-1], 0)
            if event["type"] in _RUN_STATES:
                asleep = event["type"] in _ASLEEP
            self._times.append(now)
            self._places.append(place)
        self.end = self._times[-1] if self._times else 0
        if until > self.end and not asleep:
            self._times.append(until)
            self._places.append(place + until - self.end)
            self.end = until

    def at(self, time: int) -> int:
        """Return the place of a time, in millionths."""
        n = bisect_right(self._times, time) - 1
        if n < 0:
            return 0
        # Between two events, it does not move where the run was suspended.
        next_ = self._places[min(n + 1, len(self._places) - 1)]
        now = min(self._places[n] + time - self._times[n], next_)
        return now * SCALE // max(self._places[-1], 1)
