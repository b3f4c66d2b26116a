"""``agent.toml``, where an author says what an agent is, becomes its manifest."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, cast

from ..core.names import nearest
from ..core.tools.manifest import KEYS, LIMIT, is_agent_name
from ..errors import BadBytes, ConfigError
from ..runs.modules import parse_manifest

FILE = "agent.toml"
_FIX = "correct it; docs/reference/manifest.md has every key"


def described_by(folder: Path) -> bytes:
    """
    Return the manifest of the agent in *folder*, as it is put into the module.

    Without ``agent.toml`` it says the name alone: that of the folder, if it may name
    an agent.

    Raises:
        ConfigError: The file is no TOML, or what it says is no manifest.
    """
    path = folder / FILE
    try:
        content = _encoded(_table(path), folder.name)
        parse_manifest(content)
    except (ValueError, TypeError, OSError, RecursionError, BadBytes) as exc:
        raise ConfigError(f"{path.name}: {exc}", fix=_FIX) from None
    return content


def _table(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    table = tomllib.loads(path.read_text("utf-8"))
    _check_keys(table, KEYS, "")
    tools = table.get("tools")
    if isinstance(tools, list):
        for at, tool in enumerate(cast("list[object]", tools)):
            _check_keys(tool, ("name", "reason"), f"tools[{at}].")
    return table


def _check_keys(table: object, known: tuple[str, ...], where: str) -> None:
    for key in cast("dict[str, object]", table) if isinstance(table, dict) else ():
        if key not in known:
            meant = nearest(key, [*known])
            hint = f"; did you mean {meant}?" if meant else ""
            raise BadBytes(f"unknown key {where}{key}{hint}")


def _encoded(table: dict[str, Any], folder: str) -> bytes:
    described = {"name": folder if is_agent_name(folder) else "agent", **table}
    text = json.dumps(
        described,
        ensure_ascii=False,
        allow_nan=False,
        sort_keys=True,
        separators=(",", ":"),
    )
    content = text.encode()
    if len(content) > LIMIT:
        raise BadBytes(f"{len(content):,} bytes as JSON, of {LIMIT:,} allowed")
    return content
