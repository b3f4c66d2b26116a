"""``caxton audit erase``: delete what a run said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .context import SIGNED, Frame, as_json, wait
from .exits import FAILED
from .output import complain, counted, patience, say, show
from .overrides import check_text

if TYPE_CHECKING:
    from ..core.log.events import RunErased


@click.command("erase")
@click.argument("run")
@click.option("--reason", required=True, help="Why; it is recorded.")
@click.option(
    "--keep-file",
    is_flag=True,
    help="Do not write the database file anew: hosts would have to wait for it.",
)
@as_json
@click.pass_obj
@click.pass_context
def command(
    ctx: click.Context,
    frame: Frame,
    run: str,
    reason: str,
    keep_file: bool,
    as_json: bool,
) -> None:
    """
    Delete for ever what RUN said: input, calls, answers, log lines, output.

    Its events stay as envelopes, with their hashes: the log verifies as before. That
    it was erased, by whom and why, is an event of its own. Modules and definitions of
    tools stay, for other runs have them too. A run that goes on is not erased.

    An SQLite file is then written anew, so that nothing is left in it; hosts wait for
    that, about a second for 100 MB. PostgreSQL and every backup keep copies of their
    own: see "What a host must keep out of its log" in the docs.

    \b
    Exit codes: 0 erased; 1 erased, and the file may still hold it; 2 no such run, or
      it goes on.

    \b
    Examples:
      caxton audit erase 0198 --reason "asked for by the customer, ticket 4711"
    """
    check_text("--reason", [reason])
    erased, is_gone = wait(_erase(frame, run, reason, keep_file=keep_file))
    events = counted(erased.events, "event")
    if as_json:
        show(
            {
                "$type": "caxton.erasure/v1",
                "run_id": erased.run,
                "agent": erased.agent,
                "actor": erased.actor,
                "reason": erased.reason,
                "events": erased.events,
                "scrubbed": is_gone,
            }
        )
    else:
        say(f"erased what {events} of run {erased.run} said")
    if not is_gone and not keep_file:
        complain(
            "the file of the database could not be written anew, and may still hold it",
            "stop what has it open, see that its disk has room, and run: sqlite3 "
            "FILE 'VACUUM; PRAGMA wal_checkpoint(TRUNCATE)'",
        )
        ctx.exit(FAILED)


async def _erase(
    frame: Frame, run: str, reason: str, *, keep_file: bool
) -> tuple[RunErased, bool]:
    from ..app.maintenance import keeping

    async with frame.log() as store:  # A database that is not there is not made.
        run_id = await store.reader.find_run(run)
    async with keeping(frame.look(*SIGNED, guarded=True), frame.paths()) as keeper:
        with patience("erasing"):
            erased = await keeper.erase(run_id, reason)
            return erased, not keep_file and await keeper.store.erasure.scrub()
