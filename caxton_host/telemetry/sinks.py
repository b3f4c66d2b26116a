"""The observed runs and calls, and the base class of the sinks that take them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, Self

from ..core.calls import Denied, Failed, Outcome, Route
from ..core.grants.approvals import Unapproved
from ..core.grants.freezes import Halted
from ..core.log.events import Event
from ..core.log.runs import outcome_word
from ..errors import RunStopped, StoreError, Suspend
from ..lib.logs import about
from ..ports.watch import Execution, Fields, Served
from .instruments import Instrument
from .looks import Read

if TYPE_CHECKING:
    from types import TracebackType

    from ..core.calls import ToolCall
    from ..ports.tools import ToolRequest

_UPSTREAM = Served()


class ServerState(Protocol):
    """A tool server, as far as it is measured."""

    @property
    def server(self) -> str:
        """Its name."""
        ...

    @property
    def up(self) -> bool:
        """Whether there is a connection."""
        ...

    @property
    def breaker(self) -> str:
        """``closed``, ``open`` or ``half_open``."""
        ...

    @property
    def generation(self) -> int:
        """How many lists of tools it has had; 0: it was not up yet."""
        ...

    @property
    def problem(self) -> str | None:
        """Why it is down."""
        ...


class Sink:
    """
    Takes what an `Observer` observes.

    Every method does nothing here; a sink overrides those that it needs.
    """

    # -- runs, calls and attempts ----------------------------------------------

    def run_began(self, run: ObservedRun) -> None:
        """Take the start of a run, or of a replay."""

    def run_ended(self, run: ObservedRun) -> None:
        """Take the end of a run, or of a replay, in whatever way."""

    def call_began(self, call: ObservedCall) -> None:
        """Take the start of a call."""

    def call_ended(self, call: ObservedCall) -> None:
        """Take the end of a call, or that it waits. Replayed calls are taken too."""

    def attempted(self, request: ToolRequest, seconds: float, error: str) -> None:
        """Take one attempt to call a tool; *error* is empty if it succeeded."""

    def served(self, fields: Fields, seconds: float) -> None:
        """Take a request of an MCP client, with its attributes."""

    # -- the host itself -------------------------------------------------------

    def happened(self, event: Event) -> None:
        """Take an event of the host's own stream."""

    def look_at(self, servers: Callable[[], Iterable[ServerState]]) -> None:
        """Take what returns the states of tool servers, from any thread."""

    def look(self, read: Read, *of: Instrument, what: str = "") -> None:
        """
        Take what returns the values of some gauges, from any thread.

        Args:
            read: Called at each export or scrape.

            of: The gauges.

            what: Its name, if it may take a while: then it is called less often.
        """

    def committed(self, seconds: float, events: int) -> None:
        """Take a commit of the event store."""

    def forget(self) -> None:
        """Call none of these any more: what they look at is about to be closed."""

    def delayed(self, seconds: float) -> None:
        """Take how late the event loop was."""

    def requested(
        self, method: str, scheme: str, route: str, status: int, seconds: float
    ) -> None:
        """Take a request over HTTP; *route* is a template, or empty."""

    def anchor_failed(self) -> None:
        """Take a failed attempt to anchor a checkpoint."""

    def notice_failed(self, to: str) -> None:
        """Take a failed attempt to send a notice."""

    def worker(self, what: str) -> None:
        """Take a worker that ``started``, or one that ``died``."""

    def lost(self, signal: str) -> None:
        """Take a batch of spans, logs or metrics that the end point refused."""


@dataclass(slots=True, eq=False)
class ObservedRun:
    """
    A run while it is observed.

    Attributes:
        sinks: The spans, if any, first: what others report is within a span.

        record: Returns the trace and span id of each of some events of the run.

        state: How its log says that it ended, or ``""``: the log failed, or another
            host continues the run.

        kind: The kind of its failure, or ``""``.

        verdict: The result of a replay, or ``""``.

        head: Number and hash of its newest durable event, once they are known.

        error: The exception that ended the observation.

        seconds: How long it was driven.
    """

    execution: Execution
    sinks: Sequence[Sink] = ()
    record: (
        Callable[
            [ObservedRun, int, Sequence[Event]], Sequence[tuple[str | None, str | None]]
        ]
        | None
    ) = None
    state: str = ""
    kind: str = ""
    verdict: str = ""
    head: tuple[int, bytes] | None = None
    error: BaseException | None = None
    seconds: float = 0.0

    @property
    def end(self) -> str:
        """How it ended: as its log says, or ``cancelled``, or ``""`` if unknown."""
        cancelled = isinstance(self.error, asyncio.CancelledError)
        return self.state or ("cancelled" if cancelled else "")

    def call(
        self, call: ToolCall, route: Route | None, served: Served | None = None
    ) -> ObservedCall:
        """Observe one of its calls, while the result is entered."""
        return ObservedCall(self, call.number, call.name, route, served or _UPSTREAM)

    def recorded(
        self, seq: int, events: Sequence[Event]
    ) -> Sequence[tuple[str | None, str | None]]:
        """Return the trace and span id of events that are recorded now."""
        if self.record is None:
            return [(None, None)] * len(events)
        return self.record(self, seq, events)

    def stored(self, seq: int, digest: bytes) -> None:
        """Note number and hash of its newest durable event."""
        self.head = seq, digest

    def ended(self, state: str, kind: str | None) -> None:
        """Note how it ended, and the kind of its failure."""
        self.state, self.kind = state, kind or ""

    def replayed(self, verdict: str) -> None:
        """Note the result of a replay."""
        self.verdict = verdict


@dataclass(slots=True, eq=False)
class ObservedCall:
    """
    A call, which is observed while this is entered.

    Attributes:
        route: Where it leads, or ``None``: nowhere.

        served: Where its answer comes from.

        outcome: How it ended, if it did.

        head: Number and hash of an event of the run that is durable.

        error: The exception that ended the observation.

        status: How it ended, as `core.log.attribution` names it, or ``""``.

        code: Why it was denied, or how it failed.

        sent: Of one that failed, whether it may have had an effect.

        asked: It waits for an approval.

        seconds: How long it took.
    """

    run: ObservedRun
    number: int
    name: str
    route: Route | None
    served: Served
    outcome: Outcome | None = None
    head: tuple[int, bytes] | None = None
    error: BaseException | None = None
    status: str = ""
    code: str = ""
    sent: str = ""
    asked: bool = False
    seconds: float = 0.0
    _about: about = field(init=False)
    _began: float = field(init=False)

    def __enter__(self) -> Self:
        self._about = about(call=self.number)
        self._about.__enter__()
        for sink in self.run.sinks:
            sink.call_began(self)
        self._began = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.seconds = time.perf_counter() - self._began
        if exc is not None:
            self._stopped(exc)
        for sink in reversed(self.run.sinks):
            sink.call_ended(self)
        self._about.__exit__()

    def settled(self, outcome: Outcome, route: Route | None) -> None:
        """Note how it ended."""
        self.outcome, self.route, self.status = outcome, route, outcome_word(outcome)
        if isinstance(outcome, Denied):
            self.code = outcome.code
        elif isinstance(outcome, Failed):
            self.code, self.sent = outcome.kind, outcome.sent

    def stored(self, seq: int, digest: bytes) -> None:
        """Note number and hash of an event that is durable."""
        self.head = seq, digest

    def _stopped(self, exc: BaseException) -> None:
        """Note why it did not end as calls do."""
        self.error = exc
        match exc:
            case Unapproved():
                self.asked = True
            case Halted():
                pass  # It was not sent now.
            case StoreError(unsent=True):
                self.status = "unrecorded"
            case Suspend() | StoreError():  # was it sent, is it recorded?
                self.status = "in_doubt"
            case RunStopped():
                self.status, self.code = "denied", "limit"
            case asyncio.CancelledError():
                self.status, self.code = "failed", "cancelled"
            case _:
                pass
