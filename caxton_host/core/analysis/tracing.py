"""
The way of a value: from a parameter of a call back to where it entered the run.

A value enters with the start of a run, or with an answer. If it stood in a parameter of
an earlier call, the way goes on from there, since the agent may have caused the answer.
The input of a child run came from the call of its parent. All of this is a function of
the log, so it can be asked of every run ever recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ..calls import JSON, Completed
from ..log.events import (
    ApprovalRequested,
    Recorded,
    RunStarted,
    ToolInvoked,
    outcome_of,
)
from ..names import run_of
from ..provenance.sources import places_in, texts_of
from ..text.answers import values_of
from ..text.jsonpath import parts, written

#: A call, or the request to approve it.
Intent: TypeAlias = ToolInvoked | ApprovalRequested

#: Places that are shown of one value before one event.
MAX_PLACES = 6
#: Values of one call, and places of one trace.
MAX_VALUES, MAX_STEPS = 64, 256


@dataclass(frozen=True, slots=True)
class Step:
    """
    A place where a value stood.

    Attributes:
        run: The run.

        seq: The event.

        call: Its call; 0: the start of the run.

        source: ``input``, ``context.KEY``, ``SERVER/TOOL``, or ``failure``: the message
            of a call that was denied or failed.

        path: The place there, as a JSON path.

        asked: The parameter of an earlier call that had the value, and where that came
            from; ``None``: none had it, so the value entered here.
    """

    run: str
    seq: int
    call: int
    source: str
    path: str
    asked: Asked | None = None

    def to_document(self) -> dict[str, JSON]:
        """Return it as JSON."""
        return {
            "run": self.run,
            "event": self.seq,
            "call": self.call,
            "source": self.source,
            "path": self.path,
            "asked": self.asked.to_document() if self.asked else None,
        }


@dataclass(frozen=True, slots=True)
class Asked:
    """
    A parameter that had a value.

    Attributes:
        tool: The tool, or the name that the agent called.

        way: Where the value stood before that call; empty: nowhere, so the agent made
            it, or changed it.
    """

    run: str
    seq: int
    call: int
    tool: str
    path: str
    way: tuple[Step, ...] = ()

    def to_document(self) -> dict[str, JSON]:
        """Return it as JSON."""
        return {
            "run": self.run,
            "event": self.seq,
            "call": self.call,
            "tool": self.tool,
            "path": self.path,
            "way": [step.to_document() for step in self.way],
        }


@dataclass(frozen=True, slots=True)
class Traced:
    """A value of a call, and the parameter that has it with its way."""

    value: JSON
    asked: Asked

    def to_document(self) -> dict[str, JSON]:
        """Return it as JSON."""
        return {"value": self.value, **self.asked.to_document()}


@dataclass(frozen=True, slots=True)
class _Given:
    """Something that the agent was given: it may hold values."""

    at: int
    seq: int
    call: int
    source: str
    values: tuple[JSON, ...]


@dataclass(frozen=True, slots=True)
class TracedRun:
    """
    A run whose values are traced.

    Attributes:
        run_id: The run.

        events: Its events, behind those that it inherited.

        called_by: The number of the parent's call that started it, if it has a parent.
    """

    run_id: str
    events: Sequence[Recorded]
    called_by: int | None = None


def traced(runs: Sequence[TracedRun], call: int, below: str = "") -> Iterator[Traced]:
    """
    Yield the values of a call, each with its way.

    Args:
        runs: The run, its parent, the parent of that, and so on.

        call: The number of a call of the run.

        below: Only values at this JSON path, or under it.
    """
    tracer = _Tracer([_Run.read(run) for run in runs])
    invoked = tracer.runs[0].calls.get(call)
    leaves = parts(invoked[2].params or {}) if invoked else iter(())
    count = 0
    for keys, value in leaves:
        path = written(keys)
        if isinstance(value, (dict, list)) or not _is_under(path, below):
            continue
        if (count := count + 1) > MAX_VALUES:
            return
        yield Traced(value, tracer.asked(0, call, path, value))


def _is_under(path: str, below: str) -> bool:
    rest = path.removeprefix(below)
    return path.startswith(below) and (not below or rest[:1] in {"", ".", "["})


@dataclass(slots=True)
class _Run:
    """What one run was given, and what it asked, in order."""

    run_id: str
    called_by: int | None
    given: list[_Given] = field(default_factory=list[_Given])
    #: Index, event and intent of each call, by its number.
    calls: dict[int, tuple[int, Recorded, Intent]] = field(
        default_factory=dict[int, "tuple[int, Recorded, Intent]"]
    )

    @classmethod
    def read(cls, run: TracedRun) -> _Run:
        found = cls(run.run_id, run.called_by)
        for at, recorded in enumerate(run.events):
            found._take(at, recorded)
        return found

    def _take(self, at: int, recorded: Recorded) -> None:
        event = recorded.event
        if isinstance(event, RunStarted):
            # A fork is given what its parent was given; its own start comes later.
            self._start(at, recorded, event)
        elif isinstance(event, ToolInvoked | ApprovalRequested):
            self.calls[event.call] = at, recorded, event
        elif event is not None and (end := outcome_of(event)):
            number, outcome = end
            _, _, invoked = self.calls[number]
            source: str = "failure"
            values: tuple[JSON, ...] = (outcome.message,)
            if isinstance(outcome, Completed):
                source = tool_of(invoked)
                values = (*values_of(outcome.data),) or (
                    *(text for _, text in texts_of(outcome.data)),
                )
            self.given.append(_Given(at, recorded.seq, number, source, values))

    def _start(self, at: int, recorded: Recorded, started: RunStarted) -> None:
        sources = {"input": started.input} | {
            f"context.{key}": value for key, value in started.context.items()
        }
        for source, value in sources.items():
            self.given.append(_Given(at, recorded.seq, 0, source, (value,)))


def tool_of(invoked: Intent) -> str:
    """Return the tool of a call, or the name that leads to none."""
    return f"{invoked.server}/{invoked.tool}" if invoked.server else invoked.name


@dataclass(slots=True)
class _Tracer:
    """Traces values through a run and its parents. Bounded by `MAX_STEPS`."""

    runs: list[_Run]
    steps: int = 0

    def asked(self, number: int, call: int, path: str, value: JSON) -> Asked:
        """Return a parameter of a call of run *number*, with the way of its value."""
        run = self.runs[number]
        at, recorded, invoked = run.calls[call]
        way = tuple(self._way(number, at, value))
        return Asked(
            run_of(recorded.stream) or run.run_id,
            recorded.seq,
            call,
            tool_of(invoked),
            path,
            way,
        )

    def _way(self, number: int, before: int, value: JSON) -> Iterator[Step]:
        """Yield where *value* stood in what run *number* was given before an event."""
        run, shown = self.runs[number], 0
        for given in run.given:
            for path in _places(value, given.values) if given.at < before else ():
                if shown >= MAX_PLACES or self.steps >= MAX_STEPS:
                    return
                shown, self.steps = shown + 1, self.steps + 1
                origin = self._caused(number, given, value)
                yield Step(
                    run.run_id, given.seq, given.call, given.source, path, origin
                )

    def _caused(self, number: int, given: _Given, value: JSON) -> Asked | None:
        """Return the first parameter that had *value* before it was given, if any."""
        run = self.runs[number]
        if given.call == 0:
            above = number + 1
            if given.source != "input" or above >= len(self.runs):
                return None
            return self._parameter(above, run.called_by, value)
        for call in sorted(run.calls):
            if run.calls[call][0] < given.at and (
                found := self._parameter(number, call, value)
            ):
                return found
        return None

    def _parameter(self, number: int, call: int | None, value: JSON) -> Asked | None:
        if call is None or call not in self.runs[number].calls:
            return None
        params = self.runs[number].calls[call][2].params or {}
        path = next(places_in(value, params), None)
        return None if path is None else self.asked(number, call, path, value)


def _places(value: JSON, given: tuple[JSON, ...]) -> Iterator[str]:
    """Yield the places of a value in what was given at once."""
    for one in given:
        yield from places_in(value, one)
