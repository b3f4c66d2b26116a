"""Files that are opened only if they are files, and replaced as a whole."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from typing import BinaryIO, TypeAlias

_STDIN = Path("/dev/stdin")


def replace_file(
    path: Path, *data: bytes | mmap, mode: int | None = None, sync: bool = True
) -> None:
    """
    Replace the content of a file atomically.

    Args:
        path: The file, or a link to it. Its folder exists.

        data: The new content, in parts.

        mode: Its permissions; default: unchanged, or 0644 for a new file.

        sync: The content is on disk when this returns.

    Raises:
        OSError: It cannot be written, and is unchanged.
    """
    target = Path(os.path.realpath(path))  # Before 3.13, resolve() fails at a loop.
    if mode is None:
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o644
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with open(handle, "wb") as file:  # noqa: PTH123 -- a descriptor
            file.writelines(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@dataclass(frozen=True, slots=True)
class Change:
    """
    The new content of a file.

    Attributes:
        path: The file.

        data: What it is to hold, or ``None``: it is removed.

        mode: As for `replace_file`.
    """

    path: Path
    data: bytes | None
    mode: int | None = None


def replace_files(changes: Sequence[Change]) -> None:
    """
    Replace several files, in their order, or none.

    A crash in between leaves the first ones changed. Folders are created.

    Raises:
        OSError: One cannot be written; the others are as they were.
    """
    undo: list[Change] = []
    try:
        for change in changes:
            undo.append(Change(change.path, read_if_there(change.path)))
            _apply(change)
    except BaseException:
        for old in reversed(undo):
            with contextlib.suppress(OSError):
                _apply(old)
        raise


def read_if_there(path: Path) -> bytes | None:
    """Return the content of a file, or ``None`` if it is not there."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _apply(change: Change) -> None:
    if change.data is None:
        change.path.unlink(missing_ok=True)
    else:
        change.path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(change.path, change.data, mode=change.mode)


def opened(path: Path) -> BinaryIO:
    """
    Open a regular file, or what stdin is.

    Raises:
        OSError: It cannot be read, or could make its reader wait for ever.
    """
    if not path.is_file() and path.exists() and path != _STDIN:
        raise OSError(errno.EINVAL, "it is not a regular file")
    return path.open("rb")


#: See `file_states`.
FileStates: TypeAlias = tuple[tuple[int, int, int] | None, ...]


def file_states(files: Iterable[str | Path]) -> FileStates:
    """Return a value that changes when one of *files* is written or replaced."""

    def of(path: str | Path) -> tuple[int, int, int] | None:
        with contextlib.suppress(OSError):
            found = Path(path).stat()
            return found.st_ino, found.st_size, found.st_mtime_ns
        return None

    return tuple(map(of, files))
