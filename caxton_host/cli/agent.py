"""``caxton agent``: from nothing to a module."""

from __future__ import annotations

from pathlib import Path

import click

from .frame import Frame, as_json
from .screen import note, patience, say, show, table

__all__ = ["command"]


@click.group("agent")
def command() -> None:
    """
    Make and build agents.

    \b
    Examples:
      caxton agent new hello --lang c
      caxton agent build hello
    """


@command.command("new")
@click.argument("name")
@click.option("--lang", default="c", show_default=True, help="The language.")
@as_json
def new(name: str, lang: str, as_json: bool) -> None:
    """
    Make the folder NAME with an agent that builds and runs.

    \b
    Examples:
      caxton agent new hello
      caxton agent new hello --lang c
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
    "-o",
    "--into",
    default=".",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder that the module is put in. Default: the current one.",
)
@as_json
@click.pass_obj
def build(frame: Frame, folder: Path, into: Path, as_json: bool) -> None:
    """
    Compile the agent in FOLDER to a module named like it.

    \b
    Examples:
      caxton agent build hello
      caxton agent build hello --into agents
    """
    from ..building import build_agent

    with patience(f"compiling {folder}"):
        built = build_agent(folder, into=into, cache=frame.paths().cache / "zig")
    if as_json:
        show(
            {
                "$type": "caxton.module/v1",
                "path": str(built.path),
                "size": built.size,
                "sha256": built.sha256,
            }
        )
        return
    say(f"{built.path}  {built.size} bytes  sha256 {built.sha256}")
    note(f"next: caxton run {built.path}")


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
    agents = sorted(frame.load().agents.values(), key=lambda agent: agent.name)
    if as_json:
        show(
            [
                {
                    "$type": "caxton.agent/v1",
                    "name": agent.name,
                    "module": str(agent.module) if agent.module else None,
                    "grants": agent.grant.to_payload(),
                }
                for agent in agents
            ]
        )
        return
    table(
        ("agent", "module", "may call"),
        (
            (
                agent.name,
                str(agent.module or ""),
                ", ".join(p.text for rule in agent.grant.allow for p in rule.tools),
            )
            for agent in agents
        ),
    )
