"""Files that are there whole, or not at all, and locks on them."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def on_disk(file: Path) -> None:
    """Return once *file*, and that it has this name, is on the disk."""
    for path in (file, file.parent):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def hosts_of(file: Path) -> Path:
    """Return the folder that has a locked file for each living host of a database."""
    return file.with_name(f"{file.name}.hosts")


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock of *path*, or may hold it."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except OSError:
        # It cannot be known. Nothing is taken from a host that may live.
        return True
    try:
        # Shared: two that look do not take each other for the host.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)
