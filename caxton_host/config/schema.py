"""
What readers take, as JSON Schema: each reader has its part beside it.

It says which keys there are and of which kind their values are, for editors. What it
refuses the loader refuses; the loader refuses more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar, cast

from ..core.calls import JSON
from . import quantities

Shape: TypeAlias = dict[str, JSON]
_Reader = TypeVar("_Reader", bound=Callable[..., Any])

_NOTE = "shape"

STRING: Shape = {"type": "string"}
INTEGER: Shape = {"type": "integer", "minimum": 0}


def shaped(shape: Shape) -> Callable[[_Reader], _Reader]:
    """Return what notes that a reader takes values of *shape*."""

    def noted(reader: _Reader) -> _Reader:
        vars(reader)[_NOTE] = shape
        return reader

    return noted


def shape_of(reader: Callable[..., Any]) -> Shape:
    """Return the shape of what *reader* takes; of one without a note, anything."""
    return cast("Shape", vars(reader).get(_NOTE, {}))


def object_(
    fields: Mapping[str, tuple[str, Callable[..., Any]]], *required: str
) -> Shape:
    """Return the shape of a table that is read by a table."""
    shape: dict[str, JSON] = {
        "type": "object",
        "properties": {key: shape_of(reader) for key, (_, reader) in fields.items()},
        "additionalProperties": False,
    }
    return {**shape, "required": [*required]} if required else shape


def mapping(shape: Shape) -> Shape:
    """Return the shape of a table with any keys."""
    return {"type": "object", "additionalProperties": shape}


def array(shape: Shape) -> Shape:
    """Return the shape of a list."""
    return {"type": "array", "items": shape}


def one_of(values: Iterable[JSON]) -> Shape:
    """Return the shape of a few known values."""
    return {"enum": [*values]}


def either(*shapes: Shape) -> Shape:
    """Return the shape of what has one of some shapes."""
    return {"anyOf": [*shapes]}


def _pattern(text: str, description: str) -> Shape:
    r"""
    Return the shape of texts that are like *text*, or refer to what is elsewhere.

    >>> _pattern("[0-9]+", "a number")["pattern"]
    '^(?:[0-9]+)$|\\$\\{'
    """
    return {
        "type": "string",
        "pattern": rf"^(?:{text})$|\$\{{",
        "description": description,
    }


DURATION = _pattern(quantities.DURATION, 'a duration, as `"10s"`')
RATE = _pattern(quantities.RATE, 'a rate, as `"60/min"`')
SIZE = _pattern(quantities.SIZE, 'a size, as `"64 KiB"`')
