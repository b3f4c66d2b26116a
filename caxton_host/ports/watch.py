"""Time, and who watches."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Literal, Protocol

from ..core.calls import Outcome, Route, ToolCall

__all__ = ["Clock", "Span", "Telemetry"]


class Clock(Protocol):
    """Where time comes from."""

    def now(self) -> int:
        """Return microseconds since 1970, UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start. Never goes back."""
        ...


class Span(Protocol):
    """One operation, while it is watched."""

    def settled(self, outcome: Outcome, route: Route | None) -> None:
        """Note how a call ended."""
        ...

    def ended(self, state: str, kind: str | None) -> None:
        """Note how a run ended, and the kind of its failure."""
        ...


class Telemetry(Protocol):
    """Watches runs and calls. Never takes part in them."""

    def run(
        self, agent: str, run_id: str, mode: Literal["live", "resume", "replay"]
    ) -> AbstractContextManager[Span]:
        """Watch a run from its first event to its last."""
        ...

    def call(self, call: ToolCall, run_id: str) -> AbstractContextManager[Span]:
        """Watch one call of a run."""
        ...

    def ids(self) -> tuple[str | None, str | None]:
        """Return trace and span id of what is being watched now, in hex."""
        ...
