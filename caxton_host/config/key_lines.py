"""
On which line each key of a TOML or JSON text is, which their parsers do not tell.

The text has been parsed before, so it is known to be sound, and not too deep.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

Path = tuple[str, ...]

_TOML = re.compile(
    r"(?P<skip>[ \t\r]+|\#[^\n]*)"
    r"|(?P<text>\"\"\"(?:\\.|[^\\])*?\"\"\"\"{0,2}|'''.*?''''{0,2}"
    r"|\"(?:\\.|[^\"\\\n])*\"|'[^'\n]*')"
    r"|(?P<mark>[\n\[\]{}=,.])"
    r"|(?P<bare>[^\s\[\]{}=,#\"'.]+)",
    re.DOTALL,
)
_JSON = re.compile(
    r"(?P<skip>\s+)|(?P<text>\"(?:\\.|[^\"\\])*\")|(?P<mark>[\[\]{}:,])"
    r"|(?P<bare>[^\s\[\]{}:,\"]+)",
    re.DOTALL,
)
_NUMBERED = re.compile(r"(.+)\[([0-9]+)\]", re.DOTALL)


@dataclass(slots=True)
class _Tokens:
    """The parts of a text that count, one by one, each with its line."""

    left: Iterator[tuple[str, str, int]]
    kind: str = ""
    text: str = ""
    line: int = 1

    def next(self) -> None:
        self.kind, self.text, self.line = next(self.left, ("", "", self.line))


def _tokens(pattern: re.Pattern[str], text: str) -> Iterator[tuple[str, str, int]]:
    line = 1
    for found in pattern.finditer(text):
        kind, token = str(found.lastgroup), found[0]
        if kind != "skip":
            yield kind, token, line
        line += token.count("\n")


@dataclass(slots=True)
class _Walk:
    """Goes through a text and notes where each key is."""

    at: _Tokens
    unquoted: Callable[[str], str]
    lines: dict[Path, int] = field(default_factory=dict[Path, int])
    _arrays: dict[Path, int] = field(default_factory=dict[Path, int])

    def document(self) -> None:
        """Go through a TOML document."""
        table: Path = ()
        self.at.next()
        while self.at.kind:
            if self.at.text == "\n":
                self.at.next()
            elif self.at.text == "[":
                table = self._header()
            else:
                self._pair(table)

    def value(self, path: Path) -> None:
        """Go through the value of *path*."""
        if self.at.text == "[" and self.at.kind == "mark":
            self._list(path)
        elif self.at.text == "{" and self.at.kind == "mark":
            self._table(path)
        else:
            while self.at.kind and self.at.text not in {",", "]", "}", "\n"}:
                self.at.next()

    def _header(self) -> Path:
        line = self.at.line
        self.at.next()
        is_array = self.at.text == "[" and self.at.kind == "mark"
        if is_array:
            self.at.next()
        *above, last = self._keys()
        path: Path = ()
        for key in above:
            path = self._newest((*path, key))
        path = (*path, last)
        if is_array:
            self._arrays[path] = self._arrays.get(path, 0) + 1
            self.lines.setdefault(path, line)
            path = self._newest(path)
        self._note(path, line)
        self.lines[path] = line
        while self.at.text == "]":
            self.at.next()
        return path

    def _newest(self, path: Path) -> Path:
        number = self._arrays.get(path)
        return (*path, str(number)) if number else path

    def _pair(self, table: Path) -> None:
        line = self.at.line
        path = (*table, *self._keys())
        self._note(path, line)
        self.at.next()
        self.value(path)

    def _keys(self) -> Path:
        """Return a key and those behind its dots; what follows it is next."""
        found: list[str] = []
        while self.at.kind in {"bare", "text"} or self.at.text == ".":
            if self.at.kind == "bare":
                found.append(self.at.text)
            elif self.at.kind == "text":
                found.append(self.unquoted(self.at.text))
            self.at.next()
        return tuple(found)

    def _list(self, path: Path) -> None:
        self.at.next()
        number = 0
        while self.at.kind and self.at.text != "]":
            if self.at.kind == "mark" and self.at.text in {",", "\n"}:
                self.at.next()
                continue
            number += 1
            self._note((*path, str(number)), self.at.line)
            self.value((*path, str(number)))
        self.at.next()

    def _table(self, path: Path) -> None:
        self.at.next()
        while self.at.kind and self.at.text != "}":
            if self.at.kind == "mark":
                self.at.next()
            else:
                self._pair(path)
        self.at.next()

    def _note(self, path: Path, line: int) -> None:
        for end in range(1, len(path) + 1):
            self.lines.setdefault(path[:end], line)


def _of_toml(token: str) -> str:
    return str(tomllib.loads(f"k = {token}")["k"])


@dataclass(frozen=True)
class Lines:
    r"""
    The lines of a text.

    >>> Lines("a = 1\n[[b.c]]\nd = [\n  2,\n  3]").of(("b", "c[1]", "d", "2"))
    5
    """

    text: str
    is_json: bool = False

    def of(self, keys: Path) -> int | None:
        """
        Return the line of a key, or of what is nearest above it.

        Args:
            keys: Of tables, and numbers from 1 of items, as ``"2"`` or ``"allow[2]"``.
        """
        path: Path = ()
        for key in keys:
            found = _NUMBERED.fullmatch(key)
            path += (found[1], found[2]) if found else (key,)
        while path and path not in self.known:
            path = path[:-1]
        return self.known[path] if path else None

    @cached_property
    def known(self) -> dict[Path, int]:
        """The lines of all keys; an item of a list is one, by its number."""
        pattern = _JSON if self.is_json else _TOML
        tokens = _Tokens(_tokens(pattern, self.text))
        walk = _Walk(tokens, json.loads if self.is_json else _of_toml)
        if self.is_json:
            tokens.next()
            walk.value(())
        else:
            walk.document()
        return walk.lines
