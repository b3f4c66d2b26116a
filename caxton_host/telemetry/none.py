"""Telemetry of a host that nobody watches."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Generator

    from ..core.calls import Outcome, Route, ToolCall

__all__ = ["NoTelemetry"]


class NoTelemetry:
    """Watches nothing."""

    @contextlib.contextmanager
    def run(
        self, agent: str, run_id: str, mode: Literal["live", "resume", "replay"]
    ) -> Generator[NoTelemetry]:
        """Watch nothing of a run."""
        del agent, run_id, mode
        yield self

    @contextlib.contextmanager
    def call(self, call: ToolCall, run_id: str) -> Generator[NoTelemetry]:
        """Watch nothing of a call."""
        del call, run_id
        yield self

    def ids(self) -> tuple[str | None, str | None]:
        """Return no trace."""
        return None, None

    def settled(self, outcome: Outcome, route: Route | None) -> None:
        """Note nothing."""

    def ended(self, state: str, kind: str | None) -> None:
        """Note nothing."""

    def headers(self) -> dict[str, str]:
        """Return no trace context."""
        return {}

    def anchor_failed(self) -> None:
        """Count nothing."""

    def close(self) -> None:
        """Do nothing."""
