"""What servers speak, from one host to the next. Each store passes all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from caxton_host.ports import Era
from caxton_host.store.sql import SqlStore
from tests.contract.conftest import Store
from tests.unit.store.fakes import FakeClock, FakeEntropy, url

OLD, NEW = Era("2025-06-18", legacy=True), Era("2026-07-28", legacy=False)
WEEK = 7 * 24 * 3600 * 1_000_000


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(WEEK)


async def test_what_a_server_spoke_last_is_known(store: Store) -> None:
    assert await store.server_protocols.era("a") is None
    await store.server_protocols.learn_era("a", OLD)
    await store.server_protocols.learn_era("b", NEW)
    assert (
        await store.server_protocols.era("a"),
        await store.server_protocols.era("b"),
    ) == (OLD, NEW)
    await store.server_protocols.learn_era("a", NEW)
    assert await store.server_protocols.era("a") == NEW


async def test_what_a_server_spoke_long_ago_is_forgotten(
    tmp_path: Path, clock: FakeClock
) -> None:
    async with SqlStore.open(
        url(tmp_path), clock=clock, entropy=FakeEntropy()
    ) as store:
        await store.server_protocols.learn_era("a", OLD)
        clock.time += WEEK - 1
        assert await store.server_protocols.era("a") == OLD
        clock.time += 1
        assert await store.server_protocols.era("a") is None
