"""What a host that serves needs of its store: tokens, keys of clients, and health."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from ..core.analysis.rule_uses import Spent
from ..core.calls import JSON
from ..core.grants.principals import SESSION, Principal, TokenScope, scopes_in
from ..core.log.events import RunErased, RunHeld, RunReleased
from .history import LogReader
from .log import EventLog, Refused, Reservation, SharedStore


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """
    A stored token, without its secret.

    Attributes:
        id: Part of the token, and the id of its principal.

        name: A display name.

        digest: SHA-256 of the secret, in hex.

        scopes: What its bearer may do; or `SESSION` alone.

        agents: Of which agents; see `Principal`. With `SESSION`: of which sessions.

        roles: For approvals.

        created_at: Microseconds since 1970, UTC.

        expires_at: The same; ``None``: never.

        revoked_at: The same; ``None``: not revoked.

        tenant: The tenant of its bearer, if it has one.
    """

    id: str
    name: str
    digest: str
    scopes: tuple[TokenScope, ...]
    agents: tuple[str, ...] = ("*",)
    roles: tuple[str, ...] = ()
    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None
    tenant: str | None = None

    def is_good(self, now: int) -> bool:
        """Return whether the token is valid at that time."""
        lasts = self.expires_at is None or self.expires_at > now
        return self.revoked_at is None and lasts

    @property
    def bearer(self) -> Principal:
        """Its principal."""
        if SESSION in self.scopes:
            return Principal(
                kind="token",
                id=self.id,
                scopes=frozenset(),
                agents=(),
                sessions=self.agents,
                tenant=self.tenant,
            )
        return Principal(
            kind="token",
            id=self.id,
            scopes=scopes_in(self.scopes),
            agents=self.agents,
            roles=self.roles,
            tenant=self.tenant,
        )


class Tokens(Protocol):
    """The tokens of a host."""

    async def find(self, token_id: str) -> TokenRow | None:
        """
        Return the token with that id as it is now, or ``None``.

        Raises:
            StoreError: It cannot be read; its bearer is refused.
        """
        ...

    async def all(self) -> list[TokenRow]:
        """Return all tokens, oldest first."""
        ...


class Health(Protocol):
    """Whether a log can be used."""

    async def check(self) -> None:
        """
        Return if the log can be read and written, and is where it was opened.

        Raises:
            LogMovedError: It was moved or replaced: nothing is written any more.

            ReadOnlyError: It is read-only.

            LeaseLost: The lease of this host has lapsed.

            StoreError: It cannot be read, or not be written.
        """
        ...


class Submissions(Protocol):
    """The run of each idempotency key of a client."""

    async def register(
        self, principal: str, key: str, digest: str, run_id: str
    ) -> tuple[str, str]:
        """
        Assign *run_id* to *key*, unless it has another run already.

        Args:
            principal: The owner of the key: kind and id.

            key: The key.

            digest: Of the request.

            run_id: The run to start.

        Returns:
            Digest and run of the key.

        Raises:
            StoreError: It could not be stored.
        """
        ...


class Projections(Protocol):
    """Tables that are made from events."""

    async def fill(self) -> int:
        """Make the rows that an older release wrote, and return how many."""
        ...


class Holds(Protocol):
    """The runs that nobody may erase."""

    async def record(self, event: RunHeld | RunReleased) -> None:
        """
        Put a run on hold, or release it.

        Raises:
            NotFoundError: There is no such run.

            UsageError: It is on hold already, or is not.

            NotKeptError: It was erased.

            StoreError: It could not be stored.
        """
        ...


class Keeper(Protocol):
    """Maintains a log for an actor, and records each change."""

    async def erase(self, run_id: str, reason: str) -> RunErased:
        """
        Delete the payloads of a run that has ended.

        Raises:
            NotFoundError: There is no such run.

            NotKeptError: It was erased before.

            UsageError: It goes on or is on hold, or a fork of it is.

            StoreError: It could not be done, and nothing was.
        """
        ...

    async def scrub(self) -> bool:
        """Remove what was erased from the file too; return whether that was done."""
        ...

    async def bundle(self, run_id: str) -> bytes:
        """
        Sign the log, and return a bundle of a run.

        Raises:
            LogBrokenError: The log is not what was signed.
        """
        ...

    async def add_token(self, row: TokenRow) -> None:
        """
        Add a token that authenticates callers.

        Raises:
            UsageError: A token that is good has its name.
        """
        ...

    async def revoke_token(self, token_id: str, at: int) -> None:
        """
        Revoke a token.

        Raises:
            NotFoundError: There is none, or it is revoked already.
        """
        ...


#: Opens what keeps the log for an actor. The log is signed at the end.
Keeping: TypeAlias = Callable[[dict[str, JSON]], AbstractAsyncContextManager[Keeper]]


class ServingStore(SharedStore, Protocol):
    """The store of a host that serves."""

    @property
    def reader(self) -> LogReader:
        """Reads the log."""
        ...

    @property
    def tokens(self) -> Tokens:
        """The tokens of callers."""
        ...

    @property
    def projections(self) -> Projections:
        """What lists and the search for work read."""
        ...

    async def resume_log(self, stream: str) -> EventLog:
        """
        Return the log of a stream, to append to its end.

        Raises:
            NotFoundError: It has no events.
        """
        ...

    async def reserve(self, items: Sequence[Reservation]) -> Refused | None:
        """
        Spend rates that no run spends, all or none; see `EventLog.append`.

        Raises:
            StoreError: They cannot be counted.
        """
        ...

    async def spent(self, agent: str) -> Spent:
        """
        Return what is spent of the budgets of an agent.

        Raises:
            StoreError: They cannot be read.
        """
        ...

    @property
    def holding(self) -> Holds:
        """Keeps runs from being erased."""
        ...

    @property
    def submissions(self) -> Submissions:
        """The run of each idempotency key."""
        ...

    @property
    def health(self) -> Health:
        """Whether the log can be used."""
        ...
