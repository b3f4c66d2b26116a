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
_APPEND = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5)


@dataclass(frozen=True, slots=True)
class Instrument:
    """
    A metric.

    Attributes:
        labels: The attributes of its points.

        buckets: Bounds of a histogram, in seconds.
    """

    name: str
    kind: Kind
    unit: str
    about: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def zero(self) -> bool:
        """Whether it has a point from the start, for alerts."""
        return not self.labels and self.kind != "histogram"


#: All of them, in the order of docs/reference/metrics.md.
INSTRUMENTS: list[Instrument] = []


def _counter(name: str, unit: str, about: str, *labels: str) -> Instrument:
    return _add(Instrument(name, "counter", unit, about, labels))


def _gauge(name: str, unit: str, about: str, *labels: str) -> Instrument:
    return _add(Instrument(name, "gauge", unit, about, labels))


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

WAITING = _gauge("caxton.runs.waiting", "{run}", "Runs that wait for a place")

# -- the host itself -------------------------------------------------------------

APPENDS = _histogram(
    "caxton.eventstore.append.duration", _APPEND, "Duration of a commit of events"
)
APPENDED = _counter("caxton.eventstore.events", "{event}", "Events committed")
QUEUED = _gauge(
    "caxton.eventstore.queue",
    "{append}",
    "Appends that waited when the last commit was done",
)
ANCHOR_FAILURES = _counter(
    "caxton.anchor.failures", "{try}", "Failed attempts to anchor a checkpoint"
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
