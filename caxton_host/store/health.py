"""Health of a log: whether it can be read and written, and the state of its server."""

from __future__ import annotations

import asyncio
import contextlib

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from ..core.calls import JSON
from ..errors import LeaseLost, ReadOnlyError, StoreError
from .commit import Driver, Group, Line, ask
from .database import Database
from .diagnosis import unreadable
from .engine import open_engine
from .file_guard import Whereabouts
from .leases import Leases
from .schema import runs
from .writer import Writer

# What docs/how-to/postgresql.md has granted.
_NEEDED = {
    "alembic_version": "SELECT",
    **dict.fromkeys(("events", "payloads", "blobs", "checkpoints"), "SELECT INSERT"),
    **dict.fromkeys(
        ("runs", "budgets", "requests", "servers", "tools", "tokens"),
        "SELECT INSERT UPDATE",
    ),
    "submissions": "SELECT INSERT",
    "tree": "SELECT UPDATE",
    "hosts": "SELECT INSERT UPDATE DELETE",
    **dict.fromkeys(("slots", "run_tools", "waits"), "SELECT INSERT DELETE"),
}

# Settings of the connections of a host, whatever the server's defaults are.
_SERVER = """\
SELECT current_setting('server_version') AS version,
  current_setting('synchronous_commit') AS synchronous_commit,
  current_setting('fsync') AS fsync,
  current_user AS "user",
  current_database() AS database,
  current_schema() AS schema,
  coalesce(has_schema_privilege(current_schema(), 'CREATE'), false) AS may_migrate"""

_MAY_APPEND = " AND ".join(
    [
        f"has_table_privilege('{table}', '{privilege}')"
        for table, privileges in _NEEDED.items()
        for privilege in privileges.split()
    ]
    + [
        f"has_sequence_privilege('{sequence}', 'USAGE')"
        for sequence in ("events_position_seq", "requests_id_seq")
    ]
)

# An open transaction that has written, anywhere on the server, holds back all events
# that were committed since: earlier ones might still follow.
_EVENTS = """\
SELECT (SELECT count(*) FROM events
    WHERE xid >= pg_snapshot_xmin(pg_current_snapshot())) AS events_held_back,
  coalesce((SELECT max(xid) FROM events)
    >= pg_snapshot_xmax(pg_current_snapshot()), false) AS moved"""

_HOLDING = """\
SELECT coalesce(application_name, '') AS name, usename AS "user", datname AS database,
  pid, extract(epoch FROM now() - xact_start)::bigint AS seconds
FROM pg_stat_activity
WHERE backend_xid IS NOT NULL AND now() - xact_start > interval '10 seconds'
UNION ALL
SELECT gid, owner, database, NULL, extract(epoch FROM now() - prepared)::bigint
FROM pg_prepared_xacts
ORDER BY seconds DESC LIMIT 5"""

_ANY = sa.select(runs.c.run_id).limit(1)
#: True after a failover to a standby, too.
_READ_ONLY = sa.select(sa.literal(1)).where(
    sa.func.current_setting("transaction_read_only") == "on"
)


class Health:
    """
    Whether a log is well. See `caxton_host.ports.serving.Health`.

    Args:
        database: The one that is checked.

        leases: Of its hosts.

        writer: The one of this process, if it writes.
    """

    def __init__(
        self, database: Database, leases: Leases, writer: Writer | None
    ) -> None:
        self._database = database
        self._leases = leases
        self._writer = writer

    async def check(self) -> None:
        """
        Return if the log can be read and written, and this host may send.

        Whether it can be written is tried only if the last commit failed.

        Raises:
            LogMovedError: Its file was moved away or replaced, or its server set back.

            ReadOnlyError: It is read-only.

            LeaseLost: The lease of this host has lapsed: other hosts may take over its
                runs.

            StoreError: It cannot be read, or not be written.
        """
        await asyncio.to_thread(self.look)

    def look(self) -> None:
        """Do what `check` does, in this thread."""
        self._check()
        if self._leases.host and not self._leases.holds():
            raise LeaseLost(
                "the lease of this host has lapsed", fix="see `caxton db status`"
            )

    async def beat(self) -> None:
        """Return once the writer has tried to write, whatever came of it."""
        if self._writer is not None:
            with contextlib.suppress(StoreError):
                await self._writer.append(Group(Line(""), (), {}, guard=_touch))

    def _check(self) -> None:
        database, place = self._database, self._database.place
        if isinstance(place, Whereabouts):
            place.check()
        database.look(lambda connection: connection.execute(_ANY).all())
        if not isinstance(place, Whereabouts):
            place.check(lambda query: database.look(lambda c: c.execute(query).all()))
        if not database.is_file and database.look(
            lambda connection: connection.execute(_READ_ONLY).all()
        ):
            raise ReadOnlyError(
                "the database is read-only",
                fix="promote it if it is a standby, or have [store] url name the "
                "server that takes writes",
            )
        if self._writer is not None and self._writer.failed:
            database.commit_here(Group(Line(""), (), {}, guard=_touch))
            self._writer.failed = False


def _touch(driver: Driver) -> None:
    """Write an unchanged value, which needs disk space like any other write."""
    for change in (1, -1):  # SQLite writes no page that stays as it is.
        ask(driver, "UPDATE tree SET size = size + ?", change)


def server(url: str) -> dict[str, JSON] | None:
    """
    Return the state of the server at *url*, or ``None`` for a file.

    Raises:
        StoreError: It cannot be reached, or is too old.
    """
    if sa.make_url(url).get_backend_name() == "sqlite":
        return None
    engine = open_engine(url, write=True)
    try:
        with engine.connect() as connection:
            found = _row(connection, _SERVER)
            if _exists(connection):
                found |= _row(connection, f"SELECT {_MAY_APPEND} AS may_append")
            if found.get("may_append"):
                found |= _row(connection, _EVENTS)
            rows = connection.exec_driver_sql(_HOLDING).mappings()
            found["holding"] = [dict(row) for row in rows]
    except DBAPIError as exc:
        raise unreadable(exc) from None
    finally:
        engine.dispose()
    return found


def problems(found: dict[str, JSON]) -> list[tuple[str, str]]:
    """
    Return the problems of a server, each with its fix.

    >>> problems({"fsync": "off"})
    [('fsync is off: a crash loses events', 'set fsync = on in postgresql.conf')]
    """
    wrong: list[tuple[str, str]] = []
    if found["fsync"] == "off":
        wrong.append(
            ("fsync is off: a crash loses events", "set fsync = on in postgresql.conf")
        )
    if found.get("may_append") is False:
        wrong.append(
            (
                f"{found['user']} may not append events",
                f"GRANT what docs/how-to/postgresql.md lists to {found['user']}",
            )
        )
    if found.get("moved"):
        wrong.append(
            (
                "the events were restored from another server: tails miss new ones",
                "see docs/how-to/postgresql.md, Moving to another server",
            )
        )
    return wrong


def _row(connection: sa.Connection, query: str) -> dict[str, JSON]:
    return dict(connection.exec_driver_sql(query).mappings().one())


def _exists(connection: sa.Connection) -> bool:
    found = connection.exec_driver_sql("SELECT to_regclass('events')").scalar()
    return found is not None
