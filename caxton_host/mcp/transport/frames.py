"""Split bytes into lines and server-sent events of bounded size. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ...errors import ToolError

#: Bytes of one over-long line that are discarded before it counts as endless.
DISCARD = 64 * 1024 * 1024

_HEAD = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*"?(\d{1,18})"?\s*,'
)
# A brace that ends the line closes the message itself, so this id is its own.
_TAIL = re.compile(
    rb'"id"\s*:\s*"?(\d{1,18})"?\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z'
)
_KEPT = 256

_LONGEST_RETRY = 9


class Overlong(NamedTuple):
    """
    A line that was discarded for its size.

    Attributes:
        number: The request it answers, if its start or end shows that.

        endless: It has exceeded the bound for discarding as well.
    """

    number: int | None
    endless: bool = False


def number_at(*, head: bytes | bytearray = b"", tail: bytes = b"") -> int | None:
    """Return the request that a message answers, if its start or end shows that."""
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
        """Take bytes, and yield the lines that they complete, stripped."""
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
        """Keep the start of a line; of an over-long one, only its last bytes."""
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


class Event(NamedTuple):
    """
    One server-sent event.

    Attributes:
        name: Its type.

        id: The position after which a stream can be resumed, if any.

        retry: Milliseconds to wait before resuming, if given.

        overlong: Set if the event was discarded for its size.
    """

    data: bytes
    name: bytes = b"message"
    id: bytes = b""
    retry: int | None = None
    overlong: Overlong | None = None


class Events:
    r"""
    Splits a stream of bytes into events, as the HTML standard has it.

    An event larger than *limit* is discarded if it is one line of less than *discard*
    bytes, and otherwise ends the stream.

    >>> events = Events(limit=100)
    >>> [event.data for event in events.feed(b"data: one\r\n\r\ndata: t")]
    [b'one']
    >>> [event.data for event in events.feed(b"wo\n: no comment\n\n")]
    [b'two']

    Attributes:
        lines: The number of lines so far.
    """

    def __init__(self, limit: int, *, discard: int = 0) -> None:
        self._limit = limit
        self._discard = discard
        self._held = bytearray()
        self._after_return = False
        self._start()
        self.lines = 0

    def _start(self) -> None:
        self._data: list[bytes] = []
        self._size = 0
        self._name = self._id = b""
        self._retry: int | None = None
        self._thrown = 0
        self._number: int | None = None

    def feed(self, data: bytes) -> Iterator[Event]:
        """
        Take bytes, and yield the events that they complete.

        Raises:
            ToolError: A line or an event is larger than allowed.
        """
        if self._after_return and data.startswith(b"\n"):
            data = data[1:]
        self._after_return = data.endswith(b"\r")
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *whole, rest = data.split(b"\n")
        for piece in whole:
            self._hold(piece)
            line = bytes(self._held)
            self._held.clear()
            self.lines += 1
            if line:
                self._field(line)
            else:
                if self._thrown:
                    yield Event(b"", overlong=Overlong(self._number))
                elif self._data or self._id or self._retry is not None:
                    yield Event(
                        b"\n".join(self._data),
                        self._name or b"message",
                        self._id,
                        self._retry,
                    )
                self._start()
        self._hold(rest)

    def _hold(self, piece: bytes) -> None:
        size = self._size + len(self._held)
        if size + len(piece) > self._limit and not self._throw(size):
            raise ToolError(
                "too_large",
                "yes",
                f"the server sent an event of over {self._limit} bytes",
            )
        self._held += piece

    def _throw(self, size: int) -> bool:
        """Discard the event so far, if that is allowed."""
        if self._data or self._thrown + size >= self._discard:
            return False
        if not self._thrown:
            self._number = number_at(head=self._held.removeprefix(b"data:"))
        self._thrown += max(1, size - _KEPT)
        self._size = 0
        del self._held[:-_KEPT]
        return True

    def _field(self, line: bytes) -> None:
        # Counted even if not kept, so that an event has an end.
        self._size += len(line) + 1
        if self._thrown:
            if self._number is None:
                self._number = number_at(tail=line)
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._name = value
        elif name == b"id" and b"\0" not in value:
            self._id = value
        elif name == b"retry" and value.isdigit() and len(value) <= _LONGEST_RETRY:
            self._retry = int(value)
