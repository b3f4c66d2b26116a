"""
Values that are looked up when metrics are read.

Some need the database, or a disk. Those are looked up in a thread of their own, at most
once in `FRESH_S`, and a reader waits for `PATIENCE_S` at most. What could not be looked
up has no value, so no reader mistakes an old value for a new one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from .instruments import Instrument

FRESH_S = 5.0
PATIENCE_S = 1.0

#: A value of a gauge, with its labels.
Point: TypeAlias = tuple[Instrument, float, tuple[str, ...]]
Read: TypeAlias = Callable[[], Iterable[Point]]

_log = logging.getLogger("caxton_host")


@dataclass(slots=True, eq=False)
class Look:
    """
    What looks up the values of some gauges.

    Attributes:
        read: Returns them.

        what: Its name, if it may take a while.

        failed: Called with the name when it fails, or is late.
    """

    read: Read
    what: str = ""
    failed: Callable[[str], None] = lambda _: None
    _points: Sequence[Point] = field(default=(), init=False)
    _began: float = field(default=-FRESH_S, init=False)
    _under_way: bool = field(default=False, init=False)
    _ended: threading.Event = field(default_factory=threading.Event, init=False)
    _turn: threading.Lock = field(default_factory=threading.Lock, init=False)
    _is_late: bool = field(default=False, init=False)
    _is_told: bool = field(default=False, init=False)

    def begin(self) -> None:
        """Look, unless that was done a moment ago, or is still under way."""
        if not self.what:
            return
        with self._turn:
            now = time.monotonic()
            if self._under_way or now - self._began < FRESH_S:
                return
            self._began, self._under_way, self._is_late = now, True, False
            self._ended.clear()
        # Nothing waits for it at the end of the process.
        threading.Thread(target=self._look, name="caxton-look", daemon=True).start()

    def points(self) -> Iterable[Point]:
        """Return what was found; nothing, if that failed or takes too long."""
        if not self.what:
            return self.read()
        if self._ended.wait(max(0.0, self._began + PATIENCE_S - time.monotonic())):
            return self._points
        with self._turn:
            if self._under_way and not self._is_late:
                self._is_late = True
                self._fail("it takes too long")
        return ()

    def _look(self) -> None:
        try:
            self._points = [*self.read()]
            self._is_told = False
        except Exception as exc:  # noqa: BLE001 -- whatever fails, the rest is read
            self._points = ()
            self._fail(str(exc))
        finally:
            self._under_way = False
            self._ended.set()

    def _fail(self, why: str) -> None:
        self.failed(self.what)
        if not self._is_told:
            self._is_told = True
            _log.warning("the metrics of the %s cannot be read: %s", self.what, why)
