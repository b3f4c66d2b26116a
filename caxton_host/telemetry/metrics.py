"""
The numbers of a host.

A count is an item of a dictionary that is read when somebody asks for it: it costs
a call next to nothing. A duration is handed to the SDK at once, which keeps the
trace of some of them, as exemplars.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias

from . import instruments as i

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Histogram, Meter, Observation


#: How many points an instrument may have; the labels of what comes then are this.
MOST = 1_000
OTHER = "other"

#: Characters of a label. Servers choose the names of their tools.
_LONGEST = 200

_BREAKER: Mapping[str, int] = {"closed": 0, "half_open": 1, "open": 2}

_Labels: TypeAlias = tuple[str, ...]


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


class Metrics:
    """
    Counts and times, and hands them to a *meter*.

    Attributes:
        servers: Returns how tool servers do; called from the thread that asks.
    """

    def __init__(self, meter: Meter) -> None:
        self.servers: Callable[[], Iterable[ServerState]] = tuple
        self._points: dict[str, dict[_Labels, float]] = {}
        self._timed: dict[str, Histogram] = {}
        self._attributes: dict[str, dict[_Labels, dict[str, str]]] = {}
        for one in i.INSTRUMENTS:
            self._make(meter, one)

    def add(self, what: i.Instrument, *labels: str, by: float = 1) -> None:
        """Count *by* more, or less."""
        points = self._points[what.name]
        if labels not in points:
            labels = _room(points, labels)
        points[labels] = points.get(labels, 0) + by

    def put(self, what: i.Instrument, value: float) -> None:
        """Note the value of a gauge without labels."""
        self._points[what.name][()] = value

    def time(self, what: i.Instrument, seconds: float, *labels: str) -> None:
        """Note a duration. A label that is empty is left out."""
        known = self._attributes[what.name]
        attributes = known.get(labels)
        if attributes is None:
            labels = _room(known, labels)
            named = zip(what.labels, labels, strict=True)
            known[labels] = attributes = {key: text for key, text in named if text}
        self._timed[what.name].record(seconds, attributes)

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
            # In one go: another thread counts on.
            for labels, value in [*self._points[one.name].items()]:
                named = zip(one.labels, labels, strict=True)
                yield Observation(value, dict(named))

        return read

    def _look(self, one: i.Instrument) -> None:
        """Note how servers do. Of those with one name, the best is up."""
        points: dict[_Labels, float] = {}
        for state in self.servers():
            if not (state.generation or state.problem):
                continue  # nobody needed it yet
            value = int(state.up) if one is i.UP else _BREAKER[state.breaker]
            points[(state.server,)] = max(value, points.get((state.server,), 0))
        self._points[one.name] = points


def _room(points: Collection[_Labels], labels: _Labels) -> _Labels:
    """Return labels that can be written down, of a point that there is room for."""
    # Half a character would be an error for every reader, and for ever.
    clean = tuple(
        text[:_LONGEST].encode(errors="backslashreplace").decode() for text in labels
    )
    if clean in points or len(points) < MOST:
        return clean
    return (OTHER,) * len(labels)
