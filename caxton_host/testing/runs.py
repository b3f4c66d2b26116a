"""What a test sees of a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ..core.calls import JSON, reply
from ..core.log.events import (
    Event,
    LogWritten,
    RunCompleted,
    RunFailed,
    ToolInvoked,
    outcome_of,
)

_MAX_SHOWN = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRun:
    """
    What an agent did, as the log holds it.

    Attributes:
        status: ``completed``, or ``failed``: it trapped, returned an error or reached
            a limit.

        error: Of one that failed, why: ``trap: unreachable``. Else ``None``.

        output: What it put out, or ``None``.

        calls: Name and parameters of each tool call, in order. Parameters that were
            no map are ``None``.

        replies: What it got for each: ``{"status", "message", "data"}``, and
            ``"error"`` if the status is not ``ok``.

        logs: Level and text of each of its log lines.
    """

    status: Literal["completed", "failed"]
    error: str | None
    output: JSON
    calls: list[tuple[str, dict[str, JSON] | None]]
    replies: list[dict[str, JSON]]
    logs: list[tuple[str, str]]


def run_of(events: Iterable[Event | None]) -> AgentRun:
    """Return the run that left *events*, which has ended by itself."""
    calls: dict[int, tuple[str, dict[str, JSON] | None]] = {}
    replies: dict[int, dict[str, JSON]] = {}
    logs: list[tuple[str, str]] = []
    output: JSON = None
    error: str | None = None
    for event in events:
        match event:
            case ToolInvoked():
                calls[event.call] = event.name, event.params
            case LogWritten():
                logs.append((event.level, event.text))
            case RunCompleted():
                output = event.output
            case RunFailed():
                error = f"{event.kind}: {event.message}"
            case _:
                if event and (end := outcome_of(event)):
                    replies[end[0]] = dict(reply(end[1])[1])
    return AgentRun(
        status="failed" if error else "completed",
        error=error,
        output=output,
        calls=[calls[number] for number in sorted(calls)],
        replies=[replies[number] for number in sorted(replies)],
        logs=logs,
    )


def shown(value: object) -> str:
    """Return a value for a message: escaped, and not without end."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def plain(text: str) -> str:
    """Return a text for a message as it stands, unless a terminal would obey it."""
    return text if text.isprintable() and len(text) <= _MAX_SHOWN else shown(text)
