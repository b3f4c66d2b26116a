"""What servers speak, from one host to the next. Each store passes all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from caxton_host.ports.log import ServerProtocol
from caxton_host.store.sql import SqlStore
from tests.contract.conftest import Store
from tests.unit.store.fakes import FakeClock, FakeEntropy, url

OLD, NEW = (
    ServerProtocol("2025-06-18", legacy=True),
    ServerProtocol("2026-07-28", legacy=False),
)
WEEK = 7 * 24 * 3600 * 1_000_000


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(WEEK)


async def test_what_a_server_spoke_last_is_known(store: Store) -> None:
    assert await store.server_protocols.protocol_of("a") is None
    await store.server_protocols.learn_protocol("a", OLD)
    await store.server_protocols.learn_protocol("b", NEW)
    assert (
        await store.server_protocols.protocol_of("a"),
        await store.server_protocols.protocol_of("b"),
    ) == (OLD, NEW)
    await store.server_protocols.learn_protocol("a", NEW)
    assert await store.server_protocols.protocol_of("a") == NEW


async def test_what_a_server_spoke_long_ago_is_forgotten(
    tmp_path: Path, clock: FakeClock
) -> None:
    async with SqlStore.open(
        url(tmp_path), clock=clock, entropy=FakeEntropy()
    ) as store:
        await store.server_protocols.learn_protocol("a", OLD)
        clock.time += WEEK - 1
        assert await store.server_protocols.protocol_of("a") == OLD
        clock.time += 1
        assert await store.server_protocols.protocol_of("a") is None
