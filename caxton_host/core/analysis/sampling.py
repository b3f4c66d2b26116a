"""
A sample of runs that keeps what is distinct: few runs that stand for all.

Runs of an agent with the same calls, outcomes and end are one course. Of each that is
kept, the newest run is. First come courses with most that no kept one has, then those
of most runs. The same runs have the same sample.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from ..calls import JSON, Completed, Denied, Failed
from ..log.events import Recorded, RunStarted, ToolInvoked, outcome_of
from ..log.runs import RunRow, outcome_word
from .tracing import tool_of

#: Types of events that a course is made of.
TYPES = frozenset(
    {"RunStarted", "ToolInvoked", "ToolCompleted", "ToolDenied", "ToolFailed"}
)


@dataclass(frozen=True, slots=True)
class Course:
    """
    What a run did.

    Attributes:
        end: Its state, with the reason.

        calls: Tool and outcome of each.
    """

    agent: str
    end: str
    calls: tuple[tuple[str, str], ...]

    @property
    def features(self) -> frozenset[tuple[str, ...]]:
        """What is to be covered, each with the name of its kind."""
        outcomes = {("outcomes", *call) for call in self.calls}
        return frozenset(
            {
                ("agents", self.agent),
                ("ends", self.agent, self.end),
                *(("tools", tool) for tool, _ in self.calls),
                *outcomes,
                *(("denials", *one[1:]) for one in outcomes if one[2][:6] == "denied"),
            }
        )


@dataclass(slots=True)
class Courses:
    """Folds the events of runs, in the order of each run."""

    _calls: dict[str, dict[int, tuple[str, str]]] = field(
        default_factory=dict[str, dict[int, tuple[str, str]]]
    )
    _cut: set[str] = field(default_factory=set[str])

    def take(self, recorded: Recorded) -> None:
        """Take an event of `TYPES`."""
        event, stream = recorded.event, recorded.stream
        if isinstance(event, RunStarted):
            self._calls[stream] = {}
        calls = self._calls.get(stream)
        if calls is None or event is None:  # erased
            return
        if isinstance(event, ToolInvoked):
            calls[event.call] = tool_of(event), "in_doubt"
        if closed := outcome_of(event):
            call, outcome = closed
            tool, _ = calls.get(call, ("", ""))
            calls[call] = tool, _said(outcome)
            if isinstance(outcome, Completed) and outcome.cut:
                self._cut.add(stream)

    def of(self, row: RunRow, stream: str) -> Course | None:
        """Return the course of a run, if it can be executed again to its end."""
        calls = self._calls.get(stream)
        if calls is None or stream in self._cut:
            return None
        end = f"{row.state} ({row.reason})" if row.reason else row.state
        return Course(row.agent, end, tuple(calls.values()))


def _said(outcome: Completed | Denied | Failed) -> str:
    word = outcome_word(outcome)
    if isinstance(outcome, Denied):
        return f"{word} ({outcome.code})"
    return f"{word} ({outcome.kind})" if isinstance(outcome, Failed) else word


#: How many of a kind are kept, and how many there are.
Part: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """
    A sample.

    Attributes:
        runs: Their ids.

        coverage: Of ``runs``, those whose course is kept; ``sequences`` are courses.
    """

    runs: tuple[str, ...]
    coverage: Mapping[str, Part]

    def to_document(self) -> dict[str, JSON]:
        """Return the ``caxton.sample/v1`` document."""
        return {
            "$type": "caxton.sample/v1",
            "runs": [*self.runs],
            "coverage": {
                name: {"kept": kept, "all": every}
                for name, (kept, every) in self.coverage.items()
            },
        }


def sample(courses: Mapping[str, Course], most: int) -> Sample:
    """
    Return a sample.

    Args:
        courses: By the id of the run. Of two, the later run has the larger id.

        most: How many runs to keep at most.
    """
    runs: defaultdict[Course, list[str]] = defaultdict(list)
    for run_id in sorted(courses, reverse=True):
        runs[courses[run_id]].append(run_id)
    ranked = [*runs]
    features = [course.features for course in ranked]
    heap = [
        (-len(features[at]), -len(runs[course]), at) for at, course in enumerate(ranked)
    ]
    heapify(heap)
    kept, covered = list[Course](), set[tuple[str, ...]]()
    while heap and len(kept) < most:
        gain, count, at = heappop(heap)
        # What a course adds only becomes less.
        if (now := -len(features[at] - covered)) > gain:
            heappush(heap, (now, count, at))
            continue
        kept.append(ranked[at])
        covered |= features[at]
    every = frozenset[tuple[str, ...]]().union(*features)
    coverage = {
        "runs": (sum(len(runs[one]) for one in kept), len(courses)),
        "sequences": (len(kept), len(ranked)),
    }
    for kind in ("tools", "outcomes", "denials", "ends", "agents"):
        coverage[kind] = _count(covered, kind), _count(every, kind)
    return Sample(runs=tuple(runs[one][0] for one in kept), coverage=coverage)


def _count(features: Collection[tuple[str, ...]], kind: str) -> int:
    return sum(one[0] == kind for one in features)
