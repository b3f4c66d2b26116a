"""Telemetry of a host that nobody watches."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from ..core.events import Event
from ..ports import Execution, Served

if TYPE_CHECKING:
    from collections.abc import Generator

    from ..core.calls import Outcome, Route, ToolCall

__all__ = ["NoTelemetry"]

_T = TypeVar("_T")

_NONE = (None, None)


class NoTelemetry:
    """Watches nothing."""

    @contextlib.contextmanager
    def run(self, execution: Execution) -> Generator[NoTelemetry]:
        """Watch nothing of a run."""
        del execution
        yield self

    @contextlib.contextmanager
    def call(
        self, call: ToolCall, served: Served | None = None
    ) -> Generator[NoTelemetry]:
        """Watch nothing of a call."""
        del call, served
        yield self

    def recorded(self, seq: int, events: Sequence[Event]) -> list[tuple[None, None]]:
        """Take no note of events."""
        del seq
        return [_NONE] * len(events)

    def ids(self) -> tuple[str | None, str | None]:
        """Return no trace."""
        return _NONE

    def settled(self, outcome: Outcome, route: Route | None) -> None:
        """Note nothing."""

    def ended(self, state: str, kind: str | None) -> None:
        """Note nothing."""

    def replayed(self, verdict: str) -> None:
        """Note nothing."""

    def stored(self, seq: int, digest: bytes) -> None:
        """Note nothing."""

    def headers(self) -> dict[str, str]:
        """Return no trace context."""
        return {}

    def traced(self, tools: _T) -> _T:
        """Return *tools* as they are."""
        return tools

    def anchor_failed(self) -> None:
        """Count nothing."""

    def close(self) -> None:
        """Do nothing."""
