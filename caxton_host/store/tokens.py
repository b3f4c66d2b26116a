"""Tokens of a host, and the keys by which its clients repeat a request."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError

from ..core.log.events import Event
from ..errors import StoreError
from ..ports.serving import TokenRow
from .commit import Driver, ask
from .database import Database
from .drafts import no_token, taken
from .schema import submissions, tokens

_BY_ID = sa.select(tokens).where(tokens.c.id == sa.bindparam("id"))
_ADD = (
    f"INSERT INTO tokens ({', '.join(tokens.columns.keys())}) "  # noqa: S608 -- ours
    f"VALUES ({', '.join('?' * len(tokens.columns))})"
)
_NAMED = (
    "SELECT id FROM tokens WHERE name = ? AND revoked_at IS NULL "
    "AND (expires_at IS NULL OR expires_at > ?)"
)
_REVOKE = "UPDATE tokens SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL"


class Tokens:
    """Who may call a host. See `caxton_host.ports.serving.Tokens`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._inline = _InlineRows(database.engine, _BY_ID)

    async def find(self, token_id: str) -> TokenRow | None:
        """
        Return the token with that id as it is now, or ``None``.

        Raises:
            StoreError: It cannot be read; its bearer is refused.
        """
        found: Sequence[Any] | None = self._inline.rows(token_id)
        if found is None:
            query = sa.select(tokens).where(tokens.c.id == token_id)
            found = await self._database.rows(query)
        return _token(found[0]) if found else None

    async def all(self) -> list[TokenRow]:
        """Return all tokens, oldest first."""
        query = sa.select(tokens).order_by(tokens.c.created_at, tokens.c.id)
        return [_token(row) for row in await self._database.rows(query)]

    async def add(self, row: TokenRow, stream: str, *events: Event) -> None:
        """
        Add a token, and *events* to a stream, together or not at all.

        Args:
            row: The token.

            stream: Of the host that adds it, which writes nothing else meanwhile.

            events: What is recorded of it: one at least.

        Raises:
            UsageError: A token that is good has its name.

            StoreError: It could not be stored.
        """
        await self._database.record(stream, events, _Addition(row))

    async def revoke(self, token_id: str, at: int, stream: str, *events: Event) -> None:
        """
        Note that a token is not good any more; see `add`.

        Args:
            token_id: Its id.

            at: Since when, in microseconds since 1970.

            stream: As for `add`.

            events: The same.

        Raises:
            NotFoundError: There is none, or it is revoked already.

            StoreError: It could not be stored.
        """
        await self._database.record(stream, events, _Revocation(token_id, at))

    def close(self) -> None:
        """Close the connection for single tokens."""
        self._inline.close()


@dataclass(frozen=True, slots=True)
class _Addition:
    """The guard of the transaction that adds a token."""

    row: TokenRow

    def __call__(self, driver: Driver) -> None:
        name, now = self.row.name, self.row.created_at
        if name and (found := ask(driver, _NAMED, name, now).fetchone()):
            raise taken(name, found[0])
        values = [getattr(self.row, column.name) for column in tokens.columns]
        said = [json.dumps(v) if isinstance(v, tuple) else v for v in values]
        ask(driver, _ADD, *said)


@dataclass(frozen=True, slots=True)
class _Revocation:
    """The guard of the transaction that revokes a token."""

    id: str
    at: int

    def __call__(self, driver: Driver) -> None:
        if not ask(driver, _REVOKE, self.at, self.id).rowcount:
            raise no_token(self.id)


def _token(row: Any) -> TokenRow:  # noqa: ANN401 -- a row, by whichever driver
    try:
        return TokenRow(
            id=row.id,
            name=row.name,
            digest=row.digest,
            scopes=tuple(json.loads(row.scopes)),
            agents=tuple(json.loads(row.agents)),
            roles=tuple(json.loads(row.roles)),
            created_at=row.created_at,
            expires_at=row.expires_at,
            revoked_at=row.revoked_at,
            tenant=row.tenant,
        )
    except (ValueError, TypeError):
        raise StoreError(
            "a token in the database is damaged",
            fix="restore the table tokens from a copy",
        ) from None


class _InlineRows:
    """
    Rows of one statement with one parameter, looked up on the event loop.

    A file that is read by key answers in microseconds, and readers of SQLite never
    wait for a writer; a hop to a thread and back costs ten times that, and far more
    when many ask.

    Args:
        engine: To the database. Only SQLite is read here.

        query: The statement.
    """

    def __init__(self, engine: sa.Engine, query: sa.Select[Any]) -> None:
        self._engine = engine
        self._text = str(query.compile(dialect=sqlite.dialect()))
        self._names = query.selected_columns.keys()
        self._connection: sa.Connection | None = None

    def rows(self, value: str) -> Sequence[SimpleNamespace] | None:
        """Return the rows, or ``None`` if the caller has to read in a thread."""
        if self._engine.dialect.name != "sqlite":
            return None
        try:
            found = self._driver().execute(self._text, (value,))
            return [
                SimpleNamespace(**dict(zip(self._names, row, strict=True)))
                for row in found
            ]
        except (DBAPIError, sqlite3.Error):
            self.close()
            return None

    def _driver(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._engine.connect()
            self._connection.exec_driver_sql("PRAGMA busy_timeout = 0")
        return cast("sqlite3.Connection", self._connection.connection.driver_connection)

    def close(self) -> None:
        """Give the connection back; the next look opens another."""
        if self._connection is not None:
            with contextlib.suppress(DBAPIError, sqlite3.Error):
                self._connection.invalidate()
                self._connection.close()
            self._connection = None


class Submissions:
    """Which run a client's key names. See `caxton_host.ports.serving.Submissions`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def register(
        self, principal: str, key: str, digest: str, run_id: str
    ) -> tuple[str, str]:
        """
        Assign *run_id* to *key*, unless it has another run already.

        The first host to store a key decides, of all that share the database.

        Raises:
            StoreError: It could not be stored.
        """
        row = {
            "principal": principal,
            "key": key,
            "digest": digest,
            "run_id": run_id,
            "submitted_at": self._database.clock.now(),
        }
        insert = self._database.insert(submissions).values(row).on_conflict_do_nothing()
        # What was there before is committed by then, and is never changed.
        known = sa.select(submissions.c.digest, submissions.c.run_id).where(
            submissions.c.principal == principal, submissions.c.key == key
        )

        def store(connection: sa.Connection) -> tuple[str, str]:
            connection.execute(insert)
            digest, run_id = connection.execute(known).one()
            return digest, run_id

        return await self._database.change("the idempotency key", store)
