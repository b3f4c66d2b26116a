"""
Forks: where a run can be forked, and the prefix that a fork inherits.

A prefix ends after an event that leaves no call open. Log lines after its last call are
not part of it: the fork has other random numbers from that call on and writes its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ...errors import UsageError
from ..calls import JSON
from ..log.events import (
    ApprovalDecided,
    ApprovalRequested,
    LogWritten,
    Recorded,
    RunStarted,
    ToolInvoked,
    outcome_of,
)
from .decisions import Allowed, decide
from .grants import Grant
from .journal import Journal, Origin, attempt_of, spends_of

#: Most ancestors of a fork.
MAX_LINEAGE = 100

_SHOWN = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """
    The place where a fork leaves its parent.

    Attributes:
        last: The last event of the parent that is inherited.

        edited: The call whose outcome the fork replaces, or ``None``.
    """

    last: Recorded
    edited: ToolInvoked | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inherited:
    """
    The events that a fork inherits from one run.

    Attributes:
        started: The `RunStarted` of that run.

        events: The inherited events.

        calls: The number of calls up to here, with those that the run inherited.
    """

    run_id: str
    started: RunStarted
    events: Sequence[Recorded]
    calls: int

    def told(self, journal: Journal, heir: RunStarted, *, lines: bool) -> None:
        """
        Fold the events into the journal of the fork.

        Allowed calls count for the rules of the fork's own grants, since the rules of
        the parent are others, whatever their ids. For another module only the calls
        are compared. Approvals of the parent's calls do not hold for the fork.
        """
        same = (self.started.module_sha256, self.started.program) == (
            heir.module_sha256,
            heir.program,
        )
        origin = Origin(self.run_id, same and self.started.engine == heir.engine)
        grant = Grant.from_payload(heir.grants)
        for recorded in self.events:
            event = recorded.event
            assert event is not None  # noqa: S101 -- see `Recording.load`
            if isinstance(event, LogWritten) and not (lines and same):
                continue
            if isinstance(event, (ApprovalRequested, ApprovalDecided)):
                continue
            if isinstance(event, ToolInvoked) and event.rule is not None:
                event = _judged_anew(event, recorded.recorded_at, grant, journal)
            journal.apply(event, recorded.recorded_at, recorded.seq, origin)


def forking_point(history: Sequence[Recorded], seq: int, *, edit: bool) -> Point:
    """
    Return where a run can be forked.

    Args:
        history: Its events, after those that it inherited.

        seq: The requested event.

        edit: The outcome of the call of that event is replaced, so it may be open.

    Raises:
        UsageError: It cannot be forked there; the message says where it can.
    """
    asked = next((e for e in _own(history) if e.seq == seq), None)
    if asked is None:
        last = history[-1].seq
        raise UsageError(f"the run has no event {seq}", fix=f"name one of 1 to {last}")
    if edit:
        return _edited(history, asked)
    open_calls = {recorded.seq: doubts for recorded, doubts in _doubts(history)}
    if not open_calls[seq]:
        return Point(last=asked)
    free = [own for own in _own(history) if not open_calls[own.seq]]
    raise UsageError(
        f"cannot fork at event {seq}, because call {min(open_calls[seq])} "
        "has no outcome yet",
        fix=f"{_others(free, seq)}; or pass its answer with --set-result",
    )


def _edited(history: Sequence[Recorded], asked: Recorded) -> Point:
    calls = {e.event.call: e.event for e in history if isinstance(e.event, ToolInvoked)}
    invoked = calls.get(getattr(asked.event, "call", 0))
    if invoked is None:
        own = [e for e in _own(history) if isinstance(e.event, ToolInvoked)]
        raise UsageError(
            f"event {asked.seq} is {asked.type}, not of a call",
            fix=f"name a call: {_listed(own, asked.seq)}",
        )
    # People may have been asked about it before: a prefix has its intent.
    before = [e.event for e in history[: history.index(asked) + 1]]
    begun, places = False, list(_doubts(history))
    for n, (recorded, doubts) in enumerate(places, 1):
        is_open = invoked.call in doubts
        begun = begun or is_open or (recorded == asked and invoked in before)
        # Adjacent intents are of one batch, which is not split.
        in_batch = n < len(places) and isinstance(places[n][0].event, ToolInvoked)
        if begun and doubts <= {invoked.call} and not (is_open and in_batch):
            return Point(last=recorded, edited=invoked)
    raise UsageError(
        f"another call is in doubt beside the one of event {asked.seq}",
        fix="fork earlier",
    )


def prefix(history: Sequence[Recorded], seq: int) -> tuple[list[Recorded], int]:
    """
    Return the prefix of a fork after event *seq*, and its number of calls.

    Args:
        history: The events of its parent, after those that it inherited.

        seq: The last event of the parent itself that is inherited.
    """
    parent = history[-1].stream
    kept = [e for e in history if e.stream != parent or e.seq <= seq]
    of_calls = [n for n, e in enumerate(kept) if _is_of_call(e)]
    last = of_calls[-1] if of_calls else 0
    kept = [
        e
        for n, e in enumerate(kept)
        if n <= last or not isinstance(e.event, LogWritten)
    ]
    return kept, sum(isinstance(e.event, ToolInvoked) for e in kept)


def _is_of_call(recorded: Recorded) -> bool:
    event = recorded.event
    return isinstance(event, ToolInvoked) or bool(event and outcome_of(event))


def _own(history: Sequence[Recorded]) -> Iterator[Recorded]:
    return (e for e in history if e.stream == history[-1].stream)


def _doubts(
    history: Sequence[Recorded],
) -> Iterator[tuple[Recorded, frozenset[int]]]:
    """Yield the run's own events, each with the calls that are open after it."""
    doubts: frozenset[int] = frozenset()
    for recorded in history:
        event = recorded.event
        if isinstance(event, ToolInvoked):
            doubts |= {event.call}
        elif event is not None and (end := outcome_of(event)):
            doubts -= {end[0]}
        if recorded.stream == history[-1].stream:
            yield recorded, doubts


def _others(free: Sequence[Recorded], seq: int) -> str:
    return f"fork at {_listed(free, seq)}" if free else "fork the run it comes from"


def _listed(events: Sequence[Recorded], seq: int) -> str:
    """Return the numbers of the events nearest to *seq*."""
    nearest = sorted(events, key=lambda e: abs(e.seq - seq))[:_SHOWN]
    numbers = [str(e.seq) for e in sorted(nearest, key=lambda e: e.seq)]
    *most, last = numbers or ["none"]
    return f"event {', '.join(most)} or {last}" if most else f"event {last}"


def _judged_anew(
    event: ToolInvoked, at: int, grant: Grant, journal: Journal
) -> ToolInvoked:
    attempt = attempt_of(event, at, journal.matches, journal.sources)
    verdict = decide(grant, attempt, journal.tallies.recorded)
    if not isinstance(verdict, Allowed):
        # The grants beside it count the call all the same, as it was made.
        return replace(event, rule="", spends=None)
    spends: dict[str, JSON] = {**spends_of(verdict.rule, attempt.params)}
    return replace(event, rule=verdict.rule.id, spends=spends)
