"""
Edits of the JSON files of MCP clients.

Only members of the table of servers are added, replaced and removed. The order and the
indentation stay. Nothing here reads or writes a file.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from ..core.calls import JSON
from ..errors import UsageError
from .fields import PLAIN_HEADERS
from .sections import passwords
from .source import sounds_secret

_DEEPEST = 64
_MOST = 16 * 1024 * 1024
_INDENTED = re.compile(r'\n([ \t]+)"')
_STRING = r'"(?:[^"\\]|\\.)*"'
_SHOWN = re.compile(rf"({_STRING})(\s*:\s*)({_STRING})|{_STRING}")
_REDACTED = '"[redacted]"'


@dataclass(frozen=True, slots=True)
class ClientFile:
    """
    The configuration file of a client.

    Attributes:
        text: Its content.

        key: The key of its servers.

        servers: The servers, by name.
    """

    text: str
    key: str
    servers: Mapping[str, JSON]

    @classmethod
    def parse(cls, data: bytes | None, key: str) -> ClientFile:
        """
        Read a file, or one that is not there: ``None``.

        Raises:
            UsageError: It cannot be changed without loss.
        """
        text, tree = _tree(data)
        servers = tree.get(key, {})
        if not isinstance(servers, dict):
            raise _unusable(f"its {key} is not a table")
        return cls(text, key, servers)

    @property
    def data(self) -> bytes:
        """The content to write."""
        return self.text.encode()

    def put(self, entries: Mapping[str, JSON]) -> ClientFile:
        """Return the file with these servers: replaced where they are, or added."""
        return self._with({**self.servers, **entries})

    def drop(self, names: Iterable[str]) -> ClientFile:
        """Return the file without these servers."""
        gone = {*names} & {*self.servers}
        left = {k: v for k, v in self.servers.items() if k not in gone}
        return self._with(left) if gone else self

    def _with(self, servers: Mapping[str, JSON]) -> ClientFile:
        tree = {**json.loads(self.text), self.key: {**servers}}
        found = _INDENTED.search(self.text)
        usual = "  " if "\n" in self.text else None
        end = "\n" if self.text.endswith("\n") else ""
        try:
            text = json.dumps(
                tree,
                ensure_ascii=False,
                allow_nan=False,
                indent=found[1] if found else usual,
            )
            return ClientFile.parse(f"{text}{end}".encode(), self.key)
        except ValueError:
            raise _unusable("it has half a character, or an endless number") from None


def given_back(
    now: bytes | None,
    copy: bytes | None,
    key: str,
    entries: Iterable[str],
    taken: Callable[[str], bool],
) -> bytes | None:
    """
    Return the content of a file before an installation.

    If only the installation changed the file, that is the copy, byte for byte. If not,
    it is the file without the entries, and with the servers that were taken over.

    Args:
        now: What it holds, or ``None``: it is not there.

        copy: What it held before, or ``None``: it was not there.

        key: The key of its servers.

        entries: The names of this host's entries in it.

        taken: Whether a server that is in the copy alone was taken over.

    Raises:
        UsageError: One of them cannot be changed without loss.
    """
    file, old = ClientFile.parse(now, key), ClientFile.parse(copy, key)
    own = {name: file.servers[name] for name in entries}
    left = file.drop(own)
    lost = {n: v for n, v in old.servers.items() if n not in left.servers}
    back = {n: v for n, v in lost.items() if n in own or taken(n)}
    made = old.drop({*lost} - {*own}).put(own)
    if back == lost and now in {None, made.data}:
        return copy
    return left.put(back).data if own or back else now


def shown_diff(before: bytes | None, after: bytes | None, name: str) -> str:
    """Return what changes in a file as a unified diff, with secrets masked."""
    old, new = (_masked(ClientFile.parse(one, "").text) for one in (before, after))
    return text_diff(
        old if before is not None else None, new if after is not None else None, name
    )


def text_diff(before: str | None, after: str | None, name: str, around: int = 3) -> str:
    """Return a unified diff of the texts of a file, with that many lines around."""
    lines = [(one or "").splitlines() for one in (before, after)]
    names = [name if one is not None else "/dev/null" for one in (before, after)]
    found = difflib.unified_diff(
        lines[0], lines[1], names[0], names[1], n=around, lineterm=""
    )
    return "\n".join(found)


def _masked(text: str) -> str:
    """Return a JSON text without values that may be secrets."""
    secrets = _secrets(json.loads(text))

    def mask(found: re.Match[str]) -> str:
        if found[1] is None:
            return _REDACTED if json.loads(found[0]) in secrets else found[0]
        value = json.loads(found[3])
        hidden = value in secrets or (
            sounds_secret(json.loads(found[1])) and value and "${" not in value
        )
        return f"{found[1]}{found[2]}{_REDACTED if hidden else found[3]}"

    return _SHOWN.sub(mask, text)


def _secrets(tree: JSON) -> set[str]:
    """Return values of headers, and URLs with passwords, anywhere in a tree."""
    found: set[str] = set()
    level = [tree]
    for item in level:
        level += _below(item)
        if not isinstance(item, dict):
            continue
        found.update(value for _, value in _texts(item) if passwords(value))
        for key, value in _texts(item.get("headers")):
            if key.lower() not in PLAIN_HEADERS and value and "${" not in value:
                found.add(value)
    return found


def _texts(table: JSON) -> Iterable[tuple[str, str]]:
    pairs = table.items() if isinstance(table, dict) else ()
    return ((key, value) for key, value in pairs if isinstance(value, str))


# -- reading -------------------------------------------------------------------


def _tree(data: bytes | None) -> tuple[str, dict[str, JSON]]:
    if not data or not data.strip():
        return "{}\n", {}
    if len(data) > _MOST:
        raise _unusable("it is larger than 16 MiB")
    try:
        text = data.decode()
        tree = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        raise _unusable(
            "it is not JSON, has comments, or has a key twice in one table"
        ) from None
    if not isinstance(tree, dict):
        raise _unusable("it is not a JSON object")
    if _is_deep(cast("dict[str, JSON]", tree)):
        raise _unusable(f"it is deeper than {_DEEPEST} tables")
    return text, cast("dict[str, JSON]", tree)


def _is_deep(tree: JSON) -> bool:
    level = [tree]
    for _ in range(_DEEPEST):
        level = [below for item in level for below in _below(item)]
    return bool(level)


def _below(item: JSON) -> Iterable[JSON]:
    if isinstance(item, dict):
        return item.values()
    return item if isinstance(item, list) else ()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def _unusable(why: str) -> UsageError:
    return UsageError(
        f"it was not changed: {why}",
        fix="correct it; or add the entry by hand: caxton mcp install CLIENT --print",
    )
