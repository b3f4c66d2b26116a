"""Answers that last: whoever has one is asked for again who they are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from starlette.types import Message, Send

from ...errors import StoreError
from .bearer import Unauthenticated

#: Seconds for which an answer goes on without a look at who gets it.
_AGAIN = 5.0


@dataclass(slots=True)
class Lasting:
    """
    Sends an answer for as long as whoever asked may have it, and then ends it.

    Attributes:
        send: Sends it.

        still: Finds out again who asks; raises if nobody knows any more.

        now: Returns seconds of a clock that never goes back.

        refused: Why there is no answer at all, for what was waited for too long.
    """

    send: Send
    still: Callable[[], Awaitable[object]]
    now: Callable[[], float]
    refused: Exception | None = field(default=None, init=False)
    _known_at: float = field(init=False)
    _is_over: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._known_at = self.now()

    async def __call__(self, message: Message) -> None:
        """Send a message, or the end instead of it; nothing after that."""
        if self._is_over:
            return
        begins = message["type"] == "http.response.start"
        if begins or message.get("more_body") or message.get("body"):
            try:
                await self._look()
            except (Unauthenticated, StoreError) as exc:
                self._is_over = True
                if begins:
                    self.refused = exc
                    return
                message = {"type": "http.response.body", "body": b""}
        await self.send(message)

    async def _look(self) -> None:
        if self.now() - self._known_at >= _AGAIN:
            self._known_at = self.now()
            await self.still()
