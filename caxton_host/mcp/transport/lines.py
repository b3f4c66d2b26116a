"""Bytes become lines here, none longer than allowed. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

#: What is thrown away of one over-long line before it counts as endless.
DISCARD = 64 * 1024 * 1024

_HEAD = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*"?(\d{1,18})"?\s*,'
)
# A brace that ends the line closes the message itself, so this id is its own.
_TAIL = re.compile(
    rb'"id"\s*:\s*"?(\d{1,18})"?\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z'
)
_KEPT = 256


class Overlong(NamedTuple):
    """
    A line that was thrown away.

    Attributes:
        number: The request it answers, if that can be told from its ends.

        endless: It has not ended yet, and nobody should wait for that.
    """

    number: int | None
    endless: bool = False


def number_at(*, head: bytes | bytearray = b"", tail: bytes = b"") -> int | None:
    """Return the request that a message answers, if that can be told from its ends."""
    found = _HEAD.match(head) or _TAIL.search(tail)
    return int(found[1]) if found else None


class Lines:
    r"""
    Splits a stream of bytes at its newlines.

    >>> lines = Lines(limit=100)
    >>> list(lines.feed(b"one")), list(lines.feed(b" line\n\nand"))
    ([], [b'one line', b''])
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = bytearray()
        self._discarded = 0
        self._told = False

    def feed(self, data: bytes) -> Iterator[bytes | Overlong]:
        """Take bytes, and yield the lines that they complete, without white space."""
        *whole, rest = data.split(b"\n")
        for piece in whole:
            found = self._hold(piece)
            if found is not None:
                yield found
            ended = self._end()
            if ended is not None:
                yield ended
        if rest:
            found = self._hold(rest)
            if found is not None:
                yield found

    def _hold(self, piece: bytes) -> Overlong | None:
        """Keep the start of a line; of an over-long one, its last bytes alone."""
        self._held += piece
        if not self._discarded and len(self._held) <= self._limit:
            return None
        number = None
        if not self._discarded:
            number = number_at(head=self._held)
            self._told = number is not None
        self._discarded += max(1, len(self._held) - _KEPT)
        del self._held[:-_KEPT]
        endless = self._discarded > DISCARD
        return Overlong(number, endless) if endless or number is not None else None

    def _end(self) -> bytes | Overlong | None:
        line = bytes(self._held).strip()
        self._held.clear()
        if not self._discarded:
            return line
        told, self._told, self._discarded = self._told, False, 0
        if told:
            return None
        return Overlong(number_at(tail=line))
