"""
Translation of two other systems' formats into tables of ``caxton.toml``.

SignalWire's documents hold a list ``SWAIG.mcp_servers``, at any depth; AVA's YAML has
``mcp.servers``. What they say is translated and not resolved: a variable of theirs
becomes one of ours, and a literal secret becomes a variable, so
that it gets neither into the text nor onto the screen. Nothing is granted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from ..core.names import is_server_name
from ..core.text.toml_text import comment, key_text, value_text
from . import fields as f
from .files import parse_json, parse_yaml, read_bytes
from .paths import home_folder
from .servers import server_keys
from .source import At, Secrets, Source, sounds_secret
from .tools import tool_keys

_REFERENCE = re.compile(r"\$\{([^{}]*)\}|\$\{")
_OUR_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::?[-=](.*))?", re.DOTALL)
_GENERIC = frozenset({"api", "mcp", "www"})
_MAX_SERVERS = 1000
_PLAIN = frozenset({"accept", "accept-language", "content-type", "user-agent"})

#: Their spellings, and what the same is called here.
_RENAMED = {
    "timeout_ms": "timeout",
    "backoff_ms": "backoff",
    "slow_response_threshold_ms": "slow_response_threshold",
    "speech_field": "message_field",
    "speech_template": "message_template",
}


@dataclass(slots=True)
class Foreign:
    """
    The translation of a file of another system.

    Attributes:
        servers: Names of the servers, as they are here.

        text: Tables of ``caxton.toml``.

        notes: What was left out, and what to do by hand.
    """

    servers: list[str] = field(default_factory=list[str])
    text: str = ""
    notes: list[str] = field(default_factory=list[str])


def import_foreign(kind: str, path: Path, *, environ: Mapping[str, str]) -> Foreign:
    """
    Translate the tool servers in a file of another system.

    Args:
        kind: One of `FORMATS`.

        path: The file. Its suffix tells JSON from YAML.

        environ: Where the user's folder is looked up; no variable is read.

    Raises:
        ConfigError: It cannot be read, is broken, or is not of that kind.
    """
    secrets = Secrets(environ=environ, home=home_folder(environ))
    at = At(
        source=Source(shown=path.name or str(path), folder=path.parent, secrets=secrets)
    )
    parse = parse_json if path.suffix.lower() in {".json", ".jsonc"} else parse_yaml
    return FORMATS[kind](parse(read_bytes(path, at), at), at)


# -- SignalWire ----------------------------------------------------------------


def _signalwire(tree: dict[str, Any], at: At) -> Foreign:
    found = Foreign()
    seen: list[object] = []
    context: dict[str, None] = {}
    blocks = [*_blocks(tree, at)]
    if not blocks:
        raise at.error("has no SWAIG.mcp_servers", fix="name a document that has it")
    for block, place in blocks:
        listed = place.key("mcp_servers")
        for number, entry in enumerate(f.items(block["mcp_servers"], listed), 1):
            here = listed.key(number)
            # An agent and its sidecar often list the same ones.
            if f.table(entry, here) not in seen:
                seen.append(entry)
                words = Words(found, session="global_data.", context=context)
                _signalwire_server(entry, words, here)
        if block.get("functions"):
            found.notes.append(
                f"{place.key('functions').where} is not read: "
                "a plain HTTP tool is a [webhooks.NAME] here"
            )
    if context:
        found.text += _proposal(
            "What these servers need of a run: caxton run AGENT --var NAME=VALUE",
            "[context]",
            *(f"{key_text(name)} = {{ required = true }}" for name in context),
        )
    return found


def _signalwire_server(values: dict[str, Any], words: Words, at: At) -> None:
    found = words.found
    if not values.get("url"):
        found.notes.append(f"{at.where} is left out: it has no url")
        return
    url = words.text(values["url"], at.key("url"))
    words.name = _name_of(url, at, found.servers)
    lines: dict[str, Any] = {"url": url}
    if headers := table_of(values, "headers", at):
        lines["headers"] = words.headers(headers, at.key("headers"))
    if "resources" in values:
        lines["resources"] = f.flag(values["resources"], at.key("resources"))
    if given := table_of(values, "resource_vars", at):
        lines["resource_vars"] = words.texts(given, at.key("resource_vars"))
    _unknown(values, {"url", "headers", "resources", "resource_vars"}, at, found)
    found.servers.append(words.name)
    found.text += toml_table(("servers", words.name), lines, server_keys())


def _blocks(tree: dict[str, Any], at: At) -> Iterator[tuple[dict[str, Any], At]]:
    """Yield each table ``SWAIG`` that lists servers. The tree is not deep."""
    for key, value in tree.items():
        here = at.key(key)
        if isinstance(value, dict):
            table = cast("dict[str, Any]", value)
            if key == "SWAIG" and "mcp_servers" in table:
                yield table, here
            else:
                yield from _blocks(table, here)
        elif isinstance(value, list):
            listed = dict(enumerate(cast("list[object]", value), 1))
            yield from _blocks({str(n): item for n, item in listed.items()}, here)


def _name_of(url: str, at: At, taken: Sequence[str]) -> str:
    """Return a server name derived from the host name of a URL."""
    host = (urlsplit(url).hostname or "").rstrip(".")
    labels = host.split(".")
    if all(label.isdecimal() for label in labels) or ":" in host:
        labels = [re.sub(r"[^0-9a-f]+", "-", host).strip("-")]
    while len(labels) > 2 and labels[0] in _GENERIC:  # noqa: PLR2004 -- name and ending
        del labels[0]
    base = re.sub(r"[^A-Za-z0-9-]+", "-", labels[0]).strip("-")[:50]
    if not is_server_name(base):
        raise at.key("url").error("names no host", fix="correct it there")
    return next(
        name
        for name in (base, *(f"{base}-{n}" for n in range(2, _MAX_SERVERS + 2)))
        if name not in taken
    )


# -- AVA -----------------------------------------------------------------------


def _ava(tree: dict[str, Any], at: At) -> Foreign:
    found = Foreign()
    here = at.key("mcp")
    mcp = table_of(tree, "mcp", at)
    servers = table_of(mcp, "servers", here)
    if not servers:
        raise at.error("has no mcp.servers", fix="name AVA's ai-agent.yaml")
    on = f.flag(mcp.get("enabled", True), here.key("enabled"))
    if not on:
        found.notes.append(
            f"{here.key('enabled').where} is false, so its servers are off here"
        )
    exposed: dict[str, str] = {}
    for name in servers:
        place = here.key("servers").key(name)
        if not is_server_name(name):
            raise place.error("is not a valid server name here", fix="rename it there")
        values = table_of(servers, name, here.key("servers"))
        words = Words(found, name=name)
        lines = _ava_server(values, words, place)
        if not on or values.get("enabled") is False:
            lines["enabled"] = False
        found.servers.append(name)
        found.text += toml_table(("servers", name), lines, server_keys())
        exposed |= _ava_tools(values, words, place)
    found.text += _ava_grants(tree, at, exposed)
    return found


def _ava_server(values: dict[str, Any], words: Words, at: At) -> dict[str, Any]:
    lines: dict[str, Any] = {}
    for key in ("transport", "url", "cwd"):
        if key in values:
            lines[key] = words.text(values[key], at.key(key))
    command: object = values.get("command", [])
    program = [command] if isinstance(command, str) else command
    typed = words.listed(program, at.key("command"))
    typed += words.listed(values.get("args") or [], at.key("args"))
    if typed:
        lines |= {"command": typed[0], "args": typed[1:]}
    if env := table_of(values, "env", at):
        lines["env"] = words.env(env, at.key("env"))
    if headers := table_of(values, "headers", at):
        lines["headers"] = words.headers(headers, at.key("headers"))
    if restart := table_of(values, "restart", at):
        here = at.key("restart")
        for key, read in (("enabled", f.flag), ("max_restarts", f.number)):
            if key in restart:
                read(restart[key], here.key(key))
        lines["restart"] = _renamed(restart, words, here)
    lines |= _renamed(table_of(values, "defaults", at), words, at.key("defaults"))
    known = "transport url cwd command args env headers restart defaults enabled tools"
    _unknown(values, {*known.split()}, at, words.found)
    return lines


def _ava_tools(values: dict[str, Any], words: Words, at: At) -> dict[str, str]:
    """Translate the tools of a server, and return the names AVA agents use."""
    exposed: dict[str, str] = {}
    here = at.key("tools")
    for number, entry in enumerate(f.items(values.get("tools") or [], here), 1):
        tool = dict(f.table(entry, here.key(number)))
        own = words.text(tool.pop("name", None), here.key(number).key("name"))
        options = _renamed(tool, words, here.key(number))
        called = options.get("expose_as") or f"mcp_{words.name}_{own}"
        exposed[str(called)] = f"{words.name}/{own}"
        keys = ("servers", words.name, "tools", own)
        words.found.text += toml_table(keys, options, tool_keys())
    return exposed


def _renamed(values: Mapping[str, Any], words: Words, at: At) -> dict[str, Any]:
    """Return options with Caxton's names and units."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        here = at.key(key)
        if key.endswith("_ms"):
            amount = f.number(value, here)
            if not amount:
                words.found.notes.append(
                    f"{here.where} must be more than zero and left out"
                )
                continue
            text = f"{amount}ms" if amount % 1000 else f"{amount // 1000}s"
            found[_RENAMED.get(key, key)] = text
        elif isinstance(value, (bool, int)):
            found[_RENAMED.get(key, key)] = value
        else:
            found[_RENAMED.get(key, key)] = words.text(value, here)
    return found


def _ava_grants(tree: dict[str, Any], at: At, exposed: Mapping[str, str]) -> str:
    """Return, as comments, grants close to what contexts list."""
    text = ""
    contexts = table_of(tree, "contexts", at)
    for name in contexts:
        here = at.key("contexts").key(name)
        context = table_of(contexts, name, at.key("contexts"))
        listed = f.items(context.get("tools") or [], here.key("tools"))
        tools = [exposed[tool] for tool in map(str, listed) if tool in exposed]
        if tools:
            text += _proposal(
                f"The context {key_text(name)} lists these tools. They are granted to "
                "nobody yet.",
                f"[[agents.{key_text(name)}.allow]]",
                f"tools = {value_text(tools)}",
            )
    return text


# -- words ---------------------------------------------------------------------


@dataclass(slots=True)
class Words:
    """
    Translates the texts of one server.

    Attributes:
        session: What begins a reference to the session rather than the environment.

        context: Names of the variables of a run that texts refer to.
    """

    found: Foreign
    name: str = ""
    session: str = ""
    context: dict[str, None] = field(default_factory=dict[str, None])

    def text(self, value: object, at: At) -> str:
        """Translate a text."""
        if not isinstance(value, str):
            raise f.wrong(value, "a text", '"..."', at)
        try:
            value.encode()
        except UnicodeEncodeError:
            raise at.error("is not UTF-8 text", fix="correct it") from None
        return _REFERENCE.sub(lambda match: self.reference(match[1], at), value)

    def reference(self, reference: str | None, at: At) -> str:
        """Translate what is between the braces of a reference."""
        if self.session and reference:
            own = reference.removeprefix(self.session)
            if _OUR_NAME.fullmatch(own):
                self.context[own] = None
                return f"${{context.{own}}}"
        elif reference and (found := _VARIABLE.fullmatch(reference)):
            default = f":-{found[2]}" if found[2] is not None else ""
            return f"${{env:{found[1]}{default}}}"
        raise at.error("a reference in it has no counterpart", fix="write it out there")

    def listed(self, values: object, at: At) -> list[str]:
        """Translate a list of texts."""
        return [
            self.text(item, at.key(n)) for n, item in enumerate(f.items(values, at), 1)
        ]

    def texts(self, values: Mapping[str, Any], at: At) -> dict[str, str]:
        """Translate a table of texts."""
        return {key: self.text(value, at.key(key)) for key, value in values.items()}

    def headers(self, values: Mapping[str, Any], at: At) -> dict[str, str]:
        """Translate headers; most are secrets."""
        return {
            key: text if key.lower() in _PLAIN else self.hidden(key, text)
            for key, text in self.texts(values, at).items()
        }

    def env(self, values: Mapping[str, Any], at: At) -> dict[str, str]:
        """Translate variables; those whose names sound so are secrets."""
        return {
            key: self.hidden(key, text) if sounds_secret(key) else text
            for key, text in self.texts(values, at).items()
        }

    def hidden(self, key: str, text: str) -> str:
        """Return the reference that replaces a secret value."""
        if not text or "${" in text:
            return text
        variable = self.variable(key)
        self.found.notes.append(
            f"servers.{self.name}: the value of {key_text(key)} is literal; "
            f"put it into the environment as {variable}"
        )
        return f"${{env:{variable}}}"

    def variable(self, key: str) -> str:
        """Return a name for the secret of a key of this server."""
        variable = re.sub(r"[^A-Z0-9]+", "_", f"{self.name}_{key}".upper())
        return re.sub(r"^([0-9])", r"_\1", variable)


def table_of(values: Mapping[str, Any], key: str, at: At) -> dict[str, Any]:
    """Return the table below a key; empty if missing."""
    value = values.get(key)
    return {} if value is None else f.table(value, at.key(key))


def _unknown(values: Mapping[str, Any], known: set[str], at: At, to: Foreign) -> None:
    to.notes += [
        f"{at.key(key).where} is not known and left out"
        for key in values
        if key not in known
    ]


def toml_table(keys: Sequence[str], lines: Mapping[str, Any], known: set[str]) -> str:
    """Return a TOML table; unknown keys become comments."""
    text = f"\n[{'.'.join(map(key_text, keys))}]\n"
    for key, value in lines.items():
        line = f"{key_text(key)} = {value_text(value)}"
        text += line if key in known else comment(f"not known here: {line}")
        text += "\n"
    return text


def _proposal(*lines: str) -> str:
    return "\n" + "".join(f"{comment(line)}\n" for line in lines)


FORMATS = {"signalwire": _signalwire, "ava": _ava}
