"""Telemetry of a host that nobody watches."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from ..core.log.events import Event
from ..ports import Execution, Served
from .prometheus import nothing_to_read

if TYPE_CHECKING:
    from collections.abc import Generator

    from ..core.calls import Outcome, Route, ToolCall
    from .metrics import ServerState


_T = TypeVar("_T")

_NONE = (None, None)


class NoTelemetry:
    """Watches nothing."""

    @contextlib.contextmanager
    def run(self, execution: Execution) -> Generator[NoTelemetry]:
        """Watch nothing of a run."""
        del execution
        yield self

    def call(
        self, call: ToolCall, route: Route | None, served: Served | None = None
    ) -> contextlib.AbstractContextManager[NoTelemetry]:
        """Watch nothing of a call."""
        del call, route, served
        return contextlib.nullcontext(self)

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

    # -- of the host itself ----------------------------------------------------

    @property
    def counts(self) -> NoTelemetry:
        """Who is told what becomes of the host."""
        return self

    def happened(self, event: Event) -> None:
        """Count nothing."""

    def look_at(self, servers: Callable[[], Iterable[ServerState]]) -> None:
        """Look at nothing."""

    def committed(self, seconds: float, events: int, queued: int) -> None:
        """Count nothing."""

    def anchor_failed(self) -> None:
        """Count nothing."""

    def worker(self, what: str) -> None:
        """Count nothing."""

    def lost(self, signal: str) -> None:
        """Count nothing."""

    def scrape(self) -> tuple[str, bytes]:
        """Return that there is nothing to read."""
        return nothing_to_read()

    def close(self) -> None:
        """Do nothing."""
