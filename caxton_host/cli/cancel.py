"""``caxton runs cancel``: a run ends, wherever it is driven."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from ..core.calls import JSON
from ..core.log.events import Recorded
from ..core.log.runs import summarise
from ..core.names import stream_of
from ..core.text.redact import Redactor
from ..errors import BusyError, CaxtonError, UsageError
from ..lib.machine import local_actor
from . import remote_runs
from .context import Frame, as_json, wait
from .exits import FAILED
from .output import complain, note, patience, show
from .overrides import check_text

if TYPE_CHECKING:
    from ..store.sql import SqlStore


_PAUSE = 0.1


@click.command("cancel")
@click.argument("run")
@click.option("--reason", default="", help="Why; it is recorded.")
@as_json
@click.pass_obj
@click.pass_context
def command(
    ctx: click.Context, frame: Frame, run: str, reason: str, as_json: bool
) -> None:
    """
    End RUN, and record who wanted it and why.

    The host that drives it is asked to stop it, and this command waits until it
    has. A run that is suspended, or whose host is dead, is ended right here; what
    became of its open calls stays unknown.

    \b
    Exit codes: 0 it is cancelled; 1 it ended by itself first; 2 it had ended.

    \b
    Examples:
      caxton runs cancel @last
      caxton runs cancel 0198 --reason "the wrong customer"
    """
    check_text("--reason", [reason])
    if frame.there is not None:
        run_id, history = wait(remote_runs.cancel(frame.there, run, reason))
    else:
        run_id, history = wait(_cancel(frame, run, reason))
    ended = summarise(run_id, history)
    if as_json:
        show(ended.to_document())
    if ended.state == "cancelled":
        note(f"cancelled {run_id}")
        return
    complain(
        f"run {run_id} has {ended.state} before it could be cancelled",
        f"{frame.command()} runs show {run_id}",
    )
    ctx.exit(FAILED)


async def _cancel(frame: Frame, run: str, reason: str) -> tuple[str, list[Recorded]]:
    from ..app.bootstrap import open_store

    config = frame.look(guarded=True)
    # Looked for first: a database is not made for a run that it cannot have.
    async with open_store(config, write=False) as store:
        run_id = await store.reader.find_run(run)
    reason = Redactor(config.secrets).text(reason)
    async with open_store(config, write=True, state=frame.paths().state) as store:
        with patience(f"waiting for the host of {run_id}"):
            await _stop(store, run_id, reason)
        return run_id, await store.reader.read(stream_of(run_id))


async def _stop(store: SqlStore, run_id: str, reason: str) -> None:
    actor, asked = local_actor(), None
    while True:
        if await store.leases.owner(run_id) is None:
            if await _stopped_here(store, run_id, actor, reason, asked=bool(asked)):
                break
        elif asked is None:
            asked = await store.requests.ask_run(run_id, "cancel", actor, reason)
        elif (outcome := await store.requests.outcome(asked)) and outcome.startswith(
            "refused"
        ):
            raise CaxtonError(
                f"the host of run {run_id} {outcome}",
                fix="stop that host, and repeat the command",
            )
        await asyncio.sleep(_PAUSE)
    if asked is not None:
        await store.requests.answer(asked, "ended")


async def _stopped_here(
    store: SqlStore, run_id: str, actor: dict[str, JSON], reason: str, *, asked: bool
) -> bool:
    """Return whether the run has ended: by this, or because its host was asked."""
    from ..runs.cancellation import cancel_idle

    try:
        await cancel_idle(store, run_id, actor, reason)
    except BusyError:
        return False  # Somebody else has taken it up.
    except UsageError:
        if not asked:
            raise
    return True
