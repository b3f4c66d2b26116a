"""
What this machine has signed of each log, outside of every database.

    signed/INCARNATION         0600: its newest checkpoint, or nothing yet
    signed/INCARNATION.file    0600: the SQLite file that holds it, by inode and path

A log is named by its incarnation, not by its path: its file may be moved.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from pathlib import Path
from typing import Self

from ..core.log.checkpoint import Note, parse_note
from ..errors import BadBytes, ConfigError, LogBrokenError
from .files import on_disk

_NAME = re.compile("[0-9a-f]{32}")
_FILE = re.compile(r"(\d+) (\d+) (.+)", re.DOTALL)


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
                fix=f"restore it; or rm {path}, and the log counts as a copy: its "
                "unfinished runs are suspended",
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
        self._write(path, note.text() if note else "")

    def original(self, incarnation: str, file: Path) -> Path | None:
        """
        Return where the file of a log still is, if *file* is another one.

        ``None``: nothing is where it was, or *file* is it, wherever that was moved.
        """
        try:
            text = self._file(incarnation).read_text("utf-8", "surrogateescape")
            found = _FILE.fullmatch(text)
            known = Path(found[3]) if found else None
            there = known.stat() if known else None
        except OSError:
            return None
        if found is None or there is None or known == file.resolve():
            return None
        is_it = (str(there.st_dev), str(there.st_ino)) == (found[1], found[2])
        return known if is_it and not os.path.samestat(there, file.stat()) else None

    def settle(self, incarnation: str, file: Path) -> None:
        """Remember that *file* holds a log."""
        here = file.stat()
        text = f"{here.st_dev} {here.st_ino} {file.resolve()}"
        path = self._file(incarnation)
        with contextlib.suppress(OSError):
            if path.read_text("utf-8", "surrogateescape") == text:
                return
        self._write(path, text)

    def _file(self, incarnation: str) -> Path:
        return self._path(incarnation).with_suffix(".file")

    def _write(self, path: Path, text: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Readable by its owner alone, as `mkstemp` makes it.
        handle, draft = tempfile.mkstemp(dir=self._folder, prefix=".")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text.encode("utf-8", "surrogateescape"))
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
