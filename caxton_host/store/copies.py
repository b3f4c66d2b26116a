"""
Copies of a log: the whole database, and a cut run.

A backup is taken inside one read transaction: without it, SQLite begins anew each time
that another process writes, and may never come to an end.

A cut run is as a crash would have left it, in a database of its own. Its rows are
copied as they are, hashes and all, so the chain of the copy verifies; they are numbered
anew, since nothing is missing in a log of its own. The source is never changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError

from ..core.log.events import Recorded, RunStarted, blobs_of
from ..core.log.projection import Projection
from ..core.names import run_of, stream_of
from ..errors import StoreError, UsageError
from ..runs.recording import Recording
from .database import Query
from .diagnosis import explain, unreadable
from .engine import open_engine
from .file_guard import on_disk
from .migrate import prepare
from .projections import Turned
from .reader import Reader
from .schema import blobs, events, payloads

_PAGES = 2000


def backup(engine: sa.Engine, to: Path, progress: Callable[[int, int], None]) -> int:
    """
    Copy an SQLite database into the new file *to*, and return its size.

    The file is complete or absent, and only its owner may read it.

    Args:
        engine: Of the database.

        to: The new file.

        progress: Called with the pages that are done, and with all.

    Raises:
        UsageError: The file exists.

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
        named(draft, to)
        on_disk(to)
    except FileExistsError:
        raise _taken(to) from None
    except sqlite3.Error as exc:
        text, fix = explain(exc, to, "see `caxton db status`")
        raise StoreError(f"the copy {to} cannot be made: {text}", fix=fix) from None
    finally:
        draft.unlink(missing_ok=True)
    return to.stat().st_size


def named(draft: Path, to: Path) -> None:
    """
    Give a file its name.

    Raises:
        FileExistsError: Another file has it.
    """
    try:
        # Unlike a rename, it never replaces a file that was made meanwhile.
        os.link(draft, to)
    except FileExistsError:
        raise
    except OSError:  # A file system without links.
        draft.rename(to)


def stamp(now: int) -> str:
    """
    Return a time as it is in the name of a file.

    >>> stamp(1_800_000_000_000_000)
    '20270115T080000Z'
    """
    return f"{datetime.fromtimestamp(now // 1_000_000, UTC):%Y%m%dT%H%M%SZ}"


def clear(draft: Path) -> None:
    """Remove a draft, and what a process that was killed left of one."""
    for path in draft.parent.iterdir():
        if path.name.startswith((draft.name, f".{draft.name}")):
            path.unlink()


class Shelf:
    """
    A folder of copies of one log, which are named by their time.

    Under its name a copy is complete and verified.

    Args:
        folder: Created with the first copy.

        log: The file of the log.
    """

    def __init__(self, folder: Path, log: Path) -> None:
        self.folder = folder
        #: What one process at a time locks.
        self.lock = folder / f".{log.stem}"
        self._stem = log.stem
        self._named = re.compile(re.escape(log.stem) + r"-\d{8}T\d{6}Z\.db")
        #: A copy that is not verified yet.
        self.draft = folder / f".{log.stem}-copy.unverified"

    def copies(self) -> list[Path]:
        """Return the copies, oldest first."""
        found = self.folder.iterdir() if self.folder.is_dir() else ()
        return sorted(path for path in found if self._named.fullmatch(path.name))

    def put(self, now: int) -> Path:
        """Give the draft, which is verified, its name."""
        to = self.folder / f"{self._stem}-{stamp(now)}.db"
        try:
            named(self.draft, to)
        except FileExistsError:
            raise _taken(to) from None
        on_disk(to)
        return to

    def trim(self, new: Path, keep: int) -> list[Path]:
        """Remove the oldest copies but *keep*, and never *new*; return them."""
        # A clock that was set back makes a new copy look old.
        gone = [path for path in self.copies() if path != new][: 1 - keep or None]
        for path in gone:
            path.unlink()
        return gone


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
    Return the command of PostgreSQL that makes a copy, without a password.

    >>> dump_command("postgresql+psycopg://me:x@db:5433/log", Path("a.dump"))
    'pg_dump --format=custom --host=db --port=5433 --username=me --file=a.dump log'

    What is said about TLS is part of it.

    >>> dump_command("postgresql+psycopg://db/log?sslmode=verify-full", Path("a.dump"))
    "pg_dump --format=custom --file=a.dump 'postgresql://db/log?sslmode=verify-full'"
    """
    parsed = sa.make_url(url)
    if any(key.startswith("ssl") for key in parsed.query):
        place = sa.URL.create(
            "postgresql",
            parsed.username,
            host=parsed.host,
            port=parsed.port,
            database=parsed.database,
            query={k: v for k, v in parsed.query.items() if "password" not in k},
        )
        words = ["--format=custom", f"--file={to}", place.render_as_string()]
        return shlex.join(["pg_dump", *words])
    options = {
        "format": "custom",
        "host": parsed.host or parsed.query.get("host"),
        "port": parsed.port or parsed.query.get("port"),
        "username": parsed.username,
        "file": str(to),
    }
    words = [f"--{name}={value}" for name, value in options.items() if value]
    return shlex.join(["pg_dump", *words, parsed.database or ""])


_BATCH = 500
_Part: TypeAlias = tuple[RunStarted, Sequence[Recorded]]
_NOWHERE: Mapping[int, int] = {}


async def copy_cut(source: Reader, left: Recording, target: Path) -> None:
    """
    Copy the events *left* of a run into the new database *target*.

    The run is then in the state after its last event, and no host drives it. Its
    ancestors are copied whole.

    Args:
        source: The log of the run.

        left: Its first events.

        target: A file that does not exist yet.

    Raises:
        StoreError: It cannot be read, or not be written.
    """
    # Parents first, as in the log.
    parts: list[_Part] = [
        (one.started, await source.read(stream_of(one.run_id))) for one in left.lineage
    ]
    parts.append((left.started, left.own))
    await asyncio.to_thread(_copy_all, source.engine, parts, f"sqlite:///{target}")


def _copy_all(source: sa.Engine, parts: Sequence[_Part], url: str) -> None:
    engine = open_engine(url, write=True)
    try:
        prepare(engine)
        with source.connect() as old, engine.connect() as new:
            new.exec_driver_sql("BEGIN IMMEDIATE")
            copied = 0
            for part in parts:
                copied += _copy_run(old, new, part, copied)
            new.exec_driver_sql("COMMIT")
    except DBAPIError as exc:
        raise unreadable(exc) from None
    finally:
        engine.dispose()


def _copy_run(old: sa.Connection, new: sa.Connection, part: _Part, behind: int) -> int:
    """Copy a run after so many events, and return how many it has."""
    started, history = part
    stream, last = history[0].stream, history[-1].seq
    here = sa.and_(events.c.stream == stream, events.c.seq <= last)
    found = old.scalars(sa.select(events.c.position).where(here).order_by(events.c.seq))
    places = {place: number for number, place in enumerate(found, behind + 1)}
    _add(old, new, events, sa.select(events).where(here), places)
    _add(old, new, payloads, sa.select(payloads).join(events).where(here), places)
    recorded = [started, *(one.event for one in history if one.event)]
    for digest in sorted(set[str]().union(*map(blobs_of, recorded))):
        _add(old, new, blobs, sa.select(blobs).where(blobs.c.sha256 == digest))
    copied = Projection(run_of(stream))
    for one in history:
        copied.apply(one.type, one.event, one.recorded_at, one.trace_id)
    if copied.row:
        copied.row = replace(copied.row, owner=None)
    turned = Turned()
    turned.add(Projection(copied.run_id), copied)
    for statement, lines in turned.statements():
        new.exec_driver_sql(statement, lines)
    return len(places)


def _add(
    old: sa.Connection,
    new: sa.Connection,
    table: sa.Table,
    query: Query,
    places: Mapping[int, int] = _NOWHERE,
) -> None:
    # Two runs may have a module in common.
    insert = sqlite.insert(table).on_conflict_do_nothing()
    for some in old.execute(query).mappings().partitions(_BATCH):
        new.execute(insert, [_placed(row, places) for row in some])


def _placed(row: sa.RowMapping, places: Mapping[int, int]) -> dict[str, object]:
    at = {"position": places[row["position"]]} if places else {}
    return {**row, **at}
