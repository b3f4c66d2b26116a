"""``caxton demo``: a governed run, its replay and its audit, offline."""

from __future__ import annotations

import contextlib
import json
import tempfile
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

import click

from ..core.calls import JSON
from ..core.log.events import Recorded, ToolDenied
from ..core.log.projection import summarise
from ..core.log.runs import RunSummary
from ..core.names import stream_of
from .context import HostApi, on_host, wait
from .demo_injection import command as injection
from .demo_injection import demo_config, demo_request
from .output import FAILED, counted, note, patience, say, show, to_json
from .run_text import call_lines, failure, rows
from .verdict import audit_line, keyring

if TYPE_CHECKING:
    from ..config import Config
    from ..core.log.chain import Verdict
    from ..runs.replay import Replayed


_REMARK_WIDTH = 56

_CONFIG = """\
version = 1

[servers.demo]
command = "python"
args = ["-m", "caxton_host.demo_server"]

[webhooks.forecast]
method = "GET"
url = "http://127.0.0.1:{port}/forecast/{{location}}"
description = "Tomorrow's weather, by plain HTTP."
effect = "read"
message_field = "summary"
allow_private = true

[agents.weather]
module = "weather.wasm"
names = {{ weather = "demo/get_weather" }}

[[agents.weather.allow]]
tools = ["demo/get_weather"]

[[agents.weather.allow]]
tools = ["webhook/forecast"]
calls = "5/run"
"""


class _Forecast(BaseHTTPRequestHandler):
    """A plain HTTP tool: a place in the path, a forecast in the answer."""

    def do_GET(self) -> None:
        place = unquote(self.path.rpartition("/")[2])
        body = json.dumps({"place": place, "summary": f"{place} tomorrow: dry, 14 C"})
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the name that is overridden
        """Keep quiet."""


@contextlib.contextmanager
def _forecasts() -> Generator[int]:
    """Serve the HTTP tool on a free port of this machine, and return the port."""
    server = HTTPServer(("127.0.0.1", 0), _Forecast)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


class _Shown(NamedTuple):
    run: RunSummary
    history: list[Recorded]
    replayed: Replayed
    audit: Verdict


@on_host(click.group("demo", invoke_without_command=True))
@click.pass_context
def command(ctx: click.Context, host: HostApi, as_json: bool) -> None:
    """
    Show a governed run, offline, in half a minute.

    A real MCP server and a plain HTTP tool are started on this machine; the example
    agent calls both, and one tool that it has no grant for. Then its events are
    listed, the run is replayed and the log verified. The run is kept in the event
    store, so the commands printed at the end work.

    \b
    Examples:
      caxton demo
      caxton demo --json
      caxton demo injection
    """
    if ctx.invoked_subcommand is not None:
        return
    if not as_json:
        say("An agent that you did not write asks for the weather.\n")
    shown = _perform(host)
    if as_json:
        show(_document(shown))
    else:
        _tell(shown)
    failure(shown.run, shown.history)
    if shown.run.state != "completed" or shown.replayed.divergence:
        ctx.exit(FAILED)


command.add_command(injection)


def _perform(host: HostApi) -> _Shown:
    with (
        patience("running the weather agent"),
        _forecasts() as port,
        tempfile.TemporaryDirectory() as folder,
    ):
        text = _CONFIG.format(port=port)
        return wait(_demo(host, demo_config(host, Path(folder), "weather", text)))


async def _demo(host: HostApi, config: Config) -> _Shown:
    from ..app.bootstrap import running
    from ..runs.replay import replay
    from ..store.verify import verify
    from ..telemetry import NoTelemetry

    request = demo_request(config.agents["weather"], {"location": "Seattle"})
    async with running(config, host.paths(), start={"weather": config.servers}) as up:
        run_id = await up.host.start(request)
        history = await up.store.reader.read(stream_of(run_id))
        replayed = await replay(
            run_id, store=up.store.reader, sandbox=up.sandbox, telemetry=NoTelemetry()
        )
        await up.store.seal()
        audit = await verify(up.store.reader, trusted=keyring(host).known())
    return _Shown(summarise(run_id, history), history, replayed, audit)


def _document(shown: _Shown) -> dict[str, JSON]:
    from ..app.verification import audit_document

    return {
        "$type": "caxton.demo/v1",
        "run": shown.run.to_document(),
        "replay": shown.replayed.to_document(),
        "audit": audit_document(shown.audit),
    }


def _tell(shown: _Shown) -> None:
    say("Calls of the agent, and their outcomes:")
    for line in call_lines(shown.history):
        say(f"  {line}")
    say("\nEvents in the log:")
    for seq, call, moment, type_, remark in rows(shown.history):
        number = "" if call is None else f"call {call}"
        text = str(remark)[:_REMARK_WIDTH]
        say(f"  {seq:>2}  {number:<7} {str(moment)[11:]}  {type_:<14} {text}")
    say(f"\nIts output: {to_json(shown.run.output)}")
    found = shown.replayed
    say(
        f"\nReplayed: {found.verdict}, {counted(found.calls, 'call')} answered from "
        "the log, no tool called."
    )
    say(f"Verified: {audit_line(shown.audit)}.")
    denied = [e.seq for e in shown.history if isinstance(e.event, ToolDenied)]
    note("\nNow yours:")
    for line in (
        "caxton events list @last",
        f"caxton runs explain @last event {[2, *denied][-1]}",
        "caxton replay @last",
        "caxton audit verify",
        "caxton init",
    ):
        note(f"  {line}")
    note("\nIn a browser: caxton ui")
