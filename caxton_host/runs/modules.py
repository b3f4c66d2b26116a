"""Files of modules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError

if TYPE_CHECKING:
    from ..config import Agent


def located(agent: Agent) -> Path:
    """
    Return the file of an agent's module.

    Raises:
        UsageError: The configuration names none.
    """
    if agent.module is None:
        raise UsageError(
            f"[agents.{agent.name}] names no module", fix='add module = "FILE.wasm"'
        )
    return agent.module


def stamp(path: Path) -> tuple[int, int, int]:
    """
    Return what is another once a file is written.

    Raises:
        UsageError: It is not there.
    """
    try:
        found = path.stat()
    except OSError as exc:
        raise _unreadable(path, exc) from None
    return found.st_ino, found.st_size, found.st_mtime_ns


def read_module(path: Path, limit: int) -> bytes:
    """
    Return the bytes of a module.

    Raises:
        UsageError: It cannot be read, or is larger than *limit*.
    """
    try:
        with path.open("rb") as file:
            module = file.read(limit + 1)
    except OSError as exc:
        raise _unreadable(path, exc) from None
    if len(module) > limit:
        raise UsageError(
            f"the module {shown(path)} is larger than {limit} bytes",
            fix="build a smaller one, or raise limits.module of the agent",
        )
    return module


def _unreadable(path: Path, exc: OSError) -> UsageError:
    return UsageError(
        f"cannot read the module {shown(path)}: {exc.strerror}",
        fix="name a file that exists; caxton agent build makes one",
    )


def shown(path: Path) -> Path:
    """Return a path as people would write it here."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
