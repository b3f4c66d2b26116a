"""
A history, judged against a change: what each recorded run would do, in groups.

Runs whose first difference is alike are a group. Every run is counted; one that cannot
be judged is in a group that says why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal, TypeAlias

from ..calls import JSON

Verdict: TypeAlias = Literal[
    "identical", "diverged", "denied", "allowed", "failed", "incomplete", "unjudged"
]
#: What each verdict says of a run, those first that need a look.
VERDICTS: Mapping[Verdict, str] = {
    "diverged": "diverged",
    "denied": "newly denied",
    "allowed": "newly allowed",
    "failed": "failed",
    "incomplete": "incomplete",
    "unjudged": "cannot be judged",
    "identical": "identical",
}
CHANGES: tuple[Verdict, ...] = ("diverged", "denied", "allowed")

#: Runs that a group names, and groups that are told apart.
_NAMED = 20
_GROUPS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """
    What a recorded run would do under a change.

    Attributes:
        calls: How many calls were answered or judged.

        at: Where the first difference is: the tool or the event, and the JSON path.

        how: What differs there, as all runs of its group have it.

        seq: The event, or ``None`` if the log ends before it.

        was: The recorded value in this run, as JSON, cut.

        now: The value under the change.

        remembered: The verdict is from an earlier time.
    """

    run_id: str
    agent: str
    verdict: Verdict
    calls: int = 0
    at: str = ""
    how: str = ""
    seq: int | None = None
    was: str = ""
    now: str = ""
    remembered: bool = False

    @property
    def what(self) -> str:
        """Return what differs, as all runs of the group have it."""
        return ": ".join(filter(None, (self.at, self.how)))


@dataclass(slots=True)
class Group:
    """
    Runs whose first difference is alike.

    Attributes:
        example: The first that was found.

        count: How many there are.

        runs: The ids of the first of them.
    """

    example: Finding
    count: int = 0
    runs: list[str] = field(default_factory=list[str])

    def to_document(self) -> dict[str, JSON]:
        """Return what a document of the history has of the group."""
        return {**asdict(self.example), "count": self.count, "runs": [*self.runs]}


@dataclass(slots=True, kw_only=True)
class History:
    """
    Recorded runs, judged against a change.

    Attributes:
        against: Kind and name of what was changed.

        complete: Whether all runs were judged.

        remembered: Runs whose verdict is from an earlier time.

        calls: How many calls were answered or judged.

        verdicts: How many runs have each.
    """

    against: Mapping[str, JSON]
    complete: bool = False
    remembered: int = 0
    calls: int = 0
    verdicts: Counter[Verdict] = field(default_factory=Counter[Verdict])
    _groups: dict[tuple[str, ...], Group] = field(
        default_factory=dict[tuple[str, ...], Group]
    )

    @property
    def runs(self) -> int:
        """How many runs were judged, or cannot be."""
        return self.verdicts.total()

    @property
    def changed(self) -> int:
        """How many runs would do, or be allowed, something else."""
        return sum(self.verdicts[one] for one in CHANGES)

    @property
    def judged(self) -> int:
        """How many runs were judged to their end."""
        return self.changed + self.verdicts["identical"]

    def take(self, finding: Finding) -> None:
        """Count a run."""
        self.verdicts[finding.verdict] += 1
        self.calls += finding.calls
        self.remembered += finding.remembered
        if finding.verdict == "identical":
            return
        key = finding.verdict, finding.agent, finding.at, finding.how
        if key not in self._groups and len(self._groups) >= _GROUPS:
            key = finding.verdict, "", "", ""
        group = self._groups.setdefault(key, Group(finding))
        group.count += 1
        if len(group.runs) < _NAMED:
            group.runs.append(finding.run_id)

    def groups(self) -> Iterator[Group]:
        """Yield the groups, in the order of `VERDICTS`, the largest first."""
        order = [*VERDICTS]
        yield from sorted(
            self._groups.values(),
            key=lambda one: (order.index(one.example.verdict), -one.count),
        )

    def to_document(self) -> dict[str, JSON]:
        """Return the ``caxton.history/v1`` document."""
        return {
            "$type": "caxton.history/v1",
            "against": {**self.against},
            "complete": self.complete,
            "runs": self.runs,
            "calls": self.calls,
            "changed": self.changed,
            "remembered": self.remembered,
            "verdicts": {one: self.verdicts[one] for one in VERDICTS},
            "groups": [one.to_document() for one in self.groups()],
        }
