"""``caxton runs explain``: why a call was allowed or denied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from ..errors import NotKeptError, RestoredError
from .frame import Frame, as_json, wait
from .judgement import tell_remedy, tell_verdict
from .screen import note, plain, say, show

__all__ = ["of_run"]

_NOWHERE = "no tool of this run"


@click.command("explain")
@click.argument("run")
@click.argument("seq", type=click.IntRange(min=1))
@as_json
@click.pass_obj
def of_run(frame: Frame, run: str, seq: int, as_json: bool) -> None:
    """
    Show why a call of RUN was allowed or denied. SEQ is any event of that call.

    Each rule of the recorded grants is shown with what it says of the call, as things
    stood when it was made.

    \b
    Examples:
      caxton runs explain @last 2
      caxton runs explain 0198 7 --json
    """
    told = wait(_document(frame, run, seq))
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


async def _document(frame: Frame, run: str, seq: int) -> Mapping[str, Any]:
    try:
        if frame.there is not None:
            async with frame.there.log() as log:
                return await log.explanation(await log.find_run(run), seq)
        return await _explained(frame, run, seq)
    except NotKeptError as exc:
        raise NotKeptError(str(exc), fix=f"caxton runs show {run}") from None


async def _explained(frame: Frame, run: str, seq: int) -> Mapping[str, Any]:
    from ..bootstrap import open_store
    from ..explaining import checks_of, document, find
    from ..recording import Recording

    config = frame.look("tools")
    async with open_store(config, write=False) as store:
        recording = await Recording.load(await store.find_run(run), store)
        checks = await checks_of(recording, store, config)
    if recording.is_restored:
        error = RestoredError(recording.run_id)
        note(f"{error}. To fix: {frame.named(error.fix)}")
    return document(find(recording, checks, seq))
