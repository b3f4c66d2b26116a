"""
Who, by what, and how it ended: what an exported event is told with.

Each line of an export stands alone, so it repeats what other events of its run say.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from ...errors import UsageError
from ..calls import JSON, Completed, Denied, Outcome
from .events import ApprovalRequested, Recorded, ToolInvoked
from .payloads import outcome_of

#: How a call can have ended; the last: not at all.
OUTCOMES = ("ok", "tool_error", "denied", "failed", "in_doubt")

#: What tells which tool a call is of.
NAMING = (ToolInvoked, ApprovalRequested)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """
    An event, and what its line repeats.

    Attributes:
        run: The run, or ``None`` for an event of a host.

        agent: What runs.

        actor: Who started the run; ``None`` if that was erased.

        tool: ``server/tool`` of the call that the event is about.

        outcome: How the call ended, on the event that ended it.
    """

    recorded: Recorded
    run: str | None
    agent: str | None
    actor: dict[str, JSON] | None
    tool: str | None
    outcome: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """
    Which lines are wanted. Nothing said is everything.

    Attributes:
        stream: The one that it is in.

        since: It was recorded then or later: microseconds since 1970.

        until: It was recorded before.

        agent: The run is one of this agent.

        actor: An id; of who started the run, or of who caused the event itself.

        tool: A glob of ``server/tool``.

        outcomes: Some of `OUTCOMES`: only what ended a call so; of a call in doubt,
            its beginning.
    """

    stream: str | None = None
    since: int | None = None
    until: int | None = None
    agent: str | None = None
    actor: str | None = None
    tool: str | None = None
    outcomes: Collection[str] = ()

    def takes(self, line: Line) -> bool:
        """Return whether *line* is wanted as it is."""
        return (not self.outcomes or line.outcome in self.outcomes) and self.concerns(
            line
        )

    def concerns(self, line: Line) -> bool:
        """Return whether *line* is of that time, actor and tool."""
        if self.until is not None and line.recorded.recorded_at >= self.until:
            return False
        if self.tool is not None and not fnmatchcase(line.tool or "", self.tool):
            return False
        if self.actor is None:
            return True
        own: dict[str, JSON] | None = getattr(line.recorded.event, "actor", None)
        return any(who["id"] == self.actor for who in (line.actor, own) if who)


@dataclass(slots=True)
class Calls:
    """
    The tools of the calls that are open, folded from events of all runs.

    Attributes:
        most: How many are remembered. The ones that were asked for least recently
            are forgotten: who needs them has to look them up.
    """

    most: int = 10_000
    _open: OrderedDict[tuple[str, int], str | None] = field(
        default_factory=OrderedDict[tuple[str, int], str | None]
    )

    def learn(self, stream: str, event: ToolInvoked | ApprovalRequested) -> None:
        """Remember the tool of a call."""
        tool = f"{event.server}/{event.tool}" if event.server else None
        self._open[stream, event.call] = tool
        if len(self._open) > self.most:
            self._open.popitem(last=False)

    def knows(self, recorded: Recorded) -> bool:
        """Return whether the tool of an event is known, if it needs one."""
        number = call_of(recorded)
        if number is None or isinstance(recorded.event, NAMING):
            return True
        return (recorded.stream, number) in self._open

    def tool(self, recorded: Recorded) -> str | None:
        """Return the tool of the call that an event is about; forget an ended one."""
        event, number = recorded.event, call_of(recorded)
        if isinstance(event, NAMING):
            self.learn(recorded.stream, event)
        if number is None:
            return None
        key = recorded.stream, number
        if event is not None and outcome_of(event):
            return self._open.pop(key, None)
        if key in self._open:
            self._open.move_to_end(key)
        return self._open.get(key)


def event_of_call(history: Iterable[Recorded], number: int) -> int:
    """
    Return the sequence number of the event that says what call *number* is.

    Raises:
        UsageError: The run has no such call of its own.
    """
    events = {e.event.call: e.seq for e in history if isinstance(e.event, NAMING)}
    if number in events:
        return events[number]
    raise UsageError(
        f"there is no call {number} in this run, which has {len(events)} of its own",
        fix="name a call that caxton runs show lists",
    )


def call_of(recorded: Recorded) -> int | None:
    """Return the number of the call that an event is about, if it is about one."""
    number = getattr(recorded.event, "call", None)
    return number if isinstance(number, int) else None


def how(outcome: Outcome) -> str:
    """
    Return how a call ended, in a word.

    >>> how(Completed(is_error=True))
    'tool_error'
    """
    if isinstance(outcome, Completed):
        return "tool_error" if outcome.is_error else "ok"
    return "denied" if isinstance(outcome, Denied) else "failed"
