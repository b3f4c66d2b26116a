"""Times on the command line: a moment, or how long ago."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def ago(seconds: float) -> str:
    """
    Return how long ago something was, roughly.

    >>> ago(7300), ago(59.9), ago(-1)
    ('2 h ago', '59 s ago', '0 s ago')
    """
    unit, length = next((u for u in _UNITS if seconds >= u[1]), _UNITS[-1])
    return f"{max(int(seconds / length), 0)} {unit} ago"


class Moment(click.ParamType[int]):
    """
    A time, as microseconds since 1970.

    ISO 8601, UTC unless it names a zone; or a duration, which is counted back from
    now.
    """

    name = "time"

    def convert(
        self,
        value: Any,  # noqa: ANN401 -- as click has it
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> int:
        """Return the time that *value* means."""
        from ..config.fields import parse_duration
        from ..lib.machine import SystemClock

        if seconds := parse_duration(value):
            return max(SystemClock().now() - round(seconds * 1_000_000), 0)
        try:
            then = datetime.fromisoformat(value)
        except ValueError:
            self.fail(
                f"{value!r} is no time: write it like 2026-01-31, "
                "2026-01-31T12:00:00Z, or 2h for two hours ago",
                param,
                ctx,
            )
        then = then if then.tzinfo else then.replace(tzinfo=UTC)
        return max(round(then.timestamp() * 1_000_000), 0)
