"""
Which of many values may have one in them, without a look into each.

A value is written as one text. Whatever `places_in` finds in it leaves one of its hints
there, so a text without a hint has no place. A text with one need not have a place.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..calls import JSON
from ..text.jsonpath import parts
from .matching import ways

#: Integers up to here begin their notation as a float.
_LARGEST = 10**15


def hinted(value: JSON) -> str:
    """Return the text in which `hints` stand."""
    try:
        return repr(value)
    except RecursionError:
        leaves = (item for _, item in parts(value))
        return " ".join(repr(x) for x in leaves if not isinstance(x, (dict, list)))


def hints(value: JSON) -> set[str]:
    """
    Return texts, of which each `hinted` text that has a value has one.

    >>> sorted(hints(1250.0))
    ['1,250', '1,250.0', '1,250.00', '1250', '1250.0', '1250.00']
    """
    found: Iterable[str] = (way.part for way in ways(value) or ())
    if isinstance(value, str):
        found = (value, *found)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        found = (str(value),)
    elif abs(value) > _LARGEST:
        found = ("",)
    else:
        # ``1`` is ``1.0``.
        found = (str(int(value) if int(value) == value else value), *found)
    return set(map(_escaped, found))


def _escaped(text: str) -> str:
    """Return the longest part of a text that `repr` writes the same in every text."""
    return repr(max(text.split("'"), key=len))[1:-1]
