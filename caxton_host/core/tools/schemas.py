"""
Which schemas of strangers are worth interpreting: those whose work has a bound.

A validator follows references, so a schema of 2 KB can ask for 2^40 steps, and one
that refers to itself for as many as the value it is given has paths. Here references
are followed once, in a count. What refers to itself, to another document, or grows
too large is refused; for the rest, work is at most the size of the schema, written out,
times that of the value.
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
#: These change what a reference means, so that it cannot be followed by reading.
_REFUSED = frozenset({"$id", "$dynamicRef", "$recursiveRef", "$vocabulary"})
#: At most so many levels and values, once every reference is written out.
_LEVELS = 100
_VALUES = 10_000
#: Regular expressions; to compile one takes up to 10 milliseconds.
_PATTERNS = 100

#: A value compared with a value of the schema: 0.1 microseconds. At most half a second.
_STEPS = 5_000_000
#: A character compared with a regular expression: at most 16 microseconds, as an error
#: is found twice. At most two seconds.
_CHARACTERS = 125_000


class _Size(NamedTuple):
    values: int
    patterns: int


@dataclass(frozen=True, slots=True)
class Mismatch:
    """
    The first part of a value that its schema does not allow.

    Attributes:
        path: Where it is, as a JSON path: ``$.location``.

        reason: What is wrong with it, without its value.
    """

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Schema:
    """
    A schema whose work has a bound.

    Attributes:
        document: What a validator may interpret.

        values: How many it has once every reference is written out.

        patterns: How many of them are regular expressions.
    """

    document: dict[str, JSON] | bool
    values: int
    patterns: int

    def bears(self, value: JSON) -> bool:
        """Return whether comparing *value* with the schema is worth its time."""
        values, characters = _weight(value)
        return (
            self.values * values <= _STEPS and self.patterns * characters <= _CHARACTERS
        )


def bounded(schema: dict[str, JSON] | bool) -> Schema:  # noqa: FBT001 -- true is one
    """
    Return *schema* as one whose work has a bound.

    Args:
        schema: Bounded in size and depth already.

    Raises:
        BadBytes: Its work has none, or it is in a dialect that is not known here.
    """
    if isinstance(schema, bool):
        return Schema(schema, 1, 0)
    # What the document calls itself means nothing where there is no other.
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
        """Return how large *value* is, with what it refers to."""
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
        """Return what a reference names, by RFC 6901."""
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
    """Return how many values there are in one, and how many characters."""
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
    Return the properties of a schema that take a value of any type.

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
