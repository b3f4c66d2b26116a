"""Which process keeps a database file locked, as far as Linux says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_LOCKS = Path("/proc/locks")
_FIELDS = 6


def holder_of(path: Path, locks: Path = _LOCKS) -> tuple[int, str] | None:
    """
    Return the id and the name of the process that may write *path* now, if known.

    Args:
        path: Of a SQLite database. With a write-ahead log, its writer locks the file
            that ends in ``-shm``.

        locks: In the format of ``/proc/locks``.
    """
    files = {
        f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
        for name in (path.name, f"{path.name}-shm")
        if (found := _stat(path.with_name(name)))
    }
    for pid, file in _writers(locks):
        if file in files and pid not in {os.getpid(), -1, 0}:
            return pid, _name(pid)
    return None


def _writers(locks: Path) -> Iterator[tuple[int, str]]:
    """Yield process and file of each lock for writing that is held."""
    try:
        lines = locks.read_text("ascii").splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        # 1: POSIX  ADVISORY  WRITE 4711 fd:01:131 120 120
        fields = line.split()
        if len(fields) >= _FIELDS and fields[3] == "WRITE":
            yield int(fields[4]), fields[5]


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _name(pid: int) -> str:
    try:
        name = Path(f"/proc/{pid}/comm").read_text("utf-8", errors="replace").strip()
    except OSError:
        name = ""
    return name if name.isprintable() else ""
