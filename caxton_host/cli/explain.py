"""``caxton runs explain``: explain why a call was allowed or denied."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from ..core.analysis.checking import astray
from ..core.log.runs import event_of_call
from ..core.names import meant_tool, stream_of
from ..errors import NotKeptError, RestoredError, UsageError
from .context import Frame, as_json, wait
from .judgement import tell_remedy, tell_verdict, told_astray
from .output import note, plain, say, show

if TYPE_CHECKING:
    from ..config import Config


_PLACE = re.compile(r"(?:(call|event) )?([1-9][0-9]{0,17})")
_NOWHERE = "no tool of this run"


def _place(words: Sequence[str]) -> tuple[str, int]:
    found = _PLACE.fullmatch(" ".join(words))
    if found is None:
        raise UsageError(
            f"{' '.join(words)!r} does not number a call",
            fix="write call 7, or event 7",
        )
    return found[1] or "event", int(found[2])


def _kinds(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return [word for word in ("call", "event") if word.startswith(incomplete)]


@click.command("explain")
@click.argument("run")
@click.argument(
    "place", metavar="call|event NUMBER", nargs=-1, required=True, shell_complete=_kinds
)
@as_json
@click.pass_obj
def of_run(frame: Frame, run: str, place: tuple[str, ...], as_json: bool) -> None:
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
    config = None if frame.there else frame.look("tools")
    told = wait(_document(frame, config, run, *_place(place)))
    if config and told["verdict"] == "not_granted":
        told = told_astray(told, _astray(config, told))
    if as_json:
        show({**told})
        return
    say(f"call {told['call']} (event {told['seq']})  {plain(told['name'])}")
    where = f"{told['server']}/{told['tool']}" if told["server"] else _NOWHERE
    effect = f", effect {told['effect']}" if told["effect"] else ""
    say(f"leads to  {where}{effect}")
    say(f"params    {plain(told['params'])}")
    tell_verdict(told)
    say(f"ended     {plain(told['ended'])}")
    tell_remedy(told["remedy"])


def _astray(config: Config, told: Mapping[str, Any]) -> str | None:
    from ..app.tool_setup import server_names
    from .offered import known

    target = told["server"], told["tool"]
    meant = meant_tool(told["name"], server_names(config))
    return astray(
        told["name"], target if all(target) else meant, known(config, start=False)
    )


async def _document(
    frame: Frame, config: Config | None, run: str, kind: str, number: int
) -> Mapping[str, Any]:
    try:
        if frame.there is not None:
            async with frame.there.log() as log:
                run_id, seq = await log.find_run(run), number
                if kind == "call":
                    seq = event_of_call(await log.read(stream_of(run_id)), number)
                return await log.explanation(run_id, seq)
        assert config  # noqa: S101 -- set unless the host is remote
        return await _explained(frame, config, run, kind, number)
    except NotKeptError as exc:
        raise NotKeptError(str(exc), fix=f"caxton runs show {run}") from None


async def _explained(
    frame: Frame, config: Config, run: str, kind: str, number: int
) -> Mapping[str, Any]:
    from ..app.bootstrap import open_store
    from ..runs.explain import checks_of, explanation
    from ..runs.recording import Recording

    async with open_store(config, write=False) as store:
        recording = await Recording.load(await store.reader.find_run(run), store.reader)
        checks = await checks_of(recording, store, config)
    if recording.is_restored:
        error = RestoredError(recording.run_id)
        note(f"{error}. To fix: {frame.named(error.fix)}")
    seq = event_of_call(recording.own, number) if kind == "call" else number
    return explanation(recording, checks, seq)
