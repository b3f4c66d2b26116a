"""The difference of two runs, as text for people."""

from __future__ import annotations

from ..core.calls import JSON
from ..core.log.diff import CallDifference, Diff, Difference, Place
from .output import clipped, note, on_terminal, plain, say, table, to_json

_WIDTH = 200


def tell_diff(found: Diff) -> None:
    """Print how two runs differ."""
    note(f"a  run {found.a}")
    note(f"b  run {found.b}")
    if found.same:
        say("same")
        return
    first = found.calls[0] if found.calls else None
    where = f"call {first.call} {plain(first.name)}" if first else "the end"
    one = (first.differences if first else found.end)[0]
    say(f"first difference: {where}, {difference_line(one)}")
    rows = [row for call in found.calls for row in _call_rows(call)]
    rows += [("end", "", "", *_cells(one)) for one in found.end]
    table(("call", "name", "events", "path", "a", "b"), rows)
    note(f"calls that differ: {len(found.calls)}")


def _call_rows(call: CallDifference) -> list[tuple[object, ...]]:
    events = f"{_place(call.a)} / {_place(call.b)}"
    return [(call.call, call.name, events, *_cells(one)) for one in call.differences]


def _place(place: Place | None) -> str:
    return str(place.seq) if place else "-"


def difference_line(one: Difference) -> str:
    """Return a difference in a line."""
    path, a, b = _cells(one)
    return f"{path}: {a} became {b}"


def _cells(one: Difference) -> tuple[str, str, str]:
    return plain(one.path), _value(one.a), _value(one.b)


def _value(value: JSON) -> str:
    text = to_json(value)
    return clipped(text, _WIDTH) if on_terminal() else text
