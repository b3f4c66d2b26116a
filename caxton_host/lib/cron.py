"""
The ticks of cron expressions, on the clocks of time zones.

A tick is a minute that a clock shows. Where clocks change, some minutes do not exist
and some exist twice. An expression whose hour begins with a star follows the clock: it
ticks at each minute that exists, and at both of two. Any other means a time of day: one
that does not exist comes as much later as the clock is set forward, and of one that
exists twice the first counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, available_timezones

from ..core.names import nearest

if TYPE_CHECKING:
    from croniter import croniter

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US, _DAY = timedelta(microseconds=1), timedelta(days=1)
#: Without a tick in that time, there is none: there is a 29th of February in it.
_YEARS = 9
_LONGEST_ZONE = 64
#: More than clocks are ever set forward.
_MINUTES = 2 * 24 * 60

_VALUE = r"(?:\*|[0-9]{1,2}|[A-Za-z]{3})"
_ITEM = rf"{_VALUE}(?:-{_VALUE})?(?:/[0-9]{{1,2}})?"
_FIELD = rf"{_ITEM}(?:,{_ITEM}){{0,59}}"
_FIELDS = re.compile(rf"{_FIELD}(?: +{_FIELD}){{4}}")


def zone_mistake(name: str) -> tuple[str, str] | None:
    """
    Return the problem with the name of a time zone and its fix, or ``None``.

    >>> zone_mistake("Europe/Olso")
    ('is not a time zone', 'did you mean Europe/Oslo?')
    """
    try:
        ZoneInfo(name[: _LONGEST_ZONE + 1])
    except (KeyError, ValueError, OSError):
        meant = nearest(name[:_LONGEST_ZONE], sorted(available_timezones()))
        fix = f"did you mean {meant}?" if meant else 'write it like: "Europe/Oslo"'
        return "is not a time zone", fix
    return None


def cron_mistake(text: str) -> tuple[str, str] | None:
    """
    Return the problem with a cron expression and its fix, or ``None``.

    >>> [found and found[0] for found in map(cron_mistake, ("0 9 * * *", "0 0 30 2 *"))]
    [None, 'never comes: there is no such day']
    """
    like = 'write minute, hour, day, month and weekday: "30 2 * * mon-fri"'
    if find_spec("croniter") is None:
        return "needs a library", "pip install 'caxton-host[schedules]'"
    if not _FIELDS.fullmatch(text):
        return "is not five fields of cron", like
    from croniter import CroniterBadDateError, CroniterError  # noqa: PLC0415 -- slow

    try:
        _cron(text, datetime(2000, 1, 1)).get_next()  # noqa: DTZ001 -- what clocks show
    except CroniterBadDateError:
        return "never comes: there is no such day", "name a day that the month has"
    except CroniterError:
        return "has a field that cron does not know", like
    return None


def ticks(text: str, zone: str, after: int, until: int, most: int) -> list[int]:
    """
    Return the ticks of an expression, oldest first.

    Args:
        text: The expression.

        zone: The name of the time zone.

        after: Only later ones: microseconds since 1970.

        until: And none later than that.

        most: The most to return: the newest.

    >>> hour = 3_600_000_000
    >>> [at // hour for at in ticks("0 */6 * * *", "UTC", 0, 24 * hour, 3)]
    [12, 18, 24]
    """
    clock, found = _Clock(text, zone), set[int]()
    first = clock.shown(after, min)
    for shown in _cron(text, clock.shown(until, max) + _US).all_prev(datetime):
        if shown < first:
            break
        found.update(at for at in clock.at(shown) if after < at <= until)
        if len(found) >= most:
            # Where clocks are set back, a later tick may show an earlier time.
            first = clock.shown(sorted(found)[-most], min)
    return sorted(found)[-most:]


def next_tick(text: str, zone: str, after: int) -> int:
    """
    Return the first tick of an expression after a time; see `ticks`.

    >>> next_tick("0 12 * * *", "Europe/Oslo", 0) // 3_600_000_000
    11
    """
    clock = _Clock(text, zone)
    onwards = _cron(text, clock.shown(after, min)).all_next(datetime)
    later = next(at for shown in onwards for at in clock.at(shown) if at > after)
    # Where clocks are set forward, the next time of day is not always the next tick.
    return min(ticks(text, zone, after, later, _MINUTES))


class _Clock:
    """The clock of a zone, as an expression reads it."""

    def __init__(self, text: str, zone: str) -> None:
        self._zone = ZoneInfo(zone)
        self._follows = text.split()[1].startswith("*")

    def shown(
        self, at_us: int, pick: Callable[[Iterable[datetime]], datetime]
    ) -> datetime:
        """Return what it shows: the earliest or latest, if it is changed about then."""
        at = _EPOCH + at_us * _US
        return pick(self._shown(at + day) - day for day in (-_DAY, 0 * _DAY, _DAY))

    def at(self, shown: datetime) -> set[int]:
        """Return when it shows a minute, in microseconds since 1970."""
        both = [
            shown.replace(tzinfo=self._zone, fold=fold).astimezone(UTC)
            for fold in (0, 1)
        ]
        if self._follows:
            found = {at for at in both if self._shown(at) == shown}
        else:
            found = {both[0]}
        return {(at - _EPOCH) // _US for at in found}

    def _shown(self, at: datetime) -> datetime:
        return at.astimezone(self._zone).replace(tzinfo=None)


def _cron(text: str, start: datetime) -> croniter:
    from croniter import croniter  # noqa: PLC0415 -- 50 ms

    return croniter(text, start, max_years_between_matches=_YEARS)
