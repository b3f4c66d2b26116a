"""``caxton replay``: a recorded run, executed again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .exits import DIVERGED, USAGE
from .frame import Frame, as_json, wait
from .screen import complain, counted, note, patience, say, show

if TYPE_CHECKING:
    from ..replay import Replayed

__all__ = ["command"]


@click.command("replay")
@click.argument("run")
@as_json
@click.pass_obj
@click.pass_context
def command(
    ctx: click.Context,
    frame: Frame,
    run: str,
    as_json: bool,
) -> None:
    """
    Execute RUN again over its own log, touching nothing.

    No tool server is started or called. The replay stops at the first difference
    and names the event, the place in it, and both values.

    Where the log keeps a digest of an answer, by record = "hash", the replay ends at
    that call: what is behind it can be verified, and not executed.

    \b
    Exit codes: 0 identical; 2 no such run, erased, or not to be replayed to its end;
      4 diverged.

    \b
    Examples:
      caxton replay @last
      caxton replay 0198 --json
    """
    found = wait(_replay(frame, run))
    if as_json:
        show(found.to_document())
    else:
        answered = (found.not_kept.call or 1) - 1 if found.not_kept else found.calls
        say(f"{found.verdict}: {counted(answered, 'call')} answered from the log")
        note(f"replayed run {found.run_id}; no tool was called")
    if found.divergence:
        complain(
            f"diverged at {found.divergence}",
            f"compare it with caxton events list {found.run_id}",
        )
        ctx.exit(DIVERGED)
    if found.not_kept:
        complain(str(found.not_kept), found.not_kept.fix)
        ctx.exit(USAGE)


async def _replay(frame: Frame, run: str) -> Replayed:
    from ..bootstrap import open_sandbox, open_store
    from ..replay import replay
    from ..telemetry import NoTelemetry

    config = frame.load()
    async with (
        open_store(config, write=False) as store,
        open_sandbox(frame.paths(), config.places) as sandbox,
    ):
        run_id = await store.find_run(run)
        with patience("replaying"):
            return await replay(
                run_id, store=store, sandbox=sandbox, telemetry=NoTelemetry()
            )
