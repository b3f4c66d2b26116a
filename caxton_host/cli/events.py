"""``caxton events``: what a run left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..core.events import Recorded
from ..errors import LogBrokenError
from .frame import Frame, as_json, wait
from .screen import show, table, to_json
from .show import event_document, rows
from .tail import tail

if TYPE_CHECKING:
    from ..store.sql import SqlStore

__all__ = ["command", "history_of"]


@click.group("events")
def command() -> None:
    """
    List and export the events of a run.

    \b
    Examples:
      caxton events list @last
      caxton events list 0198 --json
      caxton events export --all > events.jsonl
    """


command.add_command(tail)


@command.command("list")
@click.argument("run")
@as_json
@click.pass_obj
def list_(frame: Frame, run: str, as_json: bool) -> None:
    """
    Show the events of RUN: an id, any unique prefix of one, or @last.

    \b
    Examples:
      caxton events list @last
      caxton events list 0198 --json
    """
    history = wait(history_of(frame, run))
    if as_json:
        show([event_document(recorded) for recorded in history])
        return
    table(("seq", "call", "recorded at (UTC)", "type", ""), rows(history))


@command.command("export")
@click.argument("run", required=False)
@click.option("--all", "everything", is_flag=True, help="All streams, of hosts too.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["jsonl", "json"]),
    default="jsonl",
    show_default=True,
    help="One document a line, or one array.",
)
@as_json
@click.pass_obj
def export(
    frame: Frame, run: str | None, everything: bool, format_: str, as_json: bool
) -> None:
    """
    Print the events of RUN, or of all streams, one JSON document a line.

    \b
    Examples:
      caxton events export @last
      caxton events export --all > events.jsonl
    """
    if bool(run) == everything:
        raise click.UsageError("name a run, or say --all")
    wait(_export(frame, run, as_array=as_json or format_ == "json"))


async def _export(frame: Frame, run: str | None, *, as_array: bool) -> None:
    async with frame.store() as store:
        stream = f"run/{await store.find_run(run)}" if run else None
        found = store.stream_events(stream=stream)
        if as_array:
            show([event_document(recorded) async for recorded in found])
            return
        async for recorded in found:
            click.echo(to_json(event_document(recorded)))


async def history_of(frame: Frame, run: str) -> list[Recorded]:
    """Return the events of the run that *run* names."""
    async with frame.store() as store:
        return await read_run(store, run)


async def read_run(store: SqlStore, run: str) -> list[Recorded]:
    """Return the events of the run that *run* names in *store*."""
    stream = f"run/{await store.find_run(run)}"
    history = await store.read(stream)
    if not history:
        raise LogBrokenError(f"{stream} is listed, and its events are gone")
    return history
