"""Time, and who watches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from ..core.calls import Outcome, Route, ToolCall
from ..core.log.events import Event


class Clock(Protocol):
    """Where time comes from."""

    def now(self) -> int:
        """Return microseconds since 1970, UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start. Never goes back."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """
    What was recorded before, and is followed now.

    Attributes:
        run_id: The run that it is of.

        trace_id: Under which it was recorded, in hex, as far as known.

        span_id: The same of the span.

        seq: The number of the event that is followed, in the stream of its run.

        hash: Its hash, in hex.
    """

    kind: Literal["resume_of", "forked_from", "replay_of"]
    run_id: str
    trace_id: str | None = None
    span_id: str | None = None
    seq: int = 0
    hash: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """
    One execution of the guest of a run.

    Attributes:
        module_sha256: What is executed.

        description: What the module says of itself.

        version: The same.

        origin: What it goes on with, or does again.

        asked: The W3C trace context of who asked for it: ``traceparent``, and maybe
            ``tracestate``.
    """

    run_id: str
    agent: str
    mode: Literal["live", "resume", "replay"]
    module_sha256: str
    description: str = ""
    version: str = ""
    origin: Origin | None = None
    asked: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """
    Where the answer of a call comes from.

    Attributes:
        origin: The call as it was recorded, if it is that.

        actor: Who resolved the call, if somebody did.
    """

    by: Literal["upstream", "log", "resolution"] = "upstream"
    origin: Origin | None = None
    actor: str = ""


class Span(Protocol):
    """A call, while it is watched."""

    def settled(self, outcome: Outcome, route: Route | None) -> None:
        """Note how it ended."""
        ...

    def stored(self, seq: int, digest: bytes) -> None:
        """Note number and hash of the newest durable event of the run."""
        ...


class RunSpan(Protocol):
    """A run, while it is watched."""

    def call(
        self, call: ToolCall, route: Route | None, served: Served | None = None
    ) -> AbstractContextManager[Span]:
        """Watch one call of it, which leads to *route*."""
        ...

    def recorded(
        self, seq: int, events: Sequence[Event]
    ) -> Sequence[tuple[str | None, str | None]]:
        """
        Take note of events of it that are recorded now.

        Args:
            seq: The number of the first.

            events: In order.

        Returns:
            Trace and span id of each, in hex.
        """
        ...

    def stored(self, seq: int, digest: bytes) -> None:
        """Note number and hash of its newest durable event."""
        ...

    def ended(self, state: str, kind: str | None) -> None:
        """Note how it ended, and the kind of its failure."""
        ...

    def replayed(self, verdict: str) -> None:
        """Note what a replay found."""
        ...


class Telemetry(Protocol):
    """Watches runs and calls. Never takes part in them."""

    def run(self, execution: Execution) -> AbstractContextManager[RunSpan]:
        """Watch a run from its first event to its last."""
        ...

    def ids(self) -> tuple[str | None, str | None]:
        """Return trace and span id of what is being watched now, in hex."""
        ...
