"""
Turns to compute: about as many guests at once as there are processors.

A guest that waits for a tool gives its turn back. One that computes gives way at a
tick if others are waiting, so that none starves behind two that spin.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock


class _Place:
    __slots__ = ("granted", "wake")

    def __init__(self) -> None:
        self.granted = False
        self.wake = Lock()
        self.wake.acquire()


class Turns:
    """
    Hands out turns, in the order in which they were asked for.

    Args:
        width: How many there are.
    """

    def __init__(self, width: int) -> None:
        self._free = width
        self._lock = Lock()
        self._queue: dict[object, _Place] = {}

    @property
    def wanted(self) -> bool:
        """Whether somebody waits for a turn."""
        return bool(self._queue)

    def take(self, who: object, dismissed: Callable[[], object]) -> bool:
        """
        Wait for a turn, and return whether *who* got one.

        Args:
            who: Who is known by this to `dismiss`.

            dismissed: Whether *who* is not to wait at all. It must be true before
                `dismiss` is called.
        """
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            if dismissed():
                return False
            place = self._queue[who] = _Place()
        place.wake.acquire()
        return place.granted

    def give(self) -> None:
        """Give a turn back."""
        with self._lock:
            if self._queue:
                place = self._queue.pop(next(iter(self._queue)))
                place.granted = True
                place.wake.release()
            else:
                self._free += 1

    def dismiss(self, who: object) -> None:
        """Let *who* wait no longer."""
        with self._lock:
            if place := self._queue.pop(who, None):
                place.wake.release()
