"""Bytes become server-sent events here, none larger than allowed. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..errors import ToolError

__all__ = ["Event", "Events"]

_LONGEST_RETRY = 9


class Event(NamedTuple):
    """
    What one event says.

    Attributes:
        name: Its type.

        id: What to name to get what follows it, if anything.

        retry: Milliseconds to wait before asking for that, if it says so.
    """

    data: bytes
    name: bytes = b"message"
    id: bytes = b""
    retry: int | None = None


class Events:
    r"""
    Splits a stream of bytes into events, as the HTML standard has it.

    >>> events = Events(limit=100)
    >>> [event.data for event in events.feed(b"data: one\r\n\r\ndata: t")]
    [b'one']
    >>> [event.data for event in events.feed(b"wo\n: no comment\n\n")]
    [b'two']

    Attributes:
        lines: How many there were.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = bytearray()
        self._after_return = False
        self._start()
        self.lines = 0

    def _start(self) -> None:
        self._data: list[bytes] = []
        self._size = 0
        self._name = self._id = b""
        self._retry: int | None = None

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
                event = Event(
                    b"\n".join(self._data),
                    self._name or b"message",
                    self._id,
                    self._retry,
                )
                if self._data or self._id or self._retry is not None:
                    yield event
                self._start()
        self._hold(rest)

    def _hold(self, piece: bytes) -> None:
        if self._size + len(self._held) + len(piece) > self._limit:
            raise ToolError(
                "too_large",
                "yes",
                f"the server sent an event of over {self._limit} bytes",
            )
        self._held += piece

    def _field(self, line: bytes) -> None:
        # Counted even if not kept, so that an event has an end.
        self._size += len(line) + 1
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
