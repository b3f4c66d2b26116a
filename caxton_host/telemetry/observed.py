"""
One host, watched: its spans, what is counted of it, and what it logs.

A wrapper around the spans, which times runs and calls once and tells all others.
Within a span, so that a measurement and a log line know their trace. What a replay
executes again is no call: it is not counted again.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from ..core.calls import Denied, Failed, Outcome, Route, ToolCall
from ..core.grants.approvals import Unapproved
from ..core.log.attribution import how
from ..core.log.events import Event
from ..errors import RunStopped, StoreError, Suspend
from ..lib.logs import about
from .null import NoTelemetry
from .prometheus import Scrape, nothing_to_read
from .tools import TimedTools

if TYPE_CHECKING:
    from ..ports import Execution, RunSpan, Served, Span, ToolRequest, ToolService
    from .counting import Counting
    from .spans import OtelTelemetry


class Observer(Protocol):
    """Is told of what a host does. Never takes part in it."""

    def began(self, run: OneRun) -> None:
        """Note that a run is driven from now on, or replayed."""
        ...

    def ended(self, run: OneRun) -> None:
        """Note that it no longer is."""
        ...

    def settled(self, call: OneCall) -> None:
        """Note that a call of a run that is driven ended, or that it waits."""
        ...

    def attempted(self, request: ToolRequest, seconds: float, error: str) -> None:
        """Note that a tool was asked; *error* is empty if it answered well."""
        ...


class OneCall:
    """
    A call that is watched while this is entered.

    Attributes:
        route: Where it leads, or ``None``: nowhere.

        status: How it ended, as `core.log.attribution` names it; ``""``: it did not.

        code: Why it was denied, or how it failed.

        sent: Of one that failed, whether it may have had an effect.

        asked: People are asked about it.

        seconds: What it took.
    """

    def __init__(
        self,
        run: OneRun,
        call: ToolCall,
        route: Route | None,
        watch: AbstractContextManager[Span],
    ) -> None:
        self.call = call
        self.route = route
        self.status = self.code = self.sent = ""
        self.asked = False
        self.seconds = 0.0
        self._run = run
        self._watch = watch
        self._about = about(call=call.number)

    def __enter__(self) -> Self:
        self._span = self._watch.__enter__()
        self._about.__enter__()
        self._began = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        self.seconds = time.perf_counter() - self._began
        if exc is not None:
            self._stopped(exc)
        if self._run.execution.mode != "replay":
            for each in self._run.observers:
                each.settled(self)
        self._about.__exit__()
        return self._watch.__exit__(kind, exc, trace)

    def settled(self, outcome: Outcome, route: Route | None) -> None:
        """Note how it ended."""
        self.status = how(outcome)
        if isinstance(outcome, Denied):
            self.code = outcome.code
        elif isinstance(outcome, Failed):
            self.code, self.sent = outcome.kind, outcome.sent
        self._span.settled(outcome, route)

    def stored(self, seq: int, digest: bytes) -> None:
        """Pass it on."""
        self._span.stored(seq, digest)

    def _stopped(self, exc: BaseException) -> None:
        """Note why it did not end as calls do."""
        match exc:
            case Unapproved():
                self.asked = True
            case Suspend() | StoreError():  # was it sent, is it recorded?
                self.status = "in_doubt"
            case RunStopped():
                self.status, self.code = "denied", "limit"
            case asyncio.CancelledError():
                self.status, self.code = "failed", "cancelled"
            case _:
                pass


@dataclass(slots=True)
class OneRun:
    """
    A run, while it is watched.

    Attributes:
        state: How it ended, or ``""``: its log failed, or it goes on elsewhere.

        kind: Of its failure.

        verdict: What a replay found.

        seconds: What it took.
    """

    execution: Execution
    span: RunSpan
    observers: Sequence[Observer]
    state: str = ""
    kind: str = ""
    verdict: str = ""
    seconds: float = 0.0

    def call(
        self, call: ToolCall, route: Route | None, served: Served | None = None
    ) -> OneCall:
        """Watch one call of it."""
        return OneCall(self, call, route, self.span.call(call, route, served))

    def recorded(
        self, seq: int, events: Sequence[Event]
    ) -> Sequence[tuple[str | None, str | None]]:
        """Pass it on."""
        return self.span.recorded(seq, events)

    def stored(self, seq: int, digest: bytes) -> None:
        """Pass it on."""
        self.span.stored(seq, digest)

    def ended(self, state: str, kind: str | None) -> None:
        """Note how it ended."""
        self.state, self.kind = state, kind or ""
        self.span.ended(state, kind)

    def replayed(self, verdict: str) -> None:
        """Note what a replay found."""
        self.verdict = verdict
        self.span.replayed(verdict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """
    Watches a host, and tells *observers*.

    Attributes:
        spans: Those of the same runs and calls.

        counts: Is told what becomes of the host itself.

        scrape: Returns the type and the bytes of all metrics as they are now.

        ending: What to do in the end, all at the same time.
    """

    spans: OtelTelemetry | NoTelemetry
    observers: Sequence[Observer]
    counts: Counting | NoTelemetry = field(default_factory=NoTelemetry)
    scrape: Scrape = nothing_to_read
    ending: Sequence[Callable[[], None]] = ()

    @contextlib.contextmanager
    def run(self, execution: Execution) -> Generator[OneRun]:
        """Watch a run from its first event to its last."""
        with (
            self.spans.run(execution) as span,
            about(run=execution.run_id, agent=execution.agent),
        ):
            run = OneRun(execution, span, self.observers)
            for each in self.observers:
                each.began(run)
            began = time.perf_counter()
            try:
                yield run
            except asyncio.CancelledError:
                run.state = run.state or "cancelled"
                raise
            finally:
                run.seconds = time.perf_counter() - began
                for each in self.observers:
                    each.ended(run)

    def ids(self) -> tuple[str | None, str | None]:
        """Return trace and span id of the current span."""
        return self.spans.ids()

    def headers(self) -> dict[str, str]:
        """Return the W3C trace context of the current span."""
        return self.spans.headers()

    def traced(self, tools: ToolService) -> ToolService:
        """Return *tools*, of which every attempt is watched."""
        report = [each.attempted for each in self.observers]
        return self.spans.traced(TimedTools(tools, report))

    def close(self) -> None:
        """Send what is left, for at most a second."""
        at_once = [
            threading.Thread(target=end) for end in (self.spans.close, *self.ending)
        ]
        for thread in at_once:
            thread.start()
        for thread in at_once:
            thread.join()
