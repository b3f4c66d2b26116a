"""``caxton runs simulate-crash``: what a host would leave that dies now."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..core.calls import JSON
from ..core.grants.approvals import NOBODY
from ..core.log.events import (
    ApprovalDecided,
    ApprovalRequested,
    CallResolved,
    LogWritten,
    Recorded,
    ToolInvoked,
)
from ..errors import NotKeptError, UsageError
from .context import Frame, as_json, wait
from .output import note, plain, say, show
from .run_report import resolving
from .show import remark

if TYPE_CHECKING:
    from ..runs.recording import Recording


_NEXT = {
    "said": "is sent again: a person said so",
    "read": "is sent again: it only reads",
    "idempotent": "is sent again: twice is the same as once",
    "keyed": "is sent again, with the same idempotency key",
    "unsafe": "is left to a person: the run will be suspended",
}


@click.command("simulate-crash")
@click.argument("run")
@click.option(
    "--at",
    type=click.IntRange(min=1),
    required=True,
    metavar="SEQ",
    help="The last event that the host stored before it died.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The new database; one in the folder for temporary files by default.",
)
@as_json
@click.pass_obj
def command(
    frame: Frame, run: str, at: int, output: Path | None, as_json: bool
) -> None:
    """
    Show what is left of RUN if its host dies right after event SEQ.

    Makes a new database with the log of the run up to there, says which call is in
    doubt, and prints the command that lets the copy go on. The run itself stays as
    it is. What the copy still has to do is done for real: its calls are sent, with
    the idempotency keys of the run.

    \b
    Examples:
      caxton runs simulate-crash @last --at 4
      caxton runs simulate-crash 0198 --at 4 -o crashed.db
    """
    document = wait(_simulate(frame, run, at, output))
    if as_json:
        show(document)
        return
    _tell(document)


async def _simulate(
    frame: Frame, run: str, at: int, output: Path | None
) -> dict[str, JSON]:
    from ..runs.recording import Recording
    from ..store.copies import copy_cut

    async with frame.log() as store:
        recording = await Recording.load(await store.reader.find_run(run), store.reader)
        left = _left(recording, at)
        target = _target(output)
        await copy_cut(store.reader, left, target)
    run_id, last = left.run_id, left.own[-1]
    copy = replace(frame, db=f"sqlite:///{target}")
    return {
        "$type": "caxton.crash/v1",
        "run_id": run_id,
        "asked_at": at,
        "at": last.seq,
        "events": len(recording.own),
        "last": f"{last.type} {remark(last)}".rstrip(),
        "database": str(target),
        "in_doubt": [
            {
                "call": doubt.invoked.call,
                "seq": doubt.seq,
                "name": doubt.invoked.name,
                "params": doubt.invoked.params,
                "effect": doubt.invoked.effect,
                "resolved": doubt.resolved,
                "resolve": resolving(copy, run_id, doubt.seq),
            }
            for doubt in left.journal().in_doubt
        ],
        "resume": f"{copy.command()} runs resume {run_id}",
    }


def _left(recording: Recording, at: int) -> Recording:
    """Return what is stored once event *at* is: the rest of its transaction too."""
    end = recording.until(at).own[-1].seq
    while _goes_on(recording.own, end):
        end += 1
    left = recording.until(end)
    if error := left.journal().not_kept:
        raise NotKeptError(str(error), fix="name an earlier event")
    if left.end:
        raise UsageError(
            f"event {end} ends the run: a crash after that leaves nothing to do",
            fix="name an earlier event; caxton events list shows them",
        )
    return left


def _goes_on(history: Sequence[Recorded], end: int) -> bool:
    """Return whether what follows is stored together with event *end*."""
    event = history[end - 1].event
    after = history[end].event if end < len(history) else None
    match event:
        case ToolInvoked(rule=None) | ApprovalRequested():
            return True
        case ApprovalDecided(actor=actor):
            return actor == NOBODY
        case CallResolved(verdict=verdict):
            return verdict != "retry"
        case LogWritten():
            return isinstance(after, LogWritten) and after.level == "truncated"
        case _:
            # Given up for good: the end follows at once.
            before = history[end - 2].event if end > 1 else None
            return isinstance(before, CallResolved) and before.verdict == "abort"


def _target(output: Path | None) -> Path:
    if output is None:
        return Path(tempfile.mkdtemp(prefix="caxton-crash-")) / "crashed.db"
    if output.exists():
        raise UsageError(f"{output} is there already", fix="name a file that is not")
    return output.absolute()


def _tell(document: dict[str, JSON]) -> None:
    if document["at"] != document["asked_at"]:
        note(f"what follows event {document['asked_at']} is stored with it")
    at, count = document["at"], document["events"]
    say(f"the host dies after event {at} of {count}: {plain(document['last'])}")
    waiting = document["in_doubt"]
    assert isinstance(waiting, list)  # noqa: S101 -- made above
    for call in waiting:
        assert isinstance(call, dict)  # noqa: S101 -- made above
        params = plain(call["params"])
        where = f"call {call['call']} (event {call['seq']})"
        say(f"in doubt: {where} {call['name']} {params}")
        what = _NEXT["said" if call["resolved"] else str(call["effect"])]
        say(f"  it {what}")
    if not waiting:
        say("no call is in doubt")
    say(f"the copy is {document['database']}; what it goes on to do, it does for real")
    say(f"to go on: {document['resume']}")
