"""
How PostgreSQL is reached, and what is refused.

Commits wait for the disk, whatever the server's default. A host that vanishes
leaves no lock behind for long, and a network that vanishes is noticed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError

from ..errors import StoreError
from .engine import explain

if TYPE_CHECKING:
    import psycopg


#: As the server counts: 14.0.
OLDEST = 140_000

_OPTIONS = {
    "application_name": "caxton",
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}

# Stronger than "on" is left as it is.
_DURABLE = (
    "SELECT set_config('synchronous_commit', 'on', false) "
    "WHERE current_setting('synchronous_commit') <> 'remote_apply'"
)
_SETTINGS = {
    "default_transaction_isolation": "read committed",
    "idle_in_transaction_session_timeout": "10s",
    "lock_timeout": "30s",
}


def open_server(url: sa.URL, *, write: bool) -> sa.Engine:
    """
    Return an engine for the database at *url*, after a look at it.

    Its connections begin and end transactions only when told to; opened to read,
    they cannot write.

    Raises:
        StoreError: It cannot be reached or used.
    """
    options = {key: v for key, v in _OPTIONS.items() if key not in url.query}
    try:
        engine = sa.create_engine(
            url.set(drivername="postgresql+psycopg"),
            connect_args=options,
            isolation_level="AUTOCOMMIT",
            hide_parameters=True,
            pool_pre_ping=True,
            use_native_hstore=False,
        )
    except ImportError:
        raise StoreError(
            "PostgreSQL needs its driver",
            fix="pip install 'caxton-host[postgres]'",
        ) from None
    event.listen(engine, "connect", _writing if write else _reading)
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
    if version < OLDEST or encoding != "UTF8":
        engine.dispose()
        raise _unfit(version, encoding)
    return engine


def _look(connection: sa.Connection) -> tuple[int, str]:
    version = connection.exec_driver_sql("SHOW server_version_num").scalar_one()
    encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
    return int(version), encoding


def _unfit(version: int, encoding: str) -> StoreError:
    if version < OLDEST:
        return StoreError(
            f"the server is PostgreSQL {version // 10_000}",
            fix=f"use PostgreSQL {OLDEST // 10_000} or newer",
        )
    return StoreError(
        f"the database is encoded as {encoding}",
        fix="make one with CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0",
    )


def _writing(driver: psycopg.Connection, record: object) -> None:
    del record
    driver.execute(_DURABLE)
    _set(driver, _SETTINGS)


def _reading(driver: psycopg.Connection, record: object) -> None:
    del record
    _set(driver, _SETTINGS | {"default_transaction_read_only": "on"})


def _set(driver: psycopg.Connection, settings: dict[str, str]) -> None:
    each = ", ".join(["set_config(%s, %s, false)"] * len(settings))
    pairs = [part for pair in settings.items() for part in pair]
    driver.execute(f"SELECT {each}".encode(), pairs)
