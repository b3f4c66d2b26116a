"""
The configuration files of MCP clients.

Only one entry is changed; what else a file says stays, in its order.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from ..core.calls import JSON
from ..errors import UsageError
from .files import replace_file
from .paths import home_folder

_MOST = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """
    A program that starts servers.

    Attributes:
        title: Its name for people.

        key: Of the table of servers in its file.

        typed: Its entries have a ``type``.

        file: Where that is on Linux, from the home folder on, or ``None``: in the
            working folder.

        mac: The same on macOS; ``""``: as on Linux.

        here: Where it is in the working folder.
    """

    title: str
    key: str = "mcpServers"
    typed: bool = False
    file: str | None = None
    mac: str = ""
    here: str = ""

    def path(
        self, environ: Mapping[str, str], cwd: Path, platform: str = sys.platform
    ) -> Path:
        """Return the path of its file."""
        if self.file is None:
            return cwd / self.here
        found = self.mac if platform == "darwin" and self.mac else self.file
        return home_folder(environ) / found


CLIENTS: Mapping[str, Client] = {
    "claude-desktop": Client(
        title="Claude Desktop",
        file=".config/Claude/claude_desktop_config.json",
        mac="Library/Application Support/Claude/claude_desktop_config.json",
    ),
    "claude-code": Client(title="Claude Code", typed=True, here=".mcp.json"),
    "cursor": Client(title="Cursor", file=".cursor/mcp.json"),
    "vscode": Client(
        title="VS Code", key="servers", typed=True, here=".vscode/mcp.json"
    ),
    "generic": Client(title="another client"),
}


def entry(client: Client, name: str, command: Sequence[str]) -> dict[str, JSON]:
    """Return a configuration of *client* with one server: *command*."""
    program, *arguments = command
    server: dict[str, JSON] = {"command": program, "args": [*arguments]}
    if client.typed:
        server = {"type": "stdio", **server}
    return {client.key: {name: server}}


def installed(before: bytes | None, new: Mapping[str, JSON], *, force: bool) -> bytes:
    """
    Return the new content of a file.

    Args:
        before: What it holds, or ``None``: it is not there.

        new: What is to be in it.

        force: Replace another server of that name.

    Raises:
        UsageError: It is no file that can be changed without loss, or has another
            server of that name.
    """
    tree = _tree(before)
    ((key, servers),) = new.items()
    known = tree.setdefault(key, {})
    if not isinstance(known, dict) or not isinstance(servers, dict):
        raise _unusable(f"its {key} is not a table")
    for name, server in servers.items():
        if not force and known.get(name, server) != server:
            raise UsageError(
                f"it has another server {name!r}",
                fix="give it another name with --name, or replace it with --force",
            )
        known[name] = server
    return (json.dumps(tree, indent=2, ensure_ascii=False) + "\n").encode()


def install(path: Path, new: Mapping[str, JSON], *, force: bool) -> Path | None:
    """
    Change a file, and return its backup if its content changed.

    Raises:
        UsageError: See `installed`; or it cannot be read or written.
    """
    try:
        before = _read(path)
        after = installed(before, new, force=force)
        if before == after:
            return None
        path.parent.mkdir(parents=True, exist_ok=True)
        backup = None
        if before is not None:
            backup = path.with_name(f"{path.name}.bak")
            replace_file(backup, before, path.stat().st_mode & 0o777)
        replace_file(path, after)
    except UsageError as exc:
        raise UsageError(f"{path}: {exc}", fix=exc.fix) from None
    except OSError as exc:
        raise UsageError(
            f"cannot change {path}: {exc.strerror}",
            fix="caxton mcp install CLIENT --print, and add it by hand",
        ) from None
    return backup


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _tree(data: bytes | None) -> dict[str, JSON]:
    if not data or not data.strip():
        return {}
    if len(data) > _MOST:
        raise _unusable("it is too large")
    try:
        tree = json.loads(data, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        raise _unusable("it is not JSON, or it has comments") from None
    if not isinstance(tree, dict):
        raise _unusable("it is not a JSON object")
    return cast("dict[str, JSON]", tree)


def _unique(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def _unusable(why: str) -> UsageError:
    return UsageError(
        f"it was not changed: {why}",
        fix="correct it; or use --print, and add the entry by hand",
    )
