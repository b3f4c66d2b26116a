"""
The table of all metrics, for OTLP and for Prometheus.

Labels are names of the configuration and of the catalogue, and fixed words. No label
holds a run, a parameter or a name that an agent made up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]

#: In seconds, of the conventions for MCP.
_OPERATION = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
_REQUEST = (0.01, 0.1, 1, 10, 60)
_DELAY = (0.01, 0.1, 1, 10)
_APPEND = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5)


@dataclass(frozen=True, slots=True)
class Instrument:
    """
    A metric.

    Attributes:
        labels: The attributes of its points.

        buckets: Bounds of a histogram, in seconds.

        looked: It is looked up when it is read: see `looks`.
    """

    name: str
    kind: Kind
    unit: str
    about: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    looked: bool = False

    @property
    def zero(self) -> bool:
        """Whether it has a point from the start, for alerts."""
        return not (self.labels or self.looked or self.kind == "histogram")


#: All of them, in the order of docs/reference/metrics.md.
INSTRUMENTS: list[Instrument] = []


def _counter(name: str, unit: str, about: str, *labels: str) -> Instrument:
    return _add(Instrument(name, "counter", unit, about, labels))


def _gauge(name: str, unit: str, about: str, *labels: str) -> Instrument:
    return _add(Instrument(name, "gauge", unit, about, labels))


def _looked(name: str, unit: str, about: str, *labels: str) -> Instrument:
    return _add(Instrument(name, "gauge", unit, about, labels, looked=True))


def _histogram(
    name: str, buckets: tuple[float, ...], about: str, *labels: str
) -> Instrument:
    return _add(Instrument(name, "histogram", "s", about, labels, buckets=buckets))


def _add(one: Instrument) -> Instrument:
    INSTRUMENTS.append(one)
    return one


# -- conventions -----------------------------------------------------------------

ATTEMPTS = _histogram(
    "mcp.client.operation.duration",
    _OPERATION,
    "Duration of an attempt to call a tool",
    *("mcp.method.name", "caxton.server.name", "gen_ai.tool.name", "error.type"),
)
SERVED = _histogram(
    "mcp.server.operation.duration",
    _OPERATION,
    "Duration of a request of an MCP client, at a served session or agent",
    *("mcp.method.name", "network.transport", "error.type"),
)
CALL_SECONDS = _histogram(
    "gen_ai.execute_tool.duration",
    _OPERATION,
    "Duration of a call, with its decision, its records and every attempt",
    *("gen_ai.operation.name", "caxton.server.name", "gen_ai.tool.name", "error.type"),
)
RUN_SECONDS = _histogram(
    "gen_ai.invoke_agent.duration",
    _OPERATION,
    "Duration of a run while it was driven",
    *("gen_ai.operation.name", "gen_ai.provider.name"),
    *("gen_ai.agent.name", "error.type"),
)

REQUESTS = _histogram(
    "http.server.request.duration",
    _REQUEST,
    "Duration of a request over HTTP",
    *("http.request.method", "url.scheme", "http.route"),
    *("http.response.status_code", "error.type"),
)
#: Attributes that are numbers.
NUMBERS = {"http.response.status_code"}

# -- calls -----------------------------------------------------------------------

CALLS = _counter(
    "caxton.calls",
    "{call}",
    "Calls that ended, or were left in doubt",
    *("server", "tool", "status"),
)
DECISIONS = _counter(
    "caxton.call.decisions", "{decision}", "Decisions about calls", "verdict", "code"
)
IN_DOUBT = _counter(
    "caxton.call.in_doubt",
    "{call}",
    "Calls that may have had an effect that is not known",
    *("server", "tool"),
)

# -- runs ------------------------------------------------------------------------

RUNS = _gauge("caxton.runs", "{run}", "Runs under way")
RUNS_STARTED = _counter(
    "caxton.runs.started", "{run}", "Runs started or resumed", "agent", "mode"
)
RUNS_ENDED = _counter(
    "caxton.runs.ended",
    "{run}",
    "Runs that ended or stopped",
    *("agent", "state", "kind"),
)
REPLAYS = _counter("caxton.replays", "{replay}", "Replays of runs", "verdict")
DIVERGENCES = _counter("caxton.replay.divergences", "{replay}", "Replays that diverged")

# -- tool servers ----------------------------------------------------------------

UP = _gauge(
    "caxton.server.up", "1", "Whether a server that was needed is connected", "server"
)
RESTARTS = _counter(
    "caxton.server.restarts", "{restart}", "Starts of a server that was lost", "server"
)
BREAKER = _gauge(
    "caxton.server.breaker",
    "1",
    "Circuit breaker of a server: 0 closed, 1 half open, 2 open",
    "server",
)

CONFINED = _counter(
    "caxton.confinement.refusals",
    "{refusal}",
    "What confined servers were refused",
    *("server", "what"),
)

# -- what waits, and what is used up ---------------------------------------------

WAITING = _looked("caxton.runs.waiting", "{run}", "Runs that wait for a place")
WAITING_AGE = _looked(
    "caxton.runs.waiting.age", "s", "For how long the first of them has waited"
)
SUSPENDED = _looked("caxton.runs.suspended", "{run}", "Suspended runs", "reason")
WAITS = _looked("caxton.waits", "{question}", "What people have to decide", "kind")
WAITS_AGE = _looked(
    "caxton.waits.age", "s", "For how long the oldest of them has waited", "kind"
)
BUDGET = _looked(
    "caxton.budget.used",
    "1",
    "Share of a budget that runs share",
    *("agent", "rule", "budget"),
)
EXPIRY = _looked(
    "caxton.token.expiry", "s", "How long the next token to expire is good", "kind"
)

# -- the host itself -------------------------------------------------------------

APPENDS = _histogram(
    "caxton.eventstore.append.duration", _APPEND, "Duration of a commit of events"
)
APPENDED = _counter("caxton.eventstore.events", "{event}", "Events committed")
QUEUED = _looked("caxton.eventstore.queue", "{append}", "Appends that wait")
LOG_UP = _looked("caxton.eventstore.up", "1", "Whether the log can be read and written")
SIZE = _looked("caxton.eventstore.size", "By", "Size of the log", "part")
FREE = _looked("caxton.eventstore.free", "By", "Free space on the disk of the log")
CHECKPOINT = _looked(
    "caxton.checkpoint.age", "s", "Age of the newest checkpoint, if it lacks events"
)
INTACT = _looked("caxton.audit.intact", "1", "What the last verification found")
SINK_LAG = _looked(
    "caxton.sink.lag", "s", "For how long something was not delivered", "sink"
)
ANCHOR_FAILURES = _counter(
    "caxton.anchor.failures", "{try}", "Failed attempts to anchor a checkpoint"
)
WORKERS = _looked("caxton.workers", "{worker}", "Workers", "state")
NOTIFY_FAILURES = _counter(
    "caxton.notify.failures", "{try}", "Failed attempts to send a notice", "to"
)
WORKER_STARTS = _counter("caxton.worker.starts", "{worker}", "Workers started")
WORKER_DEATHS = _counter(
    "caxton.worker.deaths",
    "{worker}",
    "Workers that died or were killed for what they did",
)
LOST = _counter(
    "caxton.telemetry.lost",
    "{batch}",
    "Batches of spans, logs or metrics that the end point refused",
    "signal",
)
DELAY = _histogram("caxton.loop.delay", _DELAY, "How late the event loop was")
UNREAD = _counter(
    "caxton.look.failures", "{look}", "Values that could not be looked up", "what"
)
MEMORY = _looked("caxton.process.memory", "By", "Resident memory of the host")
STARTED = _looked("caxton.process.start_time", "s", "When the host started")
BUILD = _looked("caxton.build.info", "1", "Versions", *("version", "python", "engine"))
