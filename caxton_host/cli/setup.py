"""Commands that set up a machine: init, doctor, and mcp install."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import click

from ..config.clients import CLIENTS
from ..errors import UsageError
from .context import HostApi, as_json
from .output import FAILED, complain, note, say, show, to_json

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

    path = folder / "caxton.toml"
    if path.exists():
        raise UsageError(f"{path} already exists", fix="edit it, or remove it first")
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


@click.command("doctor")
@as_json
@click.pass_obj
@click.pass_context
def doctor(ctx: click.Context, host: HostApi, as_json: bool) -> None:
    """
    Check this machine's prerequisites.

    Lists the guards of the sandbox, and which of them are missing.

    \b
    Exit codes: 0 every guard is there; 1 one is missing.

    \b
    Examples:
      caxton doctor
      caxton doctor --json
    """
    from ..sandbox.confine import guards

    found = guards()
    paths = host.paths()
    missing = [guard.name for guard in found if not guard.available]
    if as_json:
        show(
            {
                "$type": "caxton.doctor/v1",
                "platform": f"{platform.system()} {platform.release()}",
                "python": platform.python_version(),
                "wasmtime": version("wasmtime"),
                "mcp": version("mcp"),
                "guards": [
                    {"name": g.name, "available": g.available, "why": g.why}
                    for g in found
                ],
                "missing": [*missing],
            }
        )
    else:
        say(f"platform  {platform.system()} {platform.release()}")
        say(f"python    {platform.python_version()}  {sys.executable}")
        say(f"wasmtime  {version('wasmtime')}, mcp {version('mcp')}")
        say(f"keys      {paths.state}")
        say(f"cache     {paths.cache}")
        for guard in found:
            sign = "ok" if guard.available else "missing"
            say(f"guard     {guard.name:<14} {sign}  {guard.why}".rstrip())
    if missing:
        complain(
            f"this machine lacks {', '.join(missing)}: workers are confined less",
            "meet the requirement shown for each; trusted agents run as they are",
        )
        ctx.exit(FAILED)


@click.group("mcp")
def mcp() -> None:
    """
    Register caxton as an MCP server of other programs.

    \b
    Examples:
      caxton mcp install claude-desktop
      caxton mcp install vscode --print
    """


@mcp.command("install")
@click.argument("client", metavar="CLIENT", type=click.Choice([*CLIENTS]))
@click.option(
    "--name", default="caxton", show_default=True, help="The name of the entry."
)
@click.option(
    "--print", "only_print", is_flag=True, help="Print the entry and change nothing."
)
@click.option("--force", is_flag=True, help="Replace another server with that name.")
@as_json
@click.pass_obj
def install(
    host: HostApi, client: str, name: str, only_print: bool, force: bool, as_json: bool
) -> None:
    """
    Add caxton serve --stdio to the configuration of a client.

    The rest of the file is kept, with a copy as FILE.bak. A file that is not plain
    JSON is not changed. The entry of "generic" is always printed.

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
    new = clients.entry(chosen, name, _command(host))
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


def _command(host: HostApi) -> list[str]:
    """Return the command that starts a host from any folder."""
    if "--db" in host.given():
        raise UsageError(
            "--db is not written into files of others: it may have a password",
            fix="name the store in the configuration, as url in [store]",
        )
    config = host.look().path
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
