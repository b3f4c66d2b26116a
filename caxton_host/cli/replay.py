"""``caxton replay``: a recorded run, executed again."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import UsageError
from ..runs.modules import read_module
from . import interrupt
from .context import Frame, as_json, wait
from .exits import AUDIT, DIVERGED, USAGE
from .output import complain, counted, note, patience, say, show
from .step import Stepper
from .verdict import of_bundle, refuse, trusted

if TYPE_CHECKING:
    from ..config import Config
    from ..core.log.bundle import Bundle
    from ..ports import Streams
    from ..runs.replay import Replayed


#: Sections of the configuration that a replay uses.
_OF_REPLAY = ("sandbox", "telemetry")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    run: str
    until: int | None
    step: bool
    against: Path | None


@click.command("replay")
@click.argument("run", required=False)
@click.option(
    "--until",
    type=click.IntRange(min=1),
    metavar="SEQ",
    help="Stop after that event.",
)
@click.option("--step", is_flag=True, help="Stop at each call, and wait for a word.")
@click.option(
    "--against",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.wasm",
    help="Execute another module over the log of RUN.",
)
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
    until: int | None,
    step: bool,
    against: Path | None,
    bundle: Path | None,
    keys: tuple[str, ...],
    as_json: bool,
) -> None:
    """
    Execute RUN again over its own log, touching nothing.

    No tool server is started or called, and no credential is read. The replay stops
    at the first difference and names the event, the place in it, and both values.
    Another module, with --against, may burn other fuel and write other log lines.

    Where the log keeps a digest of an answer, by record = "hash", the replay ends at
    that call: what is behind it can be verified, and not executed.

    \b
    Exit codes: 0 identical; 2 no such run, erased, or not to be replayed to its end;
      4 diverged; 5 a bundle that is broken, or signed by nobody who is believed.

    \b
    Examples:
      caxton replay @last
      caxton replay 0198 --until 7 --json
      caxton replay @last --step
      caxton replay @last --against new.wasm
      caxton replay --bundle run.caxton --key 3b6a27bc...
    """
    if (run is None) == (bundle is None):
        raise click.UsageError("Name RUN, or --bundle and a file.", ctx)
    if step and as_json:
        raise UsageError(
            "--step speaks to a person, --json to a program", fix="leave one out"
        )
    wanted = _Wanted(run=run or "", until=until, step=step, against=against)
    with interrupt.interruptible() if step else nullcontext():
        if bundle is None:
            found = wait(_replay(frame, wanted))
        elif believed := _believed(frame, bundle, keys):
            found = wait(_replay_bundle(frame, believed, wanted))
        else:
            ctx.exit(AUDIT)
    if as_json:
        show(found.to_document())
    else:
        _tell(found)
    if found.divergence:
        complain(
            f"diverged at {found.divergence}",
            frame.named(f"compare it with caxton events list {found.run_id}"),
        )
        ctx.exit(DIVERGED)
    if found.not_kept:
        complain(str(found.not_kept), found.not_kept.fix)
        ctx.exit(USAGE)


def _tell(found: Replayed) -> None:
    upto = f" up to event {found.until}" if found.until else ""
    answered = (found.not_kept.call or 1) - 1 if found.not_kept else found.calls
    say(f"{found.verdict}{upto}: {counted(answered, 'call')} answered from the log")
    note(f"replayed run {found.run_id}; no tool was called")
    if found.state == "running" and not found.until:
        note("it has no end yet: a host drives it, or died; this is what it did so far")


async def _replay(frame: Frame, wanted: _Wanted) -> Replayed:
    from ..app.bootstrap import open_store

    if frame.there is not None:
        from ..config import Config

        async with frame.there.log() as log:
            run_id = await log.find_run(wanted.run)
            return await _execute(frame, Config(store_url=""), run_id, log, wanted)
    config = frame.look(*_OF_REPLAY)
    async with open_store(config, write=False) as store:
        run_id = await store.reader.find_run(wanted.run)
        return await _execute(frame, config, run_id, store.reader, wanted)


async def _replay_bundle(frame: Frame, bundle: Bundle, wanted: _Wanted) -> Replayed:
    from ..store.bundle_store import BundleStore

    store = BundleStore(bundle)
    return await _execute(
        frame, frame.look(*_OF_REPLAY), bundle.header.run, store, wanted
    )


def _believed(frame: Frame, path: Path, keys: tuple[str, ...]) -> Bundle | None:
    """
    Return a bundle, if a believed key signed it, or tell why not.

    Nothing of it is interpreted before that.
    """
    bundle, found = of_bundle(path, trusted(frame, keys))
    if bundle is None or found.verdict != "intact":
        refuse(found, bundled=True)
        return None
    return bundle


async def _execute(
    frame: Frame, config: Config, run_id: str, store: Streams, wanted: _Wanted
) -> Replayed:
    from ..app.bootstrap import open_sandbox
    from ..runs.recording import Recording
    from ..runs.replay import Options, replay
    from ..telemetry import observe

    module, pause = None, None
    if wanted.against or wanted.step:
        recording = await Recording.load(run_id, store)
        if wanted.against:
            module = read_module(wanted.against, recording.limits.module)
        if wanted.step:
            pause = Stepper(recording.history).pause
    async with AsyncExitStack() as stack:
        telemetry = observe(config.telemetry_endpoint, os.environ)
        stack.callback(telemetry.close)
        sandbox = await stack.enter_async_context(
            open_sandbox(frame.paths(), config.places)
        )
        # Nothing may move on the terminal while a person types.
        with nullcontext() if pause else patience("replaying"):
            return await replay(
                run_id,
                store=store,
                sandbox=sandbox,
                telemetry=telemetry,
                options=Options(until=wanted.until, against=module, pause=pause),
            )
