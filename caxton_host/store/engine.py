"""
How a database is opened, and what is refused.

SQLite is opened here, PostgreSQL by `postgres`. Writing: WAL, and every commit on
the disk. Reading: nothing is created or changed, and a copy on a read-only disk
will do.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from pathlib import Path
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import QueuePool

from ..config.sections import store_mistake
from ..errors import LogBrokenError, StoreError
from .disk_problems import is_full, nearest, unwritable
from .file_guard import Whereabouts, check_beside
from .lock_holders import holder_of

# States of PostgreSQL: insufficient_privilege, and the class of what is damaged.
_FORBIDDEN, _DAMAGED = "42501", "XX"
_GRANT = "GRANT what docs/how-to/postgresql.md lists to this user"
_STATES = {
    _FORBIDDEN: _GRANT,
    "25006": "name the primary server in [store] url: this one takes no writes",
    "53100": "free space on the disk of the server",
}
_LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_REFUSED = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
# What is wrong around the file, not in it.
_OUTSIDE = _LOCKED | {
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_PERM,
}
# What SQLite says too when there is no room for the files beside the database.
_ROOMLESS = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})
_DAMAGES = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_MAGIC = b"SQLite format 3\0"
_RESTORE = "restore it from a copy: docs/how-to/restore.md"
# Pages; 16 MB. A page that many commits changed is copied to the file once.
_CHECKPOINT = 4000
_FILE = "caxton.db"
_PATIENCE = 10.0
_PAUSE = 0.01


def open_engine(
    url: str, *, write: bool, whereabouts: Whereabouts | None = None
) -> sa.Engine:
    """
    Return an engine for the database at *url*, after a look at it.

    Its connections begin and end transactions only when told to. Opened to write,
    file and folder are created if need be, for their owner alone.

    Args:
        url: Of SQLite or PostgreSQL.

        write: Open it to write.

        whereabouts: Of its file; no connection opens another one, if given.

    Raises:
        StoreError: There is no such database, or it cannot be used.
    """
    parsed = _parsed(url)
    if parsed.get_backend_name() != "sqlite":
        from .postgres import open_server  # noqa: PLC0415 -- an extra

        return open_server(parsed, write=write)
    path = _path(parsed)
    if os.path.isdir(path):  # noqa: PTH112 -- false if it cannot be known
        raise StoreError(f"{path} is a folder", fix="name a file with --db")
    check_beside(path)
    if write:
        return _checked(path, "rwc", write=True, whereabouts=whereabouts)
    if not path.exists():
        raise StoreError(
            f"there is no database {path}", fix="run an agent first, or name another"
        )
    try:
        return _checked(path, "ro", write=False)
    except StoreError:
        # A WAL database needs two more files. On a read-only disk they cannot be
        # made; without them nobody writes either, and the file is all there is.
        if any(path.with_name(path.name + end).exists() for end in ("-wal", "-shm")):
            raise
        return _checked(path, "ro&immutable=1", write=False)


def file_of(url: str) -> Path | None:
    """Return the file of the database at *url*, by its one true name, if it is one."""
    parsed = _parsed(url)
    if parsed.get_backend_name() != "sqlite":
        return None
    return _path(parsed).resolve()


def whereabouts(url: str) -> Whereabouts | None:
    """Return the whereabouts of the database at *url*, if it is a file."""
    parsed = _parsed(url)
    if parsed.get_backend_name() != "sqlite":
        return None
    return Whereabouts(_path(parsed))


def said(exc: Exception) -> str:
    """Return what the database said: no statement, and nothing that it holds."""
    cause = exc.orig if isinstance(exc, DBAPIError) else exc
    if isinstance(cause, sqlite3.Error) and not hasattr(cause, "sqlite_errorcode"):
        # The driver's own words quote a text that it cannot decode.
        closed = isinstance(cause, sqlite3.ProgrammingError)
        return "it is closed" if closed else "a column holds what is never written"
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    # PostgreSQL quotes rows in the lines behind the first.
    return str(cause).split("\n", 1)[0]


def forbidden(exc: Exception) -> bool:
    """Return whether the user lacks a right for what failed with *exc*."""
    cause = exc.orig if isinstance(exc, DBAPIError) else exc
    return getattr(cause, "sqlstate", None) == _FORBIDDEN


def explain(exc: Exception, path: Path | None, otherwise: str) -> tuple[str, str]:
    """
    Return why a database did not do what it was asked for, and what mends that.

    Args:
        exc: Of a driver, or of the operating system.

        path: Of the file, if it is one.

        otherwise: What mends an error of another kind.
    """
    cause = exc.orig if isinstance(exc, DBAPIError) else exc
    text, code = said(exc), _code(cause)
    if code in _LOCKED:
        return text, _wait_for(path)
    if code == sqlite3.SQLITE_FULL or getattr(cause, "errno", None) in _FULL:
        return text, f"free space on the disk of {path.parent if path else 'the file'}"
    if path and code in _ROOMLESS and is_full(folder := nearest(path)):
        return f"{text}, since the disk is full", f"free space on the disk of {folder}"
    if code in _DAMAGES:
        is_one = code == sqlite3.SQLITE_CORRUPT
        other = "name a file that is a database of this host; if this was one, "
        return text, f"{other * (not is_one)}{_RESTORE}"
    if path and (code in _OUTSIDE or getattr(cause, "errno", None) in _REFUSED):
        why, fix = unwritable(path)
        return f"{text}{why}", fix or otherwise
    return text, _STATES.get(getattr(cause, "sqlstate", None) or "", otherwise)


def _code(cause: object) -> int:
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
    """Return the file of a database that `open_engine` opened, if it is one."""
    is_file = engine.dialect.name == "sqlite" and engine.url.database
    return Path(str(engine.url.database)) if is_file else None


def unreadable(exc: Exception) -> StoreError:
    """Return what a reader is told whose query failed."""
    cause = (isinstance(exc, DBAPIError) and exc.orig) or exc
    what, fix = explain(exc, None, "see `caxton db status`")
    text = f"the database cannot be read: {what}"
    state = getattr(cause, "sqlstate", None) or ""
    broken = isinstance(cause, sqlite3.Error) and _code(cause) not in _OUTSIDE
    if broken or state.startswith(_DAMAGED):
        return LogBrokenError(text)
    return StoreError(text, fix=fix)


def _parsed(url: str) -> sa.URL:
    if wrong := store_mistake(url):
        raise StoreError(f"the store's url {wrong[0]}", fix=wrong[1])
    try:
        return sa.make_url(url)
    except ValueError:  # An @ behind the ? makes a port of what follows.
        raise StoreError(
            "the store's url has an @ behind its ?", fix="write it as %40"
        ) from None


def _path(parsed: sa.URL) -> Path:
    if parsed.database in {None, "", ":memory:"}:
        raise StoreError(
            "a store in memory is lost with the process", fix="name a file"
        )
    path = Path(str(parsed.database)).absolute()
    if os.path.isdir(path):  # noqa: PTH112 -- that of a path may raise
        raise StoreError(
            f"the database {path} is a folder", fix=f"name a file, like {path / _FILE}"
        )
    return path


def _checked(
    path: Path, mode: str, *, write: bool, whereabouts: Whereabouts | None = None
) -> sa.Engine:
    def connect() -> sqlite3.Connection:
        if whereabouts is not None:
            whereabouts.check()
        return _connect(path, mode, write=write)

    engine = sa.create_engine(
        sa.URL.create("sqlite", database=str(path)),
        creator=connect,
        poolclass=QueuePool,
        isolation_level="AUTOCOMMIT",
        hide_parameters=True,
    )
    if whereabouts is not None:
        event.listen(engine, "connect", lambda *_: whereabouts.connected())
        event.listen(engine, "close", lambda *_: whereabouts.disconnected())
    try:
        if write:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        with engine.connect() as connection:
            connection.exec_driver_sql("SELECT count(*) FROM sqlite_master")
    except (DBAPIError, sqlite3.Error, OSError) as exc:
        engine.dispose()
        text, fix = explain(exc, path, "name another file with --db")
        kind = LogBrokenError if _is_damaged(exc, path) else StoreError
        raise kind(f"the database {path} cannot be opened: {text}", fix=fix) from None
    return engine


def _is_damaged(exc: Exception, path: Path) -> bool:
    cause = exc.orig if isinstance(exc, DBAPIError) else exc
    if _code(cause) not in _DAMAGES:
        return False
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def _connect(path: Path, mode: str, *, write: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=_PATIENCE,
    )
    if write:
        _use_wal(connection)
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT}")
        connection.execute("PRAGMA foreign_keys=ON")
    return connection


def _use_wal(connection: sqlite3.Connection) -> None:
    # Two hosts that create a database at once: SQLite does not always wait here.
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as exc:
            if _code(exc) not in _LOCKED or time.monotonic() >= until:
                raise
            time.sleep(_PAUSE)
        else:
            return
