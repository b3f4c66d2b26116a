"""The lock files of programs, as they are beside a program."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..core.calls import JSON
from ..core.dependencies import Lock, metadata_of
from ..errors import UsageError
from ..lib.codec import sha256

#: Most bytes of the packages of a program.
MOST_PACKAGES = 16 * 1024 * 1024


def lock_of(program: Path) -> Path:
    """Return the lock file of a program."""
    return program.with_name(f"{program.name}.lock")


def packages_of(program: Path) -> Path:
    """Return the file with the compiled packages of a program."""
    return program.with_name(f"{program.name}.packages")


def read_locked(
    program: Path, source: str
) -> tuple[bytes, tuple[Mapping[str, JSON], ...]]:
    """
    Return the locked packages of a program, as `Program` has them.

    Both are empty for a program that names no dependencies.

    Args:
        program: Its file. The lock is beside it.

        source: Its text.

    Raises:
        UsageError: The metadata is not valid, or there is no lock that fits it.
    """
    metadata = metadata_of(source, program.name)
    if not metadata.dependencies:
        return b"", ()
    fix = f"caxton program lock {program}"
    path = lock_of(program)
    try:
        lock = Lock.from_toml(path.read_text("utf-8"))
        packages = _read(packages_of(program))
    except FileNotFoundError as exc:
        missing = Path(str(exc.filename)).name
        raise UsageError(
            f"{program.name} names dependencies, and {missing} does not exist", fix=fix
        ) from None
    except (OSError, ValueError, RecursionError) as exc:
        raise UsageError(f"{path} cannot be read: {exc}", fix=fix) from None
    if lock.metadata != metadata:
        raise UsageError(
            f"the dependencies in {program.name} are not those in {path.name}", fix=fix
        )
    if sha256(packages) != lock.sha256:
        raise UsageError(
            f"{packages_of(program).name} is not the file that {path.name} describes",
            fix=fix,
        )
    return packages, lock.packages


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(MOST_PACKAGES + 1)
    if len(data) > MOST_PACKAGES:
        raise ValueError(f"{path.name} has more than {MOST_PACKAGES:,} bytes")
    return data
