"""
Files: read within bounds, and parsed as TOML, JSON or YAML.

The only owner of PyYAML.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Hashable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ..errors import ConfigError, UsageError
from .source import At

if TYPE_CHECKING:
    import yaml


MAX_FILE = 1024 * 1024
_MAX_DEPTH = 32
#: In a line. tomllib takes time and memory by the square of a key's parts.
_MAX_DOTS = 1000

_TOML_PROBLEM = re.compile(r"(.*) \(at (line \d+, column \d+|end of document)\)")
_JSONC = re.compile(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA = re.compile(r'("(?:[^"\\\n]|\\.)*")|,(?=\s*[}\]])')

_Tree: TypeAlias = "dict[str, Any]"


def read_bytes(path: Path, at: At) -> bytes:
    """
    Read a file of bounded size.

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
    Parse a TOML text.

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
            fix="correct that line; quote texts, and write each table once",
            line=int(place.split()[1].rstrip(",")),
        ) from None
    except (RecursionError, ValueError):
        raise _too_deep(at) from None
    return bounded(tree, at)


def plain_json(data: bytes, at: At) -> str:
    """
    Return a JSON text with comments and trailing commas replaced by blanks.

    Raises:
        ConfigError: It is not UTF-8.
    """
    text = _JSONC.sub(lambda found: found[1] or _blank(found[0]), text_of(data, at))
    return _TRAILING_COMMA.sub(lambda found: found[1] or " ", text)


def parse_json(data: bytes, at: At) -> _Tree:
    """
    Parse a JSON text that may have comments and trailing commas.

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
    Return a tree after a check of its depth.

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
        f"is deeper than {_MAX_DEPTH} tables, or has a number that is too long",
        fix="reduce the nesting",
    )


_MAX_NODES = 20_000
_LONGEST_NUMBER = 40
_YAML = "tag:yaml.org,2002:"
_NOT_JSON = frozenset({"timestamp", "merge", "value"})
_KINDS = _NOT_JSON | {"map", "seq", "str", "int", "float", "bool", "null"}


def parse_yaml(data: bytes, at: At) -> dict[str, Any]:
    """
    Parse a YAML text without anchors, aliases and tags.

    A few bytes of those make a tree of any size, or what no JSON can say.

    Raises:
        ConfigError: It is broken, too deep or too large, or no mapping of texts.

        UsageError: PyYAML is not installed.
    """
    try:
        import yaml  # noqa: PLC0415 -- an extra
    except ImportError:
        raise UsageError(
            "PyYAML is not installed",
            fix="run: pip install 'caxton-host[yaml]'; or convert the file to JSON",
        ) from None
    text = text_of(data, at)
    try:
        tree: object = yaml.load(text, _loader(at))  # noqa: S506 -- a SafeLoader
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        # What it says of the problem may quote the text.
        raise at.error(f"broken YAML{where}", fix="correct that line") from None
    except yaml.YAMLError:
        raise at.error("broken YAML", fix="save it as plain UTF-8 text") from None
    except (RecursionError, ValueError, OverflowError):
        raise at.error(
            "is nested too deeply, or has an invalid number or date",
            fix="reduce the nesting, and such values in quotes",
        ) from None
    if not isinstance(tree, dict):
        raise at.error("is not a mapping", fix="write it like: mcp: {servers: {...}}")
    return bounded(cast("dict[str, Any]", tree), at)


def _loader(at: At) -> type[yaml.SafeLoader]:
    import yaml  # noqa: PLC0415 -- there by now

    class Loader(yaml.SafeLoader):
        nodes = 0

        def compose_node(
            self, parent: yaml.Node | None, index: object
        ) -> yaml.Node | None:
            self.nodes += 1
            if self.nodes > _MAX_NODES:
                raise at.error(f"has more than {_MAX_NODES} values", fix="split it")
            node = super().compose_node(parent, cast("int", index))
            if node is not None and (self.anchors or _kind(node) not in _KINDS):
                raise _refused(node, at)
            if isinstance(node, yaml.ScalarNode) and _is_text(node):
                node.tag = f"{_YAML}str"
            return node

        def construct_mapping(
            self,
            node: yaml.MappingNode,
            deep: bool = False,  # noqa: FBT001, FBT002 -- PyYAML's
        ) -> dict[Hashable, Any]:
            found = super().construct_mapping(node, deep=deep)
            if len(found) != len(node.value) or not all(
                isinstance(key, str) for key in found
            ):
                line = node.start_mark.line + 1
                raise at.error(
                    f"the mapping at line {line} has a duplicate key, or a key that is "
                    "not a text",
                    fix="give each key once, and quote those like on, off and 1",
                )
            return found

    return Loader


def _is_text(node: yaml.ScalarNode) -> bool:
    # Dates and merge keys are for YAML alone, and a number in base 60 takes time by
    # the square of its length.
    return _kind(node) in _NOT_JSON or len(node.value) > _LONGEST_NUMBER


def _kind(node: yaml.Node) -> str:
    return str(node.tag).removeprefix(_YAML)


def _refused(node: yaml.Node, at: At) -> ConfigError:
    line = node.start_mark.line + 1 if node.start_mark else 1
    return at.error(
        f"has an anchor or a tag at line {line}", fix="write the value out there"
    )
