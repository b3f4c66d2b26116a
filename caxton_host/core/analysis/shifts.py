"""
Shifts between two sets of runs: what an agent or a server does otherwise than before.

Each run is measured alone, and each measure is compared over the runs of both sets:
calls of one run depend on each other, runs do not. All intervals of a comparison hold
together with a probability of 95 %: of twenty comparisons in which nothing has changed,
about one names a shift.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist, fmean, variance
from typing import Literal, TypeAlias, cast

from ..calls import JSON
from ..log.events import (
    Recorded,
    RunCompleted,
    RunFailed,
    RunStarted,
    ToolCompleted,
    ToolDenied,
    ToolFailed,
    ToolInvoked,
)
from ..log.runs import ENDS
from .tracing import tool_of

#: How a measure is compared: the part of the runs that have it, its mean, or its
#: geometric mean, whose change is a factor.
Kind: TypeAlias = Literal["share", "mean", "factor"]

#: With fewer runs on one side there is no interval.
FEWEST = 5
_CONFIDENCE = 0.95
_UNIT = 1_000_000


@dataclass(frozen=True, slots=True)
class Measure:
    """
    What is measured of a run.

    Attributes:
        about: A tool, an account of a budget, or ``""``: the run as a whole.

        what: Of it.
    """

    about: str
    what: str
    kind: Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """
    A measure of two sets of runs.

    Attributes:
        before: A share from 0 to 1, a mean, or a geometric mean; ``None``: no run of
            the set has it.

        low: The least change that fits what was measured: a difference, or a factor;
            ``None``: too few runs.

        high: The largest.
    """

    measure: Measure
    before: float | None
    after: float | None
    low: float | None = None
    high: float | None = None

    @property
    def shifted(self) -> bool:
        """Whether no change does not fit what was measured."""
        same = 1.0 if self.measure.kind == "factor" else 0.0
        if self.low is None or self.high is None:
            return False
        return not self.low <= same <= self.high

    def to_document(self) -> dict[str, JSON]:
        """Return it as JSON."""
        return {
            "about": self.measure.about or None,
            "what": self.measure.what,
            "kind": self.measure.kind,
            "before": self.before,
            "after": self.after,
            "low": self.low,
            "high": self.high,
            "shifted": self.shifted,
        }


def measured(history: Sequence[Recorded]) -> Mapping[Measure, float] | None:
    """Return the measures of a run that has ended; ``None``: it has not."""
    own = history[-1].stream if history else ""
    run = _Run()
    for recorded in history:
        if recorded.stream == own:
            run.take(recorded)
    return dict(run.measures()) if run.state else None


@dataclass(slots=True)
class _Run:
    began: int = 0
    took: int = 0
    state: str = ""
    fuel: int | None = None
    calls: dict[int, tuple[str, Mapping[str, int]]] = field(
        default_factory=dict[int, "tuple[str, Mapping[str, int]]"]
    )
    ended: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    times: dict[str, list[int]] = field(
        default_factory=lambda: defaultdict[str, list[int]](list)
    )
    spent: Counter[str] = field(default_factory=Counter[str])

    def take(self, recorded: Recorded) -> None:
        event = recorded.event
        state = ENDS.get(recorded.type)
        match event:
            case RunStarted():
                self.began = recorded.recorded_at
            case ToolInvoked():
                spends = _amounts(event.spends)
                self.calls[event.call] = tool_of(event), spends
                self.spent.update(spends)
            case ToolDenied() | ToolFailed() | ToolCompleted():
                self._end(event)
            case RunCompleted() | RunFailed():
                self.fuel = event.fuel
            case _:
                pass
        if event is not None and state in {"completed", "failed", "cancelled"}:
            self.state, self.took = state, recorded.recorded_at - self.began

    def _end(self, event: ToolDenied | ToolFailed | ToolCompleted) -> None:
        if event.call not in self.calls:
            return  # A run that this one was forked from made it.
        tool, spends = self.calls[event.call]
        if isinstance(event, ToolDenied):
            self.ended[tool, "denied"] += 1
            return
        if isinstance(event, ToolFailed) or event.is_error:
            self.ended[tool, "failed"] += 1
        if isinstance(event, ToolCompleted) and not event.cached:
            self.times[tool].append(event.duration_us)
            for key, amount in _amounts(event.settles).items():
                self.spent[key] += amount - spends.get(key, 0)

    def measures(self) -> Iterator[tuple[Measure, float]]:
        """Yield what the run has; what it lacks is 0, or has no time."""
        yield Measure("", "completed", "share"), float(self.state == "completed")
        yield Measure("", "calls", "mean"), float(len(self.calls))
        denied = sum(n for (_, how), n in self.ended.items() if how == "denied")
        yield Measure("", "denied", "mean"), float(denied)
        yield Measure("", "ms", "factor"), max(self.took, 1) / 1000
        if self.fuel:
            yield Measure("", "fuel", "factor"), float(self.fuel)
        for tool, number in Counter(tool for tool, _ in self.calls.values()).items():
            yield Measure(tool, "called", "share"), 1.0
            yield Measure(tool, "calls", "mean"), float(number)
        for (tool, how), number in self.ended.items():
            yield Measure(tool, how, "mean"), float(number)
        for tool, times in self.times.items():
            yield Measure(tool, "ms", "factor"), max(fmean(times), 1) / 1000
        for account, amount in self.spent.items():
            yield Measure(account, "spent", "mean"), amount / _UNIT


def _amounts(told: Mapping[str, JSON] | None) -> Mapping[str, int]:
    return cast("Mapping[str, int]", told or {})


def shifts(
    before: Sequence[Mapping[Measure, float]], after: Sequence[Mapping[Measure, float]]
) -> list[Shift]:
    """
    Return every measure that a run of either set has, those of whole runs first.

    Args:
        before: The measures of each run of a set.

        after: Those of the other set.
    """
    known = dict.fromkeys(measure for run in (*before, *after) for measure in run)
    beyond = (1 - _CONFIDENCE) / max(len(known), 1)
    found = [
        _shift(one, _values(one, before), _values(one, after), beyond) for one in known
    ]
    return sorted(found, key=lambda one: (one.measure.about, one.measure.what))


def _values(measure: Measure, runs: Sequence[Mapping[Measure, float]]) -> list[float]:
    if measure.kind == "factor":
        return [math.log(run[measure]) for run in runs if measure in run]
    return [run.get(measure, 0.0) for run in runs]


def _shift(
    measure: Measure, before: list[float], after: list[float], beyond: float
) -> Shift:
    one, other = (fmean(values) if values else None for values in (before, after))
    low = high = None
    if min(len(before), len(after)) >= FEWEST:
        bounds = _newcombe if measure.kind == "share" else _welch
        low, high = bounds(before, after, beyond)
    if measure.kind == "factor":
        one, other, low, high = (
            None if value is None else math.exp(value)
            for value in (one, other, low, high)
        )
    return Shift(measure=measure, before=one, after=other, low=low, high=high)


def _welch(
    before: Sequence[float], after: Sequence[float], beyond: float
) -> tuple[float, float]:
    """Return the interval of the difference of two means (Welch, 1947)."""
    change = fmean(after) - fmean(before)
    parts = [
        (variance(values) / len(values), len(values)) for values in (before, after)
    ]
    whole = sum(part for part, _ in parts)
    if whole == 0:
        return change, change
    freedom = whole**2 / sum(part**2 / (count - 1) for part, count in parts)
    reach = _student(1 - beyond / 2, freedom) * math.sqrt(whole)
    return change - reach, change + reach


def _newcombe(
    before: Sequence[float], after: Sequence[float], beyond: float
) -> tuple[float, float]:
    """Return the interval of the difference of two shares (Newcombe, 1998)."""
    z = NormalDist().inv_cdf(1 - beyond / 2)
    (p, p_low, p_high), (q, q_low, q_high) = (_wilson(v, z) for v in (before, after))
    return (
        q - p - math.hypot(q - q_low, p_high - p),
        q - p + math.hypot(q_high - q, p - p_low),
    )


def _wilson(values: Sequence[float], z: float) -> tuple[float, float, float]:
    """Return a share and its interval (Wilson, 1927)."""
    count, share = len(values), fmean(values)
    middle = share + z * z / (2 * count)
    reach = z * math.sqrt(share * (1 - share) / count + (z / (2 * count)) ** 2)
    over = 1 + z * z / count
    return share, (middle - reach) / over, (middle + reach) / over


def _student(probability: float, freedom: float) -> float:
    """
    Return a quantile of Student's distribution, from that of the normal one.

    The expansion of Fisher and Cornish (1960), whose error is under 2 % from 4 degrees
    of freedom on.

    >>> round(_student(0.975, 4), 2), round(_student(0.975, 30), 3)
    (2.78, 2.042)
    """
    z = NormalDist().inv_cdf(probability)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom**n for n, term in enumerate(terms, 1))
