"""``caxton replay``: a recorded run, executed again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .exits import AUDIT, DIVERGED
from .frame import Frame, as_json, wait
from .screen import complain, counted, note, patience, say, show

if TYPE_CHECKING:
    from ..replay import Replayed

__all__ = ["command"]


@click.command("replay")
@click.argument("run", required=False)
@click.option(
    "--bundle",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Replay the run of this bundle, without a database.",
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="PUBKEY",
    help="Believe this public key of a bundle, and no other. Repeatable.",
)
@as_json
@click.pass_obj
@click.pass_context
def command(
    ctx: click.Context,
    frame: Frame,
    run: str | None,
    bundle: Path | None,
    keys: tuple[str, ...],
    as_json: bool,
) -> None:
    """
    Execute RUN again over its own log, touching nothing.

    No tool server is started or called. The replay stops at the first difference
    and names the event, the place in it, and both values.

    \b
    Exit codes: 0 identical; 2 no such run; 4 diverged; 5 a bundle that is broken, or
    signed by nobody who is believed.

    \b
    Examples:
      caxton replay @last
      caxton replay 0198 --json
      caxton replay --bundle run.caxton --key 3b6a27bc...
    """
    if (run is None) == (bundle is None):
        raise click.UsageError("Name RUN, or --bundle and a file.", ctx)
    if bundle is not None:
        from .replay_bundle import replay_bundle

        of_bundle = wait(replay_bundle(frame, bundle, keys))
        if of_bundle is None:
            ctx.exit(AUDIT)
        found = of_bundle
    else:
        found = wait(_replay(frame, run or ""))
    if as_json:
        show(found.to_document())
    else:
        say(f"{found.verdict}: {counted(found.calls, 'call')} answered from the log")
        note(f"replayed run {found.run_id}; no tool was called")
    if found.divergence:
        complain(
            f"diverged at {found.divergence}",
            f"compare it with caxton events list {found.run_id}",
        )
        ctx.exit(DIVERGED)


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
