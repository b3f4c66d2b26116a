"""
Migrating a database to the schema of this version.

Alembic is imported only to migrate: the check of a current database is one query.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from ..errors import StoreError
from .diagnosis import explain, forbidden, path_of, unreadable
from .engine import open_engine
from .projections import fill

if TYPE_CHECKING:
    from alembic.config import Config


_HEAD = "0012"
_ALONE = {
    "sqlite": ["BEGIN IMMEDIATE"],
    # The number is ours: "caxt".
    "postgresql": ["BEGIN", "SELECT pg_advisory_xact_lock(1667332212)"],
}
_PACKAGE = Path(__file__).parent.parent


def head() -> str:
    """Return the revision of the schema that this version uses."""
    return _HEAD


def current(url: str) -> str | None:
    """
    Return the revision of the database at *url*, or ``None`` if it has none.

    Raises:
        StoreError: The database does not exist.
    """
    engine = open_engine(url, write=False)
    try:
        with engine.connect() as connection:
            return _revision(connection)
    finally:
        engine.dispose()


def upgrade(url: str) -> None:
    """
    Create the database at *url*, or migrate it to `head`.

    Raises:
        StoreError: It is newer than this version, or not a log of this host.
    """
    engine = open_engine(url, write=True)
    try:
        prepare(engine)
        fill(engine)
    finally:
        engine.dispose()


def shown(url: str) -> str:
    """
    Return *url* without its password.

    >>> shown("postgresql://me:hunter2@db/caxton?sslpassword=hunter2")
    'postgresql://me:***@db/caxton?sslpassword=***'
    """
    parsed = sa.make_url(url)
    secret = [key for key in parsed.query if "password" in key]
    parsed = parsed.update_query_dict(dict.fromkeys(secret, "***"))
    return parsed.render_as_string(hide_password=True).replace("%2A", "*")


def check(engine: sa.Engine) -> None:
    """
    Return if the database has the schema of this version.

    Raises:
        StoreError: It is older or newer, or not a log of this host.
    """
    with engine.connect() as connection:
        revision = _revision(connection)
    if revision is None:
        if engine.dialect.name == "sqlite":
            raise _not_ours()
        raise StoreError(
            "the database holds no log of this host yet", fix="run `caxton db migrate`"
        )
    if revision != _HEAD:
        raise (
            _newer(revision)
            if revision not in _known()
            else StoreError(
                f"the database has the older schema {revision}",
                fix="run `caxton db migrate`",
            )
        )


def prepare(engine: sa.Engine) -> None:
    """
    Migrate the database to `head`, in one transaction. See `upgrade`.

    Raises:
        StoreError: It is newer than this version, or not a log of this host.
    """
    with engine.connect() as connection:
        if _revision(connection) == _HEAD:
            return
        # Another process may migrate: check again once no other can write.
        try:
            for statement in _ALONE[connection.dialect.name]:
                connection.exec_driver_sql(statement)
            _migrate(connection)
            connection.exec_driver_sql("COMMIT")
        except DBAPIError as exc:
            text, fix = explain(
                exc, path_of(engine), "stop the other hosts that use it"
            )
            raise StoreError(
                f"the database cannot be migrated: {text}",
                fix="caxton --db URL db migrate, as the owner of the database"
                if forbidden(exc)
                else fix,
            ) from None
        finally:
            # Closing it rolls back an open transaction.
            connection.invalidate()


def folder(package: Path = _PACKAGE) -> Path:
    """Return the folder of the migrations, of an installed package or a checkout."""
    installed = package / "_migrations"
    return installed if installed.is_dir() else package.parent / "migrations"


def _migrate(connection: sa.Connection) -> None:
    revision = _revision(connection)
    if revision == _HEAD:
        return
    if revision is None and sa.inspect(connection).get_table_names():
        raise _not_ours()
    if revision is not None and revision not in _known():
        raise _newer(revision)
    from alembic import command  # noqa: PLC0415 -- slow, and seldom needed

    command.upgrade(_config(connection), "head")


def _revision(connection: sa.Connection) -> str | None:
    if connection.dialect.name == "sqlite":
        tables = sa.table("sqlite_master", sa.column("name"))
        named = sa.select(tables.c.name).where(tables.c.name == "alembic_version")
    else:
        # Not to_regclass: it may not see a table that another host has just created.
        tables = sa.table("pg_tables", sa.column("tablename"), sa.column("schemaname"))
        named = sa.select(tables.c.tablename).where(
            tables.c.tablename == "alembic_version",
            tables.c.schemaname == sa.func.current_schema(),
        )
    version = sa.table("alembic_version", sa.column("version_num"))
    try:
        if connection.execute(named).first() is None:
            return None
        return connection.execute(sa.select(version.c.version_num)).scalar()
    except DBAPIError as exc:
        raise unreadable(exc) from None


def _known() -> set[str]:
    from alembic.script import ScriptDirectory  # noqa: PLC0415 -- see above

    scripts = ScriptDirectory.from_config(_config())
    return {script.revision for script in scripts.walk_revisions()}


def _config(connection: sa.Connection | None = None) -> Config:
    from alembic.config import Config  # noqa: PLC0415 -- see above

    config = Config()
    config.set_main_option("script_location", str(folder()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _newer(revision: str) -> StoreError:
    return StoreError(
        f"the database has schema {revision}, which this version does not know",
        fix="install the version of caxton-host that wrote it, or name another",
    )


def _not_ours() -> StoreError:
    return StoreError(
        "the database holds no log of this host", fix="name another database"
    )
