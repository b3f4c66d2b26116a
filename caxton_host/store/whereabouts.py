"""
Whether the file of a log still has its name.

SQLite goes on writing to a file that was moved, deleted or replaced: nobody finds
there what it commits, and another file of that name would be mixed up with the
write-ahead log of this one.
"""

from __future__ import annotations

import logging
import math
import os
import time
from pathlib import Path

from ..errors import LogMovedError

__all__ = ["PERIOD", "Whereabouts"]

#: Seconds between two looks of who writes.
PERIOD = 1.0

_log = logging.getLogger(__name__)


class Whereabouts:
    """
    The file that a path named at the first look.

    Args:
        path: Links in it are followed at each look.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: os.stat_result | None = None
        self._looked = -math.inf
        self._lost = False

    def check_sometimes(self) -> None:
        """Do as `check`, but believe what was seen within the last `PERIOD`."""
        if self._lost or time.monotonic() - self._looked >= PERIOD:
            self.check()

    def check(self) -> None:
        """
        Return if the path names the same file as ever.

        Raises:
            LogMovedError: It does not.
        """
        self._looked = time.monotonic()
        was, self._lost = self._lost, not self._is_there()
        if not self._lost:
            return
        moved = LogMovedError(
            f"the file {self._path} was moved away or replaced while it was open",
            fix="move it back, with the files named like it that end in -wal and -shm; "
            "or else start the host again",
        )
        if not was:
            _log.warning("nothing is recorded: %s. To fix: %s", moved, moved.fix)
        raise moved

    def _is_there(self) -> bool:
        try:
            now = self._path.stat()
        except OSError:
            return False
        self._file = self._file or now
        return os.path.samestat(self._file, now)
