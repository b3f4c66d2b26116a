"""What a host does is recorded, even if its log failed meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from caxton_host.core.log.events import ConfigLoaded, Event
from caxton_host.errors import LogMovedError, StoreError
from caxton_host.runs import host_stream
from caxton_host.runs.host_stream import HostLog
from caxton_host.store import file_guard
from caxton_host.store.sql import SqlStore
from tests.unit.store.fakes import open_store

HOST = "host/1"


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_guard, "PERIOD", 0.0)
    monkeypatch.setattr(host_stream, "PAUSE", 0.001)


def loaded(n: int) -> ConfigLoaded:
    return ConfigLoaded(path=f"{n}.toml", sha256="00", actor={"kind": "local"})


async def stored(store: SqlStore) -> list[Event | None]:
    return [one.event for one in await store.reader.read(HOST)]


async def failed(store: SqlStore) -> None:
    assert store._writer is not None
    async with asyncio.timeout(10):
        while not store._writer.failed:  # noqa: ASYNC110 -- of the writer
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("before", [0, 1])
async def test_events_of_a_host_are_stored_once_and_in_order_when_its_log_is_back(
    tmp_path: Path, before: int
) -> None:  # law 10
    events = [loaded(n) for n in range(5)]
    file = tmp_path / "caxton.db"
    async with open_store(tmp_path) as store:
        log = HostLog(store, HOST)
        log.queue(*events[:before])
        await log.aclose()
        away = file.rename(tmp_path / "away")
        log.queue(events[before])
        await failed(store)
        for event in events[before + 1 : 4]:
            log.queue(event)
        with pytest.raises(LogMovedError):
            await store.health.check()

        away.rename(file)
        async with asyncio.timeout(10):
            while len(await stored(store)) < 4:  # noqa: ASYNC110 -- of a file
                await asyncio.sleep(0.001)
        log.queue(events[4])
        await log.aclose()

        assert await stored(store) == events


async def test_closing_stores_what_waits_for_the_next_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # law 10
    monkeypatch.setattr(host_stream, "PAUSE", 60.0)
    events = [loaded(n) for n in range(2)]
    file = tmp_path / "caxton.db"
    async with open_store(tmp_path) as store:
        log = HostLog(store, HOST)
        away = file.rename(tmp_path / "away")
        log.queue(events[0])
        await failed(store)
        log.queue(events[1])
        away.rename(file)
        await log.aclose()

        assert await stored(store) == events


async def test_what_a_host_could_not_record_until_its_end_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_store(tmp_path) as store:
        log = HostLog(store, HOST)
        (tmp_path / "caxton.db").rename(tmp_path / "away")
        log.queue(loaded(1))
        await failed(store)
        log.queue(loaded(2))
        await asyncio.sleep(0.01)
        await log.aclose()

    assert any(
        text.startswith("2 events of the host are lost: ") for text in caplog.messages
    )


async def test_what_has_to_be_recorded_now_is_or_its_failure_is_told(
    tmp_path: Path,
) -> None:  # law 3
    async with open_store(tmp_path) as store:
        log = HostLog(store, HOST)
        await log.append(loaded(1))
        assert await stored(store) == [loaded(1)]

        (tmp_path / "caxton.db").rename(tmp_path / "away")
        log.queue(loaded(2))
        await failed(store)
        with pytest.raises(StoreError):
            await log.append(loaded(3))
        await log.aclose()
