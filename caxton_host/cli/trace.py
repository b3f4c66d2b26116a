"""``caxton runs trace``: show where the values of a call came from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from ..core.calls import JSON
from ..core.log.runs import call_of
from ..errors import UsageError
from ..runs.recording import Recording
from .context import HostApi, on_host, wait
from .explain import kinds, place_of
from .output import clipped, plain, say, show

if TYPE_CHECKING:
    from ..core.analysis.tracing import Asked, Traced


@on_host(click.command("trace"))
@click.argument("run")
@click.argument(
    "place",
    metavar="call|event NUMBER [PARAM]",
    nargs=-1,
    required=True,
    shell_complete=kinds,
)
def command(host: HostApi, run: str, place: tuple[str, ...], as_json: bool) -> None:
    """
    Show where the values of a call of RUN came from.

    Each value is followed back to the input, the context or the answer in which it
    entered, over earlier calls and parent runs. "call 7" is the seventh call, "event 7"
    the call that event 7 is about. PARAM is one parameter, like recipient or
    '$.items[0].id'.

    \b
    Examples:
      caxton runs trace @last call 3
      caxton runs trace @last call 3 recipient
      caxton runs trace 0198 event 7 --json
    """
    words, below = _split(place)
    kind, number = place_of(words)
    document, found = wait(_traced(host, run, kind, number, below))
    if as_json:
        show({**document, "values": [one.to_document() for one in found]})
        return
    tool = plain(document["tool"])
    say(f"call {document['call']} (event {document['event']})  {tool}")
    for line in trace_lines(found):
        say(line)


def _split(place: Sequence[str]) -> tuple[Sequence[str], str]:
    """Return the words of the place, and the JSON path of the parameter."""
    if len(place) > 1 and not place[-1].isdecimal():
        *words, param = place
        return words, param if param.startswith("$") else f"$.{param}"
    return place, ""


async def _traced(
    host: HostApi, run: str, kind: str, number: int, below: str
) -> tuple[dict[str, JSON], list[Traced]]:
    from ..core.analysis.tracing import tool_of, traced
    from ..core.log.events import ToolInvoked
    from ..runs.tracing import lineage

    async with host.history() as store:
        recording = await Recording.load(await store.find_run(run), store)
        runs = await lineage(recording, store)
    call = number if kind == "call" else _call_at(recording, number)
    calls = {
        e.event.call: (e.seq, e.event)
        for e in recording.history
        if isinstance(e.event, ToolInvoked)
    }
    if call not in calls:
        raise UsageError(
            f"run {recording.run_id} has no call {call}",
            fix=f"caxton runs show {recording.run_id}",
        )
    seq, invoked = calls[call]
    found = list(traced(runs, call, below))
    if below and not found:
        names = ", ".join(invoked.params or {}) or "none"
        raise UsageError(
            f"call {call} has no value at {below}; its parameters are: {names}",
            fix="name one of them, or a JSON path below one",
        )
    document: dict[str, JSON] = {
        "$type": "caxton.trace/v1",
        "run_id": recording.run_id,
        "call": call,
        "event": seq,
        "tool": tool_of(invoked),
    }
    return document, found


def _call_at(recording: Recording, seq: int) -> int:
    chosen = next((e for e in recording.own if e.seq == seq), None)
    if chosen is None or (call := call_of(chosen)) is None:
        what = f"is {chosen.type}, not of a call" if chosen else "does not exist"
        raise UsageError(
            f"event {seq} {what}", fix=f"caxton runs show {recording.run_id}"
        )
    return call


def trace_lines(found: Iterable[Traced]) -> Iterator[str]:
    """Yield the lines that show values and their ways."""
    for one in found:
        yield f"{plain(one.asked.path)}  {clipped(plain(one.value), 60)}"
        yield from _way_lines(one.asked, "  ")


def _way_lines(asked: Asked, indent: str) -> Iterator[str]:
    if not asked.way:
        yield f"{indent}not found before: the agent made it, or changed it"
    for step in asked.way:
        where = "the start" if step.call == 0 else f"call {step.call}"
        place = f"{plain(step.source)} {plain(step.path)}"
        yield f"{indent}{place}  ({where}, event {step.seq})"
        if (before := step.asked) is None:
            continue
        place = f"{plain(before.tool)} {plain(before.path)}"
        yield f"{indent}  after {place}  (call {before.call}, event {before.seq})"
        yield from _way_lines(before, f"{indent}    ")
