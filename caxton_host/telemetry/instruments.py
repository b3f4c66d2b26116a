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

        zero: It has a point from the start, for alerts; it has no labels.

        buckets: Bounds of a histogram, in seconds.
    """

    name: str
    kind: Kind
    unit: str
    about: str
    labels: tuple[str, ...] = ()
    zero: bool = False
    buckets: tuple[float, ...] = ()


# -- conventions -----------------------------------------------------------

ATTEMPTS = Instrument(
    "mcp.client.operation.duration",
    "histogram",
    "s",
    "Duration of an attempt to call a tool",
    ("mcp.method.name", "caxton.server.name", "gen_ai.tool.name", "error.type"),
    buckets=_OPERATION,
)
CALL_SECONDS = Instrument(
    "gen_ai.execute_tool.duration",
    "histogram",
    "s",
    "Duration of a call, with its decision, its records and every attempt",
    ("gen_ai.operation.name", "caxton.server.name", "gen_ai.tool.name", "error.type"),
    buckets=_OPERATION,
)
RUN_SECONDS = Instrument(
    "gen_ai.invoke_agent.duration",
    "histogram",
    "s",
    "Duration of a run while it was driven",
    (
        "gen_ai.operation.name",
        "gen_ai.provider.name",
        "gen_ai.agent.name",
        "error.type",
    ),
    buckets=_OPERATION,
)

# -- calls ---------------------------------------------------------------------

CALLS = Instrument(
    "caxton.calls",
    "counter",
    "{call}",
    "Calls that ended, or were left in doubt",
    ("server", "tool", "status"),
)
DECISIONS = Instrument(
    "caxton.call.decisions",
    "counter",
    "{decision}",
    "Decisions about calls",
    ("verdict", "code"),
)
IN_DOUBT = Instrument(
    "caxton.call.in_doubt",
    "counter",
    "{call}",
    "Calls that may have had an effect that is not known",
    ("server", "tool"),
)

# -- runs ----------------------------------------------------------------------

RUNS = Instrument("caxton.runs", "gauge", "{run}", "Runs under way", zero=True)
RUNS_STARTED = Instrument(
    "caxton.runs.started",
    "counter",
    "{run}",
    "Runs started or resumed",
    ("agent", "mode"),
)
RUNS_ENDED = Instrument(
    "caxton.runs.ended",
    "counter",
    "{run}",
    "Runs that ended or stopped",
    ("agent", "state", "kind"),
)
REPLAYS = Instrument(
    "caxton.replays", "counter", "{replay}", "Replays of runs", ("verdict",)
)
DIVERGENCES = Instrument(
    "caxton.replay.divergences",
    "counter",
    "{replay}",
    "Replays that diverged",
    zero=True,
)

# -- tool servers --------------------------------------------------------------

UP = Instrument(
    "caxton.server.up",
    "gauge",
    "1",
    "Whether a server that was needed is connected",
    ("server",),
)
RESTARTS = Instrument(
    "caxton.server.restarts",
    "counter",
    "{restart}",
    "Starts of a server that was lost",
    ("server",),
)
BREAKER = Instrument(
    "caxton.server.breaker",
    "gauge",
    "1",
    "Circuit breaker of a server: 0 closed, 1 half open, 2 open",
    ("server",),
)

# -- the host itself -----------------------------------------------------------

APPENDS = Instrument(
    "caxton.eventstore.append.duration",
    "histogram",
    "s",
    "Duration of a commit of events",
    buckets=_APPEND,
)
APPENDED = Instrument(
    "caxton.eventstore.events", "counter", "{event}", "Events committed", zero=True
)
QUEUED = Instrument(
    "caxton.eventstore.queue",
    "gauge",
    "{append}",
    "Appends that waited when the last commit was done",
    zero=True,
)
ANCHOR_FAILURES = Instrument(
    "caxton.anchor.failures",
    "counter",
    "{try}",
    "Failed attempts to anchor a checkpoint",
    zero=True,
)
WORKER_STARTS = Instrument(
    "caxton.worker.starts", "counter", "{worker}", "Workers started", zero=True
)
WORKER_DEATHS = Instrument(
    "caxton.worker.deaths",
    "counter",
    "{worker}",
    "Workers that died or were killed for what they did",
    zero=True,
)
LOST = Instrument(
    "caxton.telemetry.lost",
    "counter",
    "{batch}",
    "Batches of spans, logs or metrics that the end point refused",
    ("signal",),
)

INSTRUMENTS = (
    ATTEMPTS,
    CALL_SECONDS,
    RUN_SECONDS,
    CALLS,
    DECISIONS,
    IN_DOUBT,
    RUNS,
    RUNS_STARTED,
    RUNS_ENDED,
    REPLAYS,
    DIVERGENCES,
    UP,
    RESTARTS,
    BREAKER,
    APPENDS,
    APPENDED,
    QUEUED,
    ANCHOR_FAILURES,
    WORKER_STARTS,
    WORKER_DEATHS,
    LOST,
)
