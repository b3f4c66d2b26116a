"""Ticks: which minutes an expression means where clocks are changed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.names import tick_run, time_of
from caxton_host.lib.cron import cron_mistake, next_tick, ticks, zone_mistake

MINUTE = 60_000_000
HOUR = 60 * MINUTE

#: A zone, and an hour before its clocks are changed: most of them, and oddly.
CHANGES = [
    ("Europe/Oslo", "2026-03-29T00:00"),
    ("Europe/Oslo", "2026-10-25T00:00"),
    ("America/New_York", "2026-03-08T06:00"),
    ("America/New_York", "2026-11-01T05:00"),
    ("America/Sao_Paulo", "2018-11-04T02:00"),  # at midnight
    ("Australia/Lord_Howe", "2026-10-03T14:30"),  # by half an hour
    ("Australia/Lord_Howe", "2026-04-04T14:00"),
    ("Asia/Kolkata", "2026-03-29T00:00"),  # never
]


def us(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000


def told(zone: str, found: list[int]) -> list[str]:
    """Return ticks as a clock of the zone shows them, with what it is ahead of UTC."""
    times = [datetime.fromtimestamp(at / 1e6, ZoneInfo(zone)) for at in found]
    return [time.strftime("%d %H:%M %z") for time in times]


def on_walls(
    minutes: set[int], hours: set[int] | None, zone: str, after: int, until: int
) -> Iterator[int]:
    """Yield the ticks by looking at the clock every minute."""
    clock = ZoneInfo(zone)

    def meant(shown: datetime) -> bool:
        return shown.minute in minutes and (hours is None or shown.hour in hours)

    late = set[int]()
    for at in range(after - HOUR, until + 1, MINUTE):
        shown, before = (
            datetime.fromtimestamp(one / 1e6, UTC).astimezone(clock)
            for one in (at, at - MINUTE)
        )
        ahead, was = shown.utcoffset(), before.utcoffset()
        assert ahead is not None
        assert was is not None
        if ahead > was and hours is not None:
            missing = range((ahead - was) // timedelta(minutes=1))
            late |= {
                at + minute * MINUTE
                for minute in missing
                if meant(before.replace(tzinfo=None) + timedelta(minutes=minute + 1))
            }
        first = hours is None or not shown.fold
        if at > after and (at in late or (first and meant(shown))):
            yield at


@given(
    change=st.sampled_from(CHANGES),
    minutes=st.sets(st.integers(0, 59), min_size=1, max_size=4),
    hours=st.none() | st.sets(st.integers(0, 23), min_size=1, max_size=4),
    start=st.integers(-240, 240),
    length=st.integers(0, 360),
)
def test_each_minute_that_a_clock_shows_ticks_once_wherever_clocks_are_changed(
    change: tuple[str, str],
    minutes: set[int],
    hours: set[int] | None,
    start: int,
    length: int,
) -> None:
    zone, near = change
    after = us(near) + start * MINUTE
    until = after + length * MINUTE
    hour = "*" if hours is None else ",".join(map(str, hours))
    text = f"{','.join(map(str, minutes))} {hour} * * *"

    found = ticks(text, zone, after, until, 10_000)

    assert found == [*on_walls(minutes, hours, zone, after, until)]
    assert ticks(text, zone, after, until, 3) == found[-3:]
    following = next_tick(text, zone, after)
    assert (following == found[0]) if found else (following > until)


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        # A time of day that does not exist comes an hour later; the next day as usual.
        ("30 2 * * *", "2026-03-28T12:00", ["29 03:30 +0200", "30 02:30 +0200"]),
        # One that exists twice comes once, the first time.
        ("30 2 * * *", "2026-10-24T12:00", ["25 02:30 +0200", "26 02:30 +0100"]),
        # What follows the clock misses nothing and adds nothing.
        ("30 * * * *", "2026-03-29T00:00", ["29 01:30 +0100", "29 03:30 +0200"]),
        ("30 * * * *", "2026-10-25T00:00", ["25 02:30 +0200", "25 02:30 +0100"]),
    ],
)
def test_a_time_that_does_not_exist_or_exists_twice_ticks_once_each(
    text: str, after: str, expected: list[str]
) -> None:
    found = ticks(text, "Europe/Oslo", us(after), us(after) + 48 * HOUR, 100)

    assert told("Europe/Oslo", found)[:2] == expected


def test_a_day_that_a_zone_has_left_out_is_not_lost() -> None:
    # Samoa had no 30 December 2011.
    found = ticks("0 9 30 12 *", "Pacific/Apia", us("2011-12-01"), us("2012-01-09"), 9)

    assert told("Pacific/Apia", found) == ["31 09:00 +1400"]


def test_what_comes_on_the_29th_of_february_may_be_eight_years_away() -> None:
    found = next_tick("0 0 29 2 *", "UTC", us("2096-03-01"))

    assert found == us("2104-02-29")


@given(st.lists(st.tuples(st.text(max_size=9), st.integers(0, 2**38)), unique=True))
def test_each_tick_of_each_schedule_has_a_run_of_its_own(
    known: list[tuple[str, int]],
) -> None:
    runs = [tick_run(name, second * 1_000_000) for name, second in known]

    assert len({*runs}) == len(known)
    assert [time_of(run) for run in runs] == [second * 1_000_000 for _, second in known]


VALUES = (
    st.just("*")
    | st.integers(0, 99).map(str)
    | st.sampled_from(["mon", "SUN", "jan", "abc"])
)
ITEMS = st.builds(
    lambda first, last, step: f"{first}{last}{step}",
    VALUES,
    st.just("") | VALUES.map("-{}".format),
    st.just("") | st.integers(0, 99).map("/{}".format),
)
FIELDS = st.just("*") | st.lists(ITEMS, min_size=1, max_size=3).map(",".join)


@given(st.lists(FIELDS, min_size=4, max_size=6).map(" ".join) | st.text())
def test_an_expression_is_refused_or_has_ticks(text: str) -> None:
    # law 9
    if cron_mistake(text) is None:
        assert next_tick(text, "UTC", 0) > 0
        assert len(text.split()) == 5


@pytest.mark.parametrize(
    "text",
    [
        "@daily",
        "* * * *",
        "* * * * * *",
        "* * * * h",
        "r * * * *",
        "0 0 l * *",
        "60 * * * *",
        "*/0 * * * *",
        "0 0 31 2 *",
        "0 0 30 feb *",
    ],
)
def test_what_is_random_odd_or_never_comes_is_no_expression(text: str) -> None:
    assert cron_mistake(text) is not None


@given(st.text())
def test_a_name_is_that_of_a_zone_or_refused(name: str) -> None:
    # law 9
    if zone_mistake(name) is None:
        assert next_tick("* * * * *", name, 0) == MINUTE
