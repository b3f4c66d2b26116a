"""
The observer of a host: passes runs, calls and attempts to its sinks.

The spans are the first sink, so that what the others report is within a span.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from ..core.log.events import Event
from ..core.text.trace_context import trace_of
from ..lib.logs import about
from ..ports.watch import Fields, RunSpan, Served, Texts
from .metrics import Scrape, nothing_to_read
from .sinks import ObservedRun, Sink
from .tools import ObservedTools

if TYPE_CHECKING:
    from collections.abc import Generator

    from ..core.calls import Outcome, Route, ToolCall
    from ..ports.tools import ToolService
    from ..ports.watch import Execution
    from .spans import Spans


class Observer:
    """
    Observes a host. See `ports.Telemetry`.

    Args:
        spans: Takes runs, calls and attempts as spans.

        sinks: Take the same, in other forms.

        counts: The one of *sinks* that takes the events of the host itself.

        scrape: Returns the type and the bytes of all metrics as they are now.

        ending: Called by `close`, all at the same time.

    Attributes:
        counts: As above, or a sink that does nothing.

        scrape: As above.

        trace_of: See `ports.Telemetry`.
    """

    def __init__(
        self,
        spans: Spans | None = None,
        sinks: Sequence[Sink] = (),
        *,
        counts: Sink | None = None,
        scrape: Scrape = nothing_to_read,
        ending: Sequence[Callable[[], None]] = (),
    ) -> None:
        self.counts = counts or Sink()
        self.scrape = scrape
        self._spans = spans
        self._others = sinks
        self._sinks = (spans, *sinks) if spans else (*sinks,)
        self._ending = ending
        self.trace_of: Callable[[Mapping[str, object]], Texts] = trace_of

    @contextlib.contextmanager
    def run(self, execution: Execution) -> Generator[RunSpan]:
        """Observe a run from its first event to its last."""
        record = self._spans.recorded if self._spans else None
        run = ObservedRun(execution, self._sinks, record)
        with about(run=execution.run_id, agent=execution.agent):
            for sink in self._sinks:
                sink.run_began(run)
            began = time.perf_counter()
            try:
                yield run
            except BaseException as exc:
                run.error = exc
                raise
            finally:
                run.seconds = time.perf_counter() - began
                for sink in reversed(self._sinks):
                    sink.run_ended(run)

    @contextlib.contextmanager
    def serving(self, fields: Fields, asked: Texts) -> Generator[Texts]:
        """See `ports.Telemetry`."""
        span = self._spans.open_served(fields, asked) if self._spans else None
        began = time.perf_counter()
        try:
            yield span.spans.headers(span.within) if span else {}
        finally:
            if span:
                span.spans.close_served(span)
            self.counts.served(fields, time.perf_counter() - began)

    def ids(self) -> tuple[str | None, str | None]:
        """Return trace and span id of the current span, in hex."""
        return self._spans.ids() if self._spans else (None, None)

    def headers(self) -> dict[str, str]:
        """Return the W3C trace context of the current span."""
        return self._spans.headers() if self._spans else {}

    def traced(self, tools: ToolService) -> ToolService:
        """Return *tools*, of which every attempt is observed."""
        if not self._sinks:
            return tools
        reports = [sink.attempted for sink in self._others]
        return ObservedTools(tools, reports, self._spans)

    def close(self) -> None:
        """Send what is left, for at most a second."""
        at_once = [threading.Thread(target=end) for end in self._ending]
        for thread in at_once:
            thread.start()
        for thread in at_once:
            thread.join()


class NoTelemetry(Observer):
    """An observer without sinks; also a run, and a call, that is not observed."""

    def __init__(self) -> None:
        super().__init__()

    @contextlib.contextmanager
    def run(self, execution: Execution) -> Generator[RunSpan]:
        """Observe nothing of a run."""
        del execution
        yield self

    def call(
        self, call: ToolCall, route: Route | None, served: Served | None = None
    ) -> AbstractContextManager[NoTelemetry]:
        """Observe nothing of a call."""
        del call, route, served
        return contextlib.nullcontext(self)

    def recorded(self, seq: int, events: Sequence[Event]) -> list[tuple[None, None]]:
        """Return no ids."""
        del seq
        return [(None, None)] * len(events)

    def settled(self, outcome: Outcome, route: Route | None) -> None:
        """Note nothing."""

    def stored(self, seq: int, digest: bytes) -> None:
        """Note nothing."""

    def ended(self, state: str, kind: str | None) -> None:
        """Note nothing."""

    def replayed(self, verdict: str) -> None:
        """Note nothing."""
