"""Files that are there whole, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["on_disk"]


def on_disk(file: Path) -> None:
    """Return once *file*, and that it has this name, is on the disk."""
    for path in (file, file.parent):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
