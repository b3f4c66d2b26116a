"""The file of a log is moved away or replaced while it is written."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from caxton_host.errors import LogMovedError, StoreError
from caxton_host.store import file_guard
from caxton_host.store.sql import SqlStore
from caxton_host.store.verify import verify

from .fakes import line, open_store


def moved(file: Path) -> None:
    file.rename(file.with_suffix(".away"))


def removed(file: Path) -> None:
    file.unlink()


def replaced(file: Path) -> None:
    copy = file.with_suffix(".copy")
    shutil.copy(file, copy)
    copy.replace(file)


@asynccontextmanager
async def losing(folder: Path) -> AsyncIterator[SqlStore]:
    """Open a store whose end may find that its file is lost."""
    store = open_store(folder)
    yield store
    with suppress(LogMovedError):
        await store.aclose()


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_guard, "PERIOD", 0.0)


@pytest.mark.parametrize("end", ["", "-wal", "-shm"])
@pytest.mark.parametrize("lose", [moved, removed, replaced])
async def test_nothing_is_written_to_a_file_that_has_lost_its_name(
    tmp_path: Path,
    lose: object,
    end: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # laws 3 and 10
    assert callable(lose)
    file = tmp_path / f"caxton.db{end}"
    async with losing(tmp_path) as store:
        log = store.create("run/a")
        await log.append(line(1))
        await store.health.check()
        lose(file)

        with pytest.raises(LogMovedError, match="moved away or replaced"):
            await store.health.check()
        with pytest.raises(StoreError, match="moved away or replaced"):
            await log.append(line(2))
        with pytest.raises(StoreError, match="moved away or replaced"):
            await store.create("run/b").append(line(1))

        assert [one.seq for one in await store.reader.read("run/a")] == [1]
        (warning,) = caplog.messages
    assert str(file) in warning
    assert "To fix: " in warning


async def test_a_log_goes_on_when_its_file_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:  # law 10
    file = tmp_path / "caxton.db"
    async with open_store(tmp_path) as store:
        await store.create("run/a").append(line(1))
        for _ in range(2):
            away = file.rename(tmp_path / "away")
            with pytest.raises(LogMovedError):
                await store.health.check()
            away.rename(file)

            await store.health.check()
        log = await store.resume_log("run/a")
        await log.append(line(2))

        assert (await verify(store.reader)).first_bad is None
    # Once each time that it is lost.
    assert len(caplog.messages) == 2


async def test_a_new_connection_does_not_open_another_file(
    tmp_path: Path,
) -> None:
    async with losing(tmp_path) as store:
        await store.create("run/a").append(line(1))
        replaced(tmp_path / "caxton.db")
        store.engine.pool.dispose()

        with pytest.raises(LogMovedError):
            store.engine.connect()


async def test_the_file_is_not_looked_for_at_each_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_guard, "PERIOD", 3600.0)
    async with open_store(tmp_path) as store:
        log = store.create("run/a")
        await log.append(line(1))
        moved(tmp_path / "caxton.db")

        await log.append(line(2))

        with pytest.raises(LogMovedError):
            await store.health.check()
        with pytest.raises(StoreError):
            await log.append(line(3))


@pytest.mark.parametrize("lose", [moved, removed, replaced])
async def test_each_commit_looks_for_the_write_ahead_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lose: object
) -> None:  # law 3
    assert callable(lose)
    monkeypatch.setattr(file_guard, "PERIOD", 3600.0)
    async with open_store(tmp_path) as store:
        log = store.create("run/a")
        await log.append(line(1))
        lose(tmp_path / "caxton.db-wal")

        with pytest.raises(StoreError, match="-wal was moved away or replaced"):
            await log.append(line(2))


async def test_what_a_lost_write_ahead_log_held_is_saved_by_an_orderly_end(
    tmp_path: Path,
) -> None:  # law 10
    async with open_store(tmp_path) as store:
        await store.create("run/a").append(line(1))
        (tmp_path / "caxton.db-wal").unlink()
        with pytest.raises(StoreError):
            await store.create("run/b").append(line(1))

    async with open_store(tmp_path) as again:
        assert len(await again.reader.read("run/a")) == 1


async def test_a_write_ahead_log_that_sqlite_itself_deleted_is_not_missed(
    tmp_path: Path,
) -> None:
    wal = tmp_path / "caxton.db-wal"
    async with open_store(tmp_path) as store:
        assert store._writer is not None
        await store.create("run/a").append(line(1))
        async with open_store(tmp_path, write=False) as other:
            await other.reader.read("run/a")
        with store.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        await store.health.check()
        # The last connection goes, and with it the file.
        store._writer._committer.close()
        store.tokens.close()
        store.engine.pool.dispose()
        assert not wal.exists()

        await store.health.check()
        assert wal.exists()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("write", [True, False])
@pytest.mark.parametrize("empty", [True, False])
async def test_no_log_is_begun_where_the_end_of_another_is(
    tmp_path: Path, *, write: bool, empty: bool
) -> None:  # laws 3 and 10
    file = tmp_path / "caxton.db"
    async with open_store(tmp_path) as store:
        await store.create("run/a").append(line(1))
        away = file.rename(tmp_path / "away")
        if empty:
            file.touch()
        before = contents(tmp_path)

        with pytest.raises(LogMovedError, match=r"in .*caxton\.db-wal") as refusal:
            open_store(tmp_path, write=write)

        assert "move the database back" in refusal.value.fix
        assert contents(tmp_path) == before
        away.rename(file)
        assert len(await store.reader.read("run/a")) == 1


async def test_no_log_is_begun_where_a_host_lives(tmp_path: Path) -> None:  # law 3
    async with open_store(tmp_path) as store:
        await store.leases.join("host/a")
        for end in ("", "-wal", "-shm"):
            (tmp_path / f"caxton.db{end}").rename(tmp_path / f"lost{end}")
        before = contents(tmp_path)

        with pytest.raises(LogMovedError, match="while a host has it open"):
            open_store(tmp_path)

        assert contents(tmp_path) == before
    open_store(tmp_path).engine.dispose()


async def test_an_orderly_end_saves_all_in_a_file_that_was_moved(
    tmp_path: Path,
) -> None:  # law 10
    async with open_store(tmp_path) as store:
        await store.create("run/a").append(line(1))
        (tmp_path / "lost").mkdir()
        (tmp_path / "caxton.db").rename(tmp_path / "lost" / "caxton.db")

    async with open_store(tmp_path / "lost", write=False) as saved:
        assert len(await saved.reader.read("run/a")) == 1


@pytest.mark.parametrize("lose", [removed, replaced])
async def test_an_end_that_cannot_save_what_was_recorded_says_so(
    tmp_path: Path, lose: object, caplog: pytest.LogCaptureFixture
) -> None:  # law 10
    assert callable(lose)
    store = open_store(tmp_path)
    await store.create("run/a").append(line(1))
    lose(tmp_path / "caxton.db")

    with pytest.raises(
        LogMovedError, match=r"not saved .*: it was deleted or replaced"
    ):
        await store.aclose()

    assert "restore it from a copy" in caplog.records[-1].getMessage()
    assert caplog.records[-1].levelname == "ERROR"
    assert (tmp_path / "caxton.db-wal").stat().st_size


async def test_an_end_that_another_process_keeps_from_saving_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # law 10
    store = open_store(tmp_path)
    await store.create("run/a").append(line(1))
    other = sqlite3.connect(tmp_path / "caxton.db", isolation_level=None)
    other.execute("BEGIN")
    other.execute("SELECT * FROM events").fetchone()
    await store.create("run/b").append(line(1))
    moved(tmp_path / "caxton.db")
    monkeypatch.setattr(file_guard, "PATIENCE_MS", 0)

    with pytest.raises(LogMovedError, match="another process has it open"):
        await store.aclose()
    other.close()
