"""``caxton runs diff``: what one run did otherwise than another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..core.calls import JSON
from ..core.log.diff import Difference, Place, diff
from .context import Frame, as_json, wait
from .output import clipped, note, on_terminal, plain, say, show, table, to_json

if TYPE_CHECKING:
    from ..core.log.diff import CallDifference, Diff


_DIFFERENT = 1
_WIDTH = 200


@click.command("diff")
@click.argument("a")
@click.argument("b")
@as_json
@click.pass_obj
@click.pass_context
def command(ctx: click.Context, frame: Frame, a: str, b: str, as_json: bool) -> None:
    """
    Show how run B differs from run A: the first difference, then every call.

    Calls are compared by their order: name, tool, parameters and outcome; then the
    ends and the outputs. Times, ids and fuel never count.

    \b
    Exit codes: 0 they did the same; 1 they did not; 2 no such run.

    \b
    Examples:
      caxton runs diff 0198 @last
      caxton runs diff 0198c1 0198c2 --json
    """
    found = wait(_diff(frame, a, b))
    if as_json:
        show(found.to_document())
    else:
        _tell(found)
    if not found.same:
        ctx.exit(_DIFFERENT)


async def _diff(frame: Frame, a: str, b: str) -> Diff:
    from ..runs.recording import Recording

    async with frame.history() as store:
        one, other = [
            await Recording.load(await store.find_run(run), store) for run in (a, b)
        ]
    return diff(one.history, other.history)


def _tell(found: Diff) -> None:
    note(f"a  run {found.a}")
    note(f"b  run {found.b}")
    if found.same:
        say("same")
        return
    first = found.calls[0] if found.calls else None
    where = f"call {first.call} {plain(first.name)}" if first else "the end"
    one = (first.differences if first else found.end)[0]
    say(f"first difference: {where}, {_line(one)}")
    rows = [row for call in found.calls for row in _rows(call)]
    rows += [("end", "", "", *_cells(one)) for one in found.end]
    table(("call", "name", "events", "path", "a", "b"), rows)
    note(f"calls that differ: {len(found.calls)}")


def _rows(call: CallDifference) -> list[tuple[object, ...]]:
    events = f"{_place(call.a)} / {_place(call.b)}"
    return [(call.call, call.name, events, *_cells(one)) for one in call.differences]


def _place(place: Place | None) -> str:
    return str(place.seq) if place else "-"


def _line(one: Difference) -> str:
    path, a, b = _cells(one)
    return f"{path}: {a} became {b}"


def _cells(one: Difference) -> tuple[str, str, str]:
    return plain(one.path), _value(one.a), _value(one.b)


def _value(value: JSON) -> str:
    text = to_json(value)
    return clipped(text, _WIDTH) if on_terminal() else text
