"""What a host that is served asks of its log, and remembers besides it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..core.grants.principals import Scope
from .log import SharedStore
from .reading import LogReader


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """
    A token, as the store keeps it: without its secret.

    Attributes:
        id: Part of the token, and the id of its principal.

        name: For people.

        digest: SHA-256 of the secret, in hex.

        scopes: What it is good for.

        agents: With which agents; see `Principal`.

        roles: In which approvals are given.

        created_at: Microseconds since 1970, UTC.

        expires_at: The same; ``None``: it does not.

        revoked_at: The same; ``None``: it is not.
    """

    id: str
    name: str
    digest: str
    scopes: tuple[Scope, ...]
    agents: tuple[str, ...] = ("*",)
    roles: tuple[str, ...] = ()
    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None

    def is_good(self, now: int) -> bool:
        """Return whether it lets its owner in."""
        lasts = self.expires_at is None or self.expires_at > now
        return self.revoked_at is None and lasts


class Tokens(Protocol):
    """Tokens of a host, wherever they were made."""

    async def find(self, token_id: str) -> TokenRow | None:
        """
        Return the token with that id as it is now, or ``None``.

        Raises:
            StoreError: That cannot be read: whoever has it is refused.
        """
        ...


class Health(Protocol):
    """Whether a log is well."""

    async def check(self) -> None:
        """
        Return if the log can be read and written, and is where it was opened.

        Raises:
            LogMovedError: It is not there: nothing is written any more.

            ReadOnlyError: It takes no writes.

            LeaseLost: The lease of this host has lapsed.

            StoreError: It cannot be read, or not be written.
        """
        ...


class Submissions(Protocol):
    """Which run each key stands for that a client has made up."""

    async def register(
        self, principal: str, key: str, digest: str, run_id: str
    ) -> tuple[str, str]:
        """
        Have *key* stand for *run_id*, unless it stands for another run already.

        Args:
            principal: Whose key it is: kind and id.

            key: The key.

            digest: Of what was asked for with it.

            run_id: The run that is to be.

        Returns:
            Digest and run that it stands for.

        Raises:
            StoreError: It could not be stored.
        """
        ...


class ServingStore(SharedStore, Protocol):
    """The store of a host that serves."""

    @property
    def reader(self) -> LogReader:
        """What is recorded."""
        ...

    @property
    def submissions(self) -> Submissions:
        """Which run each key of a client names."""
        ...

    @property
    def health(self) -> Health:
        """Whether the log is well."""
        ...
