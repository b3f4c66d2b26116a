"""
Line numbers of the keys of a TOML or JSON text, which parsers do not report.

The text has been parsed before, so it is known to be sound, and not too deep.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

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
    """The tokens of a text, each with its line."""

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


class Statement(NamedTuple):
    """
    A table header or a key with its value, as lines of a TOML text.

    Attributes:
        first: Its first line.

        last: Its last line.

        path: The keys of the table, or of the value.

        is_table: It is a header.
    """

    first: int
    last: int
    path: Path
    is_table: bool


@dataclass(slots=True)
class _Walk:
    """Walk through a text that records the line of each key."""

    at: _Tokens
    unquoted: Callable[[str], str]
    lines: dict[Path, int] = field(default_factory=dict[Path, int])
    statements: list[Statement] = field(default_factory=list[Statement])
    _arrays: dict[Path, int] = field(default_factory=dict[Path, int])

    def document(self) -> None:
        """Go through a TOML document."""
        table: Path = ()
        self.at.next()
        while self.at.kind:
            first, is_table = self.at.line, self.at.text == "["
            if self.at.text == "\n":
                self.at.next()
                continue
            path = self._header() if is_table else self._pair(table)
            table = path if is_table else table
            self.statements.append(Statement(first, self.at.line, path, is_table))

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

    def _pair(self, table: Path) -> Path:
        line = self.at.line
        path = (*table, *self._keys())
        self._note(path, line)
        self.at.next()
        self.value(path)
        return path

    def _keys(self) -> Path:
        """Read a dotted key; the token after it is next."""
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
        Return the line of a key, or of its nearest known parent.

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

    @property
    def known(self) -> dict[Path, int]:
        """The lines of all keys; an item of a list is one, by its number."""
        return self._walked.lines

    @property
    def statements(self) -> list[Statement]:
        """The statements of a TOML text, in order."""
        return self._walked.statements

    @cached_property
    def _walked(self) -> _Walk:
        pattern = _JSON if self.is_json else _TOML
        tokens = _Tokens(_tokens(pattern, self.text))
        walk = _Walk(tokens, json.loads if self.is_json else _of_toml)
        if self.is_json:
            tokens.next()
            walk.value(())
        else:
            walk.document()
        return walk
