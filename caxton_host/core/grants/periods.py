"""Hours, days, weeks and months of the calendar, in UTC, whatever a machine's zone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal, TypeAlias

Period: TypeAlias = Literal["hour", "day", "week", "month"]

PERIODS: tuple[Period, ...] = ("hour", "day", "week", "month")

_SECOND = 1_000_000
_HOUR = 3600 * _SECOND
_DAY = 24 * _HOUR
_WEEK = 7 * _DAY
_LENGTHS = {"hour": _HOUR, "day": _DAY, "week": _WEEK}
#: 1970 began on a Thursday, a week begins on Monday.
_SHIFTS = {"hour": 0, "day": 0, "week": 3 * _DAY}


def period_of(period: Period, now: int) -> tuple[int, int]:
    """
    Return when the period with *now* in it began, and when the next one does.

    All are microseconds since 1970.

    >>> noon = 20_000 * 86_400_000_000 + 43_200_000_000
    >>> [(edge - noon) // 3_600_000_000 for edge in period_of("day", noon)]
    [-12, 12]
    """
    if period == "month":
        return _month(now)
    length, shift = _LENGTHS[period], _SHIFTS[period]
    start = now - (now + shift) % length
    return start, start + length


def _month(now: int) -> tuple[int, int]:
    at = datetime.fromtimestamp(now // _SECOND, UTC)
    first = datetime(at.year, at.month, 1, tzinfo=UTC)
    following = datetime(at.year + at.month // 12, at.month % 12 + 1, 1, tzinfo=UTC)
    return _micros(first), _micros(following)


def _micros(at: datetime) -> int:
    return int(at.timestamp()) * _SECOND
