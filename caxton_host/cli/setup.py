"""Commands that set up a machine: init and doctor."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

from ..core.calls import JSON
from ..errors import UsageError
from .context import HostApi, as_json, on_host
from .output import FAILED, complain, note, say, show

if TYPE_CHECKING:
    from ..sandbox.confine import Guard

_MCP = ".mcp.json"


@click.command("init")
@click.argument("folder", default=".", type=click.Path(path_type=Path))
@click.option(
    "--import",
    "imports",
    metavar="PATH",
    multiple=True,
    help="Import the servers of a .mcp.json, without any grants.",
)
@as_json
def init(folder: Path, imports: tuple[str, ...], as_json: bool) -> None:
    """
    Write a starter caxton.toml and the example agent to FOLDER.

    An existing .mcp.json is imported.

    \b
    Examples:
      caxton init
      caxton init agents --import ~/.config/claude/mcp.json
    """
    from ..building import find_shared
    from ..config import load
    from ..config.edit import init_text
    from ..sandbox.confine import confines_servers

    path = folder / "caxton.toml"
    if path.exists():
        raise UsageError(f"{path} already exists", fix="edit it, or remove it first")
    listed = _listed(folder, imports)
    folder.mkdir(parents=True, exist_ok=True)
    module = folder / "agents" / "weather.wasm"
    module.parent.mkdir(exist_ok=True)
    module.write_bytes(find_shared("agents/weather/weather.wasm").read_bytes())
    text = init_text(imports=listed, confines=confines_servers())
    path.write_text(text, encoding="utf-8")
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
    """Return the files to import, relative to *folder*."""
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


def confinement() -> dict[str, str]:
    """Return what confines tool servers on this machine, by what it is about."""
    from ..core.tools.confinement import Confine, in_force, lacking
    from ..mcp.transport.confining import machine

    has = machine()
    lacks = lacking(has)
    found = {"none": f"lacks {lacks}"} if lacks else in_force(has, Confine())
    return {**found, "connect": has.connect or "no: install bubblewrap"}


def doctor_document(
    found: Sequence[Guard], servers: Mapping[str, str]
) -> dict[str, JSON]:
    """Return the ``caxton.doctor/v1`` document: guards, what confines servers."""
    return {
        "$type": "caxton.doctor/v1",
        "platform": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "wasmtime": version("wasmtime"),
        "mcp": version("mcp"),
        "guards": [
            {"name": g.name, "available": g.available, "why": g.why} for g in found
        ],
        "missing": [g.name for g in found if not g.available],
        "servers": {**servers},
    }


@on_host(click.command("doctor"))
def doctor(host: HostApi, as_json: bool) -> None:
    """
    Check this machine's prerequisites.

    Lists the guards of the sandbox, which of them are missing, and what confines
    tool servers.

    \b
    Exit codes: 0 every guard is there; 1 one is missing.

    \b
    Examples:
      caxton doctor
      caxton doctor --json
    """
    from ..sandbox.confine import guards

    found, servers = guards(), confinement()
    paths = host.paths()
    missing = [guard.name for guard in found if not guard.available]
    if as_json:
        show(doctor_document(found, servers))
    else:
        say(f"platform  {platform.system()} {platform.release()}")
        say(f"python    {platform.python_version()}  {sys.executable}")
        say(f"wasmtime  {version('wasmtime')}, mcp {version('mcp')}")
        say(f"keys      {paths.state}")
        say(f"cache     {paths.cache}")
        for guard in found:
            sign = "ok" if guard.available else "missing"
            say(f"guard     {guard.name:<14} {sign}  {guard.why}".rstrip())
        for what, how in servers.items():
            say(f"servers   {what:<14} {how}")
    if missing:
        complain(
            f"this machine lacks {', '.join(missing)}: workers are confined less",
            "meet the requirement shown for each; trusted agents run as they are",
        )
        raise Exit(FAILED)
