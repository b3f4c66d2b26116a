"""The clock and the telemetry of a host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from ..core.calls import Outcome, Route, ToolCall
from ..core.log.events import Event

#: Attributes of a span, by their conventional names.
Fields: TypeAlias = dict[str, str | int | bool]
Texts: TypeAlias = Mapping[str, str]


class Clock(Protocol):
    """Where time comes from."""

    def now(self) -> int:
        """Return microseconds since 1970, UTC."""
        ...

    def monotonic(self) -> float:
        """Return monotonic seconds from an arbitrary start."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """
    The recorded event that an execution continues or repeats.

    Attributes:
        kind: How the execution relates to it.

        run_id: The run of the event.

        trace_id: The trace under which it was recorded, in hex, if known.

        span_id: The span under which it was recorded, in hex, if known.

        seq: The number of the event in the stream of its run.

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
        module_sha256: The digest of the module, in hex.

        description: The description in the module's manifest.

        version: The version in the module's manifest.

        origin: The recorded event that it continues or repeats.

        caller: The run that waits for its answer, and the number of that call.

        asked: The W3C trace context of the caller: ``traceparent``, and ``tracestate``
            and ``baggage`` if given, as `Telemetry.trace_of` returns it.
    """

    run_id: str
    agent: str
    mode: Literal["live", "resume", "replay"]
    module_sha256: str
    description: str = ""
    version: str = ""
    origin: Origin | None = None
    caller: tuple[str, int] | None = None
    asked: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """
    Where the answer of a call comes from.

    Attributes:
        by: A tool, the log, or a person who resolved the call.

        origin: The recorded call, if the log answers.

        actor: The person, if one resolved the call.
    """

    by: Literal["upstream", "log", "resolution"] = "upstream"
    origin: Origin | None = None
    actor: str = ""


class Span(Protocol):
    """The span of a call."""

    def settled(self, outcome: Outcome, route: Route | None) -> None:
        """Note how it ended."""
        ...

    def stored(self, seq: int, digest: bytes) -> None:
        """Note number and hash of the newest durable event of the run."""
        ...


class RunSpan(Protocol):
    """The span of a run."""

    def call(
        self, call: ToolCall, route: Route | None, served: Served | None = None
    ) -> AbstractContextManager[Span]:
        """Return the span of one call, which leads to *route*."""
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
    """Observes runs and calls without affecting them."""

    def run(self, execution: Execution) -> AbstractContextManager[RunSpan]:
        """Return the span of a run, from its first event to its last."""
        ...

    def ids(self) -> tuple[str | None, str | None]:
        """Return trace and span id of the current span, in hex."""
        ...

    def trace_of(self, said: Mapping[str, object], /) -> Texts:
        """Return the W3C trace context and the allowed baggage that a caller sent."""
        ...

    def serving(self, fields: Fields, asked: Texts) -> AbstractContextManager[Texts]:
        """
        Return what observes a request of an MCP client.

        Args:
            fields: Its attributes, by their conventional names; may grow until it ends.

            asked: The W3C trace context of the client.

        Returns:
            Its own trace context while it is entered, or nothing.
        """
        ...
