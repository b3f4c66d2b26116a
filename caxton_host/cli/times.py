"""Times on the command line: a moment, or how long ago."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

__all__ = ["Moment"]


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
        from ..clock import SystemClock
        from ..config.units import duration

        if seconds := duration(value):
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
