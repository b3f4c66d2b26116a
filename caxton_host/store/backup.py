"""
A copy of the database of one moment, while hosts go on writing.

The copy is taken inside one read transaction: without it, SQLite begins anew each
time that somebody writes, and may never come to an end.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sqlite3
from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sa

from ..errors import StoreError, UsageError
from .engine import explain
from .files import on_disk

_PAGES = 2000


def backup(engine: sa.Engine, to: Path, progress: Callable[[int, int], None]) -> int:
    """
    Copy an SQLite database into the new file *to*, and return its size.

    The file is there whole or not at all, for its owner alone.

    Args:
        engine: Of the database.

        to: A file that does not exist.

        progress: Told how many pages are done, and of how many.

    Raises:
        UsageError: There is such a file.

        StoreError: The database cannot be read, or the copy not be written.
    """
    if to.exists():
        raise _taken(to)
    draft = to.with_name(f".{to.name}.{os.getpid()}.partial")
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        with engine.connect() as connection:
            source = connection.connection.driver_connection
            assert isinstance(source, sqlite3.Connection)  # noqa: S101 -- see above
            _copy(source, draft, progress)
        _named(draft, to)
        on_disk(to)
    except FileExistsError:
        raise _taken(to) from None
    except sqlite3.Error as exc:
        text, fix = explain(exc, to, "see `caxton db status`")
        raise StoreError(f"the copy {to} cannot be made: {text}", fix=fix) from None
    finally:
        draft.unlink(missing_ok=True)
    return to.stat().st_size


def _named(draft: Path, to: Path) -> None:
    try:
        # Unlike a rename, it never replaces what somebody has put there meanwhile.
        os.link(draft, to)
    except FileExistsError:
        raise
    except OSError:  # A file system without links.
        draft.rename(to)


def _copy(
    source: sqlite3.Connection, draft: Path, progress: Callable[[int, int], None]
) -> None:
    with contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as target:
        source.execute("BEGIN")
        try:
            source.execute("SELECT count(*) FROM sqlite_master").fetchone()
            source.backup(
                target,
                pages=_PAGES,
                progress=lambda _, left, total: progress(total - left, total),
                sleep=0,
            )
        finally:
            source.execute("ROLLBACK")
        # One file, that opens on a read-only disk too.
        target.execute("PRAGMA journal_mode = DELETE")


def _taken(to: Path) -> UsageError:
    return UsageError(f"there is a file {to} already", fix="name a new one")


def dump_command(url: str, to: Path) -> str:
    """
    Return how PostgreSQL's own program makes a copy; without a password.

    >>> dump_command("postgresql+psycopg://me:x@db:5433/log", Path("a.dump"))
    'pg_dump --format=custom --host=db --port=5433 --username=me --file=a.dump log'
    """
    parsed = sa.make_url(url)
    options = {
        "format": "custom",
        "host": parsed.host or parsed.query.get("host"),
        "port": parsed.port or parsed.query.get("port"),
        "username": parsed.username,
        "file": str(to),
    }
    words = [f"--{name}={value}" for name, value in options.items() if value]
    return shlex.join(["pg_dump", *words, parsed.database or ""])
