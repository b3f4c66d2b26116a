"""MCP clients: where their configuration is, and how an entry for this host looks."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, cast

from ..core.calls import JSON
from ..core.text.urls import parts_of
from ..errors import UsageError
from .paths import home_folder

#: The variable in which a client has the token of a session.
TOKEN = "CAXTON_TOKEN"  # noqa: S105 -- its name
#: Folders of a project that hold files of clients.
FOLDERS = frozenset({".cursor", ".vscode"})

Scope: TypeAlias = Literal["user", "project"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """
    A program that starts MCP servers.

    Attributes:
        title: Its name for people.

        key: The key of the servers in its file.

        typed: Its entries have a ``type``, also for a command.

        user: The user's file on Linux, from the home folder on; ``""``: it has none.

        mac: The same on macOS; ``""``: as on Linux.

        project: The project's file, from the working folder on; ``""``: it has none.

        variable: How its file refers to an environment variable ``{}``; ``""``: it
            cannot, so a token cannot be named there.
    """

    title: str
    key: str = "mcpServers"
    typed: bool = False
    user: str = ""
    mac: str = ""
    project: str = ""
    variable: str = ""

    def places(
        self, environ: Mapping[str, str], cwd: Path, platform: str = sys.platform
    ) -> dict[Scope, Path]:
        """Return the paths of its files: the project's first."""
        found: dict[Scope, Path] = {}
        if self.project:
            found["project"] = cwd / self.project
        user = self.mac if platform == "darwin" and self.mac else self.user
        if user:
            found["user"] = home_folder(environ) / user
        return found


#: Another client is another entry.
CLIENTS: Mapping[str, Client] = {
    "claude-desktop": Client(
        title="Claude Desktop",
        user=".config/Claude/claude_desktop_config.json",
        mac="Library/Application Support/Claude/claude_desktop_config.json",
    ),
    "claude-code": Client(
        title="Claude Code",
        typed=True,
        user=".claude.json",
        project=".mcp.json",
        variable="${{{}}}",
    ),
    "cursor": Client(
        title="Cursor",
        user=".cursor/mcp.json",
        project=".cursor/mcp.json",
        variable="${{env:{}}}",
    ),
    "vscode": Client(
        title="VS Code",
        key="servers",
        typed=True,
        user=".config/Code/User/mcp.json",
        mac="Library/Application Support/Code/User/mcp.json",
        project=".vscode/mcp.json",
        variable="${{env:{}}}",
    ),
    "generic": Client(title="another client", variable="${{{}}}"),
}


def usual(places: Mapping[Scope, Path]) -> Path:
    """Return the project's file if its folder is there, or else the user's."""
    project = places.get("project")
    if project and (project.parent.is_dir() or "user" not in places):
        return project
    return places["user"]


def command_entry(
    client: Client, command: Sequence[str], env: Mapping[str, str]
) -> dict[str, JSON]:
    """Return the entry of a server that *client* starts, with variables for it."""
    program, *arguments = command
    server: dict[str, JSON] = {"command": program, "args": [*arguments]}
    if client.typed:
        server = {"type": "stdio", **server}
    return {**server, "env": {**env}} if env else server


def session_entry(client: Client, url: str, session: str) -> dict[str, JSON]:
    """
    Return the entry of a session at a served host; it names the token's variable.

    Args:
        client: Whose notation it has.

        url: The host, with or without ``/mcp`` or ``/mcp/NAME``.

        session: Its name.

    Raises:
        UsageError: The client cannot refer to a variable, or it is no such URL.
    """
    parts = parts_of(url)
    is_odd = any(odd in url for odd in "@?# ") or not url.isprintable()
    is_web = parts is not None and parts.scheme in {"http", "https"} and parts.hostname
    if is_odd or not is_web:
        raise UsageError(
            "--url is not the address of a host", fix="write --url https://host:8080"
        )
    if not client.variable:
        raise UsageError(
            f"{client.title} has no variables in its file, so a token would be in "
            "clear text there",
            fix="leave --url out: it starts caxton mcp connect instead",
        )
    base = url.rstrip("/").removesuffix(f"/mcp/{session}").removesuffix("/mcp")
    token = client.variable.format(TOKEN)
    return {
        "type": "http",
        "url": f"{base}/mcp/{session}",
        "headers": {"Authorization": f"Bearer {token}"},
    }


def is_host(values: object, config: Path | None = None) -> bool:
    """
    Return whether an entry is one of `command_entry` or `session_entry`.

    Args:
        values: The entry.

        config: Only of the host with this configuration, or of a served one.
    """
    if not isinstance(values, dict):
        return False
    entry = cast("dict[str, object]", values)
    words = [*_texts(entry.get("args"))]
    if words[-2:] == ["serve", "--stdio"] or words[-3:-1] == ["mcp", "connect"]:
        return "--config" in words and (
            config is None or str(config.resolve()) in words
        )
    headers = entry.get("headers")
    sent = cast("dict[str, object]", headers) if isinstance(headers, dict) else {}
    named = {client.variable.format(TOKEN) for client in CLIENTS.values()} - {""}
    return sent.get("Authorization") in {f"Bearer {one}" for one in named}


def _texts(value: object) -> Iterator[str]:
    for item in cast("list[object]", value) if isinstance(value, list) else ():
        yield str(item)
