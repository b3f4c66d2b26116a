"""Events and calls, as people and programs read them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ..core.calls import JSON
from ..core.log.events import (
    ApprovalDecided,
    ApprovalRequested,
    LogWritten,
    Recorded,
    RunCompleted,
    RunFailed,
    RunStarted,
    ToolCompleted,
    ToolDenied,
    ToolFailed,
    ToolInvoked,
    ToolProgress,
    event_document,
    to_payload,
)
from ..core.log.runs import ExportLine, call_of
from .output import clipped, plain

if TYPE_CHECKING:
    from collections.abc import Sequence


_WIDTH = 100


def line_document(line: ExportLine) -> dict[str, JSON]:
    """Return the document of an exported event, which stands alone."""
    document = event_document(line.recorded)
    document["run"] = line.run
    document["agent"] = line.agent
    document["actor"] = line.actor
    document["tool"] = line.tool
    document["outcome"] = line.outcome
    return document


def moment(at_us: int) -> str:
    """
    Return a time of an event, to the millisecond, UTC.

    >>> moment(1_700_000_000_123_456)
    '2023-11-14 22:13:20.123'
    """
    then = datetime.fromtimestamp(at_us / 1e6, UTC)
    return then.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def told(event: ToolProgress) -> str:
    """
    Return what was told of a call while it lasted.

    >>> told(ToolProgress(call=1, message="reading", progress=1.0, total=3.0))
    '1 of 3 reading'
    """
    far = "" if event.progress is None else f"{event.progress:g}"
    if far and event.total is not None:
        far += f" of {event.total:g}"
    return " ".join(filter(None, (far, plain(event.message))))


def remark(recorded: Recorded) -> str:  # noqa: C901, PLR0911 -- a table of types
    """Return what matters most of an event, in a line."""
    match recorded.event:
        case None:
            return "erased"
        case RunStarted() as event:
            return f"{event.agent} {event.module_sha256[:12]} {plain(event.input)}"
        case ToolInvoked() | ApprovalRequested() as event:
            return f"{event.name} {plain(event.params)}"
        case ToolCompleted() as event:
            how = "tool error" if event.is_error else "ok"
            how += ", cached" if event.cached else ""
            return f"{how}: {plain(event.data if event.cut else event.message)}"
        case ToolDenied() as event:
            return f"{event.code}: {plain(event.message)}"
        case ToolFailed() as event:
            return f"{event.kind}, sent {event.sent}: {plain(event.message)}"
        case ApprovalDecided() as event:
            role = f" as {event.role}" if event.role else ""
            said = f"{event.verdict} by {plain(event.actor.get('id'))}{role}"
            return f"{said}: {plain(event.reason)}"
        case LogWritten() as event:
            return f"{event.level}: {plain(event.text)}"
        case ToolProgress() as event:
            return told(event)
        case RunCompleted() as event:
            return plain(event.output)
        case RunFailed() as event:
            return f"{event.kind}: {plain(event.message)}"
        case event:
            return ", ".join(f"{k}={plain(v)}" for k, v in to_payload(event).items())


def rows(history: Sequence[Recorded]) -> list[tuple[object, ...]]:
    """Return the table of a stream: seq, call, time, type, remark."""
    return [
        (e.seq, call_of(e), moment(e.recorded_at), e.type, clipped(remark(e), _WIDTH))
        for e in history
    ]
