"""The checks of the soak test: outcomes of calls, and resources of an idle host."""

from __future__ import annotations

import asyncio
import os
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from caxton_host.core.log.events import (
    Event,
    RunCompleted,
    ToolCompleted,
    ToolDenied,
    ToolFailed,
    ToolInvoked,
    outcome_of,
)

from .load import SOUND

__all__ = ["Reading", "Tally", "family", "grown", "leaked"]

_PAGE = os.sysconf("SC_PAGE_SIZE")
#: Allowed growth of memory from the second to the last quarter.
_FLAT = 1.05
#: Allowance for connections kept for the next call and for timers of the loop.
_SLACK = 8
#: Seconds between two samples; the smallest counts.
_BETWEEN, _LOOKS = 0.1, 10


@dataclass(slots=True)
class Tally:
    """
    Outcomes of the calls of ended runs.

    Attributes:
        wrong: Violations, one line each.
    """

    runs: int = 0
    calls: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def fold(self, run_id: str, events: Iterable[Event], calls: int) -> bool:
        """Add the events of a run; return whether all its *calls* were as expected."""
        asked: dict[int, ToolInvoked] = {}
        ends: Counter[int] = Counter()
        good = completed = True
        for event in events:
            completed = isinstance(event, RunCompleted)
            if isinstance(event, ToolInvoked):
                asked[event.call] = event
            elif end := outcome_of(event):
                ends[end[0]] += 1
                said = _said(event)
                self.ends[said] += 1
                good = good and said == "ok"
                if said not in {"ok", "denied"} and asked[end[0]].server in SOUND:
                    self.wrong.append(
                        f"{run_id} call {end[0]} of a correct server: {said}"
                    )
        self.wrong += [
            f"{run_id} call {call} has {ends[call]} ends"
            for call in {**asked, **ends}
            if ends[call] != 1 or call not in asked
        ]
        if len(asked) != calls:
            self.wrong.append(f"{run_id} made {len(asked)} calls of {calls}")
        if not completed:
            self.wrong.append(f"{run_id} did not complete")
        self.runs += 1
        self.calls += len(asked)
        return good


def _said(event: Event) -> str:
    match event:
        case ToolCompleted():
            return "error" if event.is_error else "ok"
        case ToolFailed():
            return f"{event.kind}/{event.sent}"
        case ToolDenied():
            return "denied"
        case _:
            return type(event).__name__


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """
    Resources of the host while no run is active.

    Attributes:
        rss: RSS of the host, in bytes.

        pss: PSS of the host, in bytes.

        every: RSS of all its processes, in bytes.
    """

    rss: int
    pss: int
    every: int
    descriptors: int
    processes: int
    tasks: int

    @classmethod
    async def taken(cls) -> Reading:
        """Return a reading after tasks and processes that are ending have ended."""
        readings: list[Reading] = []
        for _ in range(_LOOKS):
            await asyncio.sleep(_BETWEEN)
            readings.append(cls._now())
        parts = ("rss", "pss", "every", "descriptors", "processes", "tasks")
        least = {part: min(getattr(one, part) for one in readings) for part in parts}
        return cls(**least)

    @classmethod
    def _now(cls) -> Reading:
        rollup = dict(
            line.split(":")
            for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
        )
        pids = family()
        return cls(
            rss=int(rollup["Rss"].split()[0]) * 1024,
            pss=int(rollup["Pss"].split()[0]) * 1024,
            every=sum(map(_rss, pids)),
            descriptors=len(os.listdir("/proc/self/fd")),  # noqa: PTH208 -- counts itself too
            processes=len(pids),
            tasks=len(asyncio.all_tasks()),
        )

    def __str__(self) -> str:
        memory = f"rss {self.rss / 1e6:.1f} pss {self.pss / 1e6:.1f} MB"
        counts = f"{self.descriptors} fds, {self.processes} processes"
        return f"{memory}, all {self.every / 1e6:.0f} MB, {counts}, {self.tasks} tasks"


def family() -> set[int]:
    """Return this process and all its descendants."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(stat[1])
    found = {os.getpid()}
    while more := {pid for pid, above in parents.items() if above in found} - found:
        found |= more
    return found


def _rss(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    return 0


def grown(readings: Sequence[Reading]) -> list[str]:
    """Return a line for each kind of memory that grew after the second quarter."""
    quarter = len(readings) // 4
    if not quarter:
        return []
    second, last = readings[quarter : 2 * quarter], readings[-quarter:]
    found: list[str] = []
    for part in ("rss", "pss", "every"):
        before = statistics.mean(getattr(one, part) for one in second)
        after = statistics.mean(getattr(one, part) for one in last)
        if after > before * _FLAT:
            found.append(f"{part} grew from {before / 1e6:.1f} to {after / 1e6:.1f} MB")
    return found


def leaked(first: Reading, last: Reading) -> list[str]:
    """Return a line for each resource that grew since the start."""
    slack = {"descriptors": _SLACK, "processes": 0, "tasks": _SLACK}
    return [
        f"{part} grew from {getattr(first, part)} to {getattr(last, part)}"
        for part, more in slack.items()
        if getattr(last, part) > getattr(first, part) + more
    ]
