"""``caxton audit``: is the log what was written?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..core.calls import JSON
from .exits import AUDIT, FAILED
from .frame import Frame, as_json, wait
from .overrides import check_text
from .screen import complain, counted, patience, say, show

if TYPE_CHECKING:
    from ..core.events import RunErased
    from ..store.verify import Verdict

__all__ = ["audit_document", "audit_line", "command"]


@click.group("audit")
def command() -> None:
    """
    Check that the log is what was written.

    \b
    Examples:
      caxton audit verify
      caxton audit verify @last --json
    """


@command.command("verify")
@click.argument("run", required=False)
@as_json
@click.pass_obj
@click.pass_context
def verify(
    ctx: click.Context,
    frame: Frame,
    run: str | None,
    as_json: bool,
) -> None:
    """
    Compute every hash again, of RUN or of all streams.

    Finds an edited payload, salt or envelope, and an event that was removed, added
    or moved within its stream. It cannot find a stream whose last events, or all of
    them, were removed by somebody who may write the database.

    \b
    Exit codes: 0 intact; 2 no such run; 5 broken.

    \b
    Examples:
      caxton audit verify
      caxton audit verify @last --json
    """
    found = wait(_verify(frame, run))
    if as_json:
        show(audit_document(found))
    else:
        say(f"{audit_line(found)}, checked: chain")
    if found.first_bad:
        stream, seq, reason = found.first_bad
        complain(
            f"{stream} event {seq}: {reason}",
            "restore the database from a copy, and see who may write it",
        )
        ctx.exit(AUDIT)


async def _verify(frame: Frame, run: str | None) -> Verdict:
    from ..store.verify import verify

    async with frame.store() as store:
        stream = f"run/{await store.find_run(run)}" if run else None
        with patience("verifying"):
            return await verify(store, stream=stream)


@command.command("erase")
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
def erase(
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
    from ..bootstrap import keeping

    async with frame.store() as store:  # A database that is not there is not made.
        run_id = await store.find_run(run)
    async with keeping(frame.load(), frame.paths()) as keeper:
        with patience("erasing"):
            erased = await keeper.erase(run_id, reason)
            return erased, not keep_file and await keeper.store.scrub()


def audit_line(found: Verdict) -> str:
    """Return the outcome of a verification in a line."""
    verdict = "broken" if found.first_bad else "intact"
    events = counted(found.events, "event")
    line = f"{verdict}: {events} in {counted(found.streams, 'stream')}"
    return f"{line}, {found.erased} of them erased" if found.erased else line


def audit_document(found: Verdict) -> dict[str, JSON]:
    """Return the ``caxton.audit/v1`` document of a verification."""
    bad = found.first_bad
    return {
        "$type": "caxton.audit/v1",
        "verdict": "broken" if bad else "intact",
        "checked": ["chain"],
        "streams": found.streams,
        "events": found.events,
        "erased": found.erased,
        "first_bad": {"stream": bad[0], "seq": bad[1]} if bad else None,
    }
