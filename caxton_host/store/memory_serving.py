"""What a host that is served remembers, in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from ..core.log.events import Event
from ..ports import TokenRow
from .serving import no_token, taken


class MemoryServing(ABC):
    """See `Tokens`, `Submissions` and `Checked` of `caxton_host.ports`."""

    def __init__(self) -> None:
        self._tokens: dict[str, TokenRow] = {}
        self._submissions: dict[tuple[str, str], tuple[str, str]] = {}

    @abstractmethod
    async def _record(self, stream: str, events: Sequence[Event]) -> None:
        """Add *events* to the end of a stream."""

    async def check(self) -> None:  # noqa: B027 -- what is there stays there
        """Return: nothing can be wrong."""

    async def token(self, token_id: str) -> TokenRow | None:
        """Return the token with that id, or ``None``."""
        return self._tokens.get(token_id)

    async def tokens(self) -> list[TokenRow]:
        """Return all tokens, oldest first."""
        return sorted(self._tokens.values(), key=lambda row: (row.created_at, row.id))

    async def add_token(self, row: TokenRow, stream: str, *events: Event) -> None:
        """
        Add a token, and *events* to a stream.

        Raises:
            UsageError: A token that is good has its name.
        """
        for one in self._tokens.values():
            if row.name == one.name != "" and one.is_good(row.created_at):
                raise taken(row.name, one.id)
        await self._record(stream, events)
        self._tokens[row.id] = row

    async def revoke_token(
        self, token_id: str, at: int, stream: str, *events: Event
    ) -> None:
        """
        Note that a token is not good any more; see `add_token`.

        Raises:
            NotFoundError: There is none, or it is revoked already.
        """
        row = self._tokens.get(token_id)
        if row is None or row.revoked_at is not None:
            raise no_token(token_id)
        await self._record(stream, events)
        self._tokens[token_id] = replace(row, revoked_at=at)

    async def submitted(
        self, principal: str, key: str, digest: str, run_id: str
    ) -> tuple[str, str]:
        """Have *key* stand for *run_id*, unless it stands for another run already."""
        return self._submissions.setdefault((principal, key), (digest, run_id))

    def _forget(self, run_id: str) -> None:
        for key in [k for k, (_, run) in self._submissions.items() if run == run_id]:
            del self._submissions[key]
