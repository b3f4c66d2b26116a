"""Long runs are looked at without reading all of them each time."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from caxton_host.core.log.events import Recorded, RunCompleted, RunFailed
from caxton_host.core.log.projection import summarise
from caxton_host.errors import NotFoundError, NotKeptError
from caxton_host.service import readings
from caxton_host.service.readings import LastRecording, Summaries
from caxton_host.store.sql import SqlStore
from tests.turns import resumed
from tests.unit.store.fakes import line, open_store, run_started

DONE = RunCompleted(output="out", output_sha256="", fuel=0)


@dataclass
class Counted:
    """A log that notes what is read of it."""

    reader: Any
    read_whole: int = 0
    read_behind: list[int] = field(default_factory=list[int])

    async def read(self, stream: str) -> list[Recorded]:
        self.read_whole += 1
        found: list[Recorded] = await self.reader.read(stream)
        return found

    async def stream_events(
        self, stream: str | None = None, *, after: int = 0
    ) -> AsyncGenerator[Recorded]:
        async for one in self.reader.stream_events(stream, after=after):
            self.read_behind.append(one.seq)
            yield one


async def erased(store: SqlStore) -> None:
    await store.erasure.erase("a", "host/1", line(1), actor={}, reason="asked for")


async def of(store: SqlStore, summaries: Summaries) -> dict[str, Any]:
    (row,) = await store.reader.runs(1)
    return (await summaries.of(row)).to_document()


async def test_a_long_run_is_summarised_from_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readings, "_LONG", 3)
    async with open_store(tmp_path) as store:
        counted = Counted(store.reader)
        summaries = Summaries(counted)  # type: ignore[arg-type]
        log = store.create("run/a")
        await log.append(run_started(), line(1), line(2))
        assert (await of(store, summaries))["state"] == "running"
        await log.append(line(3), DONE)
        for _ in range(2):
            found = await of(store, summaries)
            whole = summarise("a", await store.reader.read("run/a"))
            assert found == whole.to_document()

    assert counted.read_whole == 1
    assert counted.read_behind == [4, 5]


async def test_a_run_that_was_erased_is_not_summarised_from_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readings, "_LONG", 1)
    async with open_store(tmp_path) as store:
        summaries = Summaries(store.reader)
        await store.create("run/a").append(run_started(), DONE)
        assert (await of(store, summaries))["output"] == "out"
        await erased(store)
        for _ in range(2):
            found = await of(store, summaries)
            assert (found["output"], found["erased"]) == (None, True)


async def test_only_so_many_runs_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readings, "_LONG", 1)
    monkeypatch.setattr(readings, "_REMEMBERED", 2)
    async with open_store(tmp_path) as store:
        counted = Counted(store.reader)
        summaries = Summaries(counted)  # type: ignore[arg-type]
        for name in "abc":
            await store.create(f"run/{name}").append(run_started(), DONE)
        rows = {row.run_id: row for row in await store.reader.runs(3)}
        for name in "abcca":
            await summaries.of(rows[name])

    assert counted.read_whole == 4


async def test_the_recording_of_an_ended_run_is_read_once_for_its_next_calls(
    tmp_path: Path,
) -> None:
    async with open_store(tmp_path) as store:
        counted = Counted(store.reader)
        last = LastRecording(counted)  # type: ignore[arg-type]
        log = store.create("run/a")
        await log.append(run_started(), line(1))
        (row,) = await store.reader.runs(1)
        for n in (2, 3):
            # It goes on, so what was read is not what there is.
            assert len((await last.of(row, 1)).history) == n
            await log.append(line(n))
        await log.append(DONE)
        (row,) = await store.reader.runs(1)
        for seq in (1, 2):
            assert len((await last.of(row, seq)).history) == 5
        assert counted.read_whole == 3
        await erased(store)
        (row,) = await store.reader.runs(1)
        for _ in range(2):
            with pytest.raises(NotKeptError):
                await last.of(row, 1)


async def test_a_run_that_went_on_and_ended_again_is_read_again(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        last = LastRecording(store.reader)
        log = store.create("run/a")
        failed = RunFailed(kind="trap", message="it fell", fuel=0)
        await log.append(run_started(), failed)
        (row,) = await store.reader.runs(1)
        assert len((await last.of(row, 1)).history) == 2
        await log.append(resumed(2), DONE)
        (row,) = await store.reader.runs(1)
        assert len((await last.of(row, 1)).history) == 4


async def test_what_could_not_be_read_is_read_again(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        last = LastRecording(store.reader)
        await store.create("run/a").append(run_started(), DONE)
        (row,) = await store.reader.runs(1)
        with pytest.raises(NotFoundError):
            await last.of(replace(row, run_id="b"), 1)
        await store.create("run/b").append(run_started(), DONE)
        assert (await last.of(replace(row, run_id="b"), 1)).run_id == "b"
