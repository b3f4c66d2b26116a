"""The door of a guest that a build executes: nothing is behind it."""

from __future__ import annotations

from typing import NoReturn

from ..errors import SandboxError


class ClosedDoor:
    """Refuses tool calls, and drops log lines: a failure has the same text."""

    async def call(self, name: bytes, params: bytes, fuel: int) -> NoReturn:
        """Refuse a tool call."""
        del name, params, fuel
        raise SandboxError("a tool was called during a build")

    async def call_many(self, batch: bytes, fuel: int) -> NoReturn:
        """Refuse a batch of tool calls."""
        await self.call(batch, b"", fuel)

    def log(self, level: int, text: bytes) -> None:
        """Drop a log line."""
