"""``caxton init``: a configuration to begin with."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

import click

from ..errors import UsageError
from .context import as_json
from .output import note, say, show

_MCP = ".mcp.json"


@click.command("init")
@click.argument("folder", default=".", type=click.Path(path_type=Path))
@click.option(
    "--import",
    "imports",
    metavar="PATH",
    multiple=True,
    help="A .mcp.json whose servers to use. Imported servers grant nothing.",
)
@as_json
def command(folder: Path, imports: tuple[str, ...], as_json: bool) -> None:
    """
    Write a commented caxton.toml, with the example agent, in FOLDER.

    A .mcp.json that is there already is imported.

    \b
    Examples:
      caxton init
      caxton init agents --import ~/.config/claude/mcp.json
    """
    from ..building import find_shared
    from ..config import load
    from ..config.edit import init_text

    path = folder / "caxton.toml"
    if path.exists():
        raise UsageError(f"{path} is there already", fix="edit it, or remove it first")
    listed = _listed(folder, imports)
    folder.mkdir(parents=True, exist_ok=True)
    module = folder / "agents" / "weather.wasm"
    module.parent.mkdir(exist_ok=True)
    module.write_bytes(find_shared("agents/weather/weather.wasm").read_bytes())
    path.write_text(init_text(imports=listed), encoding="utf-8")
    try:
        config = load(path, environ=os.environ, cwd=Path.cwd())
        servers = sorted(config.servers)
    except UsageError as exc:
        note(f"warning: {exc}")
        note(f"To fix: {exc.fix}")
        servers = []
    if as_json:
        show({"$type": "caxton.init/v1", "file": str(path), "servers": [*servers]})
        return
    say(f"wrote {path}")
    there = (
        "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    )
    note(f'next: {there}caxton run weather -i \'{{"location": "Seattle"}}\'')


def _listed(folder: Path, imports: Sequence[str]) -> list[str]:
    """Return the files to import, as they are to stand in a file in *folder*."""
    if not imports:
        return [_MCP] if (folder / _MCP).is_file() else []
    listed: list[str] = []
    for name in imports:
        path = Path(name).expanduser()
        if not path.is_file():
            raise UsageError(
                f"--import {name}: there is no such file",
                fix="name a file of mcpServers, for example .mcp.json",
            )
        listed.append(os.path.relpath(path, folder))
    return listed
