"""
The files of a log: whether they still have their names, and whether they are locked.

SQLite continues to write to a file that was moved, deleted or replaced, and to the
write-ahead log and the index beside it (``-wal`` and ``-shm``): what it commits is lost
there, and another file of that name would be mixed up with them.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import math
import os
import threading
import time
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from ..errors import LogMovedError, StoreError

#: Seconds between two checks of all files, by a writer.
PERIOD = 1.0
#: Milliseconds for which the end of a host waits for other processes.
PATIENCE_MS = 10_000

_CHECKPOINT = "PRAGMA wal_checkpoint(TRUNCATE)"
_MOVE_BACK = (
    "move it back, with the files named like it that end in -wal and -shm; if that "
    "cannot be done, stop the host with SIGTERM, never with SIGKILL: what it recorded "
    "is then saved in the database, wherever that is now; then start it again"
)
_log = logging.getLogger(__name__)


def check_beside(path: Path) -> None:
    """
    Return if nothing beside *path* shows that its database was moved away.

    SQLite deletes the write-ahead log of an empty database, which may hold the only
    copy of the last commits.

    Raises:
        LogMovedError: There is no database, but its write-ahead log or a running host.
    """
    file = Path(os.path.realpath(path))
    if _size(file):
        return
    wal, hosts = file.with_name(f"{file.name}-wal"), hosts_of(file)
    if _size(wal):
        raise LogMovedError(
            f"there is no database {path}, but the end of its log is in {wal}",
            fix="move the database back beside it (docs/how-to/monitor.md); to begin a "
            f"new log, move {wal} away",
        )
    if _is_any_locked(hosts):
        raise LogMovedError(
            f"there is no database {path}: it was moved away while a host has it open",
            fix="move it back (docs/how-to/monitor.md), or stop that host",
        )


def _is_any_locked(folder: Path) -> bool:
    try:
        return any(map(is_locked, folder.iterdir()))
    except OSError:
        return False


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


class Whereabouts:
    """
    The files that a path named at the first check.

    SQLite keeps the two companion files as long as a connection is open, and deletes
    them with the last one. So they are compared only between these two moments.

    Args:
        path: Its links are followed at each check.
    """

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        true = path.resolve()
        self._wal, self._shm = f"{true}-wal", f"{true}-shm"
        self._seen: dict[str, os.stat_result] = {}
        self._looked = -math.inf
        self._lost = False
        self._connections = 0
        self._lock = threading.Lock()

    def connected(self) -> None:
        """Note that a connection was opened."""
        with self._lock:
            self._connections += 1

    def disconnected(self) -> None:
        """Note that a connection is about to be closed."""
        with self._lock:
            self._connections -= 1
            if not self._connections:
                self._seen.pop(self._wal, None)
                self._seen.pop(self._shm, None)

    def check_sometimes(self) -> None:
        """
        Check the write-ahead log, which takes the next commit.

        The other files are checked at most once in `PERIOD`; see `check`.
        """
        due = self._lost or time.monotonic() - self._looked >= PERIOD
        if due or not self._is_same(self._wal):
            self.check()

    def check(self) -> None:
        """
        Return if each path names the same file as before.

        Raises:
            LogMovedError: One of them does not.
        """
        self._looked = time.monotonic()
        files = (self._path, self._wal, self._shm)
        lost = [file for file in files if not self._is_same(file)]
        was, self._lost = self._lost, bool(lost)
        if not lost:
            return
        moved = LogMovedError(
            f"the file {lost[0]} was moved away or replaced while it was open",
            fix=_MOVE_BACK if self._has_name() else self._restore(),
        )
        if not was:
            _log.warning("nothing is recorded: %s. To fix: %s", moved, moved.fix)
        raise moved

    def save(self, engine: sa.Engine) -> None:
        """
        Copy the write-ahead log into a database that was moved away.

        SQLite does so when it closes, but only if the file still has its name.

        Args:
            engine: Of the database; one of its connections is open.

        Raises:
            LogMovedError: The file was deleted, or could not be written.
        """
        if self._is_same(self._path):
            return
        why = "it was deleted or replaced"
        if self._has_name():
            try:
                with engine.connect() as connection:
                    connection.exec_driver_sql(f"PRAGMA busy_timeout = {PATIENCE_MS}")
                    row = connection.exec_driver_sql(_CHECKPOINT).one()
            except (DBAPIError, StoreError):
                why = "it could not be written"
            else:
                if not row[0]:
                    _log.warning("%s was moved away: all is saved in it", self._path)
                    return
                why = "another process has it open"
        lost = LogMovedError(
            f"what was recorded last is not saved in {self._path}: {why}",
            fix=self._restore(),
        )
        _log.error("%s. To fix: %s", lost, lost.fix)
        raise lost

    def _restore(self) -> str:
        return (
            f"leave {self._wal} where it is; if the database is on another disk now, "
            "stop the host and move it back beside that; if it is gone, restore it "
            "from a copy: docs/how-to/restore.md"
        )

    def _has_name(self) -> bool:
        """Return whether the file that was opened still has a name in any folder."""
        known = self._seen[self._path]
        for descriptor in os.listdir("/dev/fd"):  # noqa: PTH208 -- names alone
            # Not by opening it: closing it again would release SQLite's locks.
            with contextlib.suppress(OSError):
                found = os.fstat(int(descriptor))
                if os.path.samestat(known, found):
                    return found.st_nlink > 0
        return False

    def _is_same(self, file: str) -> bool:
        known = self._seen.get(file)
        try:
            now = os.stat(file)  # noqa: PTH116 -- a `Path` takes twice as long
        except OSError:
            # The companions are there once the first connection has read.
            return known is None and file != self._path
        if known is None:
            if file == self._path or self._connections:
                self._seen[file] = now
            return True
        return os.path.samestat(known, now)


def on_disk(file: Path) -> None:
    """Return once *file* and its name are on the disk."""
    for path in (file, file.parent):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def hosts_of(file: Path) -> Path:
    """Return the folder that has a locked file for each host of a database."""
    return file.with_name(f"{file.name}.hosts")


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock of *path*, or may hold it."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except OSError:
        # Unknown. No run is taken from a host that may be alive.
        return True
    try:
        # Shared: two observers do not take each other for the host.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)
