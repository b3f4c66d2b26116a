"""A host that lost a run takes no place for its calls."""

from __future__ import annotations

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
