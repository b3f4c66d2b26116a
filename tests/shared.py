"""What is built once for a test run, however many processes it has, and where."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

#: Bytes. A whole run leaves about 4 GiB, most of them databases and packages of npm.
_ENOUGH = 12 << 30
_MEMORY = Path("/dev/shm")  # noqa: S108 -- what is made there has names of its own


def in_memory() -> Path | None:
    """Return a folder in memory for temporary files, where there is room for them."""
    try:
        found = os.statvfs(_MEMORY)
    except OSError:
        return None
    free = found.f_bavail * found.f_frsize
    usable = free >= _ENOUGH and not found.f_flag & os.ST_NOEXEC
    return _MEMORY if usable and os.access(_MEMORY, os.W_OK) else None


def once(
    factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]
) -> Path:
    """
    Return the folder of that *name*, which *make* has filled.

    Whoever comes first fills it, and the others wait. Nobody may change it later.
    """
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    folder, done = root / name, root / f"{name}.done"
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            folder.mkdir()
            make(folder)
            done.touch()
    return folder
