"""``caxton runs simulate-crash``: what a host would leave that dies now."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from ..core.calls import JSON
from ..core.events import (
    CallResolved,
    LogWritten,
    Recorded,
    RunCancelled,
    RunCompleted,
    RunFailed,
    ToolCompleted,
    ToolInvoked,
)
from ..errors import UsageError
from .events import read_run
from .frame import Frame, as_json, wait
from .screen import note, plain, say, show
from .show import remark
from .told import doubts, resolving

__all__ = ["command"]

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
    from ..store.cut import copy_cut

    async with frame.store() as store:
        history = await read_run(store, run)
        left = _left(history, at)
        target = _target(output)
        await copy_cut(store, left, target)
    run_id = history[0].stream.removeprefix("run/")
    copy = replace(frame, db=f"sqlite:///{target}")
    return {
        "$type": "caxton.crash/v1",
        "run_id": run_id,
        "asked_at": at,
        "at": left[-1].seq,
        "events": len(history),
        "last": f"{left[-1].type} {remark(left[-1])}".rstrip(),
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
            for doubt in doubts(left)
        ],
        "resume": f"{copy.command()} runs resume {run_id}",
    }


def _left(history: Sequence[Recorded], at: int) -> Sequence[Recorded]:
    """Return what is stored once event *at* is: the rest of its transaction too."""
    if at > len(history):
        raise UsageError(
            f"the run has {len(history)} events, and none with the number {at}",
            fix="name one of those that caxton events list shows",
        )
    end = at
    while _goes_on(history, end):
        end += 1
    left = history[:end]
    for one in left:
        if one.event is None:
            raise UsageError(
                f"event {one.seq} of this run was erased", fix="name another run"
            )
        if isinstance(one.event, ToolCompleted) and one.event.cut:
            raise UsageError(
                f"event {one.seq} keeps a digest of an answer, and what crashes after "
                "it cannot go on",
                fix="name an earlier event",
            )
    if isinstance(left[-1].event, RunCompleted | RunFailed | RunCancelled):
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
        case ToolInvoked(rule=None):
            return True
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
