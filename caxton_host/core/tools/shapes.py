"""
JSON Schemas as types: what a value looks like, for stubs and headers.

A schema comes from a server, so the work is bounded: what is deeper or larger than the
bounds, refers to itself, or is not understood, is a value of any type. Every text in a
shape has a bounded length.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal, TypeAlias

from ..calls import JSON

#: Most parts of a schema that are read, and the levels of them.
_PARTS = 400
_LEVELS = 8
#: Most properties of an object, values of an enumeration, and choices of a union.
_FIELDS = 60
_CHOICES = 20
#: Most characters of a name, and of a text that is a value.
_NAME = 100
_TEXT = 60
_INTEGER = 1 << 63

Word: TypeAlias = Literal["any", "str", "int", "float", "bool", "null"]


@dataclass(frozen=True, slots=True)
class Plain:
    """A type that has a name in every language."""

    word: Word


@dataclass(frozen=True, slots=True)
class Exactly:
    """One value."""

    value: str | int | bool


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of items of one type."""

    item: Shape


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map with any keys."""

    value: Shape


@dataclass(frozen=True, slots=True)
class AnyOf:
    """One of several types, none of them a union."""

    ways: tuple[Shape, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """
    One property of an object.

    Attributes:
        default: The text or number that it has by default, or ``None``: unknown.
    """

    name: str
    shape: Shape
    required: bool = False
    description: str = ""
    default: str | float | None = None


@dataclass(frozen=True, slots=True)
class Fields:
    """
    An object with known properties.

    Attributes:
        more: Whether it explicitly has further properties.
    """

    fields: tuple[Field, ...]
    more: bool = False


Shape: TypeAlias = "Plain | Exactly | ListOf | MapOf | AnyOf | Fields"

ANY = Plain("any")

_TYPES: dict[str, Word] = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "null",
}


def shape_of(schema: JSON) -> Shape:
    """
    Return the type of the values that a schema accepts.

    >>> shape_of({"type": ["string", "null"]})
    AnyOf(ways=(Plain(word='str'), Plain(word='null')))
    """
    return _Reader(schema).read(schema, ())


def parameters_of(schema: JSON) -> Fields:
    """Return the parameters that an input schema accepts, the required ones first."""
    shape = shape_of(schema)
    if not isinstance(shape, Fields):
        return Fields((), more=True)
    ordered = sorted(shape.fields, key=lambda field: not field.required)
    return replace(shape, fields=tuple(ordered))


def result_of(schema: JSON) -> Shape:
    """
    Return the type of what a typed call returns, by the output schema.

    An object whose only property is ``result`` is returned as the value of that.
    """
    shape = shape_of(schema)
    if isinstance(shape, Fields) and [one.name for one in shape.fields] == ["result"]:
        return shape.fields[0].shape
    return shape


class _Reader:
    def __init__(self, document: JSON) -> None:
        self._document = document
        self._left = _PARTS

    def read(self, part: JSON, inside: tuple[str, ...], level: int = 0) -> Shape:
        """Return the shape of *part*, which the references *inside* led to."""
        self._left -= 1
        if not isinstance(part, dict) or self._left < 0 or level > _LEVELS:
            return ANY
        shape = self._read(part, inside, level + 1)
        return union((shape, Plain("null"))) if part.get("nullable") is True else shape

    def _read(
        self, part: dict[str, JSON], inside: tuple[str, ...], level: int
    ) -> Shape:
        reference = part.get("$ref")
        if isinstance(reference, str):
            if reference in inside:
                return ANY
            target = self._target(reference)
            return self.read(target, (*inside, reference), level)
        values = [part["const"]] if "const" in part else _list(part.get("enum"))
        if values:
            return _values(values)
        if ways := _list(part.get("anyOf")) or _list(part.get("oneOf")):
            return self._union(ways, inside, level)
        if ways := _list(part.get("allOf")):
            return self._all(part, ways, inside, level)
        return self._typed(part, inside, level)

    def _typed(
        self, part: dict[str, JSON], inside: tuple[str, ...], level: int
    ) -> Shape:
        types = part.get("type")
        if isinstance(types, list):
            each: list[JSON] = [{**part, "type": one} for one in types]
            return self._union(each, inside, level)
        if types == "array":
            return ListOf(self.read(part.get("items"), inside, level))
        if types == "object" or (types is None and "properties" in part):
            return self._object(part, inside, level)
        word = _TYPES.get(types) if isinstance(types, str) else None
        return Plain(word) if word else ANY

    def _union(self, ways: list[JSON], inside: tuple[str, ...], level: int) -> Shape:
        if len(ways) > _CHOICES:
            return ANY
        return union(self.read(way, inside, level) for way in ways)

    def _all(
        self,
        part: dict[str, JSON],
        ways: list[JSON],
        inside: tuple[str, ...],
        level: int,
    ) -> Shape:
        """Return the only shape, or the fields of all of them."""
        own = {key: part[key] for key in _OF_OBJECTS if key in part}
        shapes = [
            self.read(way, inside, level)
            for way in (*ways[:_CHOICES], *([own] if "properties" in own else []))
        ]
        if len(shapes) == 1:
            return shapes[0]
        fields: dict[str, Field] = {}
        for shape in shapes:
            if not isinstance(shape, Fields):
                return ANY
            fields |= {field.name: field for field in shape.fields}
        more = any(isinstance(shape, Fields) and shape.more for shape in shapes)
        return Fields(tuple(islice(fields.values(), _FIELDS)), more=more)

    def _object(
        self, part: dict[str, JSON], inside: tuple[str, ...], level: int
    ) -> Shape:
        properties, rest = part.get("properties"), part.get("additionalProperties")
        if not isinstance(properties, dict):
            if "patternProperties" in part:
                return MapOf(ANY)
            return MapOf(self.read(rest, inside, level))
        required = [*islice(_list(part.get("required")), _FIELDS * 4)]
        fields = tuple(
            self._field(name, about, name in required, inside, level)
            for name, about in islice(properties.items(), _FIELDS)
            if len(name) <= _NAME
        )
        more = rest is True or isinstance(rest, dict) or len(fields) < len(properties)
        return Fields(fields, more=more)

    def _field(
        self,
        name: str,
        about: JSON,
        required: bool,  # noqa: FBT001 -- it is a field of the result
        inside: tuple[str, ...],
        level: int,
    ) -> Field:
        said = about if isinstance(about, dict) else {}
        description, default = said.get("description"), said.get("default")
        if isinstance(default, str):
            default = default if len(default) <= _TEXT else None
        elif isinstance(default, int | float):
            default = default if abs(default) < _INTEGER else None
        else:
            default = None
        return Field(
            name=name,
            shape=self.read(about, inside, level),
            required=required,
            description=description if isinstance(description, str) else "",
            default=default,
        )

    def _target(self, reference: str) -> JSON:
        """Return the target of a reference into the document (RFC 6901)."""
        start, *parts = reference.split("/", _LEVELS)
        found = self._document if start == "#" else None
        for part in parts:
            key = part.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, dict) else None
        return found


_OF_OBJECTS = ("type", "properties", "required", "additionalProperties")


def union(ways: Iterable[Shape]) -> Shape:
    """
    Return one type for several: a union without doubles, or one of any type.

    >>> union([Plain("str"), AnyOf((Plain("int"), Plain("str")))])
    AnyOf(ways=(Plain(word='str'), Plain(word='int')))
    """
    # Equal values of different types are different: True and 1.
    found = {repr(shape): shape for shape in _flat(ways)}
    if repr(ANY) in found or not found:
        return ANY
    return AnyOf(tuple(found.values())) if len(found) > 1 else found.popitem()[1]


def _flat(ways: Iterable[Shape]) -> Iterator[Shape]:
    for way in ways:
        if isinstance(way, AnyOf):
            yield from way.ways
        else:
            yield way


def _values(values: list[JSON]) -> Shape:
    """Return the type of an enumeration: its values, or their types if it is long."""
    if len(values) > 10 * _CHOICES:
        return ANY
    shapes = [_value(value) for value in values]
    if len(values) <= _CHOICES:
        return union(shapes)
    return union(
        _wide(shape.value) if isinstance(shape, Exactly) else shape for shape in shapes
    )


def _value(value: JSON) -> Shape:
    if isinstance(value, bool):
        return Exactly(value)
    if isinstance(value, str):
        return Exactly(value) if len(value) <= _TEXT else Plain("str")
    if isinstance(value, int):
        return Exactly(value) if abs(value) < _INTEGER else Plain("int")
    if isinstance(value, float):
        return Plain("float")
    return Plain("null") if value is None else ANY


def _wide(value: str | int | bool) -> Shape:  # noqa: FBT001 -- a value
    if isinstance(value, bool):
        return Plain("bool")
    return Plain("str") if isinstance(value, str) else Plain("int")


def _list(value: JSON) -> list[JSON]:
    return value if isinstance(value, list) else []
