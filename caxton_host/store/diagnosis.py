"""
Why a database operation failed, and how to fix it.

Examines the error; for SQLite also the disk, the owner of the file, and the process
that has it locked, as far as Linux reports it.
"""

from __future__ import annotations

import errno
import os
import pwd
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from ..errors import LogBrokenError, StoreError

# States of PostgreSQL: insufficient_privilege, and the class of what is damaged.
_FORBIDDEN, _DAMAGED = "42501", "XX"
_GRANT = "GRANT what docs/how-to/postgresql.md lists to this user"
_STATES = {
    _FORBIDDEN: _GRANT,
    "25006": "name the primary server in [store] url: this one takes no writes",
    "53100": "free space on the disk of the server",
}
LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_REFUSED = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
# Errors of the environment of a file, not of its contents.
_OUTSIDE = LOCKED | {
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_PERM,
}
# SQLite reports these too when the files beside the database do not fit.
_ROOMLESS = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})
DAMAGES = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_RESTORE = "restore it from a copy: docs/how-to/restore.md"
_MOUNTS = Path("/proc/self/mountinfo")
_LOCKS = Path("/proc/locks")
# Of a line of either, at least.
_FIELDS = 6
#: Bytes: less than the files beside a database begin with.
_ROOM = 1 << 16


def said(exc: Exception) -> str:
    """Return the message of the database, without the statement or any data."""
    cause = exc.orig if isinstance(exc, DBAPIError) else exc
    if isinstance(cause, sqlite3.Error) and not hasattr(cause, "sqlite_errorcode"):
        # The driver's own message quotes a text that it cannot decode.
        closed = isinstance(cause, sqlite3.ProgrammingError)
        return "it is closed" if closed else "a column holds what is never written"
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    # PostgreSQL quotes rows in the lines behind the first.
    return str(cause).split("\n", 1)[0]


def forbidden(exc: Exception) -> bool:
    """Return whether *exc* is a lack of privileges."""
    cause = exc.orig if isinstance(exc, DBAPIError) else exc
    return getattr(cause, "sqlstate", None) == _FORBIDDEN


def explain(exc: Exception, path: Path | None, otherwise: str) -> tuple[str, str]:
    """
    Return why a database operation failed, and how to fix it.

    Args:
        exc: Of a driver, or of the operating system.

        path: Of the file, if it is one.

        otherwise: The fix of an error of another kind.
    """
    cause = exc.orig if isinstance(exc, DBAPIError) else exc
    text, code = said(exc), code_of(cause)
    if code in LOCKED:
        return text, _wait_for(path)
    if code == sqlite3.SQLITE_FULL or getattr(cause, "errno", None) in _FULL:
        return text, f"free space on the disk of {path.parent if path else 'the file'}"
    if path and code in _ROOMLESS and is_full(folder := nearest(path)):
        return f"{text}, since the disk is full", f"free space on the disk of {folder}"
    if code in DAMAGES:
        is_one = code == sqlite3.SQLITE_CORRUPT
        other = "name a file that is a database of this host; if this was one, "
        return text, f"{other * (not is_one)}{_RESTORE}"
    if path and (code in _OUTSIDE or getattr(cause, "errno", None) in _REFUSED):
        why, fix = unwritable(path)
        return f"{text}{why}", fix or otherwise
    return text, _STATES.get(getattr(cause, "sqlstate", None) or "", otherwise)


def code_of(cause: object) -> int:
    """Return the primary code of an error of SQLite, or 0."""
    return getattr(cause, "sqlite_errorcode", 0) & 0xFF


def _wait_for(path: Path | None) -> str:
    holder = holder_of(path) if path else None
    if holder is None:
        shown = f"; fuser {path} shows it" if path else ""
        return f"wait for the process that writes to it, then try again{shown}"
    pid, name = holder
    return (
        f"wait for process {pid}{f' ({name})' * bool(name)}, which writes to it, or "
        f"stop that with kill {pid}; then try again"
    )


def path_of(engine: sa.Engine) -> Path | None:
    """Return the file of a database that `open_engine` opened, if it is SQLite."""
    is_file = engine.dialect.name == "sqlite" and engine.url.database
    return Path(str(engine.url.database)) if is_file else None


def unreadable(exc: Exception) -> StoreError:
    """Return the error of a query that failed with *exc*."""
    cause = (isinstance(exc, DBAPIError) and exc.orig) or exc
    what, fix = explain(exc, None, "see `caxton db status`")
    text = f"the database cannot be read: {what}"
    state = getattr(cause, "sqlstate", None) or ""
    broken = isinstance(cause, sqlite3.Error) and code_of(cause) not in _OUTSIDE
    if broken or state.startswith(_DAMAGED):
        return LogBrokenError(text)
    return StoreError(text, fix=fix)


def nearest(path: Path) -> Path:
    """Return the nearest folder above *path* that exists."""
    return next(parent for parent in path.absolute().parents if parent.exists())


def is_full(folder: Path) -> bool:
    """Return whether the disk of *folder* is full."""
    found = os.statvfs(folder)
    if found.f_flag & os.ST_RDONLY:
        return False
    has_no_names = bool(found.f_files) and not found.f_favail
    return found.f_bavail * found.f_frsize < _ROOM or has_no_names


def unwritable(path: Path) -> tuple[str, str]:
    """Return why this user cannot write *path*, and a fix."""
    folder = nearest(path)
    if os.statvfs(folder).f_flag & os.ST_RDONLY:
        elsewhere = "name a file elsewhere with --db"
        if mount := mount_of(folder.resolve()):
            why = f", since {mount} is mounted read-only"
            return why, f"mount -o remount,rw {mount}; or {elsewhere}"
        return f", since the disk of {folder} is mounted read-only", elsewhere
    for target in (path, folder):
        if target.exists() and not os.access(target, os.W_OK):
            return f", since this user may not write {target}", _allow(target)
    return "", ""


def mount_of(folder: Path, mounts: Path = _MOUNTS) -> str | None:
    """
    Return the mount point of *folder*, if it is known and read-only.

    Args:
        folder: Without symbolic links.

        mounts: In the format of ``/proc/self/mountinfo``.
    """
    try:
        lines = mounts.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return None
    best, is_read_only = "", False
    for line in lines:
        # 36 35 98:0 /root /mount\040point ro,noatime shared:1 - ext4 /dev/root rw
        fields = line.split(" ")
        if len(fields) <= _FIELDS:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), fields[4])
        # A later mount on the same folder hides an earlier one.
        if folder.is_relative_to(point) and len(point) >= len(best):
            best = point
            is_read_only = "ro" in {*fields[5].split(","), *fields[-1].split(",")}
    return best if is_read_only else None


def _allow(target: Path) -> str:
    owner = target.stat().st_uid
    if owner == os.geteuid():
        return f"chmod u+w {target}"
    try:
        name = pwd.getpwuid(owner).pw_name
    except KeyError:
        name = str(owner)
    return f"do this as its owner, {name}; or name another file with --db"


def holder_of(path: Path, locks: Path = _LOCKS) -> tuple[int, str] | None:
    """
    Return the id and the name of the process that has *path* locked, if known.

    Args:
        path: Of a SQLite database. With a write-ahead log, its writer locks the file
            that ends in ``-shm``.

        locks: In the format of ``/proc/locks``.
    """
    files = {
        f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
        for name in (path.name, f"{path.name}-shm")
        if (found := _stat(path.with_name(name)))
    }
    for pid, file in _writers(locks):
        if file in files and pid not in {os.getpid(), -1, 0}:
            return pid, _name(pid)
    return None


def _writers(locks: Path) -> Iterator[tuple[int, str]]:
    """Yield process and file of each write lock."""
    try:
        lines = locks.read_text("ascii").splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        # 1: POSIX  ADVISORY  WRITE 4711 fd:01:131 120 120
        fields = line.split()
        if len(fields) >= _FIELDS and fields[3] == "WRITE":
            yield int(fields[4]), fields[5]


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _name(pid: int) -> str:
    try:
        name = Path(f"/proc/{pid}/comm").read_text("utf-8", errors="replace").strip()
    except OSError:
        name = ""
    return name if name.isprintable() else ""
