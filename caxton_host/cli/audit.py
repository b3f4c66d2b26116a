"""``caxton audit``: is the log what was written?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..core.calls import JSON
from .exits import AUDIT
from .frame import Frame, as_json, wait
from .screen import complain, counted, patience, say, show

if TYPE_CHECKING:
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


def audit_line(found: Verdict) -> str:
    """Return the outcome of a verification in a line."""
    verdict = "broken" if found.first_bad else "intact"
    events = counted(found.events, "event")
    return f"{verdict}: {events} in {counted(found.streams, 'stream')}"


def audit_document(found: Verdict) -> dict[str, JSON]:
    """Return the ``caxton.audit/v1`` document of a verification."""
    bad = found.first_bad
    return {
        "$type": "caxton.audit/v1",
        "verdict": "broken" if bad else "intact",
        "checked": ["chain"],
        "streams": found.streams,
        "events": found.events,
        "first_bad": {"stream": bad[0], "seq": bad[1]} if bad else None,
    }
