"""What a host that is served remembers, in memory."""

from __future__ import annotations

from ..ports import TokenRow

__all__ = ["MemoryServing"]


class MemoryServing:
    """See `caxton_host.ports.Tokens` and `caxton_host.ports.Submissions`."""

    def __init__(self) -> None:
        self.tokens: dict[str, TokenRow] = {}
        self._submissions: dict[tuple[str, str], tuple[str, str]] = {}

    async def token(self, token_id: str) -> TokenRow | None:
        """Return the token with that id, or ``None``."""
        return self.tokens.get(token_id)

    async def submitted(
        self, principal: str, key: str, digest: str, run_id: str
    ) -> tuple[str, str]:
        """Have *key* stand for *run_id*, unless it stands for another run already."""
        return self._submissions.setdefault((principal, key), (digest, run_id))
