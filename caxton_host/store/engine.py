"""
Opening databases: settings, checks, and what is refused.

SQLite, to write: a write-ahead log, and every commit on the disk. To read: nothing is
created or changed, so a copy on a read-only disk can be read.

PostgreSQL: commits wait for the disk, whatever the server's default. Locks of a host
that vanishes are released soon, and a broken network is noticed. A server on another
machine proves who it is, with a certificate, before it is told a password.
"""

from __future__ import annotations

import os
import select
import sqlite3
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, DisconnectionError
from sqlalchemy.pool import NullPool, QueuePool

from ..config.sections import store_mistake
from ..core.text.urls import reaches_verified
from ..errors import LogBrokenError, StoreError
from .diagnosis import DAMAGES, LOCKED, code_of, explain
from .file_guard import Whereabouts, check_beside

if TYPE_CHECKING:
    import psycopg


_MAGIC = b"SQLite format 3\0"
#: 16 MB. A page that many commits changed is copied to the file once.
_CHECKPOINT_PAGES = 4000
_FILE = "caxton.db"
#: ``unverified=accept`` in a url accepts a server on another machine as it is.
_UNVERIFIED = "unverified"
_PATIENCE_S = 10.0
_PAUSE_S = 0.01


def open_engine(
    url: str, *, write: bool, whereabouts: Whereabouts | None = None
) -> sa.Engine:
    """
    Return an engine for the database at *url*, after a check.

    Its connections begin and end transactions only when told to. Opened to write,
    file and folder are created if they do not exist, for their owner alone.

    Args:
        url: Of SQLite or PostgreSQL.

        write: Open it to write.

        whereabouts: If given, no connection opens another file.

    Raises:
        StoreError: There is no such database, or it cannot be used.
    """
    parsed = _parsed(url)
    if parsed.get_backend_name() != "sqlite":
        return _open_server(parsed, write=write)
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
        # A WAL database needs two more files, which cannot be created on a read-only
        # disk. Without them no process writes, and the file is complete.
        if any(path.with_name(path.name + end).exists() for end in ("-wal", "-shm")):
            raise
        return _checked(path, "ro&immutable=1", write=False)


def file_of(url: str) -> Path | None:
    """Return the resolved path of the database at *url*, if it is a file."""
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
    if code_of(cause) not in DAMAGES:
        return False
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def _connect(path: Path, mode: str, *, write: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=_PATIENCE_S,
    )
    if write:
        _use_wal(connection)
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}")
        connection.execute("PRAGMA foreign_keys=ON")
    return connection


def _use_wal(connection: sqlite3.Connection) -> None:
    # SQLite does not always wait here if two hosts create a database at once.
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as exc:
            if code_of(exc) not in LOCKED or time.monotonic() >= until:
                raise
            time.sleep(_PAUSE_S)
        else:
            return


#: 14.0, in the server's own numbering.
_OLDEST = 140_000

#: Beside the connections that append and that renew the lease, a host has two: for all
#: that it reads, and for what it stores by the way.
_SHARED: Mapping[str, Any] = {"pool_size": 2, "max_overflow": 0}

_OPTIONS = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}

# A stronger setting than "on" is kept.
_DURABLE = (
    "SELECT set_config('synchronous_commit', 'on', false) "
    "WHERE current_setting('synchronous_commit') <> 'remote_apply'"
)
_SETTINGS = {
    "default_transaction_isolation": "read committed",
    "idle_in_transaction_session_timeout": "10s",
    "lock_timeout": "30s",
}


# Behind a pooler, the role has them. Each with what has to hold.
_OF_ROLE = {
    "synchronous_commit = 'on'": "synchronous_commit IN ('on', 'remote_apply')",
    "default_transaction_isolation = 'read committed'": (
        "default_transaction_isolation = 'read committed'"
    ),
    "idle_in_transaction_session_timeout = '10s'": (
        "idle_in_transaction_session_timeout <> '0'"
    ),
    "lock_timeout = '30s'": "lock_timeout <> '0'",
}
_SESSION = "SELECT pg_backend_pid(), " + ", ".join(
    f"current_setting('{name}') {holds}"
    for name, _, holds in (each.partition(" ") for each in _OF_ROLE.values())
)


def libpq_address(url: str) -> str | None:
    """
    Return the address of a PostgreSQL as its own programs take it, or ``None``.

    >>> libpq_address("postgresql+psycopg://me:x@localhost/log")
    'postgresql://me:x@localhost/log'
    >>> libpq_address("sqlite:///caxton.db") is None
    True

    Raises:
        StoreError: The server would not have to show who it is.
    """
    parsed = sa.make_url(url)
    if parsed.get_backend_name() != "postgresql":
        return None
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415 -- an extra

    found = parsed.set(drivername="postgresql").difference_update_query([_UNVERIFIED])
    address = found.render_as_string(hide_password=False)
    _check_verified(conninfo_to_dict(address), parsed.query.get(_UNVERIFIED))
    return address


def alone(engine: sa.Engine, name: str) -> sa.Engine:
    """
    Return an engine for one more connection to the same PostgreSQL.

    Args:
        engine: To the database.

        name: What the connection is for, as its administrator sees it.
    """
    return _server(engine.url, write=True, name=f"caxton {name}", poolclass=NullPool)


def _server(
    url: sa.URL,
    *,
    write: bool,
    name: str = "caxton",
    **pool: Any,  # noqa: ANN401 -- of SQLAlchemy
) -> sa.Engine:
    given = {"application_name": name} | _OPTIONS
    engine = sa.create_engine(
        url.set(drivername="postgresql+psycopg"),
        connect_args={key: v for key, v in given.items() if key not in url.query},
        isolation_level="AUTOCOMMIT",
        hide_parameters=True,
        use_native_hstore=False,
        **pool,
    )
    event.listen(engine, "do_connect", _connected)
    event.listen(engine, "connect", _writing if write else _reading)
    event.listen(engine, "checkout", _living)
    return engine


def _connected(
    dialect: sa.Dialect, _record: object, args: Sequence[Any], given: dict[str, Any]
) -> object:
    """
    Return a connection to a server that has to show who it is, or is on this machine.

    Raises:
        StoreError: Nothing would be checked. Nothing is sent.
    """
    options = {key: value for key, value in given.items() if key != _UNVERIFIED}
    _check_verified(options, given.get(_UNVERIFIED))
    return dialect.connect(*args, **options)


def _check_verified(given: Mapping[str, Any], said: object) -> None:
    from psycopg import pq  # noqa: PLC0415 -- an extra

    # Variables of the environment; the file of their service is read already.
    options = {
        one.keyword.decode(): one.val.decode()
        for one in pq.Conninfo.get_defaults()
        if one.val and one.keyword != b"service"
    }
    if said != "accept" and not reaches_verified(options | dict(given)):
        raise StoreError(
            "the database is on another machine, and its certificate would not be "
            "checked",
            fix="add ?sslmode=verify-full&sslrootcert=FILE to the store's url, with "
            "the certificate of its authority in FILE",
        )


def _open_server(url: sa.URL, *, write: bool) -> sa.Engine:
    """
    Return an engine for the database at *url*, after a check.

    Its connections begin and end transactions only when told to; opened to read,
    they cannot write.

    Raises:
        StoreError: It cannot be reached or used.
    """
    try:
        engine = _server(url, write=write, **(_SHARED if write else {}))
    except ImportError:
        raise StoreError(
            "PostgreSQL needs its driver",
            fix="pip install 'caxton-host[postgres]'",
        ) from None
    try:
        with engine.connect() as connection:
            version, encoding = _look(connection)
    except DBAPIError as exc:
        engine.dispose()
        text, fix = explain(
            exc,
            None,
            "see that its server runs, and that [store] url names it, "
            "with its user and password",
        )
        raise StoreError(f"the database cannot be opened: {text}", fix=fix) from None
    if version < _OLDEST or encoding != "UTF8":
        engine.dispose()
        raise _unfit(version, encoding)
    return engine


def _look(connection: sa.Connection) -> tuple[int, str]:
    version = connection.exec_driver_sql("SHOW server_version_num").scalar_one()
    encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
    return int(version), encoding


def _unfit(version: int, encoding: str) -> StoreError:
    if version < _OLDEST:
        return StoreError(
            f"the server is PostgreSQL {version // 10_000}",
            fix=f"use PostgreSQL {_OLDEST // 10_000} or newer",
        )
    return StoreError(
        f"the database is encoded as {encoding}",
        fix="make one with CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0",
    )


def is_pooled(driver: psycopg.Connection) -> bool:
    """Return whether a pooler is in between: sessions may be shared."""
    return driver.prepare_threshold is None


def _writing(driver: psycopg.Connection, record: object) -> None:
    del record
    if _leave_shared(driver):
        return
    driver.execute(_DURABLE)
    _set(driver, _SETTINGS)


def _reading(driver: psycopg.Connection, record: object) -> None:
    del record
    if not _leave_shared(driver):
        _set(driver, _SETTINGS | {"default_transaction_read_only": "on"})


def _leave_shared(driver: psycopg.Connection) -> bool:
    """
    Return whether a pooler is in between, after a check of what its role has set.

    A pooler that hands sessions out by transaction would hand what is set or prepared
    in one to others, and what others set to us.

    Raises:
        StoreError: The role lacks a setting.
    """
    row = driver.execute(_SESSION.encode()).fetchone()
    pid, *values = row or (0,)
    if pid == driver.info.backend_pid:
        return False
    driver.prepare_threshold = None
    wrong = [one for one, value in zip(_OF_ROLE, values, strict=True) if not value]
    if wrong:
        sets = "; ".join(f"ALTER ROLE {driver.info.user} SET {one}" for one in wrong)
        raise StoreError(
            "a pooler is between this host and the database, whose sessions lack "
            "settings",
            fix=f"as the administrator: {sets}; then RECONNECT in the pooler",
        )
    return True


def _living(driver: psycopg.Connection, *_: object) -> None:
    """Have the pool replace a connection that the server has closed."""
    # A server that is well has said nothing since: it is asked only if it has.
    said = select.poll()
    try:
        said.register(driver.fileno(), select.POLLIN)
        if said.poll(0):
            driver.execute("SELECT 1")
    except driver.OperationalError:
        raise DisconnectionError from None


def _set(driver: psycopg.Connection, settings: dict[str, str]) -> None:
    each = ", ".join(["set_config(%s, %s, false)"] * len(settings))
    pairs = [part for pair in settings.items() for part in pair]
    driver.execute(f"SELECT {each}".encode(), pairs)
