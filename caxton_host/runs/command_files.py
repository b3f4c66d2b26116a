"""
What a WASI program is given: its arguments, its environment, and files of the machine.

The files are read before the run begins, and become part of its log. No link is
followed, and nothing but plain files is opened.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from ..config import Agent
from ..core.commands import Command, is_command
from ..core.text.redact import Redactor
from ..errors import UsageError
from ..lib import codec

#: Files of one program, and folders in each other.
MOST_FILES, MOST_DEPTH = 1_000, 32
#: Bytes of the files of one program, whatever its limits say: a frame holds them.
MOST_BYTES = 32 * 1024 * 1024
#: Bytes of the arguments and the environment.
MOST_TEXT = 64 * 1024

#: How to correct ``files`` of an agent.
_NAME = "name plain files and folders that exist, and that you may read, in files"
_LESS = "name fewer files, or raise limits.files of the agent"

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def command_of(agent: Agent) -> tuple[Command, dict[str, bytes]]:
    """
    Return what the configuration gives a program, and the bytes of files by digest.

    Raises:
        UsageError: A path cannot be read, or the files are too many or too large.
    """
    command = Command(args=agent.args, env=agent.env)
    if not agent.files:
        return command, {}
    most = agent.limits.of_command().files or 0
    content = _Files(agent.name, min(most, MOST_BYTES)).read(agent.files)
    paths = {path: codec.sha256(data) for path, data in content.items()}
    blobs = {paths[path]: data for path, data in content.items()}
    return Command(args=agent.args, env=agent.env, files=paths), blobs


def check_command(
    module: bytes, command: Command, files: Mapping[str, bytes], redact: Redactor
) -> None:
    """
    Check what a program is given.

    Raises:
        UsageError: The module is not a WASI program, its arguments are too long, or a
            file contains a configured secret.
    """
    if command == Command():
        return
    if not is_command(module):
        raise UsageError(
            "args, env and files are for WASI programs, and this module is not one",
            fix="remove them from caxton.toml",
        )
    texts = [*command.args, *command.env, *command.env.values()]
    size = sum(len(text.encode()) + 1 for text in texts)
    if size > MOST_TEXT:
        raise UsageError(
            f"args and env have {size} bytes, of {MOST_TEXT} allowed",
            fix="pass less, or a file",
        )
    for path, digest in command.files.items():
        text = files[digest].decode(errors="replace")
        if redact.text(text) != text:
            raise UsageError(
                f"the file {path} contains a configured secret, which no agent gets",
                fix="remove the file from files",
            )


class _Files:
    """Reads files and folders, within bounds."""

    def __init__(self, agent: str, most: int) -> None:
        self._agent = agent
        self._most = self._left = most
        self._found: dict[str, bytes] = {}

    def read(self, wanted: Mapping[str, Path]) -> dict[str, bytes]:
        """Return the bytes of each file, by the path that the program has for it."""
        for name, path in wanted.items():
            # What is above the configured path is the user's own choice.
            steps = len(Path(name).parts)
            base = path.parents[steps - 1] if steps else path
            try:
                folder = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError as exc:
                raise self._error(name, str(exc.strerror)) from None
            self._enter(folder, name, "")
        return self._found

    def _enter(self, folder: int, name: str, above: str) -> None:
        """Read what *name* leads to, below the open *folder*, which is closed."""
        path = f"{above}/{name}" if above else name
        try:
            for step in Path(name).parts:
                inner = os.open(step, _OPEN, dir_fd=folder)
                os.close(folder)
                folder = inner
            self._take(folder, path)
        except UnicodeEncodeError:
            raise self._error(ascii(path), "its name is not UTF-8") from None
        except OSError as exc:
            why = "it is a link" if exc.errno == errno.ELOOP else str(exc.strerror)
            raise self._error(path, why) from None
        finally:
            os.close(folder)

    def _take(self, opened: int, path: str) -> None:
        path.encode()
        mode = os.fstat(opened).st_mode
        if stat.S_ISDIR(mode):
            if path.count("/") >= MOST_DEPTH:
                raise self._error(path, f"more than {MOST_DEPTH} folders deep")
            for name in sorted(os.listdir(opened)):
                self._enter(os.dup(opened), name, "" if path == "." else path)
        elif not stat.S_ISREG(mode):
            raise self._error(path, "it is neither a file nor a folder")
        elif path not in self._found:
            with open(opened, "rb", closefd=False) as file:
                data = file.read(self._left + 1)
            self._left -= len(data)
            if self._left < 0:
                raise self._error(path, f"together more than {self._most} bytes", _LESS)
            self._found[path] = data
            if len(self._found) > MOST_FILES:
                raise self._error(path, f"more than {MOST_FILES} files")

    def _error(self, path: str, why: str, fix: str = _NAME) -> UsageError:
        return UsageError(
            f"[agents.{self._agent}] files: cannot read {path}: {why}", fix=fix
        )
