"""
What a server writes on its standard error, kept in a file for people.

A line goes in whole or not at all: a secret in it may have come in two pieces, and
half of one is found by nobody. So what comes too fast is left out up to the end of
its line, and counted.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from io import BufferedReader
from pathlib import Path
from typing import cast

from ...core.text.redact import Redactor
from ...core.text.sanitize import plain
from ...ports import Clock
from .timing import Bucket

logger = logging.getLogger(__name__)

_LINE = 32 * 1024
_SHOWN = 8 * 1024
_FILE = 1024 * 1024

#: Bytes of a server that are looked at: at once, and in a second from then on.
_AT_ONCE = 256 * 1024
_A_SECOND = 64 * 1024

#: What a piece costs beside its bytes: each is a write of its own.
_EACH = 200


class LogFile:
    """
    The file of a server, which several hosts may write to. It turns over once.

    Attributes:
        paths: What came before, ``NAME.log.1``, and ``NAME.log``.
    """

    def __init__(self, folder: Path, server: str) -> None:
        self.paths = (folder / f"{server}.log.1", folder / f"{server}.log")
        self._failed = False

    def append(self, text: str) -> None:
        """Write lines. A file that cannot be written costs no call anything."""
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
            # In one piece, so that the lines of two hosts do not mix.
            os.write(file, data)
            full = os.fstat(file).st_size > _FILE
        finally:
            os.close(file)
        if full:
            path.replace(older)


class ServerLog:
    """
    Takes the bytes of one process, and writes the lines of them.

    Args:
        write: Takes lines, each with its end.

        redact: Takes the secrets out of a line.

        clock: For the time of a line, and for what is too much.
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
        """Write a line of the host's own."""
        self._write(self._stamped(f"-- {text}"))

    def feed(self, data: bytes) -> None:
        """Take what the server wrote."""
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
        # No server speaks in the name of the host.
        told = [self._stamped(re.sub("^--", r"\\--", line)) for line in shown]
        if told:
            self._tell_of_loss()
            self._write("".join(told))

    def _tell_of_loss(self) -> None:
        if self._left_out:
            self.note(f"{self._left_out} bytes left out: too fast, or without an end")
            self._left_out = 0

    def end(self) -> None:
        """Write what is left: a last line without an end."""
        held, self._held = self._held, b""
        self._tell([held])
        self._tell_of_loss()


class Tail:
    """Reads the lines of a server, also of a file that just turns over."""

    def __init__(self, file: LogFile) -> None:
        self._paths: tuple[Path, ...] = file.paths
        self._open: BufferedReader | None = None

    def more(self) -> Iterator[str]:
        """Yield the lines that are new since the last time; at first, all there are."""
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
        # The older one is read to its end, and then found to be not the newest.
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
        """Let go of the file."""
        if self._open is not None:
            self._open.close()
            self._open = None
