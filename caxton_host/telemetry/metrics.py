"""
The metrics of a host, and the text of them that Prometheus reads.

A count is an item of a dictionary, which is read at each export or scrape: it costs a
call next to nothing. A duration is passed to the SDK at once, which keeps the trace of
some of them as exemplars.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeAlias

from ..core.calls import REPEATABLE
from ..core.log.events import EgressRefused, ServerFailed, ServerRestarted
from ..core.tools.confinement import NOT_CONFINED
from ..core.tools.webhooks import SERVER as WEBHOOK
from . import instruments as i
from .looks import Look, Read
from .sinks import ObservedCall, ObservedRun, ServerState, Sink

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Histogram, Meter, Observation
    from opentelemetry.sdk.metrics.export import MetricReader

    from ..core.log.events import Event
    from ..ports.tools import ToolRequest
    from ..ports.watch import Fields


#: How many points an instrument may have; later ones are counted under `OTHER`.
MOST = 1_000
OTHER = "other"

#: Characters of a label. Servers choose the names of their tools.
_LONGEST = 200

#: Replaces the name of a tool that does not exist: the agent made it up.
_UNKNOWN = "unknown"

_BREAKER: Mapping[str, int] = {"closed": 0, "half_open": 1, "open": 2}

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"})

_Labels: TypeAlias = tuple[str, ...]


class Metrics(Sink):
    """
    Counts and times what is observed, for a *meter*. A replay is not counted as a run.

    Attributes:
        servers: Returns the states of tool servers; called from any thread.
    """

    def __init__(self, meter: Meter) -> None:
        self.servers: Callable[[], Iterable[ServerState]] = tuple
        self._looks: dict[str, list[Look]] = {}
        self._points: dict[str, dict[_Labels, float]] = {}
        self._timed: dict[str, Histogram] = {}
        self._attributes: dict[str, dict[_Labels, dict[str, str | int]]] = {}
        for one in i.INSTRUMENTS:
            self._make(meter, one)

    def add(self, what: i.Instrument, *labels: str, by: float = 1) -> None:
        """Add *by* to a count, or to a gauge."""
        points = self._points[what.name]
        if labels not in points:
            labels = _room(points, labels)
        points[labels] = points.get(labels, 0) + by

    def time(self, what: i.Instrument, seconds: float, *labels: str) -> None:
        """Record a duration. An empty label is left out."""
        known = self._attributes[what.name]
        attributes = known.get(labels)
        if attributes is None:
            labels = _room(known, labels)
            named = zip(what.labels, labels, strict=True)
            known[labels] = attributes = {
                key: int(text) if key in i.NUMBERS and text.isdecimal() else text
                for key, text in named
                if text
            }
        self._timed[what.name].record(seconds, attributes)

    # -- runs and calls --------------------------------------------------------

    def run_began(self, run: ObservedRun) -> None:
        """Count the start of a run."""
        of = run.execution
        if of.mode != "replay":
            self.add(i.RUNS)
            self.add(i.RUNS_STARTED, of.agent, of.mode)

    def run_ended(self, run: ObservedRun) -> None:
        """Count the end of a run, or of a replay."""
        if run.execution.mode == "replay":
            self.add(i.REPLAYS, run.verdict or _UNKNOWN)
            self.add(i.DIVERGENCES, by=run.verdict == "diverged")
            return
        agent, state = run.execution.agent, run.end or _UNKNOWN
        self.add(i.RUNS, by=-1)
        self.add(i.RUNS_ENDED, agent, state, run.kind)
        error = run.kind or ("" if state in _WELL else state)
        self.time(i.RUN_SECONDS, run.seconds, "invoke_agent", "caxton", agent, error)

    def call_ended(self, call: ObservedCall) -> None:
        """Count a call and the decision about it, unless it was made before."""
        if call.run.execution.mode == "replay":
            return
        if call.asked:
            self.add(i.DECISIONS, "ask", "")
            return
        if not call.status:
            return
        denied = call.status == "denied"
        if call.status not in {"in_doubt", "unrecorded"}:
            self.add(
                i.DECISIONS, "deny" if denied else "allow", call.code if denied else ""
            )
        route = call.route
        named = route is not None and not route.guessed
        server = route.server if route else _UNKNOWN
        tool = route.tool if route and named else _UNKNOWN
        self.add(i.CALLS, server, tool, call.status)
        self.add(i.IN_DOUBT, server, tool, by=_is_in_doubt(call))
        name = call.name if named else _UNKNOWN
        error = call.code or ("" if call.status == "ok" else call.status)
        self.time(i.CALL_SECONDS, call.seconds, "execute_tool", server, name, error)

    def attempted(self, request: ToolRequest, seconds: float, error: str) -> None:
        """Record the duration of an attempt to call an MCP server."""
        server = request.server
        tool = _UNKNOWN if request.guessed else request.tool
        if server != WEBHOOK:
            self.time(i.ATTEMPTS, seconds, "tools/call", server, tool, error)

    def served(self, fields: Fields, seconds: float) -> None:
        """Record the duration of a request of an MCP client."""
        labels = (str(fields.get(key, "")) for key in i.SERVED.labels)
        self.time(i.SERVED, seconds, *labels)

    # -- the host itself --------------------------------------------------------

    def happened(self, event: Event) -> None:
        """Count the starts of servers that were lost, and what servers were refused."""
        if isinstance(event, ServerRestarted):
            self.add(i.RESTARTS, event.server)
        elif isinstance(event, EgressRefused):
            self.add(i.CONFINED, event.server, "connect", by=event.attempts)
        elif isinstance(event, ServerFailed) and event.reason.startswith(NOT_CONFINED):
            self.add(i.CONFINED, event.server, "start")

    def look_at(self, servers: Callable[[], Iterable[ServerState]]) -> None:
        """Read the states of tool servers from *servers* at each export or scrape."""
        self.servers = servers

    def look(self, read: Read, *of: i.Instrument, what: str = "") -> None:
        """Read some gauges at each export or scrape."""
        one = Look(read, what, partial(self.add, i.UNREAD))
        for each in of:
            self._looks.setdefault(each.name, []).append(one)

    def forget(self) -> None:
        """Look at nothing any more."""
        self._looks.clear()

    def committed(self, seconds: float, events: int) -> None:
        """Record a commit of the event store."""
        self.time(i.APPENDS, seconds)
        self.add(i.APPENDED, by=events)

    def delayed(self, seconds: float) -> None:
        """Record how late the event loop was."""
        self.time(i.DELAY, seconds)

    def requested(
        self, method: str, scheme: str, route: str, status: int, seconds: float
    ) -> None:
        """Record the duration of a request over HTTP; a status of 0: no answer."""
        known = method if method in _METHODS else "_OTHER"
        said = str(status or "")
        error = said if status >= HTTPStatus.INTERNAL_SERVER_ERROR else ""
        self.time(i.REQUESTS, seconds, known, scheme, route, said, error)

    def anchor_failed(self) -> None:
        """Count a failed attempt to anchor a checkpoint."""
        self.add(i.ANCHOR_FAILURES)

    def notice_failed(self, to: str) -> None:
        """Count a failed attempt to send a notice."""
        self.add(i.NOTIFY_FAILURES, to)

    def worker(self, what: str) -> None:
        """Count a worker that ``started``, or one that ``died``."""
        started = what == "started"
        self.add(i.WORKER_STARTS if started else i.WORKER_DEATHS)

    def lost(self, signal: str) -> None:
        """Count a batch of spans, logs or metrics that the end point refused."""
        self.add(i.LOST, signal)

    def _make(self, meter: Meter, one: i.Instrument) -> None:
        if one.kind == "histogram":
            self._attributes[one.name] = {}
            self._timed[one.name] = meter.create_histogram(
                one.name,
                one.unit,
                one.about,
                explicit_bucket_boundaries_advisory=one.buckets,
            )
            return
        self._points[one.name] = {(): 0} if one.zero else {}
        make = (
            meter.create_observable_counter
            if one.kind == "counter"
            else meter.create_observable_gauge
        )
        make(one.name, [self._reading(one)], one.unit, one.about)

    def _reading(
        self, one: i.Instrument
    ) -> Callable[[CallbackOptions], Iterable[Observation]]:
        from opentelemetry.metrics import Observation

        def read(options: CallbackOptions) -> Iterable[Observation]:
            del options
            if one in {i.UP, i.BREAKER}:
                self._look(one)
            if one.looked:
                self._look_up(one)
            # A copy in one step: other threads continue to count.
            for labels, value in [*self._points[one.name].items()]:
                named = zip(one.labels, labels, strict=True)
                yield Observation(value, dict(named))

        return read

    def _look_up(self, one: i.Instrument) -> None:
        # All begin before the first is waited for.
        for look in [each for some in [*self._looks.values()] for each in some]:
            look.begin()
        points: dict[_Labels, float] = {}
        for look in self._looks.get(one.name, ()):
            for of, value, labels in look.points():
                if of is one:
                    points[_room(points, labels)] = value
        self._points[one.name] = points

    def _look(self, one: i.Instrument) -> None:
        """Set the gauges of servers. Of several with one name, the best one counts."""
        points: dict[_Labels, float] = {}
        for state in self.servers():
            if not (state.generation or state.problem):
                continue  # it was not needed yet
            value = int(state.up) if one is i.UP else _BREAKER[state.breaker]
            points[(state.server,)] = max(value, points.get((state.server,), 0))
        self._points[one.name] = points


def _room(points: Collection[_Labels], labels: _Labels) -> _Labels:
    """Return valid labels, or those of `OTHER` if the instrument is full."""
    # A lone surrogate would make every later export and scrape fail.
    clean = tuple(
        text[:_LONGEST].encode(errors="backslashreplace").decode() for text in labels
    )
    if clean in points or len(points) < MOST:
        return clean
    return (OTHER,) * len(labels)


#: Ends of runs that are not errors.
_WELL = frozenset({"completed", "suspended"})


def _is_in_doubt(call: ObservedCall) -> bool:
    """Return whether it may have had an effect that is not known."""
    again = call.route is not None and call.route.effect in REPEATABLE
    return call.status == "in_doubt" or (call.sent == "unknown" and not again)


# -- the text that Prometheus reads --------------------------------------------

#: Returns the type and the bytes of all metrics as they are now. It may take a while,
#: and may be called in any thread.
Scrape: TypeAlias = Callable[[], tuple[str, bytes]]

_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def nothing_to_read() -> tuple[str, bytes]:
    """Return an empty scrape, where nothing is counted."""
    return _TYPE, b""


def reader() -> tuple[MetricReader, Scrape]:
    """Return a reader of metrics for Prometheus, and what scrapes it."""
    from opentelemetry.exporter.prometheus import PrometheusMetricReader
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import generate_latest

    registry = CollectorRegistry()
    made = PrometheusMetricReader(scope_info_enabled=False, registry=registry)

    alone = threading.Lock()  # two scrapes at once would mix their metrics

    def scrape() -> tuple[str, bytes]:
        with alone:
            return _TYPE, generate_latest(registry)

    return made, scrape
