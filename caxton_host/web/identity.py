"""Who a request is from."""

from __future__ import annotations

from typing import Protocol

from ..core.principals import Principal

__all__ = ["Identity", "Unauthenticated"]


class Unauthenticated(Exception):  # noqa: N818 -- a state
    """
    Nobody vouches for who asks.

    Attributes:
        challenge: What the ``WWW-Authenticate`` header says.
    """

    def __init__(self, challenge: str, problem: str) -> None:
        super().__init__(problem)
        self.challenge = challenge


class Identity(Protocol):
    """Finds out who asks."""

    async def principal(self, authorization: str | None) -> Principal:
        """
        Return who asks.

        Args:
            authorization: The header of that name, if there is one.

        Raises:
            Unauthenticated: It proves nothing.
        """
        ...
