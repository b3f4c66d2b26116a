"""
One file of a configuration: its bounds, its text as a tree, and places in it.

Every complaint names the file, the key and what to do. None shows a value: it
may be a secret that stands in the wrong place.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias, cast

from ..core.names import nearest
from ..errors import ConfigError, UnsetError
from .key_lines import Lines
from .secrets import Secrets

MAX_FILE = 1024 * 1024
_MAX_DEPTH = 32
#: In a line. tomllib takes time and memory by the square of a key's parts.
_MAX_DOTS = 1000

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}(?:\[[0-9]+\])?")
_TOML_PROBLEM = re.compile(r"(.*) \(at (line \d+, column \d+|end of document)\)")
_JSONC = re.compile(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA = re.compile(r'("(?:[^"\\\n]|\\.)*")|,(?=\s*[}\]])')

_NO_LINES = Lines("")

_Tree: TypeAlias = "dict[str, Any]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """
    A file that is being read.

    Attributes:
        shown: How messages name it.

        folder: What its relative paths start from.

        imported: It was written for another program: what is not known there is
            a warning, and variables are spelled as there.

        secrets: Where values come from, and which must not be seen again.

        warnings: What was odd in any file so far.

        lines: Where each key is.
    """

    shown: str
    folder: Path
    secrets: Secrets
    imported: bool = False
    warnings: list[str] = field(default_factory=list[str])
    lines: Lines = _NO_LINES


@dataclass(slots=True)
class Complaints:
    """
    Goes on after each complaint in a ``with``, to raise all of them at the end.

    >>> several = Complaints()
    >>> for text in ("1", "x"):
    ...     with several:
    ...         if not text.isdecimal():
    ...             raise ConfigError(f"{text} is no number")
    >>> several.settle()
    Traceback (most recent call last):
        ...
    caxton_host.errors.ConfigError: x is no number
    """

    found: list[ConfigError] = field(default_factory=list[ConfigError])

    def __enter__(self) -> None:
        """Begin one part."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if isinstance(error, ConfigError):
            self.found += error.each
            return True
        return False

    def settle(self) -> None:
        """
        Return if there was none.

        Raises:
            ConfigError: The first; its ``each`` has all.
        """
        if self.found:
            error = self.found[0]
            error.each = tuple(self.found)
            raise error


@dataclass(frozen=True, slots=True, kw_only=True)
class At:
    """
    A place in a file, by its keys.

    Attributes:
        public: Names, in capitals, whose values are no secrets here.
    """

    source: Source
    keys: tuple[str, ...] = ()
    public: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The last key: what a table is called."""
        return self.keys[-1]

    @property
    def where(self) -> str:
        """The file and the keys, for people."""
        return f"{self.source.shown}: {self.path}" if self.keys else self.source.shown

    @property
    def path(self) -> str:
        """The dotted key, for people."""
        return ".".join(map(_key, self.keys))

    @property
    def line(self) -> int | None:
        """The line in the file, if that is known."""
        return self.source.lines.of(self.keys)

    def key(self, name: str | int) -> At:
        """Return the place of *name* below this one."""
        return replace(self, keys=(*self.keys, str(name)))

    def below(self, keys: Iterable[str]) -> At:
        """Return the place that *keys* lead to from this one."""
        return replace(self, keys=(*self.keys, *keys))

    def error(
        self, problem: str, fix: str = "", *, line: int | None = None
    ) -> ConfigError:
        """Return a complaint about this place."""
        return self._complaint(ConfigError, problem, fix, line)

    def unset(self, problem: str, fix: str) -> ConfigError:
        """Return the complaint that a variable is not set."""
        return self._complaint(UnsetError, problem, fix, None)

    def _complaint(
        self, kind: type[ConfigError], problem: str, fix: str, line: int | None
    ) -> ConfigError:
        return kind(
            problem,
            fix=fix,
            file=self.source.shown,
            key=self.path,
            line=line or self.line,
        )

    def warn(self, text: str) -> None:
        """Note what is odd here, and go on."""
        self.source.warnings.append(str(self.error(text)))

    def unknown(self, name: str, known: Iterable[str]) -> None:
        """
        Complain about a key that nothing reads.

        Raises:
            ConfigError: Unless the file was written for another program.
        """
        here = self.key(name)
        if self.source.imported:
            here.warn("this key is not known and not read")
            return
        names = sorted(known)
        close = nearest(name, names)
        raise here.error(
            "there is no such key",
            fix=f"write {close}" if close else f"known here: {', '.join(names)}",
        )

    def expand(self, text: str) -> str:
        """Return *text* with its variables filled in."""
        return self.source.secrets.expand(text, self)


def read_bytes(path: Path, at: At) -> bytes:
    """
    Return the bytes of a file of bounded size.

    Raises:
        ConfigError: It cannot be read, or is too large.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE + 1)
    except OSError as exc:
        reason = exc.strerror or type(exc).__name__
        raise at.error(
            f"cannot be read: {reason}", fix="name a file that you may read"
        ) from None
    if len(data) > MAX_FILE:
        raise at.error("has more than 1 MiB", fix="split it, and import the parts")
    return data


def parse_toml(data: bytes, at: At) -> _Tree:
    """
    Return the tree of a TOML text.

    Raises:
        ConfigError: It is broken, or too deep.
    """
    text = text_of(data, at)
    if any(line.count(".") > _MAX_DOTS for line in text.splitlines()):
        raise _too_deep(at)
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        found = _TOML_PROBLEM.fullmatch(str(exc))
        problem, place = found.groups() if found else (str(exc), "")
        if not place.startswith("line"):
            end = text.split("\n")
            place = f"line {len(end)}, column {len(end[-1]) + 1}"
        raise at.error(
            f"broken TOML at {place}: {problem}",
            fix="correct that line; texts are quoted, and each table stands once",
            line=int(place.split()[1].rstrip(",")),
        ) from None
    except (RecursionError, ValueError):
        raise _too_deep(at) from None
    return bounded(tree, at)


def plain_json(data: bytes, at: At) -> str:
    """
    Return a JSON text with its comments and trailing commas blanked out.

    Raises:
        ConfigError: It is not UTF-8.
    """
    text = _JSONC.sub(lambda found: found[1] or _blank(found[0]), text_of(data, at))
    return _TRAILING_COMMA.sub(lambda found: found[1] or " ", text)


def parse_json(data: bytes, at: At) -> _Tree:
    """
    Return the tree of a JSON text, comments and trailing commas left out.

    Raises:
        ConfigError: It is broken, too deep, or not an object.
    """
    text = plain_json(data, at)
    try:
        tree: Any = json.loads(text)
    except json.JSONDecodeError as exc:
        raise at.error(
            f"broken JSON at line {exc.lineno}, column {exc.colno}: {exc.msg}",
            fix="correct that line",
            line=exc.lineno,
        ) from None
    except (RecursionError, ValueError):
        raise _too_deep(at) from None
    if not isinstance(tree, dict):
        raise at.error("is not a JSON object", fix='write {"mcpServers": {...}}')
    return bounded(cast("_Tree", tree), at)


def text_of(data: bytes, at: At) -> str:
    """
    Return the text of a file.

    Raises:
        ConfigError: It is not UTF-8.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        raise at.error(
            f"is not UTF-8 at line {line}", fix="save the file as UTF-8", line=line
        ) from None


def _blank(comment: str) -> str:
    return re.sub(r"[^\n]", " ", comment)


def bounded(tree: _Tree, at: At) -> _Tree:
    """
    Return a tree that is not too deep.

    Raises:
        ConfigError: It is.
    """
    level: list[object] = [tree]
    for _ in range(_MAX_DEPTH):
        below: list[object] = []
        for item in level:
            if isinstance(item, dict):
                below += cast("_Tree", item).values()
            elif isinstance(item, list):
                below += cast("list[object]", item)
        if not below:
            return tree
        level = below
    raise _too_deep(at)


def _too_deep(at: At) -> ConfigError:
    return at.error(
        f"is deeper than {_MAX_DEPTH} tables, or has a number of absurd length",
        fix="write it flatter",
    )


def _key(name: str) -> str:
    return name if _PLAIN_KEY.fullmatch(name) else json.dumps(name[:64])
