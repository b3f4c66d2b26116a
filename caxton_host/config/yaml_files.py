"""YAML of other programs, read within bounds. The only owner of PyYAML."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, cast

from ..errors import ConfigError, UsageError
from .source import At, bounded, text_of

if TYPE_CHECKING:
    import yaml


_MAX_NODES = 20_000
_LONGEST_NUMBER = 40
_YAML = "tag:yaml.org,2002:"
_NOT_JSON = frozenset({"timestamp", "merge", "value"})
_KINDS = _NOT_JSON | {"map", "seq", "str", "int", "float", "bool", "null"}


def parse_yaml(data: bytes, at: At) -> dict[str, Any]:
    """
    Return the tree of a YAML text without anchors, aliases and tags.

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
            "is too deep, or has a number or date that is none",
            fix="write it flatter, and such values in quotes",
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
                    f"the mapping at line {line} has a key twice, or one that is "
                    "no text",
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
