"""The file of a log is moved away or replaced while it is written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from caxton_host.errors import LogMovedError, StoreError
from caxton_host.store import whereabouts
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


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whereabouts, "PERIOD", 0.0)


@pytest.mark.parametrize("lose", [moved, removed, replaced])
async def test_nothing_is_written_to_a_file_that_has_lost_its_name(
    tmp_path: Path,
    lose: object,
    caplog: pytest.LogCaptureFixture,
) -> None:  # laws 3 and 10
    assert callable(lose)
    file = tmp_path / "caxton.db"
    async with open_store(tmp_path) as store:
        log = store.create("run/a")
        await log.append(line(1))
        await store.check()
        lose(file)

        with pytest.raises(LogMovedError, match="moved away or replaced"):
            await store.check()
        with pytest.raises(StoreError, match="moved away or replaced"):
            await log.append(line(2))
        with pytest.raises(StoreError, match="moved away or replaced"):
            await store.create("run/b").append(line(1))

        assert [one.seq for one in await store.read("run/a")] == [1]
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
                await store.check()
            away.rename(file)

            await store.check()
        log = await store.resume_log("run/a")
        await log.append(line(2))

        assert (await verify(store)).first_bad is None
    # Once each time that it is lost.
    assert len(caplog.messages) == 2


async def test_a_new_connection_does_not_open_another_file(
    tmp_path: Path,
) -> None:
    async with open_store(tmp_path) as store:
        await store.create("run/a").append(line(1))
        replaced(tmp_path / "caxton.db")
        store.engine.pool.dispose()

        with pytest.raises(LogMovedError):
            store.engine.connect()


async def test_the_file_is_not_looked_for_at_each_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whereabouts, "PERIOD", 3600.0)
    async with open_store(tmp_path) as store:
        log = store.create("run/a")
        await log.append(line(1))
        moved(tmp_path / "caxton.db")

        await log.append(line(2))

        with pytest.raises(LogMovedError):
            await store.check()
        with pytest.raises(StoreError):
            await log.append(line(3))
