"""
Take-over of the servers in a client's file: their tables in ``caxton.toml``.

A variable of the client becomes one of ours. A literal secret becomes the content of a
file below `SECRETS`, so that it is in no configuration. Nothing is granted.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from ..core.calls import JSON
from ..errors import ConfigError, UnsetError
from . import fields as f
from .edit import appended, described_servers
from .importers import Foreign, Words, table_of, toml_table
from .load import fitting, load_bytes
from .paths import home_folder
from .sections import passwords
from .servers import server_keys
from .source import ENV_REFERENCE, At, Secrets, Source, input_variable

#: The folder of secrets beside ``caxton.toml``.
SECRETS = "secrets"
_ADDRESSES = ("url", "httpUrl", "serverUrl")
_HANDLED = frozenset(
    {
        *("command", "args", "env", "cwd", "headers", "type", "transport"),
        *("enabled", "disabled"),
        *_ADDRESSES,
    }
)
_IMPLIED = {
    "command": {"stdio"},
    "url": {"http", "streamable-http", "streamable_http", "streamableHttp"},
}


@dataclass(slots=True)
class Taken:
    """
    Servers of a client's file, as ``caxton.toml`` has them.

    Attributes:
        names: Their names there.

        content: The new content of ``caxton.toml``.

        secrets: The literal secrets, by the names of their files.

        variables: How the client's file refers to each variable that they use.

        needed: Those of them without a default.

        notes: What was left out.
    """

    names: list[str] = field(default_factory=list[str])
    content: bytes = b""
    secrets: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    variables: dict[str, str] = field(default_factory=dict[str, str])
    needed: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])


def take_over(
    servers: Mapping[str, JSON],
    *,
    shown: str,
    folder: Path,
    config: Path,
    environ: Mapping[str, str],
) -> Taken:
    """
    Translate servers of a client, and add them to the text of a configuration.

    A server that is there already in the same words is not added again. Variables
    need not be set.

    Args:
        servers: The servers, by name.

        shown: The name of the client's file.

        folder: What relative paths in it start from.

        config: ``caxton.toml``.

        environ: The environment.

    Raises:
        ConfigError: A server cannot be translated, ``caxton.toml`` has another one of
            that name, or the result would not load.
    """
    secrets = Secrets(environ=environ, home=home_folder(environ))
    at = At(source=Source(shown=shown, folder=folder, secrets=secrets, imported=True))
    found, new, tables = Taken(), list[str](), ""
    described = described_servers(config, environ)
    for original, values in servers.items():
        here = at.key(original)
        name = fitting(original, here)
        if name in found.names:
            raise here.error(f"two servers have the name {name}", fix="rename one")
        words = _Words(Foreign(), name=name, taken=found)
        lines = _server(f.table(values, here), words, here, config.resolve().parent)
        found.names.append(name)
        there = described.get(name)
        if there is None:
            new.append(name)
            tables += toml_table(("servers", name), lines, server_keys())
        elif any(f.table(there, here).get(k) != v for k, v in lines.items()):
            raise here.error(
                f"{config.name} has another server {name}",
                fix=f"rename it there, or run: caxton server remove {name}",
            )
    found.notes += at.source.warnings
    found.content = config.read_bytes()
    if new:
        text = appended(config, new, tables, environ=environ)
        _check(text, config, {**environ, **found.secrets})
        found.content = text.encode()
    return found


def _check(text: str, config: Path, environ: Mapping[str, str]) -> None:
    """Load a configuration whose files of secrets are not written yet."""
    checked = text.replace(f"${{file:{SECRETS}/", "${env:").encode()
    try:
        load_bytes(checked, config, environ=environ, cwd=config.parent)
    except ConfigError as exc:
        if not all(isinstance(one, UnsetError) for one in exc.each):
            raise


@dataclass
class _Words(Words):
    """Translates the texts of a server of a client."""

    taken: Taken = field(default_factory=Taken)

    def reference(self, reference: str | None, at: At) -> str:
        """Translate a reference, and keep how the client spells it."""
        spelled = reference or ""
        if spelled == "workspaceFolder":
            return str(at.source.folder)
        if spelled == "userHome":
            return str(at.source.secrets.home)
        name, default = "", ""
        if spelled.startswith("input:"):
            name = input_variable(spelled.removeprefix("input:"))
        elif match := ENV_REFERENCE.fullmatch(spelled):
            name = match[1]
            default = f":-{match[2]}" if match[2] is not None else ""
        if not name:
            raise at.error(
                "a reference in it has no counterpart", fix="write it out there"
            )
        self.taken.variables[name] = f"${{{spelled}}}"
        if not default and name not in self.taken.needed:
            self.taken.needed.append(name)
        return f"${{env:{name}{default}}}"

    def hidden(self, key: str, text: str) -> str:
        """Return the reference to the file of a secret."""
        if not text or "${" in text:
            return text
        name = self.variable(key)
        while self.taken.secrets.get(name, text) != text:
            name += "_"
        self.taken.secrets[name] = text
        return f"${{file:{SECRETS}/{name}}}"


def _server(
    values: dict[str, Any], words: _Words, at: At, home: Path
) -> dict[str, Any]:
    """Return the lines of a server for a configuration in the folder *home*."""
    nested = values.get("transport")
    if isinstance(nested, dict):
        inner = cast("dict[str, Any]", nested)
        env = {**table_of(inner, "env", at), **table_of(values, "env", at)}
        values = {**values, "transport": None, **inner, "env": env}
    lines = _command(values, words, at, home)
    kind = "command" if lines else "url"
    for key in _ADDRESSES:
        if values.get(key):
            url = words.text(values[key], at.key(key))
            lines["url"] = words.hidden("url", url) if passwords(url) else url
    spoken = values.get("type") or values.get("transport")
    if spoken and spoken not in _IMPLIED[kind]:
        lines["transport"] = words.text(spoken, at.key("type"))
    if env := table_of(values, "env", at):
        lines["env"] = words.env(env, at.key("env"))
    if headers := table_of(values, "headers", at):
        lines["headers"] = words.headers(headers, at.key("headers"))
    if values.get("enabled") is False or values.get("disabled") is True:
        lines["enabled"] = False
    for key in (key for key in values if key not in _HANDLED):
        if key in server_keys():
            lines[key] = values[key]
        else:
            words.taken.notes.append(f"{at.key(key).where} is not known and left out")
    return lines


def _command(
    values: Mapping[str, Any], words: _Words, at: At, home: Path
) -> dict[str, Any]:
    """Return the lines about a command, or none."""
    folder = at.source.folder
    command: object = values.get("command") or []
    program = [command] if isinstance(command, str) else command
    typed = words.listed(program, at.key("command"))
    typed += words.listed(values.get("args") or [], at.key("args"))
    if not typed:
        return {}
    first, *rest = typed
    lines: dict[str, Any] = {"command": _path(folder, first) if "/" in first else first}
    if rest:
        lines["args"] = rest
    if values.get("cwd") or folder.resolve() != home:
        cwd = words.text(values.get("cwd") or ".", at.key("cwd"))
        lines["cwd"] = _path(folder, cwd)
    return lines


def _path(folder: Path, text: str) -> str:
    """Return a path that does not depend on the folder of a configuration."""
    return text if text.startswith(("~", "$")) else os.path.normpath(folder / text)
