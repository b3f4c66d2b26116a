"""
What the application needs from the outside, as protocols.

Each is shipped twice: for real (`store`, `mcp` and `webhooks`, `sandbox`,
`telemetry`, `clock`), and as a fake that needs nothing and forgets everything
(`testing`, `store.memory`, `telemetry.NoTelemetry`).
"""

from __future__ import annotations

from ..core.log.requests import Request
from ..core.log.runs import RunRow
from .history import History, LogReader, Readings, Streams
from .log import (
    Definitions,
    Era,
    Eras,
    EventLog,
    Leases,
    Refused,
    Requests,
    Reservation,
    SharedStore,
    Store,
    Trace,
)
from .sandbox import Answer, Door, Ending, Guest, Prepared, Sandbox
from .serving import Health, ServingStore, Submissions, TokenRow, Tokens
from .tools import (
    Asker,
    Progress,
    RunScope,
    ToolClient,
    ToolRequest,
    ToolService,
    ToolSource,
    ignore,
    unrecorded,
)
from .watch import Clock, Execution, Origin, RunSpan, Served, Span, Telemetry

__all__ = [
    "Answer",
    "Asker",
    "Clock",
    "Definitions",
    "Door",
    "Ending",
    "Era",
    "Eras",
    "EventLog",
    "Execution",
    "Guest",
    "Health",
    "History",
    "Leases",
    "LogReader",
    "Origin",
    "Prepared",
    "Progress",
    "Readings",
    "Refused",
    "Request",
    "Requests",
    "Reservation",
    "RunRow",
    "RunScope",
    "RunSpan",
    "Sandbox",
    "Served",
    "ServingStore",
    "SharedStore",
    "Span",
    "Store",
    "Streams",
    "Submissions",
    "Telemetry",
    "TokenRow",
    "Tokens",
    "ToolClient",
    "ToolRequest",
    "ToolService",
    "ToolSource",
    "Trace",
    "ignore",
    "unrecorded",
]
