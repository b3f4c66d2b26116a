"""
Servers out of files that were written for other programs.

``mcpServers`` (Claude Desktop, Claude Code, Cursor, Swarm) and ``servers`` with
``inputs`` (VS Code) are read as they are. Importing grants nothing: an agent
reaches an imported server only by a rule of ``caxton.toml``.
"""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import replace
from pathlib import Path

from ..core.names import is_server_name
from ..core.tools.servers import ServerConfig
from ..core.tools.webhooks import SERVER
from . import fields as f
from . import servers
from .key_lines import Lines
from .source import At, Complaints, Source, parse_json, plain_json


def import_servers(
    path: Path, data: bytes, source: Source, taken: Container[str]
) -> dict[str, ServerConfig]:
    """
    Return the servers that a file describes, by names of ours.

    Args:
        path: The file.

        data: What it holds.

        source: Where warnings and secrets go.

        taken: Names that ``caxton.toml`` or an earlier import gave; these win, and
            what the file says of them is not read.

    Raises:
        ConfigError: The file is broken, or a server in it cannot be.
    """
    source = replace(source, folder=_workspace(path), imported=True, lines=Lines(""))
    text = plain_json(data, At(source=source))
    at = At(source=replace(source, lines=Lines(text, is_json=True)))
    tree = parse_json(data, at)
    key = "mcpServers" if "mcpServers" in tree else "servers"
    if key not in tree:
        raise at.error(
            "has neither mcpServers nor servers",
            fix="import a file of Claude Desktop, Claude Code, Cursor or VS Code",
        )
    at = at.key(key)
    found: dict[str, ServerConfig] = {}
    several = Complaints()
    for original, values in f.table(tree[key], at, '{"NAME": {...}}').items():
        here = at.key(original)
        with several:
            name = _fitting(original, here)
            if name in taken:
                here.warn(f"not read: another file already has a server {name}")
            elif name in found:
                raise here.error(
                    f"two servers would be called {name}", fix="rename one of them"
                )
            elif not servers.disabled(values, here):
                found[name] = servers.server(values, here, name)
    several.settle()
    return found


def _workspace(path: Path) -> Path:
    """Return where relative paths start: `.vscode` is not the project."""
    folder = path.parent
    return folder.parent if folder.name == ".vscode" else folder


def _fitting(name: str, at: At) -> str:
    """Return the nearest name that a server may have: ``my server`` is my-server."""
    fitted = re.sub(r"[^A-Za-z0-9_.-]", "-", name)
    fitted = re.sub(r"_+", "_", fitted).strip("_.-")[:64].rstrip("_")
    if fitted == SERVER or not is_server_name(fitted):
        raise at.error("is no name for a server", fix="rename it there")
    if fitted != name:
        at.warn(f"is called {fitted} here")
    return fitted
