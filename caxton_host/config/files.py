"""Writing a file whole, or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def replace_file(path: Path, data: bytes, mode: int | None = None) -> None:
    """
    Have a file hold *data*; nobody sees half of it.

    Args:
        path: The file, or a link to it. Its folder exists.

        data: What it is to hold.

        mode: Who may do what with it; by default as before, or as is usual.

    Raises:
        OSError: It cannot be written, and is as before.
    """
    target = path.resolve()
    if mode is None:
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o644
    handle, draft = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with open(handle, "wb") as file:  # noqa: PTH123 -- a descriptor
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(draft).chmod(mode)
        Path(draft).replace(target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(draft).unlink()
        raise
