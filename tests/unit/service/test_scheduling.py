"""Schedules: each tick starts one run, whoever looks and whenever."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from caxton_host.config.model import ContextVar, Schedule
from caxton_host.core.calls import JSON
from caxton_host.core.log.events import (
    Frozen,
    RunCancelled,
    RunFailed,
    RunQueued,
    RunStarted,
    Thawed,
)
from caxton_host.core.log.runs import RunRow
from caxton_host.core.names import tick_run, time_of
from caxton_host.ports.sandbox import Door, Ending, Guest
from caxton_host.runs.freezing import freeze, thaw
from caxton_host.service.scheduling import Scheduler, schedule_documents
from caxton_host.testing import FakeClock
from tests.office import Office, Slow
from tests.scene import ended

MINUTE = 60_000_000
HOUR = 60 * MINUTE
#: A full hour.
NOON = 1_700_049_600_000_000
HOURLY = Schedule(name="hourly", agent="weather", cron="0 * * * *", input={"n": 1})
OPERATOR: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}


async def at_once(door: Door, guest: Guest) -> Ending:
    del door, guest
    return ended(None)


class Desk(Office):
    """An office with schedules, whose clock is set by hand."""

    def set(self, schedule: Schedule = HOURLY) -> Scheduler:
        """Configure a schedule, and return a host that has not looked at it."""
        self.config = replace(self.config, schedules={schedule.name: schedule})
        self.scene.host.freezes._log = self.scene.store.reader
        self.service.line.now = lambda: 0.0  # That clock is not set.
        return Scheduler(service=self.service)

    async def look(self, scheduler: Scheduler, at: int) -> list[str]:
        """Look at that time, and return the runs that came of it, oldest first."""
        assert isinstance(self.scene.clock, FakeClock)
        self.scene.clock.time = at
        before = {*self.scene.store.rows}
        for schedule in self.config.schedules.values():
            await scheduler.look_at(schedule)
        return sorted({*self.scene.store.rows} - before)

    async def freeze(self, name: str) -> None:
        event = Frozen(kind="schedule", name=name, actor=OPERATOR, reason="no more")
        schedules = self.config.schedules
        await freeze(
            self.scene.store, event, agents=(), servers=(), schedules=schedules
        )
        await self.scene.host.freezes.look()

    async def thaw(self, name: str) -> None:
        event = Thawed(kind="schedule", name=name, actor=OPERATOR, reason="")
        await thaw(self.scene.store, event)
        await self.scene.host.freezes.look()

    def row(self, run_id: str) -> RunRow:
        return self.scene.store.rows[run_id]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path, at_once)


def ticks(runs: list[str]) -> list[int]:
    return [(time_of(run) - NOON) // MINUTE for run in runs]


async def test_a_tick_starts_a_run_of_the_schedule_with_its_input(desk: Desk) -> None:
    scheduler = desk.set()

    assert await desk.look(scheduler, NOON - 1) == []
    (run,) = await desk.look(scheduler, NOON + 1)

    assert run == tick_run("hourly", NOON)
    assert await desk.done(run) == "completed"
    started = (await desk.scene.store.reader.read(f"run/{run}"))[0].event
    assert isinstance(started, RunStarted)
    assert (started.agent, started.input) == ("weather", {"n": 1})
    assert started.actor == HOURLY.actor
    assert await desk.look(scheduler, NOON + 2) == []
    assert ticks(await desk.look(scheduler, NOON + HOUR)) == [60]


async def test_what_a_schedule_gives_is_of_the_operator(tmp_path: Path) -> None:
    # A caller could not give it, and rules may trust it.
    desk = Desk(tmp_path, at_once, context={"team": ContextVar()})
    scheduler = desk.set(replace(HOURLY, variables={"team": "ops"}))

    (run,) = await desk.look(scheduler, NOON)

    await desk.done(run)
    started = (await desk.scene.store.reader.read(f"run/{run}"))[0].event
    assert isinstance(started, RunStarted)
    assert started.context["team"] == "ops"
    assert started.vouched is None


async def test_two_hosts_that_start_the_same_tick_start_one_run(desk: Desk) -> None:
    one, other = desk.set(), Scheduler(service=desk.service)
    heir = Desk(desk.folder, at_once)
    heir.config = desk.config
    heir.service.store = heir.service.placer.store = desk.scene.store
    host = replace(heir.scene.host, store=desk.scene.store, stream="host/2")
    heir.service.host = heir.service.placer.host = host
    third = Scheduler(service=heir.service)
    for clock in (desk.scene.clock, heir.scene.clock):
        clock.time = NOON

    await asyncio.gather(*(each.look_at(HOURLY) for each in (one, other, third)))

    (run,) = desk.scene.store.rows
    await desk.service.over(run)
    await heir.service.over(run)
    assert (await desk.types(run)).count("RunStarted") == 1
    assert not third._again


async def test_a_clock_that_is_set_back_and_on_starts_no_tick_twice(
    desk: Desk,
) -> None:
    scheduler = desk.set()
    await desk.look(scheduler, NOON)

    assert await desk.look(scheduler, NOON - 10 * MINUTE) == []
    assert await desk.look(scheduler, NOON + MINUTE) == []
    ahead = await desk.look(scheduler, NOON + 500 * 24 * HOUR)  # far too late
    assert len(ahead) == 1
    assert await desk.look(scheduler, NOON + 59 * MINUTE) == []
    assert ticks(await desk.look(scheduler, NOON + HOUR)) == [60]


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [("none", []), ("last", [180]), ("all", [60, 120, 180])],
)
@pytest.mark.parametrize("started_anew", [True, False])
async def test_what_was_missed_is_caught_up_as_configured(
    desk: Desk, catch_up: str, expected: list[int], *, started_anew: bool
) -> None:
    schedule = Schedule(
        name="hourly",
        agent="weather",
        cron="0 * * * *",
        overlap="allow",
        catch_up=catch_up,  # type: ignore[arg-type]  # one of them
    )
    scheduler = desk.set(schedule)
    await desk.look(scheduler, NOON)
    if started_anew:
        scheduler = Scheduler(service=desk.service)

    found = await desk.look(scheduler, NOON + 3 * HOUR + 30 * MINUTE)

    assert ticks(found) == expected
    assert await desk.look(scheduler, NOON + 3 * HOUR + 31 * MINUTE) == []


async def test_a_host_that_comes_just_late_starts_the_tick_all_the_same(
    desk: Desk,
) -> None:
    scheduler = desk.set()

    assert ticks(await desk.look(scheduler, NOON + MINUTE - 1)) == [0]


async def test_a_schedule_that_is_new_has_nothing_to_catch_up(desk: Desk) -> None:
    scheduler = desk.set(replace(HOURLY, catch_up="all"))

    assert await desk.look(scheduler, NOON + 30 * MINUTE) == []
    assert ticks(await desk.look(scheduler, NOON + HOUR)) == [60]


async def test_a_hundred_ticks_are_caught_up_at_most_and_none_older_than_a_week(
    tmp_path: Path,
) -> None:
    # law 9
    desk = Desk(tmp_path, at_once, places=1000)
    desk.service.line.each = desk.service.line.rate = 1000
    often = replace(HOURLY, cron="* * * * *", overlap="allow", catch_up="all")
    scheduler = desk.set(often)
    await desk.look(scheduler, NOON)

    found = await desk.look(scheduler, NOON + 24 * HOUR)

    assert ticks(found) == [*range(24 * 60 - 99, 24 * 60 + 1)]
    daily = replace(often, name="daily", cron="0 12 * * *")
    scheduler = desk.set(daily)
    await desk.look(scheduler, NOON)
    found = await desk.look(scheduler, NOON + 30 * 24 * HOUR + HOUR)
    assert ticks(found) == [day * 24 * 60 for day in range(24, 31)]


async def test_a_tick_is_skipped_by_events_while_an_earlier_run_goes_on(
    tmp_path: Path,
) -> None:
    tools = Slow()
    desk = Desk(tmp_path, tools=tools)
    scheduler = desk.set()
    (first,) = await desk.look(scheduler, NOON)
    await tools.reached.wait()

    skipped = await desk.look(scheduler, NOON + HOUR)
    skipped += await desk.look(scheduler, NOON + 2 * HOUR)

    assert ticks(skipped) == [60, 120]
    for run in skipped:
        history = await desk.scene.store.reader.read(f"run/{run}")
        assert [type(one.event) for one in history] == [RunQueued, RunCancelled]
        assert isinstance(end := history[1].event, RunCancelled)
        assert end.actor == HOURLY.actor
        assert first in end.reason
        assert desk.row(run).state == "cancelled"
    # Nor does a host that has not seen it start it.
    assert await desk.look(Scheduler(service=desk.service), NOON + 2 * HOUR) == []
    tools.let.set()
    await desk.done(first)
    assert await desk.done((await desk.look(scheduler, NOON + 3 * HOUR))[0])


async def test_runs_go_on_beside_each_other_where_that_is_allowed(
    tmp_path: Path,
) -> None:
    desk = Desk(tmp_path, tools=Slow())
    scheduler = desk.set(replace(HOURLY, overlap="allow"))

    runs = await desk.look(scheduler, NOON) + await desk.look(scheduler, NOON + HOUR)

    assert [desk.row(run).state for run in runs] == ["running", "running"]


async def test_a_paused_schedule_starts_nothing_then_nor_later(desk: Desk) -> None:
    scheduler = desk.set(replace(HOURLY, catch_up="all"))
    await desk.look(scheduler, NOON)
    await desk.freeze("hourly")

    assert await desk.look(scheduler, NOON + HOUR) == []

    assert isinstance(desk.scene.clock, FakeClock)
    desk.scene.clock.time = NOON + HOUR + MINUTE
    await desk.thaw("hourly")
    anew = Scheduler(service=desk.service)
    assert await desk.look(anew, NOON + HOUR + 2 * MINUTE) == []
    assert ticks(await desk.look(scheduler, NOON + 2 * HOUR)) == [120]


async def test_a_full_host_tries_a_tick_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tools = Slow()
    desk = Desk(tmp_path, tools=tools, places=1)
    scheduler = desk.set()
    for _ in range(3):
        await desk.start()

    assert await desk.look(scheduler, NOON) == []
    assert scheduler._again
    assert "schedule hourly has to wait: 1 runs are under way and 2 wait" in caplog.text

    tools.let.set()
    for run in [*desk.scene.store.rows]:
        await desk.done(run)
    assert ticks(await desk.look(scheduler, NOON + 1)) == [0]


async def test_a_run_that_waits_is_judged_as_its_schedule_is_when_it_starts(
    tmp_path: Path,
) -> None:
    # law 4
    tools = Slow()
    desk = Desk(tmp_path, tools=tools, places=1)
    scheduler = desk.set()
    await desk.start()
    await tools.reached.wait()
    (run,) = await desk.look(scheduler, NOON)
    assert desk.row(run).state == "queued"

    desk.config = replace(desk.config, schedules={})
    tools.let.set()

    assert await desk.done(run) == "failed"
    end = (await desk.scene.store.reader.read(f"run/{run}"))[-1].event
    assert isinstance(end, RunFailed)
    assert end.message == "the schedule that asked for it is gone"


async def test_what_cannot_run_is_said_and_the_next_tick_is_tried(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = desk.set(replace(HOURLY, agent="broken"))

    with caplog.at_level(logging.WARNING):
        assert await desk.look(scheduler, NOON) == []

    assert "schedule hourly misses a tick: " in caplog.text
    assert not scheduler._again


async def test_schedules_that_are_configured_while_a_host_runs_are_looked_at(
    desk: Desk,
) -> None:
    scheduler = desk.set()
    desk.config = replace(desk.config, schedules={})
    assert isinstance(desk.scene.clock, FakeClock)
    desk.scene.clock.time = NOON - MINUTE
    watch = asyncio.create_task(scheduler.watch())
    await asyncio.sleep(0)

    desk.config = replace(desk.config, schedules={"hourly": HOURLY})
    desk.scene.clock.time = NOON
    while not desk.scene.store.rows:  # noqa: ASYNC110 -- or the test's time is over
        await asyncio.sleep(0.05)

    assert ticks([*desk.scene.store.rows]) == [0]
    watch.cancel()
    await asyncio.wait([watch])
    assert watch.cancelled()


async def test_a_list_says_what_comes_next_what_ran_last_and_who_paused_it(
    desk: Desk,
) -> None:
    scheduler = desk.set()
    (run,) = await desk.look(scheduler, NOON)
    await desk.done(run)

    async def listed() -> dict[str, object]:
        freezes = desk.scene.host.freezes.now
        (found,) = await schedule_documents(
            desk.config, desk.scene.store.reader, freezes, NOON
        )
        return {**found}

    found = await listed()
    assert (found["name"], found["agent"]) == ("hourly", "weather")
    assert found["next"] == NOON + HOUR
    assert found["last"] == {"run_id": run, "state": "completed"}
    assert found["paused"] is None
    await desk.freeze("hourly")
    found = await listed()
    assert found["next"] is None
    assert isinstance(paused := found["paused"], dict)
    assert (paused["actor"], paused["reason"]) == (OPERATOR, "no more")
