"""What a host that is served asks of its log: is it well, who calls, what is a key."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError

from ..core.log.events import Event
from ..errors import NotFoundError, ReadOnlyError, StoreError, UsageError
from ..ports import Clock, TokenRow
from .budget_reads import Accounts
from .commit import Driver, ask
from .committed_mark import Kept
from .engine import explain, path_of
from .file_guard import Whereabouts
from .inline_reads import Near
from .schema import runs, submissions, tokens


def no_token(token_id: str) -> NotFoundError:
    """Return what is told to who would revoke a token that nobody can use."""
    return NotFoundError(
        f"there is no token {token_id!r} that could be revoked",
        fix="caxton serve token list",
    )


def taken(name: str, token_id: str) -> UsageError:
    """Return what is told to who would give a token the name of one that is good."""
    return UsageError(
        f"token {token_id} has the name {name!r}, and is good",
        fix=f"choose another name, or type caxton serve token revoke {token_id}",
    )


def touch(driver: Driver) -> None:
    """Write what is there already, in a transaction that needs room like any other."""
    for change in (1, -1):  # SQLite writes no page that stays as it is.
        ask(driver, "UPDATE tree SET size = size + ?", change)


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


_ADD = (
    f"INSERT INTO tokens ({', '.join(tokens.columns.keys())}) "  # noqa: S608 -- ours
    f"VALUES ({', '.join('?' * len(tokens.columns))})"
)
_NAMED = (
    "SELECT id FROM tokens WHERE name = ? AND revoked_at IS NULL "
    "AND (expires_at IS NULL OR expires_at > ?)"
)
_ANY = sa.select(runs.c.run_id).limit(1)
#: After a failover to a standby too.
_READ_ONLY = sa.select(sa.literal(1)).where(
    sa.func.current_setting("transaction_read_only") == "on"
)
_BY_ID = sa.select(tokens).where(tokens.c.id == sa.bindparam("id"))
_REVOKE = "UPDATE tokens SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL"


class Serving(Accounts, ABC):
    """See `Tokens`, `Submissions` and `Checked` of `caxton_host.ports`."""

    def __init__(
        self, engine: sa.Engine, clock: Clock, place: Whereabouts | Kept
    ) -> None:
        super().__init__(engine, clock)
        self._place = place
        self._near = Near(engine, _BY_ID)

    @abstractmethod
    async def _record(
        self, stream: str, events: Sequence[Event], guard: Callable[[Driver], None]
    ) -> None:
        """Store *events* at the end of a stream, in one transaction with *guard*."""

    @abstractmethod
    def _write_again(self) -> None:
        """Try to write if the last commit failed."""

    async def check(self) -> None:
        """
        Return if the log can be read and written, and is where it was opened.

        Whether it can be written is tried only if the last commit failed.

        Raises:
            LogMovedError: Its file was moved away or replaced, or its server set back.

            ReadOnlyError: It takes no writes.

            StoreError: It cannot be read, or not be written.
        """
        await asyncio.to_thread(self._check)

    def _check(self) -> None:
        if isinstance(self._place, Whereabouts):
            self._place.check()
        self._rows(_ANY)
        if isinstance(self._place, Kept):
            self._place.check(self._rows)
        if self.engine.dialect.name == "postgresql" and self._rows(_READ_ONLY):
            raise ReadOnlyError(
                "the database is read-only",
                fix="promote it if it is a standby, or have [store] url name the "
                "server that takes writes",
            )
        self._write_again()

    async def token(self, token_id: str) -> TokenRow | None:
        """
        Return the token with that id as it is now, or ``None``.

        Raises:
            StoreError: That cannot be read: whoever has it is refused.
        """
        found: Sequence[Any] | None = self._near.rows(token_id)
        if found is None:
            query = sa.select(tokens).where(tokens.c.id == token_id)
            found = await asyncio.to_thread(self._rows, query)
        return _token(found[0]) if found else None

    async def tokens(self) -> list[TokenRow]:
        """Return all tokens, oldest first."""
        query = sa.select(tokens).order_by(tokens.c.created_at, tokens.c.id)
        return [_token(row) for row in await asyncio.to_thread(self._rows, query)]

    async def add_token(self, row: TokenRow, stream: str, *events: Event) -> None:
        """
        Add a token, and *events* to a stream, together or not at all.

        Args:
            row: The token.

            stream: Of the host that does it, which writes nothing else meanwhile.

            events: What is recorded of it: one at least.

        Raises:
            UsageError: A token that is good has its name.

            StoreError: It could not be stored.
        """
        await self._record(stream, events, _Addition(row))

    async def revoke_token(
        self, token_id: str, at: int, stream: str, *events: Event
    ) -> None:
        """
        Note that a token is not good any more; see `add_token`.

        Args:
            token_id: Its id.

            at: Since when, in microseconds since 1970.

            stream: As for `add_token`.

            events: The same.

        Raises:
            NotFoundError: There is none, or it is revoked already.

            StoreError: It could not be stored.
        """
        await self._record(stream, events, _Revocation(token_id, at))

    async def submitted(
        self, principal: str, key: str, digest: str, run_id: str
    ) -> tuple[str, str]:
        """
        Have *key* stand for *run_id*, unless it stands for another run already.

        Whoever is first has it, of all hosts that share the database.

        Raises:
            StoreError: It could not be stored.
        """
        row = {
            "principal": principal,
            "key": key,
            "digest": digest,
            "run_id": run_id,
            "submitted_at": self._clock.now(),
        }
        return await asyncio.to_thread(self._submitted, row)

    def _submitted(self, row: dict[str, Any]) -> tuple[str, str]:
        is_file = self.engine.dialect.name == "sqlite"
        insert = sqlite.insert if is_file else postgresql.insert
        # What was there before is committed by then, and is never changed.
        known = sa.select(submissions.c.digest, submissions.c.run_id).where(
            submissions.c.principal == row["principal"], submissions.c.key == row["key"]
        )
        try:
            with self.engine.connect() as connection:
                connection.execute(
                    insert(submissions).values(row).on_conflict_do_nothing()
                )
                digest, run_id = connection.execute(known).one()
        except DBAPIError as exc:
            text, fix = explain(exc, path_of(self.engine), "see `caxton db status`")
            raise StoreError(
                f"the idempotency key cannot be stored: {text}", fix=fix
            ) from None
        return digest, run_id


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
        )
    except (ValueError, TypeError):
        raise StoreError(
            "a token in the database is not as it was written",
            fix="restore the table tokens from a copy",
        ) from None
