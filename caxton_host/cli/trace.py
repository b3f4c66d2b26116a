"""``caxton runs trace``: show where the values of a call came from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from ..core.calls import JSON
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
    from ..runs.tracing import call_at, lineage, traced_call

    async with host.history() as store:
        recording = await Recording.load(await store.find_run(run), store)
        runs = await lineage(recording, store)
    call = number if kind == "call" else call_at(recording, number)
    return traced_call(recording, runs, call, below)


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
