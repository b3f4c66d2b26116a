"""The state of servers, by the events of the log."""

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
    ToolFailed,
    ToolInvoked,
    ToolsChanged,
)

#: Prefix of the streams of hosts; the host id follows.
HOST = "host/"

#: Types of events of hosts and of runs that concern servers.
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
OF_RUNS = (ToolInvoked.__name__, ToolCompleted.__name__, ToolFailed.__name__)

#: Most events that are read, the newest first.
LOOKED_AT = 2000
#: Failures that are shown.
_SHOWN = 20


@dataclass(slots=True, kw_only=True)
class ServerRecord:
    """
    The state of a server in the newest host that used it; a host that is up precedes.

    Attributes:
        host: The stream of that host; ``None``: no host used it recently.

        live: That host is up, so the state is current.

        as_of: When it last recorded an event of the server, in microseconds.

        state: ``connected``, ``failed``, ``lost`` or ``disabled``, as last recorded.

        problem: Why it is not connected, or ``None``.

        protocol: The version of the protocol.

        restarts: The number of restarts.

        breaker: ``open`` or ``closed``.

        generation: The number of lists of its tools.

        took: Durations of its newest calls in any host, in microseconds.
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
        """Return its keys of the ``caxton.server/v1`` document."""
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
        """Fold the next event of its host."""
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
    Return the state of the servers called *names*.

    Args:
        names: The servers.

        hosts: Events of hosts, the newest first.

        runs: Events of runs, the newest first.

        up: Streams of the hosts that are up.
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
    # Newest first: the end of a call comes before its beginning.
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


def failures(
    server: str, hosts: Sequence[Recorded], runs: Sequence[Recorded]
) -> list[dict[str, JSON]]:
    """
    Return what failed last at a server, the newest first.

    Args:
        server: Its name.

        hosts: Events of hosts, the newest first.

        runs: Events of runs, the newest first.

    Returns:
        Maps: ``at``, ``stream``, ``event`` and ``reason``; of a call, ``seq`` too.
    """
    found: list[tuple[int, dict[str, JSON]]] = []
    for one in hosts:
        if _server(one) == server:
            match one.event:
                case (
                    ServerFailed(reason=reason)
                    | ServerLost(reason=reason)
                    | ServerDisabled(reason=reason)
                ):
                    found.append(_failure(one, None, reason))
                case BreakerOpened(failures=count):
                    reason = f"{count} calls in a row had no answer"
                    found.append(_failure(one, None, reason))
                case _:
                    pass
    # Newest first: the end of a call comes before its beginning.
    ended: dict[tuple[str, int], Recorded] = {}
    for one in runs:
        match one.event:
            case ToolFailed(call=call):
                ended[one.stream, call] = one
            case ToolInvoked(call=call, server=at) if at == server:
                if end := ended.get((one.stream, call)):
                    assert isinstance(end.event, ToolFailed)  # noqa: S101 -- as above
                    reason = f"{end.event.kind}: {end.event.message}"
                    found.append(_failure(end, one.seq, reason))
            case _:
                pass
    found.sort(key=lambda one: one[0], reverse=True)
    return [document for _, document in found[:_SHOWN]]


def _failure(
    one: Recorded, seq: int | None, reason: str
) -> tuple[int, dict[str, JSON]]:
    document: dict[str, JSON] = {
        "at": one.recorded_at,
        "stream": one.stream,
        "seq": seq,
        "event": one.type,
        "reason": reason,
    }
    return one.recorded_at, document
