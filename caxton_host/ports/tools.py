"""How tool servers are reached."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from ..core.calls import JSON, Completed
from ..core.catalogue import Offered

__all__ = ["ToolClient", "ToolRequest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRequest:
    """
    A permitted call on its way to a server.

    Attributes:
        run_id: The run that makes it.

        call: Its number in the run.

        params: What is sent: the agent's own, as they were judged.

        definition_sha256: The definition that the run was shown, or ``None``.
            Another one now is a failure of kind ``changed``.

        idempotency_key: The same over every attempt of this call.

        attempt: 1 for the first send.
    """

    run_id: str
    call: int
    server: str
    tool: str
    params: dict[str, JSON]
    definition_sha256: str | None
    idempotency_key: str
    attempt: int = 1


class ToolClient(Protocol):
    """A way to reach tool servers."""

    async def offered(self, servers: Collection[str]) -> Offered:
        """
        Return what *servers* offer, starting those that are not running.

        A server that cannot be reached is left out of the offers, with a warning.

        Raises:
            ServerUnavailable: One that is ``required`` cannot be reached.
        """
        ...

    async def call_tool(self, request: ToolRequest) -> Completed:
        """
        Send *request* once, and return the bounded, redacted answer.

        Raises:
            ToolError: There is none.
        """
        ...
