"""
The standard error of a server, in a file.

A line is written whole or not at all, because half a secret would not be redacted. So
output that comes too fast is left out up to the end of its line, and counted.
"""

from __future__ import annotations

import logging
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from io import BufferedReader
from pathlib import Path
from typing import cast

from ...core.text.redact import Redactor, plain
from ...ports.watch import Clock
from .timing import Bucket

logger = logging.getLogger(__name__)

_LINE = 32 * 1024
_SHOWN = 8 * 1024
_FILE = 1024 * 1024

#: Bytes that are written: in a burst, and a second from then on.
_AT_ONCE = 256 * 1024
_A_SECOND = 64 * 1024

#: The cost of a chunk in addition to its bytes: each is one write.
_EACH = 200


class LogFile:
    """
    The file of a server, which several hosts may write to, with one rotation.

    Attributes:
        paths: The older file, ``NAME.log.1``, and ``NAME.log``.
    """

    def __init__(self, folder: Path, server: str) -> None:
        self.paths = (folder / f"{server}.log.1", folder / f"{server}.log")
        self._failed = False

    def append(self, text: str) -> None:
        """Write lines. A file that cannot be written fails no call."""
        try:
            self._append(text.encode(errors="replace"))
        except OSError as exc:
            if not self._failed:
                path = self.paths[-1]
                said = (
                    "MCP: cannot write %s: %s. To fix: free space on the disk of %s, "
                )
                said += "or let this user write there"
                logger.warning(said, path.name, exc.strerror, path.parent)
            self._failed = True

    def _append(self, data: bytes) -> None:
        older, path = self.paths
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        file = os.open(path, flags, 0o600)
        try:
            # One write, so that the lines of two hosts do not mix.
            os.write(file, data)
            full = os.fstat(file).st_size > _FILE
        finally:
            os.close(file)
        if full:
            path.replace(older)


class ServerLog:
    """
    Writes the output of one process in redacted lines.

    Args:
        write: Takes lines, each with its end.

        redact: Removes secrets.

        clock: For timestamps and the rate limit.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        redact: Redactor,
        clock: Clock,
    ) -> None:
        self._write = write
        self._redact = redact
        self._clock = clock
        self._allowed = Bucket(_AT_ONCE, _AT_ONCE / _A_SECOND)
        self._held = b""
        self._skipping = False
        self._left_out = 0

    def _stamped(self, line: str) -> str:
        then = datetime.fromtimestamp(self._clock.now() / 1e6, UTC)
        return f"{then:%Y-%m-%dT%H:%M:%S}.{then.microsecond // 1000:03}Z {line}\n"

    def note(self, text: str) -> None:
        """Write a line of the host."""
        self._write(self._stamped(f"-- {text}"))

    def feed(self, data: bytes) -> None:
        """Take output of the server."""
        now = self._clock.monotonic()
        if self._allowed.reserve(now, now, len(data) + _EACH) is None:
            self._skip(data)
            return
        if self._skipping:
            skipped, newline, data = data.partition(b"\n")
            self._left_out += len(skipped)
            self._skipping = not newline
        *lines, self._held = (self._held + data).split(b"\n")
        self._tell(lines)
        if len(self._held) > _LINE:
            self._skip(b"")

    def _skip(self, data: bytes) -> None:
        self._left_out += len(self._held) + len(data)
        self._held = b""
        self._skipping = True

    def _tell(self, lines: Iterable[bytes]) -> None:
        said = [line.decode(errors="replace").rstrip() for line in lines]
        shown = [plain(line, self._redact, _SHOWN) for line in said if line]
        # The prefix is the host's.
        told = [self._stamped(re.sub("^--", r"\\--", line)) for line in shown]
        if told:
            self._tell_of_loss()
            self._write("".join(told))

    def _tell_of_loss(self) -> None:
        if self._left_out:
            self.note(f"{self._left_out} bytes left out: too fast, or without an end")
            self._left_out = 0

    def end(self) -> None:
        """Write the last line, if it has no end."""
        held, self._held = self._held, b""
        self._tell([held])
        self._tell_of_loss()


def newest_lines(folder: Path, server: str, number: int) -> list[str]:
    """Return the last lines of a server's file; none if it was never started."""
    with closing(Tail(LogFile(folder, server))) as tail:
        return [*deque(tail.more(), maxlen=number)]


class Tail:
    """Reads the lines of a log file, across rotations."""

    def __init__(self, file: LogFile) -> None:
        self._paths: tuple[Path, ...] = file.paths
        self._open: BufferedReader | None = None

    def more(self) -> Iterator[str]:
        """Yield the lines since the last call; at first, all lines."""
        while self._open or self._begin():
            file = cast("BufferedReader", self._open)
            at = file.tell()
            for line in file:
                if not line.endswith(b"\n"):
                    break
                yield line.decode(errors="replace").rstrip()
                at += len(line)
            file.seek(at)
            if not self._turned_over(file):
                return
            self.close()

    def _begin(self) -> bool:
        # The older file is read to its end first.
        for path in self._paths:
            with suppress(FileNotFoundError):
                self._open = path.open("rb")
                self._paths = self._paths[-1:]
                return True
        return False

    def _turned_over(self, file: BufferedReader) -> bool:
        with suppress(FileNotFoundError):
            return not os.path.samestat(os.fstat(file.fileno()), self._paths[-1].stat())
        return False

    def close(self) -> None:
        """Close the file."""
        if self._open is not None:
            self._open.close()
            self._open = None
