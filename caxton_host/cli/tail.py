"""``caxton events tail``: events as they come, for people and for programs."""

from __future__ import annotations

import signal
from contextlib import aclosing
from typing import TYPE_CHECKING

import click

from ..core.log.events import Recorded, event_document
from ..core.log.runs import ENDS, GOING_ON
from ..core.names import RUN, stream_of
from . import interrupt
from .context import Frame, as_json, wait
from .output import clipped, plain, to_json
from .show import moment, remark

if TYPE_CHECKING:
    from ..ports import History


#: How many seconds a database may be away from whoever follows it.
PATIENCE = 60.0

_LAST = {kind for kind, state in ENDS.items() if state not in GOING_ON}
_WIDTH = 100


@click.command("tail")
@click.argument("run", required=False)
@click.option("-f", "--follow", is_flag=True, help="Wait for more, until Ctrl-C.")
@click.option("--all", "everything", is_flag=True, help="All streams, of hosts too.")
@click.option(
    "--after",
    metavar="CURSOR",
    help='Only what is behind it; "end": only what comes from now on.',
)
@as_json
@click.pass_obj
def tail(
    frame: Frame,
    run: str | None,
    follow: bool,
    everything: bool,
    after: str | None,
    as_json: bool,
) -> None:
    """
    Print events as they come: those of RUN, or of all runs.

    With --json, one document a line, each with the cursor to go on behind it. Each
    event is printed once, and none is left out. Following a RUN ends with the run.

    \b
    Examples:
      caxton events tail --follow
      caxton events tail @last -f
      caxton events tail --all --json --after p-1200
    """
    if run and everything:
        raise click.UsageError("name a run, or say --all")
    try:
        wait(_until_over(frame, run, follow, everything, after, as_json))
    except KeyboardInterrupt:
        # Ctrl-C is how a person stops following; nothing is left undone.
        if interrupt.code() != 128 + signal.SIGINT:
            raise


async def _until_over(
    frame: Frame,
    run: str | None,
    follow: bool,
    everything: bool,
    after: str | None,
    as_json: bool,
) -> None:
    show = _document if as_json else _line
    async with frame.history() as store:
        stream = stream_of(await store.find_run(run)) if run else None
        if stream and await _is_over(store, stream):
            follow = False
        events = store.tail(
            after, stream=stream, follow=follow, patience=PATIENCE if follow else 0
        )
        async with aclosing(events) as found:
            async for recorded, cursor in found:
                if run or everything or recorded.stream.startswith(RUN):
                    click.echo(show(recorded, cursor))
                if run and recorded.type in _LAST:
                    return


async def _is_over(store: History, stream: str) -> bool:
    history = await store.read(stream)
    return bool(history) and history[-1].type in _LAST


def _document(recorded: Recorded, cursor: str) -> str:
    return to_json(event_document(recorded) | {"cursor": cursor})


def _line(recorded: Recorded, cursor: str) -> str:
    del cursor
    return "  ".join(
        (
            moment(recorded.recorded_at),
            plain(recorded.stream.removeprefix(RUN)),
            str(recorded.seq),
            plain(recorded.type),
            clipped(plain(remark(recorded)), _WIDTH),
        )
    )
