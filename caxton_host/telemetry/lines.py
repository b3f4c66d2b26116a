"""A log line for each run that begins or ends, and for each call that is settled."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..lib.logs import FIELDS

if TYPE_CHECKING:
    from ..core.calls import JSON
    from ..ports import ToolRequest
    from .observed import OneCall, OneRun


#: What a host does, at level ``INFO``; trouble is logged elsewhere.
ACTIVITY = logging.getLogger("caxton_host.activity")


class ActivityLines:
    """Logs what it is told of."""

    def began(self, run: OneRun) -> None:
        """Log that a run began."""
        _log("run began", mode=run.execution.mode)

    def ended(self, run: OneRun) -> None:
        """Log how a run ended."""
        _log(
            "run ended",
            mode=run.execution.mode,
            state=run.state,
            kind=run.kind,
            verdict=run.verdict,
            duration_ms=_ms(run.seconds),
        )

    def settled(self, call: OneCall) -> None:
        """Log how a call ended."""
        route = call.route
        _log(
            "call waits for approval" if call.asked else "call settled",
            name=call.call.name,
            server=route.server if route else "",
            tool=route.tool if route else "",
            status=call.status,
            code=call.code,
            duration_ms=_ms(call.seconds),
        )

    def attempted(self, request: ToolRequest, seconds: float, error: str) -> None:
        """Log nothing: a call has one line, however often it is sent."""


def _log(message: str, **fields: JSON) -> None:
    ACTIVITY.info(
        message, extra={FIELDS: {key: value for key, value in fields.items() if value}}
    )


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
