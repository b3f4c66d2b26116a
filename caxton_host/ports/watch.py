"""The ports of the clock and of telemetry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from ..core.calls import Outcome, Route, ToolCall
from ..core.log.events import Event


class Clock(Protocol):
    """The source of time."""

    def now(self) -> int:
        """Return microseconds since 1970, UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start. Never goes back."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """
    The recorded run, or event, that an execution continues or replays.

    Attributes:
        run_id: Its run.

        trace_id: The trace under which it was recorded, in hex, if known.

        span_id: The same of the span.

        seq: The number of the event, in the stream of its run.

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
        module_sha256: The module that is executed.

        description: Of its manifest.

        version: The same.

        origin: What it continues or replays.

        asked: The W3C trace context of its caller: ``traceparent``, and maybe
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
    The source of the answer of a call.

    Attributes:
        origin: The recorded call, if the answer is from the log.

        actor: The person who resolved the call, or empty.
    """

    by: Literal["upstream", "log", "resolution"] = "upstream"
    origin: Origin | None = None
    actor: str = ""


class Span(Protocol):
    """A call, while it is observed."""

    def settled(self, outcome: Outcome, route: Route | None) -> None:
        """Note how it ended."""
        ...

    def stored(self, seq: int, digest: bytes) -> None:
        """Note number and hash of the newest durable event of the run."""
        ...


class RunSpan(Protocol):
    """A run, while it is observed."""

    def call(
        self, call: ToolCall, route: Route | None, served: Served | None = None
    ) -> AbstractContextManager[Span]:
        """Observe one of its calls, which leads to *route*."""
        ...

    def recorded(
        self, seq: int, events: Sequence[Event]
    ) -> Sequence[tuple[str | None, str | None]]:
        """
        Note events of it that are recorded now.

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
        """Note the verdict of a replay."""
        ...


class Telemetry(Protocol):
    """Observes runs and calls, without any effect on them."""

    def run(self, execution: Execution) -> AbstractContextManager[RunSpan]:
        """Observe a run from its first event to its last."""
        ...

    def ids(self) -> tuple[str | None, str | None]:
        """Return trace and span id of what is observed now, in hex."""
        ...
