"""``caxton runs explain``: explain why a call was allowed or denied."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import click

from ..errors import UsageError
from .context import HostApi, on_host
from .judgement import tell_remedy, tell_verdict
from .output import plain, say, show

_PLACE = re.compile(r"(?:(call|event) )?([1-9][0-9]{0,17})")
_UNKNOWN = "unknown in this run"


def place_of(words: Sequence[str]) -> tuple[str, int]:
    """
    Return ``call`` or ``event``, and its number.

    Raises:
        UsageError: The words do not say that.
    """
    found = _PLACE.fullmatch(" ".join(words))
    if found is None:
        raise UsageError(
            f"{' '.join(words)!r} is not a call or event number",
            fix="write call 7, or event 7",
        )
    return found[1] or "event", int(found[2])


def kinds(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the words that complete the place of a call."""
    return [word for word in ("call", "event") if word.startswith(incomplete)]


@on_host(click.command("explain"))
@click.argument("run")
@click.argument(
    "place", metavar="call|event NUMBER", nargs=-1, required=True, shell_complete=kinds
)
def of_run(frame: HostApi, run: str, place: tuple[str, ...], as_json: bool) -> None:
    """
    Explain why a call of RUN was allowed or denied.

    "call 7" is the seventh call, "event 7" the call that event 7 is about; a number
    alone is that of an event. Each rule of the recorded grants is shown with its
    result at the time of the call.

    \b
    Examples:
      caxton runs explain @last call 1
      caxton runs explain 0198 event 7 --json
    """
    told = frame.explain_call(run, *place_of(place))
    if as_json:
        show({**told})
    else:
        tell(told)


def tell(told: Mapping[str, Any]) -> None:
    """Print the explanation of a call."""
    say(f"call {told['call']} (event {told['seq']})  {plain(told['name'])}")
    where = f"{told['server']}/{told['tool']}" if told["server"] else _UNKNOWN
    effect = f", effect {told['effect']}" if told["server"] and told["effect"] else ""
    say(f"tool      {where}{effect}")
    say(f"params    {plain(told['params'])}")
    tell_verdict(told)
    say(f"ended     {plain(told['ended'])}")
    tell_remedy(told["remedy"])
