"""Exporting: every event with what its line repeats, in constant memory."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol, cast

from ..core.calls import JSON
from ..core.log.events import Recorded, ToolInvoked, outcome_of
from ..core.log.runs import (
    NAMING,
    ExportFilter,
    ExportLine,
    OpenCalls,
    call_of,
    outcome_word,
)
from ..core.names import run_of


class Source(Protocol):
    """A log that is exported; see `Reader`."""

    def attributed(
        self,
        stream: str | None = None,
        *,
        since: int | None = None,
        until: int | None = None,
        agent: str | None = None,
    ) -> AsyncGenerator[tuple[Recorded, str | None, str | None]]:
        """Yield events with agent and actor of their run."""
        ...

    def stream_events(
        self, stream: str | None = None, *, after: int = 0
    ) -> AsyncGenerator[Recorded]:
        """Yield events."""
        ...


async def lines(reader: Source, wanted: ExportFilter) -> AsyncGenerator[ExportLine]:
    """
    Yield the wanted lines, in the order of positions; calls in doubt at the end.

    What is kept in memory is what is open: of all calls their tools, and those lines
    that are wanted if they stay so.

    Raises:
        LogBrokenError: An event is not what was written.
    """
    calls, waiting = OpenCalls(), dict[tuple[str, int | None], ExportLine]()
    doubts = "in_doubt" in wanted.outcomes
    found = reader.attributed(
        wanted.stream,
        since=wanted.since,
        # What ended later than that is not in doubt.
        until=None if doubts else wanted.until,
        agent=wanted.agent,
    )
    async with aclosing(found) as events:
        async for recorded, agent, actor in events:
            if not calls.knows(recorded):
                await _look_up(reader, calls, recorded)
            line = _line(recorded, agent, actor, calls.tool(recorded))
            if wanted.takes(line):
                yield line
            key = recorded.stream, call_of(recorded)
            if line.outcome is not None:
                waiting.pop(key, None)
            elif doubts and isinstance(recorded.event, ToolInvoked):
                waiting[key] = line
    for line in waiting.values():
        if wanted.concerns(line):
            yield line


def _line(
    recorded: Recorded, agent: str | None, actor: str | None, tool: str | None
) -> ExportLine:
    end = outcome_of(recorded.event) if recorded.event else None
    who = cast("dict[str, JSON]", json.loads(actor)) if actor else None
    return ExportLine(
        recorded=recorded,
        run=run_of(recorded.stream) or None,
        agent=agent,
        actor=who or None,
        tool=tool,
        outcome=outcome_word(end[1]) if end else None,
    )


async def _look_up(reader: Source, calls: OpenCalls, wanted: Recorded) -> None:
    """Learn the tool of a call that began before what is read."""
    number = call_of(wanted)
    async with aclosing(reader.stream_events(wanted.stream)) as events:
        async for recorded in events:
            event = recorded.event
            if isinstance(event, NAMING) and event.call == number:
                calls.learn(wanted.stream, event)
                return
