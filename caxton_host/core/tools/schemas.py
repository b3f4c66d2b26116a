"""
Bounds on untrusted JSON schemas: only those with bounded work are interpreted.

A validator follows references, so a schema of 2 KB can take 2^40 steps, and one that
refers to itself as many as the value has paths. Here references are followed once, to
count. A schema that refers to itself or to another document, or that is too large with
its references expanded, is refused. For any other, the work is at most the size of the
expanded schema times the size of the value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ...errors import BadBytes
from ..calls import JSON

_DRAFTS = (
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
)
#: Keywords that change the target of references.
_REFUSED = frozenset({"$id", "$dynamicRef", "$recursiveRef", "$vocabulary"})
#: Most levels and values, with references expanded.
_LEVELS = 100
_VALUES = 10_000
#: Most regular expressions; compiling one takes up to 10 ms.
_PATTERNS = 100

#: Comparing a value with a value of the schema takes 0.1 us: at most half a second.
_STEPS = 5_000_000
#: Comparing a character with a regular expression takes at most 16 us, since an error
#: is found twice: at most two seconds.
_CHARACTERS = 125_000


class _Size(NamedTuple):
    values: int
    patterns: int


@dataclass(frozen=True, slots=True)
class Mismatch:
    """
    The first part of a value that does not match its schema.

    Attributes:
        path: Its place as a JSON path: ``$.location``.

        reason: Why it does not match, without its value.
    """

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Schema:
    """
    A schema with bounded work.

    Attributes:
        document: The schema.

        values: The number of its values, with references expanded.

        patterns: The number of its regular expressions.
    """

    document: dict[str, JSON] | bool
    values: int
    patterns: int

    def bears(self, value: JSON) -> bool:
        """Return whether comparing *value* with the schema stays within the bounds."""
        values, characters = _weight(value)
        return (
            self.values * values <= _STEPS and self.patterns * characters <= _CHARACTERS
        )


def bounded(schema: dict[str, JSON] | bool) -> Schema:  # noqa: FBT001 -- true is one
    """
    Return *schema* as a schema with bounded work.

    Args:
        schema: Already bounded in size and depth.

    Raises:
        BadBytes: Its work is not bounded, or its dialect is unknown.
    """
    if isinstance(schema, bool):
        return Schema(schema, 1, 0)
    # The id of the only document has no effect.
    document = {key: value for key, value in schema.items() if key != "$id"}
    dialect = document.get("$schema", _DRAFTS[0])
    if not isinstance(dialect, str) or dialect.rstrip("#") not in _DRAFTS:
        raise BadBytes("its $schema is not draft 2020-12, 2019-09 or 7")
    return Schema(document, *_Count(document).of(document, 0))


class _Count:
    def __init__(self, document: dict[str, JSON]) -> None:
        self._document = document
        self._known: dict[str, _Size | None] = {}

    def of(self, value: JSON, level: int) -> _Size:
        """Return the size of *value* with its references expanded."""
        if level > _LEVELS:
            raise BadBytes(f"it is deeper than {_LEVELS}, references followed")
        values, patterns = 1, 0
        if isinstance(value, dict):
            for key in _REFUSED & value.keys():
                if isinstance(value[key], str) or key == "$vocabulary":
                    raise BadBytes(f"it has {key}, of which no bound is known")
            below = [self.of(item, level + 1) for item in value.values()]
            if isinstance(reference := value.get("$ref"), str):
                below.append(self._referred(reference, level + 1))
            listed = value.get("patternProperties")
            patterns = len(listed) if isinstance(listed, dict) else 0
            patterns += isinstance(value.get("pattern"), str)
        elif isinstance(value, list):
            below = [self.of(item, level + 1) for item in value]
        else:
            return _Size(values, patterns)
        for size in below:
            values += size.values
            patterns += size.patterns
        if values > _VALUES:
            raise BadBytes(f"it has more than {_VALUES:,} values, references followed")
        if patterns > _PATTERNS:
            raise BadBytes(f"it has more than {_PATTERNS} regular expressions")
        return _Size(values, patterns)

    def _referred(self, reference: str, level: int) -> _Size:
        if reference in self._known:
            known = self._known[reference]
            if known is None:
                raise BadBytes(f"{reference[:100]!r} refers to itself")
            return known
        self._known[reference] = None
        size = self._known[reference] = self.of(self._target(reference), level)
        return size

    def _target(self, reference: str) -> JSON:
        """Return the target of a reference (RFC 6901)."""
        shown = repr(reference[:100])
        start, *parts = reference.split("/")
        if start != "#" or "%" in reference:
            raise BadBytes(f"{shown} is not a reference into it, such as #/$defs/name")
        found: JSON = self._document
        for part in parts:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and key in found:
                found = found[key]
            elif isinstance(found, list) and key in map(str, range(len(found))):
                found = found[int(key)]
            else:
                raise BadBytes(f"{shown} refers to nothing")
        return found


def _weight(value: JSON) -> tuple[int, int]:
    """Return the number of values in *value*, and the number of characters."""
    values, characters = 0, 0
    waiting = [value]
    while waiting:
        item = waiting.pop()
        values += 1
        if isinstance(item, dict):
            characters += sum(map(len, item))
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
        elif isinstance(item, str):
            characters += len(item)
    return values, characters


_SAYS_TYPE = frozenset({"type", "enum", "const", "$ref"})


def untyped(schema: JSON) -> tuple[str, ...]:
    """
    Return the properties of a schema that accept a value of any type.

    >>> untyped({"properties": {"city": {"description": "Where"}}})
    ('city',)
    >>> untyped({"properties": {"days": {"items": {}, "type": "array"}}})
    ('days[]',)

    Args:
        schema: One that `bounded` took. References are not followed.
    """
    return tuple(dict.fromkeys(_untyped(schema, "")))


def _untyped(schema: JSON, at: str) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    parts = _parts(schema, "properties", f"{at}." if at else "")
    if "items" in schema:
        parts[f"{at}[]"] = schema["items"]
    for where, part in parts.items():
        if not _is_typed(part):
            yield where
        yield from _untyped(part, where)
    for key in ("$defs", "definitions"):
        for where, part in _parts(schema, key, f"{key}/").items():
            yield from _untyped(part, where)
    for key in ("allOf", "anyOf", "oneOf"):
        for part in _listed(schema, key):
            yield from _untyped(part, at)


def _is_typed(schema: JSON) -> bool:
    if not isinstance(schema, dict):
        return schema is False
    if _SAYS_TYPE & schema.keys():
        return True
    ways = [*map(_is_typed, _listed(schema, "anyOf") or _listed(schema, "oneOf"))]
    return (all(ways) and bool(ways)) or any(map(_is_typed, _listed(schema, "allOf")))


def _parts(schema: dict[str, JSON], key: str, before: str) -> dict[str, JSON]:
    table = schema.get(key)
    named = table.items() if isinstance(table, dict) else ()
    return {f"{before}{name}": part for name, part in named}


def _listed(schema: dict[str, JSON], key: str) -> list[JSON]:
    found = schema.get(key)
    return found if isinstance(found, list) else []
