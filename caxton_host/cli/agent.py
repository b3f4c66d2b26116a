"""``caxton agent``: from nothing to a module."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from ..core.analysis.checking import astray
from ..errors import CaxtonError
from . import inspect
from .config_check import without_type
from .context import Frame, as_json, wait
from .output import note, patience, say, show, table

if TYPE_CHECKING:
    from ..config import Config
    from .host_option import There


#: Seconds between two lines in a log; on a terminal there is a clock.
_EVERY = 10.0


@click.group("agent")
@click.pass_context
def command(ctx: click.Context) -> None:
    """
    Make, build and inspect agents.

    \b
    Examples:
      caxton agent new hello --lang rust
      caxton agent build hello
      caxton agent inspect hello.wasm
    """
    frame: Frame = ctx.obj
    if ctx.invoked_subcommand != "list":
        frame.here(f"caxton agent {ctx.invoked_subcommand}")


command.add_command(inspect.command)


def _languages(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from ..building import languages

    del ctx, param
    return [CompletionItem(name) for name in languages() if name.startswith(incomplete)]


@command.command("new")
@click.argument("name")
@click.option(
    "--lang",
    default="c",
    show_default=True,
    shell_complete=_languages,
    help="The language that it is written in: c, rust, ...",
)
@as_json
def new(name: str, lang: str, as_json: bool) -> None:
    """
    Make the folder NAME with an agent that builds and runs.

    \b
    Examples:
      caxton agent new hello
      caxton agent new hello --lang rust
    """
    from ..building import new_agent

    folder = new_agent(name, lang, Path.cwd())
    if as_json:
        files = sorted(entry.name for entry in folder.iterdir())
        show({"$type": "caxton.agent-folder/v1", "name": name, "files": [*files]})
        return
    say(f"{name}/")
    note(f"next: caxton agent build {name}")


@command.command("build")
@click.argument("folder", default=".", type=click.Path(path_type=Path))
@click.option(
    "--lang",
    shell_complete=_languages,
    help="The language, if the folder has sources in several.",
)
@click.option(
    "-o",
    "--into",
    default=".",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder that the module is put in. Default: the current one.",
)
@as_json
@click.pass_obj
def build(
    frame: Frame, folder: Path, lang: str | None, into: Path, as_json: bool
) -> None:
    """
    Compile the agent in FOLDER to a module named like it.

    The language is that of its source: agent.c, agent.rs, ... What agent.toml says
    becomes the manifest of the module. The same source and tools give the same bytes.

    \b
    Exit codes: 0 it is built; 2 a tool is missing, or refuses the source.

    \b
    Examples:
      caxton agent build hello
      caxton agent build hello --into agents
      caxton agent build weather --lang rust --json
    """
    from ..building import build_agent

    with patience(f"compiling {folder}"):
        built = build_agent(
            folder,
            lang=lang,
            into=into,
            cache=frame.paths().cache / "build",
            progress=None if sys.stderr.isatty() else _ticker(folder),
        )
    if as_json:
        show(
            {
                "$type": "caxton.module/v1",
                "path": str(built.path),
                "lang": built.lang,
                "size": built.size,
                "sha256": built.sha256,
            }
        )
    for problem in without_type(_untyped(built.path)):
        note(f"warning: agent.toml: {problem}")
    if as_json:
        return
    say(f"{built.path}  {built.size} bytes  sha256 {built.sha256}")
    _warn_of_strangers(frame, built.path)
    note(f"next: caxton run {built.path}")


def _warn_of_strangers(frame: Frame, module: Path) -> None:
    """Warn of tools that a manifest asks for, and that servers here do not have."""
    from ..runs.modules import read_manifest
    from .offered import known

    manifest = read_manifest(module.read_bytes())
    wanted = [tool.name for tool in manifest.tools] if manifest else []
    targets = [name.split("/") for name in wanted if name.count("/") == 1]
    if not targets:
        return
    with suppress(CaxtonError):  # An agent is built without a configuration, too.
        offered = known(frame.load(), start=False)
        for server, tool in targets:
            if lost := astray(tool, (server, tool), offered):
                note(f"warning: agent.toml asks for {server}/{tool}: {lost}")


def _untyped(module: Path) -> Sequence[str]:
    from ..core.tools.schemas import untyped
    from ..runs.modules import read_manifest

    manifest = read_manifest(module.read_bytes())
    return untyped(manifest.input_schema) if manifest else ()


def _ticker(folder: Path) -> Callable[[float], None]:
    """Return what tells a log, every ten seconds, that a compiler is at work."""
    told = 0

    def tell(seconds: float) -> None:
        nonlocal told
        if seconds // _EVERY > told:
            told = int(seconds // _EVERY)
            note(f"compiling {folder}: {seconds:.0f} s")

    return tell


@command.command("list")
@as_json
@click.pass_obj
def list_(frame: Frame, as_json: bool) -> None:
    """
    Show the agents of the configuration.

    \b
    Examples:
      caxton agent list
    """
    agents = wait(_there(frame.there)) if frame.there else _here(frame.load())
    if as_json:
        show([{**agent} for agent in agents])
        return
    table(
        ("agent", "module", "may call"),
        (
            (
                agent["name"],
                agent["module"],
                ", ".join(
                    tool for rule in agent["grants"]["allow"] for tool in rule["tools"]
                ),
            )
            for agent in agents
        ),
    )


def _here(config: Config) -> list[Mapping[str, Any]]:
    return [
        {
            "$type": "caxton.agent/v1",
            "name": agent.name,
            "module": str(agent.module) if agent.module else None,
            "grants": agent.grant.to_payload(),
        }
        for _, agent in sorted(config.agents.items())
    ]


async def _there(there: There) -> list[Mapping[str, Any]]:
    from ..remote.documents import mappings

    async with there.reach() as remote:
        return mappings(await remote.get("/agents"), "agents")
