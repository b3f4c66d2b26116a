"""``caxton ui``: the console, in a browser."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ..lib.logs import Style
from .context import HostApi, as_json, wait
from .output import logged, note, show

if TYPE_CHECKING:
    from ..app.serve_app import Serving
    from ..config import Config


@click.command("ui")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="The port on 127.0.0.1; default 0, a free one.",
)
@click.option(
    "--open/--no-open",
    "opens",
    default=True,
    help="Open the link in a browser; default yes.",
)
@as_json
@click.pass_context
def command(ctx: click.Context, port: int, opens: bool, as_json: bool) -> None:
    """
    Open the console in a browser: runs, approvals, servers, evidence.

    A host is started on this machine until Ctrl-C. It also drives runs: those that
    others left, and what is approved. The link signs in once, as the local user; only
    who sees it here can use it.

    \b
    Examples:
      caxton ui
      caxton ui --no-open
      caxton ui --no-open --json
    """
    from ..app.serve_app import Web, serve_http

    said = ctx.find_root().params
    style: Style = said["log_format"] or "text"
    ctx.with_resource(logged(style, said["log_level"] or "warning"))
    host: HostApi = ctx.obj

    def load() -> Config:
        config = host.load()
        serve = replace(
            config.serve, host="127.0.0.1", port=port, api=True, ui=True, mcp=False
        )
        return replace(config, serve=serve)

    def up(it: Serving, url: str) -> None:
        assert it.visits is not None  # noqa: S101 -- it has pages
        link = it.visits.link(url)
        if as_json:
            show({"$type": "caxton.ui/v1", "url": url, "link": link})
        else:
            note(f"the console: {link}")
            note("the link is for one visit; Ctrl-C ends the console")
        if opens:
            click.launch(link)

    web = Web(
        told=up, stops=lambda: note("stopping; once more ends at once"), linked=True
    )
    wait(serve_http(load(), host.paths(), load=load, web=web))
