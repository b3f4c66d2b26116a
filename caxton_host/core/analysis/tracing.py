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
from functools import cached_property
from itertools import islice
from typing import TypeAlias

from ..calls import JSON
from ..log.events import (
    ApprovalRequested,
    Recorded,
    RunStarted,
    ToolCompleted,
    ToolDenied,
    ToolFailed,
    ToolInvoked,
)
from ..names import run_of
from ..provenance.hints import hinted, hints
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


@dataclass(frozen=True)
class TracedRun:
    """
    A run whose values are traced. Its events are gone through once.

    Attributes:
        run_id: The run.

        events: Its events, behind those that it inherited.

        called_by: The number of the parent's call that started it, if it has a parent.
    """

    run_id: str
    events: Sequence[Recorded]
    called_by: int | None = None

    @cached_property
    def said(self) -> Said:
        """What the run was given, and what it asked."""
        said = Said()
        for at, recorded in enumerate(self.events):
            said.take(at, recorded)
        return said


def traced(runs: Sequence[TracedRun], call: int, below: str = "") -> Iterator[Traced]:
    """
    Yield the values of a call, each with its way.

    Args:
        runs: The run, its parent, the parent of that, and so on.

        call: The number of a call of the run.

        below: Only values at this JSON path, or under it.
    """
    invoked = runs[0].said.calls.get(call)
    leaves = parts(invoked[2].params or {}) if invoked else iter(())
    count = steps = 0
    for keys, value in leaves:
        path = written(keys)
        if isinstance(value, (dict, list)) or not _is_under(path, below):
            continue
        if (count := count + 1) > MAX_VALUES:
            return
        tracer = _Tracer(runs, value, steps)
        yield Traced(value, tracer.asked(0, call, path))
        steps = tracer.steps


def _is_under(path: str, below: str) -> bool:
    rest = path.removeprefix(below)
    return path.startswith(below) and (not below or rest[:1] in {"", ".", "["})


@dataclass(slots=True)
class Said:
    """
    What one run was given, and what it asked, in order.

    Attributes:
        calls: Index, event and intent of each call, by its number.
    """

    given: list[_Given] = field(default_factory=list[_Given])
    calls: dict[int, tuple[int, Recorded, Intent]] = field(
        default_factory=dict[int, "tuple[int, Recorded, Intent]"]
    )
    #: Each as `hinted`: of what was given, and of parameters by the number of the call.
    hinted_given: list[str] = field(default_factory=list[str])
    hinted_params: dict[int, str] = field(default_factory=dict[int, str])

    def take(self, at: int, recorded: Recorded) -> None:
        """Add an event, and its index among those of the run."""
        event = recorded.event
        if isinstance(event, RunStarted):
            # A fork is given what its parent was given; its own start comes later.
            self._start(at, recorded, event)
        elif isinstance(event, ToolInvoked | ApprovalRequested):
            self.calls[event.call] = at, recorded, event
            self.hinted_params[event.call] = hinted(event.params)
        elif isinstance(event, ToolCompleted | ToolDenied | ToolFailed):
            _, _, invoked = self.calls[event.call]
            source: str = "failure"
            values: tuple[JSON, ...] = (event.message,)
            if isinstance(event, ToolCompleted):
                source = tool_of(invoked)
                values = (*values_of(event.data),) or (
                    *(text for _, text in texts_of(event.data)),
                )
            self._give(_Given(at, recorded.seq, event.call, source, values))

    def _start(self, at: int, recorded: Recorded, started: RunStarted) -> None:
        sources = {"input": started.input} | {
            f"context.{key}": value for key, value in started.context.items()
        }
        for source, value in sources.items():
            self._give(_Given(at, recorded.seq, 0, source, (value,)))

    def _give(self, given: _Given) -> None:
        self.given.append(given)
        self.hinted_given.append(hinted([*given.values]))


def tool_of(invoked: Intent) -> str:
    """Return the tool of a call, or the name that leads to none."""
    return f"{invoked.server}/{invoked.tool}" if invoked.server else invoked.name


@dataclass(slots=True)
class _Tracer:
    """Traces a value through a run and its parents. Bounded by `MAX_STEPS`."""

    runs: Sequence[TracedRun]
    value: JSON
    steps: int
    _hints: set[str] = field(init=False)
    #: By the index of the run: where it was given the value first, and the calls that
    #: may have it as a parameter. Then by the call too: where it has it.
    _places: dict[int, list[tuple[_Given, str]]] = field(
        default_factory=dict[int, "list[tuple[_Given, str]]"], init=False
    )
    _calls: dict[int, list[int]] = field(
        default_factory=dict[int, "list[int]"], init=False
    )
    _paths: dict[tuple[int, int], str | None] = field(
        default_factory=dict[tuple[int, int], "str | None"], init=False
    )

    def __post_init__(self) -> None:
        self._hints = hints(self.value)

    def asked(self, number: int, call: int, path: str) -> Asked:
        """Return a parameter of a call of run *number*, with the way of its value."""
        run = self.runs[number]
        at, recorded, invoked = run.said.calls[call]
        way = tuple(self._way(number, at))
        return Asked(
            run_of(recorded.stream) or run.run_id,
            recorded.seq,
            call,
            tool_of(invoked),
            path,
            way,
        )

    def _way(self, number: int, before: int) -> Iterator[Step]:
        """Yield where the value stood in what a run was given before an event."""
        if number not in self._places:
            # They are in order: no event has others than the first ones before it.
            self._places[number] = [*islice(self._given(number), MAX_PLACES)]
        for given, path in self._places[number]:
            if given.at >= before or self.steps >= MAX_STEPS:
                return
            self.steps += 1
            origin = self._caused(number, given)
            run_id = self.runs[number].run_id
            yield Step(run_id, given.seq, given.call, given.source, path, origin)

    def _given(self, number: int) -> Iterator[tuple[_Given, str]]:
        said = self.runs[number].said
        for given, text in zip(said.given, said.hinted_given, strict=True):
            if self._may_be_in(text):
                for value in given.values:
                    yield from ((given, path) for path in places_in(self.value, value))

    def _may_be_in(self, text: str) -> bool:
        for hint in self._hints:  # noqa: SIM110 -- a generator takes three times as long
            if hint in text:
                return True
        return False

    def _caused(self, number: int, given: _Given) -> Asked | None:
        """Return the first parameter that had the value before it was given, if any."""
        run = self.runs[number]
        if given.call == 0:
            above = number + 1
            if given.source != "input" or above >= len(self.runs):
                return None
            return self._parameter(above, run.called_by)
        if number not in self._calls:
            texts = sorted(run.said.hinted_params.items())
            self._calls[number] = [n for n, text in texts if self._may_be_in(text)]
        for call in self._calls[number]:
            if run.said.calls[call][0] < given.at and (
                found := self._parameter(number, call)
            ):
                return found
        return None

    def _parameter(self, number: int, call: int | None) -> Asked | None:
        calls = self.runs[number].said.calls
        if call is None or call not in calls:
            return None
        if (number, call) not in self._paths:
            places = places_in(self.value, calls[call][2].params or {})
            self._paths[number, call] = next(places, None)
        path = self._paths[number, call]
        return None if path is None else self.asked(number, call, path)
