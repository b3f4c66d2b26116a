"""Options that several commands have, and the types of their values."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import update_wrapper
from typing import Any

import click

from ..core.log.runs import ENDS, OUTCOMES
from . import completion
from .overrides import Overrides

variable_option = click.option(
    "--var",
    "variables",
    metavar="KEY=VALUE",
    multiple=True,
    help="Set a variable of the run.",
)

narrow_option = click.option(
    "--narrow",
    metavar="FILE|RULE",
    multiple=True,
    shell_complete=completion.tools_or_files,
    help="Allow only this of the agent's grant: SERVER/TOOL, {rule}, or FILE.toml.",
)

only_option = click.option(
    "--only",
    "host",  # as --host of caxton, which is typed by mistake
    metavar="HOST",
    help="Only this host; default all that share the log.",
)


def overrides(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--server``, ``--allow``, ``--wire-log``, as one argument ``given``."""

    def gathered(
        *args: object,
        servers: tuple[str, ...],
        allow: tuple[str, ...],
        wire_log: str | None,
        **rest: object,
    ) -> object:
        given = Overrides(servers=servers, allow=allow, wire_log=wire_log)
        return function(*args, given=given, **rest)

    server = click.option(
        "--server",
        "servers",
        metavar="NAME=CMD|URL",
        multiple=True,
        help="Add a tool server for this run only.",
    )
    allow = click.option(
        "--allow",
        metavar="SERVER/TOOL",
        multiple=True,
        shell_complete=completion.tools,
        help="Grant a tool for this run only.",
    )
    return server(allow(wire_log(update_wrapper(gathered, function))))


def wire_log(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--wire-log``, for `tapped`."""
    option = click.option(
        "--wire-log",
        "wire_log",
        metavar="[FILE]",
        is_flag=False,
        flag_value="-",
        help="Log redacted messages of tool servers to FILE or stderr.",
    )
    return update_wrapper(option(function), function)


def of_runs(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that select runs, but ``--tool`` and ``--until``."""
    for option in reversed(_OF_RUNS):
        function = option(function)
    return function


def of_list(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add all options that select runs."""
    tool = click.option(
        "--tool", metavar="SERVER/TOOL", help="Only runs that called this tool."
    )
    until = click.option(
        "--until", type=Moment(), help="Only runs started before this time."
    )
    return of_runs(tool(until(function)))


class Duration(click.ParamType[float]):
    """
    A duration like ``30s``, in seconds.

    Args:
        zero: Zero is allowed.
    """

    name = "duration"

    def __init__(self, *, zero: bool = False) -> None:
        self._zero = zero

    def convert(
        self,
        value: Any,  # noqa: ANN401 -- as click has it
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float:
        """Return the seconds that *value* means."""
        from ..config.fields import parse_duration

        seconds = parse_duration(str(value))
        if seconds is None or not (seconds or self._zero):
            self.fail(f"{value!r} is no duration: write it like 30s or 5m", param, ctx)
        return seconds


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


_OF_RUNS = (
    click.option("--agent", help="Only runs of this agent."),
    click.option(
        "--state",
        type=click.Choice([*dict.fromkeys(ENDS.values())]),
        help="Only runs in this state.",
    ),
    click.option("--reason", help="Only runs suspended or failed for this reason."),
    click.option(
        "--kind",
        type=click.Choice(["agent", "program", "session"]),
        help="Only runs of this kind.",
    ),
    click.option(
        "--outcome",
        type=click.Choice(OUTCOMES),
        help="Only runs with such a call; with --tool, of that tool.",
    ),
    click.option("--actor", metavar="ID", help="Only runs that this actor started."),
    click.option(
        "--since", type=Moment(), help="Only runs started at this time or later."
    ),
    click.option("--top", is_flag=True, help="Only runs that no agent called."),
)
