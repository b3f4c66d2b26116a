"""``caxton config``: what the configuration says."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ..core.calls import JSON
from . import config_check, reload
from .context import Frame, as_json
from .output import counted, note, say, show, to_json

_OPTIONS = {"config": "--config", "store.url": "--db"}


@click.group("config")
def command() -> None:
    """
    Check and show what the configuration says, reload it, and translate others.

    \b
    Examples:
      caxton config check
      caxton config show
      caxton config import --from ava ai-agent.yaml
      caxton config reload
    """


command.add_command(reload.command)
command.add_command(config_check.command)


@command.command("show")
@as_json
@click.pass_obj
def show_(frame: Frame, as_json: bool) -> None:
    """
    Show the configuration as it is understood, with secrets masked.

    The key origins tells where settings come from that an option or a variable of the
    environment can make: the option, the variable, the line of the file, or default.

    \b
    Examples:
      caxton config show
      caxton --config other.toml config show --json
    """
    from ..config import describe
    from ..config.show import origins

    config = frame.load()
    given = {"config": frame.config, "store.url": frame.db}
    options = {key: _OPTIONS[key] for key, said in given.items() if said}
    document: JSON = {
        "$type": "caxton.config/v1",
        **describe(config),
        "state": {"folder": str(frame.paths().state)},
        "origins": {**origins(config, os.environ, options)},
    }
    if as_json:
        show(document)
    else:
        say(to_json(document, indent=2))


@command.command("schema")
@as_json
def schema_(as_json: bool) -> None:
    """
    Print the JSON Schema of caxton.toml, for editors.

    An editor that knows it completes keys and marks what is unknown or of the wrong
    kind. caxton config check finds more.

    \b
    Examples:
      caxton config schema > caxton.schema.json
    """
    from ..config import json_schema

    if as_json:
        show(json_schema())
    else:
        say(to_json(json_schema(), indent=2))


@command.command("import")
@click.option(
    "--from",
    "kind",
    type=click.Choice(["signalwire", "ava"]),
    required=True,
    help="Whose file it is.",
)
@click.option("--write", is_flag=True, help="Add it to caxton.toml.")
@click.argument("file", type=click.Path(path_type=Path))
@as_json
@click.pass_obj
def import_(frame: Frame, kind: str, write: bool, file: Path, as_json: bool) -> None:
    """
    Print the tool servers of FILE as tables of caxton.toml.

    FILE is JSON or YAML: a document of SignalWire with SWAIG.mcp_servers, or the
    ai-agent.yaml of AVA. Importing grants nothing. Secrets in it are not copied: the
    notes say which variables of the environment are to hold them. What .mcp.json and
    the like say is not translated but read: import = [".mcp.json"].

    \b
    Examples:
      caxton config import --from signalwire agent.json
      caxton config import --from ava config/ai-agent.yaml --write
    """
    from ..config.edit import append_servers
    from ..config.importers import import_foreign

    found = import_foreign(kind, file, environ=os.environ)
    path: Path | None = None
    if write:
        path = frame.load().path or Path("caxton.toml")
        append_servers(path, found.servers, found.text, environ=os.environ)
    for text in found.notes:
        note(f"note: {text}")
    if as_json:
        show(
            {
                "$type": "caxton.config-import/v1",
                "servers": [*found.servers],
                "toml": found.text,
                "notes": [*found.notes],
                "file": str(path) if path else None,
            }
        )
    elif path:
        say(f"added {counted(len(found.servers), 'server')} to {path.name}")
        note("they grant nothing yet; caxton server test NAME shows their tools")
    else:
        say(found.text.strip("\n"))
