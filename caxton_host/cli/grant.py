"""``caxton grant``: from what an agent would like to what it may."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..core.limits import Limits
from ..errors import UsageError
from .budgets import budgets
from .frame import as_json
from .run import read_module
from .screen import note, plain, say, show

if TYPE_CHECKING:
    from ..core.manifest import Manifest

__all__ = ["command"]


@click.group("grant")
def command() -> None:
    """
    Propose what an agent may do, and see what it has spent.

    \b
    Examples:
      caxton grant suggest --manifest hello.wasm
      caxton grant budgets
    """


command.add_command(budgets)


@command.command("suggest")
@click.option(
    "--manifest",
    "file",
    metavar="FILE.wasm",
    type=click.Path(path_type=Path),
    required=True,
    help="The module whose manifest to read.",
)
@as_json
def suggest(file: Path, as_json: bool) -> None:
    """
    Print a grant of the tools that the manifest of FILE.wasm asks for.

    It is text for caxton.toml, to be read and cut down first: printing it grants
    nothing, and neither does the manifest.

    \b
    Examples:
      caxton grant suggest --manifest hello.wasm
      caxton grant suggest --manifest hello.wasm > proposal.toml
    """
    from ..manifests import read

    manifest = read(read_module(file, Limits().module))
    if manifest is None:
        raise UsageError(
            f"{file} has no manifest",
            fix="build it with caxton agent build, or write the grant by hand",
        )
    text = _proposal(manifest, file)
    if as_json:
        show(
            {
                "$type": "caxton.grant-proposal/v1",
                "agent": manifest.name,
                "tools": [tool.name for tool in manifest.tools],
                "toml": text,
            }
        )
        return
    say(text)
    if not manifest.tools:
        note(f"{manifest.name} asks for no tool")


def _proposal(manifest: Manifest, file: Path) -> str:
    """Return tables of a configuration. What a stranger wrote stays in its comments."""
    named = f"agents.{manifest.name}"
    module = json.dumps(str(file), ensure_ascii=False)
    lines = [f"[{named}]", f"module = {module}"]
    own = [tool for tool in manifest.tools if "/" not in tool.name]
    if own:
        pairs = ", ".join(f'"{tool.name}" = "SERVER/TOOL"' for tool in own)
        lines += [
            "# What it calls by a name of its own; say which tool that is.",
            f"# names = {{ {pairs} }}",
        ]
    for tool in manifest.tools:
        lines += ["", f"# {plain(tool.reason) or 'It gives no reason.'}"]
        if tool in own:
            lines.append(f"# {tool.name}: allow the tool that it names.")
        else:
            lines += [f"[[{named}.allow]]", f'tools = ["{tool.name}"]']
    return "\n".join(lines)
