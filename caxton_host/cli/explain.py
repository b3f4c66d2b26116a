"""``caxton runs explain``: why a call was allowed or denied."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..core.events import ToolInvoked
from ..errors import NotKeptError
from .frame import Frame, as_json, wait
from .judgement import tell_asked, tell_remedy, tell_rules
from .screen import plain, say, show

if TYPE_CHECKING:
    from ..explaining import Checks
    from ..recording import Recording

__all__ = ["of_run"]


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
    from ..explaining import document, find

    found = find(*wait(_recording(frame, run)), seq)
    if as_json:
        show(document(found))
        return
    call = found.invoked
    say(f"call {call.call} (event {found.seq})  {call.name}")
    where = f"{call.server}/{call.tool}" if call.server else "no tool of this run"
    effect = f", effect {call.effect}" if isinstance(call, ToolInvoked) else ""
    say(f"leads to  {where}{effect}")
    say(f"params    {plain(call.params)}")
    say(f"verdict   {found.verdict}, rule {found.rule or 'none'}")
    tell_asked(found.explained)
    tell_rules(found.explained)
    say(f"ended     {plain(found.ending)}")
    tell_remedy(found.remedy)


async def _recording(frame: Frame, run: str) -> tuple[Recording, Checks]:
    """Return a run, and what compares parameters with the tools that it could see."""
    from ..bootstrap import open_store
    from ..explaining import checks_of
    from ..recording import Recording

    config = frame.load()
    async with open_store(config, write=False) as store:
        run_id = await store.find_run(run)
        try:
            recording = await Recording.load(run_id, store)
        except NotKeptError as exc:
            raise NotKeptError(str(exc), fix=f"caxton runs show {run}") from None
        return recording, await checks_of(recording, store, config)
