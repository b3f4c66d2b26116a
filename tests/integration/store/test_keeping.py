"""Copies of a log, and runs that leave it for an archive."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.log.events import RunCompleted, RunErased
from caxton_host.errors import NotKeptError, StoreError, UsageError
from caxton_host.lib.signing import Keyring
from caxton_host.store.archive import Archive
from caxton_host.store.copies import backup
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


@asynccontextmanager
async def kept(database: str, folder: Path) -> AsyncIterator[tuple[SqlStore, Archive]]:
    """Open the log of `written`, signed, with an archive."""
    async with await written(database):
        pass
    keys = Keyring(folder / "keys")
    async with opened(database, signer=keys) as store:
        yield (
            store,
            Archive(
                reader=store.reader,
                note=await store.seal(),
                public_key=keys.public_key(),
                trusted=keys.known(),
                folder=folder / "archive",
            ),
        )


async def erase(store: SqlStore, run_id: str, bundle: dict[str, JSON]) -> RunErased:
    return await store.erasure.erase(
        run_id, "host/1", actor=ANN, reason="archived", bundle=bundle
    )


async def test_bundle_of_a_host_that_died_is_taken_as_it_is(
    database: str, tmp_path: Path
) -> None:  # law 10
    async with kept(database, tmp_path) as (store, archives):
        before = await archives.bundle("1")
        bytes_ = (archives.folder / "1.caxton").read_bytes()
        await store.create("run/9").append(run_started())
        archives.note = await store.seal()

        assert await archives.bundle("1") == before
        assert (archives.folder / "1.caxton").read_bytes() == bytes_


async def test_other_file_of_that_name_is_not_overwritten(
    database: str, tmp_path: Path
) -> None:
    async with kept(database, tmp_path) as (store, archives):
        one, other = archives.folder / "1.caxton", archives.folder / "2.caxton"
        await archives.bundle("1")
        one.rename(other)
        with pytest.raises(StoreError, match="not the bundle of run 2") as caught:
            await archives.bundle("2")
        assert caught.value.fix
        other.write_text("mine")
        with pytest.raises(StoreError, match="not the bundle of run 2"):
            await archives.bundle("2")
        assert other.read_text() == "mine"
        # The beginning of a run that went on is not all of it.
        started = await store.resume_log("run/4")
        archives.note = await store.seal()
        await archives.bundle("4")
        await started.append(RunCompleted(output=1, output_sha256="", fuel=0))
        archives.note = await store.seal()
        with pytest.raises(StoreError, match="ends with another event"):
            await archives.bundle("4")


async def test_erased_run_gets_no_bundle(database: str, tmp_path: Path) -> None:
    async with kept(database, tmp_path) as (store, archives):
        await erase(store, "1", {})
        archives.note = await store.seal()

        with pytest.raises(NotKeptError, match="erased before"):
            await archives.bundle("1")

    assert [*archives.folder.iterdir()] == []
