"""``caxton events``: what a run left behind."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace

import click

from ..core.log.events import Recorded, event_document
from ..core.log.runs import OUTCOMES, ExportFilter
from ..core.names import stream_of
from ..errors import UsageError
from ..runs.recording import events_of
from .context import Frame, as_json, wait
from .output import show, table, to_json
from .show import line_document, rows
from .tail import tail
from .times import Moment
from .tracing import send_trace


@click.group("events")
def command() -> None:
    """
    List and export the events of a run.

    \b
    Examples:
      caxton events list @last
      caxton events list 0198 --json
      caxton events export --since 24h --outcome denied
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
@click.option("--run", "named", metavar="RUN", help="The same as the argument.")
@click.option("--since", type=Moment(), help="Only what was recorded then or later.")
@click.option("--until", type=Moment(), help="Only what was recorded before.")
@click.option("--agent", help="Only runs of this agent.")
@click.option(
    "--actor",
    metavar="ID",
    help="Only what this one caused: by starting the run, or by the event itself.",
)
@click.option(
    "--tool", metavar="PATTERN", help="Only calls of these tools: crm/*, */delete_*."
)
@click.option(
    "--outcome",
    "outcomes",
    type=click.Choice(OUTCOMES),
    multiple=True,
    help="Only ends of calls that ended so; and calls in doubt. May be repeated.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["jsonl", "json"]),
    default="jsonl",
    show_default=True,
    help="One document a line, or one array.",
)
@click.option(
    "--to-otlp",
    is_flag=True,
    help="Send the trace of RUN once more, and print nothing.",
)
@click.option(
    "--endpoint",
    metavar="URL",
    help="Where --to-otlp sends to: the base URL of an OTLP receiver over HTTP.",
)
@as_json
@click.pass_obj
def export(
    frame: Frame,
    run: str | None,
    everything: bool,
    named: str | None,
    since: int | None,
    until: int | None,
    agent: str | None,
    actor: str | None,
    tool: str | None,
    outcomes: tuple[str, ...],
    format_: str,
    to_otlp: bool,
    endpoint: str | None,
    as_json: bool,
) -> None:
    """
    Print events for other programs, one JSON document a line.

    Each line stands alone: besides the event it has the run, its agent, its actor,
    and the tool of the call that the event is about. What is filtered by more than
    one option has to fit all of them.

    A time is ISO 8601, UTC unless it names a zone, or a duration: 2h is two hours
    ago.

    With --to-otlp, the spans of RUN are made of its log and sent to an OpenTelemetry
    receiver: that of --endpoint, of [telemetry], or of OTEL_EXPORTER_OTLP_ENDPOINT.

    \b
    Examples:
      caxton events export @last
      caxton events export --to-otlp @last --endpoint http://localhost:4318
      caxton events export --all > events.jsonl
      caxton events export --since 24h --outcome denied --outcome in_doubt
      caxton events export --agent weather --tool 'crm/*' --since 2026-01-31
    """
    if run and named:
        raise click.UsageError("name one run, as an argument or with --run")
    filters = (since, until, agent, actor, tool, outcomes or None)
    if to_otlp or endpoint:
        frame.here("caxton events export --to-otlp")
        whole = (run or named) and not everything and all(f is None for f in filters)
        if not (to_otlp and whole):
            raise UsageError(
                "--to-otlp sends the trace of one whole run, to --endpoint",
                fix="name the run: caxton events export --to-otlp @last "
                "--endpoint http://localhost:4318",
            )
        wait(send_trace(frame, run or named or "", endpoint, as_json=as_json))
        return
    if not (run or named or everything or any(f is not None for f in filters)):
        raise click.UsageError("name a run, say --all, or say what you want of all")
    if (run or named) and everything:
        raise click.UsageError("name a run, or say --all")
    wanted = ExportFilter(
        since=since,
        until=until,
        agent=agent,
        actor=actor,
        tool=tool,
        outcomes=outcomes,
    )
    as_array = as_json or format_ == "json"
    wait(_export(frame, run or named, wanted, as_array=as_array))


async def _export(
    frame: Frame, run: str | None, wanted: ExportFilter, *, as_array: bool
) -> None:
    from ..store.export import lines

    async with frame.history() as store:
        if run:
            wanted = replace(wanted, stream=stream_of(await store.find_run(run)))
        between = "["
        async with aclosing(lines(store, wanted)) as found:
            async for line in found:
                text = to_json(line_document(line))
                click.echo(f"{between}{text}" if as_array else text, nl=not as_array)
                between = ",\n"
        if as_array:
            click.echo("[]" if between == "[" else "]")


async def history_of(frame: Frame, run: str) -> list[Recorded]:
    """Return the events of the run that *run* names."""
    async with frame.history() as store:
        return await events_of(store, await store.find_run(run))
