"""Events of chosen types, of chosen runs: what is judged again is read so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from caxton_host.core.log.events import Recorded, RunSuspended
from caxton_host.core.log.runs import RunFilter
from caxton_host.store.sql import SqlStore
from tests.unit.store.fakes import FakeClock, FakeEntropy, line, run_started, url


@pytest.fixture(params=["sqlite", "postgresql"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock
) -> AsyncIterator[SqlStore]:
    shared = request.param == "postgresql"
    place = request.getfixturevalue("postgres_url") if shared else url(tmp_path)
    async with SqlStore.open(place, clock=clock, entropy=FakeEntropy()) as store:
        yield store


async def test_events_of_runs_are_chosen_by_type_agent_and_beginning(
    store: SqlStore, clock: FakeClock
) -> None:
    ends = RunSuspended(reason="approval", call=1)
    begun: list[int] = []
    for number, agent in enumerate(["ann", "bob", "ann"]):
        log = store.create(f"run/{number}")
        clock.time += 1_000_000
        await log.append(run_started(agent), line(1), ends)
        begun.append((await store.reader.read(f"run/{number}"))[0].recorded_at)
    await store.create("host/1").append(line(1))

    async def found(
        types: str,
        *,
        since: int | None = None,
        until: int | None = None,
        agent: str | None = None,
    ) -> list[tuple[str, str]]:
        only = RunFilter(since=since, until=until, agent=agent)
        events = store.reader.of_runs(types.split(), only)
        return [_seen(event) async for event in events]

    assert await found("RunStarted LogWritten", agent="bob") == [
        ("run/1", "RunStarted"),
        ("run/1", "LogWritten"),
    ]
    assert await found("LogWritten", since=begun[1]) == [
        ("run/1", "LogWritten"),
        ("run/2", "LogWritten"),
    ]
    assert await found("RunSuspended", agent="ann", since=begun[1]) == [
        ("run/2", "RunSuspended")
    ]
    assert await found("LogWritten", until=begun[1]) == [("run/0", "LogWritten")]
    assert len(await found("RunStarted LogWritten RunSuspended")) == 9


def _seen(event: Recorded) -> tuple[str, str]:
    return event.stream, event.type
