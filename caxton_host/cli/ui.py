"""``caxton ui``: the console, in a browser."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import UsageError
from ..lib.logs import Style
from .context import HostApi, as_json, wait
from .output import AUDIT, logged, note, show
from .verdict import believe, trusted

if TYPE_CHECKING:
    from ..app.reading import Source
    from ..app.serve_app import Serving
    from ..config import Config
    from ..core.log.bundle import Bundle
    from ..web.ui.visits import Visits


@click.command("ui")
@click.argument(
    "bundle",
    required=False,
    type=click.Path(path_type=Path, dir_okay=False),
)
@click.option("--read-only", is_flag=True, help="Show the log, and change nothing.")
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="PUBKEY",
    help="Trust only this public key of a bundle. Repeatable.",
)
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
def command(
    ctx: click.Context,
    bundle: Path | None,
    read_only: bool,
    keys: tuple[str, ...],
    port: int,
    opens: bool,
    as_json: bool,
) -> None:
    """
    Open the console in a browser: runs, approvals, servers, evidence.

    A host is started on this machine until Ctrl-C. It also drives runs: those that
    others left, and what is approved. The link signs in once, as the local user; only
    who sees it here can use it.

    With --read-only, or with BUNDLE, no host is started: nothing is changed, no tool
    server is started, and no secret or key is needed. A bundle is shown once it is
    intact, and signed by a trusted key: those of --key, or else [audit] trusted_keys
    and the keys of this host.

    \b
    Exit codes: 0 ended; 2 usage or configuration; 5 the bundle is broken, or not
      signed by a trusted key.

    \b
    Examples:
      caxton ui
      caxton ui --no-open --json
      caxton ui --read-only
      caxton ui run.caxton --key 3b6a27bc...
    """
    said = ctx.find_root().params
    style: Style = said["log_format"] or "text"
    ctx.with_resource(logged(style, said["log_level"] or "warning"))
    host: HostApi = ctx.obj
    host.check_local()

    def up(visits: Visits, url: str) -> None:
        link = visits.link(url)
        if as_json:
            show({"$type": "caxton.ui/v1", "url": url, "link": link})
        else:
            note(f"the console: {link}")
            note("the link is for one visit; Ctrl-C ends the console")
        if opens:
            click.launch(link)

    def stops() -> None:
        note("stopping; once more ends at once")

    if bundle is None and not read_only:
        _serve(host, port, up, stops)
        return
    believed = believe(host, bundle, keys) if bundle else None
    if bundle and not believed:
        ctx.exit(AUDIT)
    from ..app.reading import serve_reading

    serve = partial(serve_reading, port=port, told=up, stops=stops)
    wait(_read(host, believed, keys, serve))


def _serve(
    host: HostApi,
    port: int,
    up: Callable[[Visits, str], None],
    stops: Callable[[], None],
) -> None:
    from ..app.serve_app import Web, serve_http

    def load() -> Config:
        config = host.load()
        serve = replace(
            config.serve, host="127.0.0.1", port=port, api=True, ui=True, mcp=False
        )
        return replace(config, serve=serve)

    def told(it: Serving, url: str) -> None:
        assert it.visits is not None  # noqa: S101 -- it has pages
        up(it.visits, url)

    web = Web(told=told, stops=stops, linked=True)
    config = load()
    if config.path is None:
        note("there is no configuration here, so no agent and no server")
        note("To fix: caxton init; or name a file: caxton --config FILE ui")
    wait(serve_http(config, host.paths(), load=load, web=web))


async def _read(
    host: HostApi,
    bundle: Bundle | None,
    keys: tuple[str, ...],
    serve: Callable[[Config, Source], Awaitable[None]],
) -> None:
    from ..app.reading import of_bundle, of_log

    known, config = trusted(host, keys), host.look()
    if bundle is not None:
        await serve(config, of_bundle(bundle, known))
        return
    with suppress(UsageError):  # What it says of agents need not be right.
        config = host.look("agents")
    async with host.log() as store:
        await serve(config, of_log(store, host.paths().state, known))
