"""``caxton events``: list, follow and export events."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Generator
from contextlib import aclosing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..core.log.events import Recorded, event_document
from ..core.log.runs import ENDS, GOING_ON, OUTCOMES, ExportFilter
from ..core.names import RUN, stream_of
from ..errors import UsageError
from ..ports.history import History
from ..runs.recording import Recording, events_of
from . import interrupt
from .context import HostApi, on_host, wait
from .events_to import PATIENCE, SHOWN, deliver
from .options import Moment
from .output import clipped, counted, note, patience, plain, show, table, to_json
from .run_text import line_document, moment, remark, rows

if TYPE_CHECKING:
    from ..config import Config


@click.group("events")
def command() -> None:
    """
    List, follow and export the events of a run.

    \b
    Examples:
      caxton events list @last
      caxton events list 0198 --json
      caxton events export --since 24h --outcome denied
    """


@on_host(command.command("list"))
@click.argument("run")
def list_(host: HostApi, run: str, as_json: bool) -> None:
    """
    List the events of RUN.

    RUN is an id, a unique prefix of one, or @last.

    \b
    Examples:
      caxton events list @last
      caxton events list 0198 --json
    """
    history = wait(history_of(host, run))
    if as_json:
        show([event_document(recorded) for recorded in history])
        return
    table(("seq", "call", "recorded at (UTC)", "type", ""), rows(history))


@on_host(command.command("export"))
@click.argument("run", required=False)
@click.option("--all", "everything", is_flag=True, help="Include the streams of hosts.")
@click.option("--run", "named", metavar="RUN", help="Same as the argument RUN.")
@click.option("--since", type=Moment(), help="Only events recorded then or later.")
@click.option("--until", type=Moment(), help="Only events recorded before.")
@click.option("--agent", help="Only runs of this agent.")
@click.option(
    "--actor",
    metavar="ID",
    help="Only events of this actor or of runs it started.",
)
@click.option(
    "--tool", metavar="PATTERN", help="Only calls of these tools: crm/*, */delete_*."
)
@click.option(
    "--outcome",
    "outcomes",
    type=click.Choice(OUTCOMES),
    multiple=True,
    help="Only calls with this outcome. Repeatable.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["jsonl", "json", "ocsf"]),
    default="jsonl",
    show_default=True,
    help="One document per line, one array, or ended calls as OCSF.",
)
@click.option("--to", metavar="FILE|URL", help="Deliver to a file, or POST to a URL.")
@click.option(
    "--cursor",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file that remembers what --to took.",
)
@click.option("-f", "--follow", is_flag=True, help="With --to, go on until Ctrl-C.")
@click.option(
    "--bearer-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file of the bearer token for --to.",
)
@click.option(
    "--to-otlp",
    is_flag=True,
    help="Send the trace of RUN and print no events.",
)
@click.option(
    "--endpoint",
    metavar="URL",
    help="The base URL of the OTLP/HTTP receiver for --to-otlp.",
)
def export(
    host: HostApi,
    run: str | None,
    everything: bool,
    named: str | None,
    format_: str,
    to: str | None,
    cursor: Path | None,
    follow: bool,
    bearer_file: Path | None,
    to_otlp: bool,
    endpoint: str | None,
    as_json: bool,
    **filters: Any,  # noqa: ANN401 -- the fields of ExportFilter
) -> None:
    """
    Export events for other programs, one JSON document per line.

    Each line is self-contained: besides the event it has the run, its agent, its
    actor, and the tool of the call that the event is about. Events must match all
    filters.

    A time is ISO 8601, UTC unless it names a zone, or a duration: 2h is two hours
    ago.

    --to delivers what the file of --cursor does not know yet, each event at least
    once, and goes on where it stopped. While the sink is down, it tries again.
    --format ocsf: calls that ended, as API Activity of OCSF 1.6.0.

    --to-otlp rebuilds the spans of RUN from its log and sends them to an OpenTelemetry
    receiver: --endpoint, [telemetry] or OTEL_EXPORTER_OTLP_ENDPOINT.

    \b
    Examples:
      caxton events export @last
      caxton events export --to-otlp @last --endpoint http://localhost:4318
      caxton events export --all > events.jsonl
      caxton events export --since 24h --outcome denied --outcome in_doubt
      caxton events export --format ocsf --follow --to calls.jsonl --cursor calls.at
      caxton events export --agent weather --tool 'crm/*' --since 2026-01-31
    """
    if run and named:
        raise click.UsageError("name one run, as an argument or with --run")
    wanted = ExportFilter(**filters)
    filtered = wanted != ExportFilter()
    if to_otlp or endpoint:
        host.check_local("caxton events export --to-otlp")
        whole = (run or named) and not everything and not filtered
        if not (to_otlp and whole):
            raise UsageError(
                "--to-otlp sends the trace of one whole run, to --endpoint",
                fix="name the run: caxton events export --to-otlp @last "
                "--endpoint http://localhost:4318",
            )
        wait(send_trace(host, run or named or "", endpoint, as_json=as_json))
        return
    if not (run or named or everything or filtered or format_ == "ocsf"):
        raise click.UsageError("name a run, --all, or a filter")
    if (run or named) and everything:
        raise click.UsageError("name a run, or say --all")
    as_array = as_json or format_ == "json"
    if to is None:
        if cursor or follow or bearer_file:
            raise click.UsageError("say where to, with --to FILE or --to URL")
        wait(_export(host, run or named, wanted, format_=format_, as_array=as_array))
        return
    if cursor is None or as_array or "in_doubt" in wanted.outcomes:
        raise click.UsageError(
            "--to needs --cursor FILE, and neither an array nor --outcome in_doubt"
        )
    with ending_by_ctrl_c():
        work = deliver(
            host,
            run or named,
            wanted,
            format_=format_,
            to=to,
            cursor=cursor,
            bearer=bearer_file,
            follow=follow,
        )
        wait(work)


async def _export(
    host: HostApi,
    run: str | None,
    wanted: ExportFilter,
    *,
    format_: str,
    as_array: bool,
) -> None:
    from ..store.export import lines

    async with host.history() as store:
        if run:
            wanted = replace(wanted, stream=stream_of(await store.find_run(run)))
        between = "["
        async with aclosing(lines(store, wanted)) as found:
            async for line in found:
                if (shown := SHOWN.get(format_, line_document)(line)) is None:
                    continue
                text = to_json(shown)
                click.echo(f"{between}{text}" if as_array else text, nl=not as_array)
                between = ",\n"
        if as_array:
            click.echo("[]" if between == "[" else "]")


async def history_of(host: HostApi, run: str) -> list[Recorded]:
    """Return the events of the run that *run* names."""
    async with host.history() as store:
        return await events_of(store, await store.find_run(run))


_LAST = {kind for kind, state in ENDS.items() if state not in GOING_ON}
_WIDTH = 100


@on_host(command.command("tail"))
@click.argument("run", required=False)
@click.option("-f", "--follow", is_flag=True, help="Wait for more until Ctrl-C.")
@click.option("--all", "everything", is_flag=True, help="Include the streams of hosts.")
@click.option(
    "--after",
    metavar="CURSOR",
    help='Only events after this cursor; "end": only new events.',
)
def tail(
    host: HostApi,
    run: str | None,
    follow: bool,
    everything: bool,
    after: str | None,
    as_json: bool,
) -> None:
    """
    Follow the events of RUN or of all runs.

    With --json, one document per line, each with its cursor for --after. Each event
    is printed exactly once. Following a RUN ends with the run.

    \b
    Examples:
      caxton events tail --follow
      caxton events tail @last -f
      caxton events tail --all --json --after p-1200
    """
    if run and everything:
        raise click.UsageError("name a run, or say --all")
    with ending_by_ctrl_c():
        wait(_until_over(host, run, follow, everything, after, as_json))


@contextmanager
def ending_by_ctrl_c() -> Generator[None]:
    """Follow until Ctrl-C, which is the normal end of it."""
    try:
        yield
    except KeyboardInterrupt:
        if interrupt.code() != 128 + signal.SIGINT:
            raise


async def _until_over(
    host: HostApi,
    run: str | None,
    follow: bool,
    everything: bool,
    after: str | None,
    as_json: bool,
) -> None:
    show = _document if as_json else _line
    async with host.history() as store:
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


async def send_trace(
    host: HostApi, run: str, endpoint: str | None, *, as_json: bool
) -> None:
    """
    Send the spans of a recorded run. No tool server is started, nothing is written.

    Args:
        host: Where the log is.

        run: The run, as a person names it.

        endpoint: Where to; by default what the configuration or the environment says.

        as_json: Print a document.

    Raises:
        UsageError: There is no such run, it was erased, or nowhere to send to.

        CaxtonError: The spans were not taken.
    """
    from ..app.bootstrap import open_store
    from ..telemetry.export import host as host_of
    from ..telemetry.rebuild_spans import Beside, send_again

    config = host.look("telemetry")
    url = receiver(config, endpoint, "--endpoint")
    async with open_store(config, write=False) as store:
        recording = await Recording.load(await store.reader.find_run(run), store.reader)
        beside = await Beside.of(recording, store.reader)
    with patience("sending spans"):
        sent = await asyncio.to_thread(send_again, recording, url, os.environ, beside)
    trace_id = recording.own[0].trace_id
    if as_json:
        show({"run_id": recording.run_id, "trace_id": trace_id, "spans": sent})
    note(
        f"sent {counted(sent, 'span')} of run {recording.run_id} to {host_of(url)}, "
        f"trace {trace_id}"
    )


def receiver(config: Config, endpoint: str | None, option: str) -> str:
    """
    Return the URL of a receiver of spans.

    Args:
        config: Says where it is, or else the environment, without an *endpoint*.

        endpoint: Its base URL, as a person gave it.

        option: How that is given.

    Raises:
        UsageError: There is none, or *endpoint* is no URL.
    """
    from ..telemetry.export import address

    url = address("traces", endpoint or config.telemetry.endpoint, os.environ)
    if not url.startswith(("http://", "https://")):
        what = f"{plain(endpoint)} is not the URL of an" if endpoint else "there is no"
        raise UsageError(
            f"{what} OpenTelemetry receiver to send to",
            fix=f"name one with {option} http://localhost:4318, as endpoint in "
            "[telemetry], or in OTEL_EXPORTER_OTLP_ENDPOINT",
        )
    return url
