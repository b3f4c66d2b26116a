"""
How a database is opened, and what is refused.

SQLite is opened here, PostgreSQL by `postgres`. Writing: WAL, and every commit on
the disk. Reading: nothing is created or changed, and a copy on a read-only disk
will do.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import QueuePool

from ..errors import LogBrokenError, StoreError
from .whereabouts import Whereabouts

__all__ = ["file_of", "forbidden", "open_engine", "said", "unreadable", "whereabouts"]

# States of PostgreSQL: insufficient_privilege, and the class of what is damaged.
_FORBIDDEN, _DAMAGED = "42501", "XX"
_DRIVERS = {"sqlite", "sqlite+pysqlite", "postgresql", "postgresql+psycopg"}
# Pages; 16 MB. A page that many commits changed is copied to the file once.
_CHECKPOINT = 4000
_PATIENCE = 10.0
_PAUSE = 0.01
_TRIES = 500


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
    # PostgreSQL quotes rows in the lines behind the first.
    return str(cause).split("\n", 1)[0]


def forbidden(exc: Exception) -> bool:
    """Return whether the user lacks a right for what failed with *exc*."""
    cause = exc.orig if isinstance(exc, DBAPIError) else exc
    return getattr(cause, "sqlstate", None) == _FORBIDDEN


def unreadable(exc: Exception) -> StoreError:
    """Return what a reader is told whose query failed."""
    cause = (isinstance(exc, DBAPIError) and exc.orig) or exc
    text = f"the database cannot be read: {said(exc)}"
    state = getattr(cause, "sqlstate", None) or ""
    if isinstance(cause, sqlite3.Error) or state.startswith(_DAMAGED):
        return LogBrokenError(text)
    if forbidden(exc):
        return StoreError(
            text, fix="GRANT what docs/how-to/postgresql.md lists to this user"
        )
    return StoreError(text, fix="see `caxton db status`")


def _parsed(url: str) -> sa.URL:
    if url.startswith("postgresql") and url.partition("?")[0].count("@") > 1:
        # A piece of the password would be read as the host, and shown.
        raise StoreError(
            "the store's url has more than one @",
            fix="write the @ of a user or password as %40",
        )
    try:
        parsed = sa.make_url(url)
    except (ArgumentError, ValueError):  # A port that is no number.
        raise StoreError(
            "the store's url is not one", fix='write it as "sqlite:///caxton.db"'
        ) from None
    if parsed.drivername not in _DRIVERS:
        raise StoreError(
            f"{parsed.drivername} is not supported",
            fix='use "sqlite:///caxton.db" or "postgresql://USER@HOST/NAME"',
        )
    return parsed


def _path(parsed: sa.URL) -> Path:
    if parsed.database in {None, "", ":memory:"}:
        raise StoreError(
            "a store in memory is lost with the process", fix="name a file"
        )
    return Path(str(parsed.database)).absolute()


def _checked(
    path: Path, mode: str, *, write: bool, whereabouts: Whereabouts | None = None
) -> sa.Engine:
    def connect() -> sqlite3.Connection:
        if whereabouts is not None:
            whereabouts.check()
        return _connect(path, mode, write=write)

    engine = sa.create_engine(
        "sqlite://",
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
        raise StoreError(
            f"the database {path} cannot be opened: {said(exc)}",
            fix="name a file that is a database of this host, or none yet",
        ) from None
    return engine


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
    # Two hosts that create a database at once: SQLite does not wait here by itself.
    for attempt in range(_TRIES):
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as exc:
            if exc.sqlite_errorcode != sqlite3.SQLITE_BUSY or attempt == _TRIES - 1:
                raise
            time.sleep(_PAUSE)
        else:
            return
