"""
What this machine has signed of each log, outside of every database.

    signed/INCARNATION    0600: the newest checkpoint of that log, or nothing yet

A log is named by its incarnation, not by its path: its file may be moved.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from pathlib import Path
from typing import Self

from ..core.checkpoint import Note, parse_note
from ..errors import BadBytes, ConfigError, LogBrokenError
from .files import on_disk

__all__ = ["Marks"]

_NAME = re.compile("[0-9a-f]{32}")


class Marks:
    """
    The newest checkpoint of each log, in a folder.

    Args:
        folder: In the state folder; made with the first mark.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def of(cls, state: Path) -> Self:
        """Return those of a state folder."""
        return cls(state / "signed")

    def knows(self, incarnation: str) -> bool:
        """Return whether this machine has written to that log."""
        return self._path(incarnation).exists()

    def newest(self, incarnation: str) -> Note | None:
        """
        Return the last checkpoint that was kept of a log, or ``None``.

        Raises:
            ConfigError: The file holds something else.
        """
        path = self._path(incarnation)
        try:
            data = path.read_bytes()
            return parse_note(data) if data else None
        except FileNotFoundError:
            return None
        except BadBytes as exc:
            raise ConfigError(
                f"{path} is damaged: {exc}",
                fix=f"restore it from a copy, or remove it: rm {path}",
            ) from None

    def keep(self, incarnation: str, note: Note | None = None) -> None:
        """
        Keep a checkpoint, unless a newer one is kept; durable when this returns.

        Args:
            incarnation: Of the log.

            note: The checkpoint; ``None``: only that the log is known here.
        """
        path = self._path(incarnation)
        known = self.newest(incarnation)
        size = known.checkpoint.size if known else -1
        if path.exists() and (note is None or note.checkpoint.size <= size):
            return
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Readable by its owner alone, as `mkstemp` makes it.
        handle, draft = tempfile.mkstemp(dir=self._folder, prefix=".")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(note.text().encode() if note else b"")
                file.flush()
                os.fsync(file.fileno())
            Path(draft).replace(path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                Path(draft).unlink()
        on_disk(path)

    def _path(self, incarnation: str) -> Path:
        if not _NAME.fullmatch(incarnation):
            # It comes from the database, and becomes the name of a file.
            raise LogBrokenError("the name of the log is not one that a host gives")
        return self._folder / incarnation
