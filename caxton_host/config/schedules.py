"""Reader of ``[schedules.NAME]``: runs that start by the clock."""

from __future__ import annotations

from collections.abc import Callable

from ..core.names import nearest
from ..errors import UsageError
from ..lib.cron import cron_mistake, zone_mistake
from . import fields as f
from .fields import STRING, object_, shaped
from .model import Config, Schedule, run_variables
from .source import At


def _checked(mistake: Callable[[str], tuple[str, str] | None]) -> f.Reader:
    """Return the reader of a text in which *mistake* finds none."""

    @shaped(STRING)
    def reader(value: object, at: At) -> str:
        found = f.text(value, at)
        if wrong := mistake(found):
            raise at.error(*wrong)
        return found

    return reader


_SCHEDULE: f.Fields = {
    "agent": ("agent", f.text),
    "cron": ("cron", _checked(cron_mistake)),
    "timezone": ("timezone", _checked(zone_mistake)),
    "input": ("input", f.json_value),
    "variables": ("variables", f.mapped(f.json_value)),
    "overlap": ("overlap", f.choice("skip", "allow")),
    "catch_up": ("catch_up", f.choice("none", "last", "all")),
}


@shaped(object_(_SCHEDULE, "agent", "cron"))
def schedule(value: object, at: At) -> Schedule:
    """
    Read ``[schedules.NAME]``.

    Raises:
        ConfigError: The table is invalid.
    """
    found = f.read(value, _SCHEDULE, at)
    f.needs(value, at, agent="weather", cron="0 9 * * mon-fri")
    return Schedule(name=at.name, **found)


def check_schedules(config: Config, at: At) -> None:
    """
    Check that schedules name agents, and give them the variables that they need.

    Raises:
        ConfigError: One does not.
    """
    for name, one in config.schedules.items():
        here = at.key("schedules").key(name)
        if one.agent not in config.executed:
            meant = nearest(one.agent, [*config.executed])
            raise here.key("agent").error(
                "is not an agent that the host executes",
                fix=f"did you mean {meant}?" if meant else "describe it in [agents]",
            )
        variables = here.key("variables")
        try:
            private = run_variables(config, one.variables)[1]
        except UsageError as exc:
            fix = "give what [context] requires, and nothing else"
            raise variables.error(f"{exc}", fix=fix) from None
        if told := sorted(private.keys() & one.variables.keys()):
            raise variables.key(told[0]).error(
                "is private, and a queued run is in the log",
                fix="write it as the default in [context]",
            )
