"""What hosts on one log spend at the same time, and what one may not spend."""

from __future__ import annotations

import asyncio

import pytest

from caxton_host.errors import LeaseLost
from caxton_host.ports.log import Reservation
from tests.unit.store.fakes import line, run_started

from .support import opened


async def test_host_that_lost_a_run_takes_no_place_for_its_calls(database: str) -> None:
    wanted = Reservation(
        key="!server/s/open", amount=1, limit=1, rule="", call=1, tries=0
    )
    old, new = opened(database), opened(database)
    log = old.create("run/1")
    await log.append(run_started())
    heir = await new.resume_log("run/1")
    await heir.append(line(1))

    with pytest.raises(LeaseLost):
        await log.append(reserve=[wanted])

    assert await heir.append(reserve=[wanted]) is None
    await old.aclose()
    await new.aclose()


async def test_hosts_that_spend_a_rate_at_once_spend_it_once(database: str) -> None:
    wanted = Reservation(
        key="!caller/ann", amount=1, limit=7, rule="", every=3_600_000_000
    )
    hosts = [opened(database) for _ in range(3)]
    asked = (host.reserve([wanted]) for host in hosts for _ in range(10))
    found = await asyncio.gather(*asked)
    assert found.count(None) == 7
    for host in hosts:
        await host.aclose()
