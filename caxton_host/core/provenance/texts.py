"""
An index of free texts that only grows: which of them has a value, and where.

Texts are kept in blocks. Sixteen blocks are a group, which has a sorted list of the
keys of its texts, and for each key a mask of the blocks that have it. A lookup searches
only the blocks that have every key of the value. The index holds references to texts
that exist anyway, and has six bytes for each token that a group has.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from .matching import TRIES, Way

_BLOCK = 16 * 1024
_BLOCKS = 16
_ALL = (1 << _BLOCKS) - 1
#: Characters that are searched for one value.
_MOST = 8 * 1024 * 1024

_P = TypeVar("_P")


@dataclass(slots=True)
class _Group(Generic[_P]):
    blocks: list[list[tuple[str, _P]]] = field(
        default_factory=lambda: list[list[tuple[str, _P]]]([[]])
    )
    room: int = _BLOCK
    #: Key to mask, while texts are added.
    fresh: dict[int, int] | None = field(default_factory=dict[int, int])
    keys: Sequence[int] = ()
    masks: Sequence[int] = ()

    def add(self, text: str, place: _P, keys: set[int]) -> bool:
        """Add a text; return whether there is no room for another."""
        assert self.fresh is not None  # noqa: S101 -- it is not closed
        bit = 1 << (len(self.blocks) - 1)
        for key in keys:
            self.fresh[key] = self.fresh.get(key, 0) | bit
        self.blocks[-1].append((text, place))
        self.room -= len(text)
        if self.room > 0:
            return False
        if len(self.blocks) < _BLOCKS:
            self.blocks.append([])
            self.room = _BLOCK
            return False
        self.keys = array("I", sorted(self.fresh))
        self.masks = array("H", map(self.fresh.__getitem__, self.keys))
        self.fresh = None
        return True

    def with_all(self, keys: Iterable[int]) -> int:
        """Return the mask of the blocks that have all *keys*."""
        found = _ALL
        for key in keys:
            found &= self._mask(key)
            if not found:
                break
        return found

    def _mask(self, key: int) -> int:
        if self.fresh is not None:
            return self.fresh.get(key, 0)
        at = bisect_left(self.keys, key)
        known = at < len(self.keys) and self.keys[at] == key
        return self.masks[at] if known else 0


@dataclass(frozen=True, slots=True)
class TooCommon:
    """A value has too many places to be looked at."""


class Texts(Generic[_P]):
    """
    An index of texts, each with a place that the caller gives.

    Args:
        keys: Returns the keys of a text: those of the ways that are looked up.

    >>> from .matching import token_keys, ways
    >>> texts = Texts[str](token_keys)
    >>> texts.add("Pay bob@x.com.", "the input")
    >>> texts.find(ways("bob@x.com")), texts.find(ways("x.com"))
    ('the input', None)
    """

    def __init__(self, keys: Callable[[str], set[int]]) -> None:
        self._keys = keys
        self._groups: list[_Group[_P]] = [_Group()]

    def add(self, text: str, place: _P) -> None:
        """Add a text."""
        if self._groups[-1].add(text, place, self._keys(text)):
            self._groups.append(_Group())

    def find(self, ways: Sequence[Way]) -> _P | TooCommon | None:
        """Return the place of the first text that has a value in one of these ways."""
        tries, room = TRIES, _MOST
        for text, place, way in self._candidates(ways):
            at, tries = way.search(text, tries)
            if at >= 0:
                return place
            room -= len(text)
            if tries <= 0 or room <= 0:
                return TooCommon()
        return None

    def _candidates(self, ways: Sequence[Way]) -> Iterator[tuple[str, _P, Way]]:
        """Yield the texts in which a search is worth while, in their order."""
        for group in self._groups:
            masks = [group.with_all(way.keys) for way in ways]
            if not any(masks):
                continue
            for number, block in enumerate(group.blocks):
                here = [
                    way for way, m in zip(ways, masks, strict=True) if m >> number & 1
                ]
                for text, place in block if here else ():
                    for way in here:
                        yield text, place, way
