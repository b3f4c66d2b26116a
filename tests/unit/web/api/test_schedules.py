"""Schedules over the control API."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from caxton_host.config.model import Schedule
from caxton_host.runs.freezing import FreezeWatch
from tests.office import Names, Office, calling, who

BY_BOSS = {"authorization": "Bearer boss"}
SCHEDULES = "/api/v1/schedules"
NIGHTLY = Schedule(
    name="nightly", agent="weather", cron="0 0 * * *", timezone="Asia/Kolkata"
)


def office(folder: Path) -> Office:
    found = Office(folder)
    found.service.host.freezes = FreezeWatch(found.scene.store.reader)
    found.config = replace(found.config, schedules={"nightly": NIGHTLY})
    return found


async def test_a_schedule_is_listed_with_its_next_tick(tmp_path: Path) -> None:
    here = office(tmp_path)
    async with calling(here) as client:
        listed = await client.get(SCHEDULES, headers=BY_BOSS)
        refused = await client.get(SCHEDULES)

    (one,) = listed.json()["schedules"]
    # Midnight there, on 15 November 2023.
    assert one["next"] == 1_700_073_000_000_000
    assert (one["last"], one["paused"]) == (None, None)
    assert refused.status_code == 403


async def test_who_does_not_reach_the_agent_neither_sees_nor_pauses_it(
    tmp_path: Path,
) -> None:
    # law 4
    here = office(tmp_path)
    other = who("other", "admin", agents=("payer",))
    known = Names({"other": other})
    async with calling(here, names=known) as client:
        client.headers["authorization"] = "Bearer other"
        listed = await client.get(SCHEDULES)
        body = {"kind": "schedule", "name": "nightly", "reason": ""}
        paused = await client.post("/api/v1/freezes", json=body)

    assert listed.json()["schedules"] == []
    assert paused.status_code == 403
