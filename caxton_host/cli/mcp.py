"""``caxton mcp``: the host, as a server of other programs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from ..config.clients import CLIENTS
from ..errors import UsageError
from .context import Frame, as_json
from .output import note, say, show, to_json


@click.group("mcp")
def command() -> None:
    """
    Have other programs start the host as their server of MCP.

    \b
    Examples:
      caxton mcp install claude-desktop
      caxton mcp install vscode --print
    """


@command.command("install")
@click.argument("client", metavar="CLIENT", type=click.Choice([*CLIENTS]))
@click.option("--name", default="caxton", show_default=True, help="Of the entry.")
@click.option("--print", "only_print", is_flag=True, help="Print it, change nothing.")
@click.option("--force", is_flag=True, help="Replace another server of that name.")
@as_json
@click.pass_obj
def install(
    frame: Frame, client: str, name: str, only_print: bool, force: bool, as_json: bool
) -> None:
    """
    Write an entry for caxton serve --stdio into the file of a client.

    Everything else in that file stays, and a copy of it as FILE.bak. A file that is
    no plain JSON is not touched. The entry of "generic" is always printed.

    \b
    Clients: claude-desktop and cursor have a file in your home folder; claude-code
    (.mcp.json) and vscode (.vscode/mcp.json) one in the working folder.

    \b
    Examples:
      caxton mcp install claude-desktop
      caxton -c /etc/caxton/caxton.toml mcp install cursor --name agents
      caxton mcp install generic
    """
    from ..config import clients

    chosen = CLIENTS[client]
    new = clients.entry(chosen, name, _command(frame))
    path, backup = None, None
    if not only_print and client != "generic":
        path = chosen.path(os.environ, Path.cwd())
        backup = clients.install(path, new, force=force)
    if as_json:
        show(
            {
                "$type": "caxton.mcp-entry/v1",
                "client": client,
                "file": str(path) if path else None,
                "backup": str(backup) if backup else None,
                "entry": new,
            }
        )
    elif path is None:
        say(to_json(new, indent=2))
    else:
        note(f"{chosen.title} has {name} in {path}")
        if backup:
            note(f"what was there is in {backup}")
        note(f"start {chosen.title} again")


def _command(frame: Frame) -> list[str]:
    """Return what starts a host, from whatever folder."""
    if frame.db:
        raise UsageError(
            "--db is not written into files of others: it may have a password",
            fix="name the store in the configuration, as url in [store]",
        )
    config = frame.look().path
    if config is None:
        raise UsageError(
            "there is no configuration, so there is no agent to serve",
            fix="caxton init, or name a configuration with --config",
        )
    program = Path(sys.executable).with_name("caxton")
    words = (
        [str(program)] if program.exists() else [sys.executable, "-m", "caxton_host"]
    )
    return [*words, "--config", str(config.resolve()), "serve", "--stdio"]
