"""How servers did, as far as a log knows."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from ..calls import JSON
from .events import (
    BreakerClosed,
    BreakerOpened,
    Recorded,
    ServerConnected,
    ServerDisabled,
    ServerFailed,
    ServerLost,
    ServerRestarted,
    ToolCompleted,
    ToolInvoked,
    ToolsChanged,
)

#: Streams of hosts are named so.
HOST = "host/"

#: The types of events of hosts and of runs that tell of servers.
OF_HOSTS = tuple(
    kind.__name__
    for kind in (
        ServerConnected,
        ServerDisabled,
        ServerFailed,
        ServerLost,
        ServerRestarted,
        BreakerOpened,
        BreakerClosed,
        ToolsChanged,
    )
)
OF_RUNS = (ToolInvoked.__name__, ToolCompleted.__name__)

#: How many of these are looked at, the newest first.
LOOKED_AT = 2000


@dataclass(slots=True, kw_only=True)
class ServerRecord:
    """
    A server in the newest host that had to do with it; first in one that is up.

    Attributes:
        host: The stream of that host, or ``None``: none had, or it is long ago.

        live: That host is up, so the rest is so now.

        as_of: When it recorded something of the server last, in microseconds.

        state: ``connected``, ``failed``, ``lost`` or ``disabled``: what was recorded
            last.

        problem: Why it is not connected, or ``None``.

        protocol: What was spoken with it.

        restarts: How often it was started again.

        breaker: ``open``, or ``closed`` when that was taken back or never so.

        generation: How many lists of its tools there were.

        took: What its newest calls took, in microseconds, in whichever host.
    """

    host: str | None = None
    live: bool = False
    as_of: int | None = None
    state: str | None = None
    problem: str | None = None
    protocol: str | None = None
    restarts: int = 0
    breaker: str | None = None
    generation: int = 0
    took: list[int] = field(default_factory=list[int])

    @property
    def latency_ms(self) -> float | None:
        """The median of its newest calls, or ``None``."""
        return round(statistics.median(self.took) / 1000, 3) if self.took else None

    def document(self) -> dict[str, JSON]:
        """Return it as keys of ``caxton.server/v1``."""
        known = self.host is not None
        return {
            "host": self.host,
            "live": self.live if known else None,
            "as_of": self.as_of,
            "state": self.state,
            "problem": self.problem,
            "protocol": self.protocol,
            "latency_ms": self.latency_ms,
            "restarts": self.restarts if known else None,
            "breaker": self.breaker,
            "generation": self.generation if known else None,
        }

    def take(self, recorded: Recorded) -> None:
        """Learn from an event of its host."""
        if self.host is None:
            self.host, self.breaker = recorded.stream, "closed"
        self.as_of = recorded.recorded_at
        match recorded.event:
            case ServerConnected(protocol=protocol):
                self.state, self.problem = "connected", None
                self.protocol = protocol
                self.generation = self.generation or 1
            case ServerFailed(reason=reason):
                self.state, self.problem = "failed", reason
            case ServerLost(reason=reason):
                self.state, self.problem = "lost", reason
            case ServerDisabled(reason=reason):
                self.state, self.problem = "disabled", reason
            case ServerRestarted():
                self.restarts += 1
            case BreakerOpened():
                self.breaker = "open"
            case BreakerClosed():
                self.breaker = "closed"
            case ToolsChanged(actor=None):
                self.generation += 1
            case _:
                pass


def server_records(
    names: Iterable[str],
    hosts: Sequence[Recorded],
    runs: Sequence[Recorded],
    up: Collection[str] = (),
) -> dict[str, ServerRecord]:
    """
    Return what events say of the servers called *names*.

    Args:
        names: The servers.

        hosts: Events of hosts, the newest first.

        runs: Events of runs, the newest first.

        up: Hosts that are up.
    """
    found = {name: ServerRecord() for name in names}
    _learn_states(found, hosts, up)
    _learn_latency(found, runs)
    return found


def _learn_states(
    found: dict[str, ServerRecord],
    newest_first: Sequence[Recorded],
    up: Collection[str],
) -> None:
    latest: dict[str, str] = {}
    living = [recorded for recorded in newest_first if recorded.stream in up]
    for recorded in (*living, *newest_first):
        latest.setdefault(_server(recorded), recorded.stream)
    for recorded in reversed(newest_first):
        name = _server(recorded)
        if name in found and latest[name] == recorded.stream:
            found[name].take(recorded)
            found[name].live = recorded.stream in up


def _server(recorded: Recorded) -> str:
    return str(getattr(recorded.event, "server", ""))


def _learn_latency(
    found: dict[str, ServerRecord], newest_first: Iterable[Recorded]
) -> None:
    # A call's end comes before its beginning here.
    took: dict[tuple[str, int], int] = {}
    for recorded in newest_first:
        match recorded.event:
            case ToolCompleted(call=call, duration_us=duration):
                took[recorded.stream, call] = duration
            case ToolInvoked(call=call, server=str(server)) if server in found:
                if (recorded.stream, call) in took:
                    found[server].took.append(took[recorded.stream, call])
            case _:
                pass
