"""Copies of a log, and runs that leave it for an archive."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from caxton_host.core.calls import JSON
from caxton_host.core.log.events import RunCompleted, RunErased
from caxton_host.errors import StoreError, UsageError
from caxton_host.store.copies import Old, archive, backup, old_runs
from caxton_host.store.sql import SqlStore
from caxton_host.store.verify import verify
from tests.unit.store.fakes import FakeClock, FakeEntropy, line, run_started, url

from .support import opened

ANN: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}


def partial(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.endswith(".partial")]


def quiet(done: int, total: int) -> None:
    assert 0 <= done <= total


# -- backup --------------------------------------------------------------------


async def test_copy_opens_and_verifies(tmp_path: Path) -> None:
    to = tmp_path / "copy" / "caxton.db"
    to.parent.mkdir()
    async with opened(url(tmp_path)) as store:
        await store.create("run/1").append(run_started(), line(1))
        size = await asyncio.to_thread(backup, store.engine, to, quiet)

    assert size == to.stat().st_size
    assert to.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in to.parent.iterdir()] == ["caxton.db"]
    async with opened(url(to.parent), write=False) as copy:
        assert len(await copy.reader.read("run/1")) == 2
        assert (await verify(copy.reader)).first_bad is None


async def test_copy_is_of_one_moment_while_a_host_writes(tmp_path: Path) -> None:
    to = tmp_path / "copy.db"
    async with opened(url(tmp_path)) as store, opened(url(tmp_path)) as host:
        log = host.create("run/1")
        await log.append(run_started(), *[line(n, "x" * 500) for n in range(1, 20_000)])
        told: list[tuple[int, int]] = []
        loop = asyncio.get_running_loop()

        def write(done: int, total: int) -> None:
            # Between two steps of the copy, which takes no part of it.
            n = 20_000 + len(told)
            asyncio.run_coroutine_threadsafe(log.append(line(n)), loop).result(30)
            told.append((done, total))

        await asyncio.to_thread(backup, store.engine, to, write)

    assert len(told) > 1
    assert told[-1][0] == told[-1][1]
    with closing(sqlite3.connect(to)) as copy:
        assert copy.execute("SELECT count(*) FROM events").fetchone() == (20_000,)
        assert copy.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_no_file_is_overwritten(tmp_path: Path) -> None:
    to = tmp_path / "copy.db"
    to.write_text("mine")
    async with opened(url(tmp_path)) as store:
        with pytest.raises(UsageError, match="already"):
            backup(store.engine, to, quiet)

    assert to.read_text() == "mine"


async def test_file_that_comes_up_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    to = tmp_path / "copy.db"

    def late(done: int, total: int) -> None:
        del done, total
        to.write_text("mine")

    async with opened(url(tmp_path)) as store:
        with pytest.raises(UsageError, match="already"):
            backup(store.engine, to, late)

    assert to.read_text() == "mine"
    assert partial(tmp_path) == []


async def test_file_system_without_links_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise PermissionError("Operation not permitted")

    monkeypatch.setattr(os, "link", none)
    async with opened(url(tmp_path)) as store:
        size = backup(store.engine, tmp_path / "copy.db", quiet)

    assert (tmp_path / "copy.db").stat().st_size == size
    assert partial(tmp_path) == []


async def test_copy_that_fails_leaves_nothing(tmp_path: Path) -> None:
    to = tmp_path / "copy.db"

    def full(done: int, total: int) -> None:
        del done, total
        raise sqlite3.OperationalError("database or disk is full")

    async with opened(url(tmp_path)) as store:
        with pytest.raises(StoreError, match="cannot be made") as caught:
            backup(store.engine, to, full)

    assert caught.value.fix
    assert not to.exists()
    assert partial(tmp_path) == []


# -- archive -------------------------------------------------------------------


async def written(database: str) -> SqlStore:
    """Return a log whose runs ended at the seconds 1, 2 and 3; another goes on."""
    clock = FakeClock()
    store = SqlStore.open(database, clock=clock, entropy=FakeEntropy())
    for number in (1, 2, 3):
        clock.time = number * 1_000_000
        log = store.create(f"run/{number}")
        end = RunCompleted(output=f"output {number}", output_sha256="", fuel=0)
        await log.append(run_started(), end)
    await store.create("run/4").append(run_started())
    return store


async def test_runs_that_ended_before_are_old(database: str) -> None:
    async with await written(database) as store:
        found = await old_runs(store.engine, 3_000_000)

    assert [(run.run_id, run.ended_at, run.events) for run in found] == [
        ("1", 1_000_000, 2),
        ("2", 2_000_000, 2),
    ]
    assert {(run.agent, run.state) for run in found} == {("weather", "completed")}
    assert all(run.bytes > 100 for run in found)


async def test_what_a_run_that_stays_was_forked_from_stays(database: str) -> None:
    async with await written(database) as store:
        await forks(store, "2", of="1")
        await forks(store, "5", of="3", goes_on=True)
        found = await old_runs(store.engine, 5_000_000)

    # Of the log of run 3 its fork has need; that of run 1 is in no need of it.
    assert [run.run_id for run in found] == ["fork-2", "1", "2"]


async def forks(store: SqlStore, name: str, *, of: str, goes_on: bool = False) -> None:
    forked_from: dict[str, JSON] = {"run": of, "seq": 1, "hash": "00"}
    end = RunCompleted(output=None, output_sha256="", fuel=0)
    log = store.create(f"run/fork-{name}")
    started = replace(run_started(), forked_from=forked_from)
    await log.append(started, *(() if goes_on else (end,)))


async def test_start_that_is_damaged_keeps_nothing(tmp_path: Path) -> None:
    async with await written(url(tmp_path)) as store:
        with store.engine.connect() as connection:
            connection.exec_driver_sql("DROP TRIGGER payloads_no_update")
            connection.exec_driver_sql("UPDATE payloads SET payload = x'c1'")
            connection.commit()
        found = await old_runs(store.engine, 3_000_000)

    assert [run.run_id for run in found] == ["1", "2"]


async def test_archived_runs_leave_bundles_and_a_log_that_verifies(
    database: str, tmp_path: Path
) -> None:
    folder = tmp_path / "archive"
    async with await written(database) as store:

        async def write(run_id: str, file: Path) -> None:
            events = await store.reader.read(f"run/{run_id}")
            await asyncio.to_thread(file.write_text, repr(events))

        async def erase(run_id: str, *, bundle: dict[str, JSON]) -> RunErased:
            return await store.erasure.erase(
                run_id, "host/1", actor=ANN, reason="archived", bundle=bundle
            )

        chosen = await old_runs(store.engine, 3_000_000)
        moved = [
            found async for found in archive(chosen, folder, write=write, erase=erase)
        ]

        assert [(run.run_id, file.name) for run, file in moved] == [
            ("1", "1.caxton"),
            ("2", "2.caxton"),
        ]
        assert "output 2" in (folder / "2.caxton").read_text()
        digest = hashlib.sha256((folder / "2.caxton").read_bytes()).hexdigest()
        erased = (await store.reader.erased())["run/2"]
        assert erased.bundle == {"name": "2.caxton", "sha256": digest}
        assert await old_runs(store.engine, 3_000_000) == []
        assert all(event.event for event in await store.reader.read("run/3"))
        assert (await verify(store.reader)).first_bad is None


async def test_run_whose_bundle_fails_is_not_erased(
    database: str, tmp_path: Path
) -> None:
    erased: list[str] = []

    async def write(run_id: str, file: Path) -> None:
        await asyncio.to_thread(file.write_text, run_id)
        if run_id == "2":
            raise OSError("no space left")

    async def erase(run_id: str, *, bundle: dict[str, JSON]) -> None:
        assert bundle["name"] == f"{run_id}.caxton"
        erased.append(run_id)

    moved: list[Old] = []
    async with await written(database) as store:
        chosen = await old_runs(store.engine, 3_000_000)
        work = archive(chosen, tmp_path, write=write, erase=erase)
        moved.append((await anext(work))[0])
        with pytest.raises(OSError, match="no space"):
            await anext(work)

    assert erased == ["1"]
    assert [run.run_id for run in moved] == ["1"]
    assert partial(tmp_path) == []
    assert (tmp_path / "1.caxton").exists()
    assert not (tmp_path / "2.caxton").exists()


async def test_log_that_cannot_be_read_is_said_so(tmp_path: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path}/none.db")

    with pytest.raises(StoreError, match="cannot be read"):
        await old_runs(engine, 1)
    engine.dispose()
