"""A cursor over a binary that counts what it passes, and refuses what is too much."""

from __future__ import annotations

from typing import NoReturn

from ..core.names import clean_name
from ..errors import ModuleRefused

MAX_NAME = 1_000
#: In all parts of a binary together. An agent in Python has 40,000.
MAX_THINGS = 250_000


def bound(what: str, number: int, maximum: int) -> None:
    """Refuse a module that has more of something than it may."""
    if number > maximum:
        raise ModuleRefused(
            f"the module has too many {what}: {number:,}, at most {maximum:,}",
            fix="build it optimized for size (-Os), or split it into several agents",
        )


class Reader:
    """
    A cursor that never leaves its part of the module.

    Args:
        data: The module.

        start: Where the part begins.

        end: Where it ends.

        seen: How many things were counted so far, in all parts of the module.
    """

    __slots__ = ("_data", "_end", "_seen", "position")

    def __init__(
        self, data: bytes, start: int, end: int, seen: list[int] | None = None
    ) -> None:
        self._data = data
        self._end = end
        self._seen = seen or [0]
        self.position = start

    @property
    def left(self) -> int:
        """How many bytes are left."""
        return self._end - self.position

    def fail(self, what: str) -> NoReturn:
        """Refuse the module, for what is wrong here."""
        raise ModuleRefused(
            f"the module is not well-formed: {what} at byte {self.position}",
            fix="build it again: the file is damaged, or needs a newer WebAssembly",
        )

    def byte(self) -> int:
        """Return the next byte."""
        if not self.left:
            self.fail("cut off")
        self.position += 1
        return self._data[self.position - 1]

    def u32(self) -> int:
        """Return the next number (LEB128)."""
        value = 0
        for shift in range(0, 35, 7):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004 -- the continuation bit of LEB128
                break
        else:
            self.fail("a number of more than five bytes")
        if value >> 32:
            self.fail("a number over 32 bits")
        return value

    def take(self, size: int) -> bytes:
        """Return the next *size* bytes."""
        if size > self.left:
            self.fail("cut off")
        self.position += size
        return self._data[self.position - size : self.position]

    def part(self, size: int) -> Reader:
        """Return a reader of the next *size* bytes, and step over them."""
        if size > self.left:
            self.fail("cut off")
        self.position += size
        return Reader(self._data, self.position - size, self.position, self._seen)

    def name(self) -> str:
        """Return the next name, escaped."""
        return clean_name(self.take(self.count("bytes in a name", MAX_NAME)), MAX_NAME)

    def count(self, what: str, maximum: int) -> int:
        """Return the next number, if it is no more than it may be."""
        count = self.u32()
        bound(what, count, maximum)
        return count

    def items(self, what: str, maximum: int) -> int:
        """Return how many things follow, each of which is going to be looked at."""
        count = self.count(what, maximum)
        self.saw(count)
        return count

    def saw(self, number: int) -> None:
        """Count things that are going to be looked at."""
        self._seen[0] += number
        bound("things to look at", self._seen[0], MAX_THINGS)
