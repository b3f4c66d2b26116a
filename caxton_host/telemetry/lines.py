"""Log lines of runs and calls, and the handler that sends log records by OTLP."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ..core.grants.freezes import Halted
from ..lib.logs import FIELDS, fields_of
from .sinks import ObservedCall, ObservedRun, Sink

if TYPE_CHECKING:
    from opentelemetry._logs import Logger, SeverityNumber

    from ..core.calls import JSON


#: Runs and calls, at level ``INFO``; errors are logged elsewhere.
ACTIVITY = logging.getLogger("caxton_host.activity")


class ActivityLines(Sink):
    """Logs each run that begins or ends, and each call that is settled."""

    def run_began(self, run: ObservedRun) -> None:
        """Log that a run began."""
        _log("run began", mode=run.execution.mode)

    def run_ended(self, run: ObservedRun) -> None:
        """Log how a run ended."""
        _log(
            "run ended",
            mode=run.execution.mode,
            state=run.end,
            kind=run.kind,
            verdict=run.verdict,
            duration_ms=_ms(run.seconds),
        )

    def call_ended(self, call: ObservedCall) -> None:
        """Log how a call ended, unless this is a replay."""
        if call.run.execution.mode == "replay":
            return
        route = call.route
        what = "call is frozen" if isinstance(call.error, Halted) else "call settled"
        _log(
            "call waits for approval" if call.asked else what,
            name=call.name,
            server=route.server if route else "",
            tool=route.tool if route else "",
            status=call.status,
            code=call.code,
            duration_ms=_ms(call.seconds),
        )


def _log(message: str, **fields: JSON) -> None:
    ACTIVITY.info(
        message, extra={FIELDS: {key: value for key, value in fields.items() if value}}
    )


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


class OtlpHandler(logging.Handler):
    """Passes records to *logger*, with the trace in which they were logged."""

    def __init__(self, logger: Logger) -> None:
        super().__init__()
        self._logger = logger

    def attach(self) -> Callable[[], None]:
        """Start to take the records of this package; return what stops that."""
        package = logging.getLogger("caxton_host")
        package.addHandler(self)
        return partial(package.removeHandler, self)

    def emit(self, record: logging.LogRecord) -> None:
        """Pass on one record; drop one that cannot be formatted."""
        # The SDK would print the record, with its secrets.
        with contextlib.suppress(Exception):
            self._hand_over(record)

    def _hand_over(self, record: logging.LogRecord) -> None:
        fields = fields_of(record)
        body = _plain(str(fields.pop("message")))
        self._logger.emit(
            timestamp=int(record.created * 1e9),
            severity_text=record.levelname,
            severity_number=_severity(record.levelno),
            body=body,
            attributes={
                "caxton.logger": record.name,
                **{
                    _NAMES.get(key, f"caxton.{key}"): _plain(fields[key])
                    for key in fields
                },
            },
        )


#: Our fields to their names in the conventions.
_NAMES = {
    "run": "caxton.run.id",
    "agent": "gen_ai.agent.name",
    "call": "caxton.call.number",
    "server": "caxton.server.name",
    "tool": "caxton.tool.name",
    "exception": "exception.stacktrace",
}


def _plain(value: object) -> str | int | float | bool:
    if isinstance(value, (int, float, bool)):
        return value
    # A lone surrogate would make the whole batch of records fail.
    return str(value).encode(errors="backslashreplace").decode()


def _severity(level: int) -> SeverityNumber:
    from opentelemetry._logs import SeverityNumber

    for least, number in (
        (logging.CRITICAL, SeverityNumber.FATAL),
        (logging.ERROR, SeverityNumber.ERROR),
        (logging.WARNING, SeverityNumber.WARN),
        (logging.INFO, SeverityNumber.INFO),
    ):
        if level >= least:
            return number
    return SeverityNumber.DEBUG
