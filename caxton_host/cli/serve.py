"""``caxton serve``: agents as MCP tools, with a control API."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ..core.calls import JSON
from ..errors import UsageError
from ..lib.logs import Style
from . import serve_token
from .context import HostApi, as_json, wait
from .options import Duration
from .output import counted, logged, note, show

if TYPE_CHECKING:
    from ..app.serve_app import Serving
    from ..config import Config


#: New objects between two garbage collections.
_YOUNG = 10_000
_logger = logging.getLogger(__name__)


@click.group("serve", invoke_without_command=True)
@click.option(
    "--address",
    "host",  # as --host of caxton, which is typed by mistake
    metavar="ADDRESS",
    help="The address to listen on; default 127.0.0.1.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="The port; default 8080. 0 chooses a free one.",
)
@click.option("--stdio", is_flag=True, help="Serve one client over stdin and stdout.")
@click.option("--mcp-only", is_flag=True, help="Do not serve the control API.")
@click.option(
    "--allow-unauthenticated",
    is_flag=True,
    help="Treat unauthenticated callers as the local user; on loopback only.",
)
@click.option(
    "--drain",
    type=Duration(zero=True),
    help="How long to wait for runs at shutdown, like 30s.",
)
@click.option("--tls-cert", metavar="FILE", help="The certificate for HTTPS, in PEM.")
@click.option("--tls-key", metavar="FILE", help="The key of the certificate, in PEM.")
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="The format of log lines on stderr; default text.",
)
@as_json
@click.pass_context
def command(
    ctx: click.Context,
    host: str | None,
    port: int | None,
    stdio: bool,
    mcp_only: bool,
    allow_unauthenticated: bool,
    drain: float | None,
    tls_cert: str | None,
    tls_key: str | None,
    log_format: Style | None,
    as_json: bool,
) -> None:
    """
    Serve agents as MCP tools, with a control API.

    MCP is at /mcp, the control API at /api/v1, and a page for people at /ui. Runs
    continue in the background, and those that another host left are taken over.
    SIGTERM or Ctrl-C stops accepting requests, drains runs, and suspends the rest
    for the next host; a second one ends at once. SIGHUP reloads the configuration.
    Options override [serve] in caxton.toml.

    \b
    Exit codes: 0 stopped; 2 usage or configuration; 130 or 143 a signal before
    it is up, or a second one.

    \b
    Examples:
      caxton serve token create --name laptop --scope run
      caxton serve
      caxton serve --port 0 --allow-unauthenticated --json
      caxton serve --stdio
    """
    if ctx.invoked_subcommand:
        return
    said = ctx.find_root().params
    style = log_format or said["log_format"] or "text"
    ctx.with_resource(logged(style, said["log_level"] or "info"))
    given = {
        "host": host,
        "port": port,
        "drain": drain,
        "api": False if mcp_only else None,
        "allow_unauthenticated": allow_unauthenticated or None,
    }
    told: dict[str, Any] = {
        key: value for key, value in given.items() if value is not None
    }
    api: HostApi = ctx.obj

    def load() -> Config:
        config = api.load()
        return replace(config, serve=replace(config.serve, **told))

    if stdio:
        if told.keys() - {"drain"} or tls_cert or tls_key or as_json:
            raise UsageError(
                "over stdio there is no address, and stdout is for the client",
                fix="caxton serve --stdio",
            )
        _stdio(api, load)
    else:
        # Of what is read by a program, each line is a record.
        tell = note if style == "text" else _logger.info
        _http(api, load, tls_cert, tls_key, tell, as_json=as_json)


command.add_command(serve_token.command)


def _stdio(host: HostApi, load: Callable[[], Config]) -> None:
    from ..app.serve_app import serve_stdio

    wait(serve_stdio(load(), host.paths(), load=load))


def _http(
    host: HostApi,
    load: Callable[[], Config],
    chain: str | None,
    key: str | None,
    tell: Callable[[str], None],
    *,
    as_json: bool,
) -> None:
    from ..app.serve_app import Web, serve_http
    from ..web.edge.tls import Certificate

    def up(it: Serving, url: str) -> None:
        # Objects of the start stay. Collect new ones often and briefly: the
        # thresholds of a short command would pause all calls for 30 ms.
        gc.freeze()
        gc.set_threshold(_YOUNG, 20, 100)
        if as_json:
            show(_document(it, url))
        if tell is not note:
            tell(f"listening on {url}")
        elif not as_json:
            _tell(it, url)

    config = load()
    left = wait(
        serve_http(
            config,
            host.paths(),
            load=load,
            web=Web(
                told=up,
                stops=lambda: tell(
                    f"stopping: {_ends(config.serve.drain)}; once more ends at once"
                ),
                certificate=Certificate.of(chain, key),
            ),
        )
    )
    if left:
        them = "it" if left == 1 else "them"
        tell(f"{counted(left, 'run')} suspended; the next host goes on with {them}")


def _document(it: Serving, url: str) -> JSON:
    limits = it.service.config().serve
    return {
        "$type": "caxton.serve/v1",
        "url": url,
        "mcp": f"{url}/mcp" if limits.mcp else None,
        "api": f"{url}/api/v1" if limits.api else None,
        "ui": f"{url}/ui" if limits.api and limits.ui else None,
        "agents": [card.name for card in it.offered()],
        "sessions": [*sorted(it.service.config().sessions)] if limits.mcp else [],
        "host": it.up.host.stream,
    }


def _ends(drain: float | str) -> str:
    if drain == "hand_over":
        return "runs are suspended at their next call, for another host"
    return f"runs get {drain:g} s"


def _tell(it: Serving, url: str) -> None:
    limits = it.service.config().serve
    note(f"listening on {url}")
    if limits.mcp:
        names = ", ".join(card.tool for card in it.offered() if card.tool)
        sessions = sorted(it.service.config().sessions)
        if names or not sessions:
            note(f"  /mcp      {names or _none(it.service.config())}")
        for name in sessions:
            note(f"  /mcp/{name}   a session")
    if limits.api:
        note("  /api/v1   the control API; /api/v1/openapi.json describes it")
    if limits.api and limits.ui:
        note("  /ui       a page for people")
    note("  /metrics  /healthz  /readyz")
    token = (
        ""
        if limits.allow_unauthenticated
        else ' -H "Authorization: Bearer $CAXTON_TOKEN"'
    )
    note(f"try: curl{token} {url}{'/api/v1/agents' if limits.api else '/healthz'}")


def _none(config: Config) -> str:
    """Return the reason why ``/mcp`` has no agent."""
    if any(agent.expose.mcp for agent in config.agents.values()):
        return "no agent that can be run; see above"
    if config.agents:
        return "no agent: add expose.mcp = true to one"
    return "no agent: caxton init writes a configuration with one"
