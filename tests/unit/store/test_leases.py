# ruff: noqa: ASYNC240 -- nothing else runs on the loop
"""Locks on files: the kernel says which host lives."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

import pytest

from caxton_host.errors import StoreError
from caxton_host.store import leases
from caxton_host.store.leases import FileLeases

from .fakes import open_store, run_started

ONE, TWO = "host/1", "host/2"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "caxton.db.hosts"


async def test_host_has_a_locked_file_beside_the_database(
    tmp_path: Path, folder: Path
) -> None:
    async with open_store(tmp_path) as store:
        assert not folder.exists()
        await store.leases.join(ONE)

        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert [path.name for path in folder.iterdir()] == ["1"]
        with (folder / "1").open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    assert list(folder.iterdir()) == []


async def test_lock_is_not_inherited(folder: Path) -> None:
    held = FileLeases(folder)
    await held.join(ONE)

    (descriptor,) = held._held.values()

    assert not os.get_inheritable(descriptor)
    await held.aclose()


async def test_what_dead_hosts_left_is_removed_and_living_ones_stay(
    folder: Path,
) -> None:
    first, second = FileLeases(folder), FileLeases(folder)
    await first.join(ONE)
    (folder / "dead").touch()

    await second.join(TWO)

    assert sorted(path.name for path in folder.iterdir()) == ["1", "2"]
    assert second.living([ONE, TWO, "host/dead"]) == {ONE, TWO}
    await second.aclose()
    await second.aclose()
    assert first.living([ONE, TWO]) == {ONE}
    await first.aclose()


async def test_several_stores_of_one_process_are_several_hosts(tmp_path: Path) -> None:
    async with open_store(tmp_path) as one, open_store(tmp_path) as two:
        await one.leases.join(ONE)
        await two.leases.join(TWO)
        await two.create("run/1").append(run_started())  # of host/1

        assert await one.leases.owner("1") == await two.leases.owner("1") == ONE


async def test_store_that_is_read_makes_no_folder_and_sees_who_lives(
    tmp_path: Path, folder: Path
) -> None:
    async with open_store(tmp_path) as store:
        await store.create("run/1").append(run_started())
        async with open_store(tmp_path, write=False) as reader:
            assert await reader.leases.owner("1") is None
            assert len(await reader.leases.idle()) == 1
            assert not folder.exists()
            await store.leases.join(ONE)
            assert await reader.leases.owner("1") == ONE
            assert await reader.leases.idle() == []
            with pytest.raises(StoreError, match="read only"):
                await reader.leases.join(TWO)
            with pytest.raises(StoreError, match="read only"):
                await reader.claim("run/1", run_started(), after=1)
            with pytest.raises(StoreError, match="cannot be stored"):
                await reader.requests.ask_run("1", "cancel", {}, "")


async def test_one_database_by_two_names_has_one_folder(tmp_path: Path) -> None:
    other = tmp_path / "elsewhere"
    other.mkdir()
    async with open_store(tmp_path) as store:
        await store.leases.join(ONE)
        await store.create("run/1").append(run_started())
        (other / "caxton.db").symlink_to(tmp_path / "caxton.db")
        async with open_store(other) as same:
            assert await same.leases.owner("1") == ONE


async def test_folder_that_cannot_be_made_is_an_error_with_a_remedy(
    tmp_path: Path, folder: Path
) -> None:
    folder.touch()
    async with open_store(tmp_path) as store:
        with pytest.raises(StoreError, match="cannot lock files") as refusal:
            await store.leases.join(ONE)
    assert "owns the folder" in refusal.value.fix


async def test_name_of_a_living_host_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "_PAUSE_S", 0)
    first, second = FileLeases(folder), FileLeases(folder)
    await first.join(ONE)

    with pytest.raises(StoreError, match="is running already"):
        await second.join(ONE)

    assert first.living([ONE]) == {ONE}
    await first.aclose()


async def test_file_removed_before_it_was_locked_is_made_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[int] = []
    lock = fcntl.flock

    def slow(descriptor: int, how: int) -> None:
        if how & fcntl.LOCK_EX and not removed:
            removed.append(descriptor)
            (folder / "1").unlink()  # another host took it for a dead one's
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", slow)
    held = FileLeases(folder)
    await held.join(ONE)

    assert removed
    assert held.living([ONE]) == {ONE}
    await held.aclose()


async def test_host_that_cannot_be_looked_at_may_live(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = FileLeases(folder)

    def refused(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refused)
    assert held.living([ONE]) == {ONE}
    folder.mkdir()
    with pytest.raises(StoreError, match="Permission denied"):
        await held.join(ONE)


async def test_file_system_without_locks_is_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    with pytest.raises(StoreError, match="No locks available"):
        await FileLeases(folder).join(ONE)
