"""Stores of each kind, which pass the same tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import pytest

from caxton_host.store.memory import MemoryStore
from caxton_host.store.sql import SqlStore
from tests.postgres import Server, name_of
from tests.unit.store.fakes import FakeClock, FakeEntropy, url

Store: TypeAlias = SqlStore | MemoryStore


@dataclass
class Place:
    """A place where streams outlive the store that wrote them."""

    clock: FakeClock
    url: str | None = None
    server: Server | None = None
    _memory: MemoryStore = field(init=False)

    def __post_init__(self) -> None:
        self._memory = MemoryStore(clock=self.clock, entropy=FakeEntropy())

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Store]:
        store: Store = self._memory
        if self.url:
            store = SqlStore.open(self.url, clock=self.clock, entropy=FakeEntropy())
        try:
            yield store
        finally:
            await store.aclose()

    def pass_(self, micros: int) -> None:
        """Let time pass; where the clock is a server's, all was so much earlier."""
        self.clock.time += micros
        if self.server and self.url:
            self.server.execute(
                f"UPDATE budgets SET since = since - {micros} WHERE since > 0",  # noqa: S608
                name_of(self.url),
            )


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["sqlite", "postgresql", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Place:
    match request.param:
        case "sqlite":
            return Place(clock, url(tmp_path))
        case "postgresql":
            server: Server = request.getfixturevalue("postgres")
            return Place(clock, server.make(), server)
        case _:
            return Place(clock)


@pytest.fixture
async def store(place: Place) -> AsyncIterator[Store]:
    async with place.open() as opened:
        yield opened
