"""Opening a database, and what is refused with a reason."""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path
from typing import Any, cast

import pytest

from caxton_host.errors import StoreError
from caxton_host.store import engine
from caxton_host.store.engine import open_engine

from .fakes import line, open_store, url


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "caxton.db",
        "sqlite://",
        "sqlite:///:memory:",
        "mysql://h/db",
        "postgresql+asyncpg://h/db",
        "postgresql://h:x/db",
        "postgresql://h?a=@h:x",
    ],
)
def test_url_that_names_no_database_is_refused(bad: str) -> None:
    with pytest.raises(StoreError) as refusal:
        open_engine(bad, write=True)
    assert refusal.value.fix


def test_password_in_a_url_is_not_repeated() -> None:
    with pytest.raises(StoreError) as refusal:
        open_engine("postgresql://me:hunter2@127.0.0.1:1/db", write=True)  # law 8
    assert "hunter2" not in str(refusal.value)
    assert "server" in refusal.value.fix


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def test_nothing_is_created_to_be_read(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no database"):
        open_engine(url(tmp_path), write=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("write", [True, False])
def test_file_that_is_no_database_is_refused(tmp_path: Path, *, write: bool) -> None:
    (tmp_path / "caxton.db").write_bytes(b"not a database at all" * 50)

    with pytest.raises(StoreError, match="cannot be opened") as refusal:
        open_engine(url(tmp_path), write=write)
    assert refusal.value.fix


@pytest.mark.parametrize("write", [True, False])
@pytest.mark.parametrize("name", ["/", "."])
def test_folder_is_refused_as_one(tmp_path: Path, name: str, *, write: bool) -> None:
    folder = tmp_path / name
    with pytest.raises(StoreError, match=f"{folder} is a folder") as refusal:
        open_engine(f"sqlite:///{folder}", write=write)
    assert refusal.value.fix == f"name a file, like {folder / 'caxton.db'}"


def test_folder_is_created_for_its_owner_alone(tmp_path: Path) -> None:
    open_engine(url(tmp_path / "new"), write=True).dispose()

    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


def test_folder_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be opened"):
        open_engine(url(tmp_path / "file" / "new"), write=True)


def test_database_that_stays_locked_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_PAUSE_S", 0)
    monkeypatch.setattr(engine, "_PATIENCE_S", 0)
    other = sqlite3.connect(tmp_path / "caxton.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreError, match="locked"):
        open_engine(url(tmp_path), write=True)
    other.close()


async def test_database_is_its_owners_alone(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        async with open_store(tmp_path) as store:
            await store.create("run/1").append(line(1))
            modes = {stat.S_IMODE(path.stat().st_mode) for path in files(tmp_path)}
    finally:
        os.umask(mask)
    assert modes == {0o600}


async def test_odd_characters_in_a_path_are_part_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "a%20b #1 ü"
    folder.mkdir()
    async with open_store(folder) as store:
        await store.create("run/1").append(line(1))
    assert [path.name for path in files(folder)] == ["caxton.db"]


async def test_reading_changes_nothing(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await store.create("run/1").append(line(1))
    before = (tmp_path / "caxton.db").read_bytes()

    async with open_store(tmp_path, write=False) as store:
        assert len(await store.reader.read("run/1")) == 1

    assert (tmp_path / "caxton.db").read_bytes() == before
    assert (tmp_path / "caxton.db-wal").stat().st_size == 0


def on_a_read_only_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect

    def refuse(name: str, **options: Any) -> sqlite3.Connection:  # noqa: ANN401
        if not name.endswith("immutable=1"):
            raise sqlite3.OperationalError("unable to open database file")
        return cast("sqlite3.Connection", connect(name, **options))

    monkeypatch.setattr(sqlite3, "connect", refuse)


async def test_copy_on_a_read_only_disk_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(tmp_path) as store:
        await store.create("run/1").append(line(1))
    on_a_read_only_disk(monkeypatch)

    async with open_store(tmp_path, write=False) as store:
        assert len(await store.reader.read("run/1")) == 1


async def test_database_that_may_be_in_use_is_not_taken_for_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(tmp_path) as store:
        await store.create("run/1").append(line(1))
        on_a_read_only_disk(monkeypatch)
        with pytest.raises(StoreError, match="cannot be opened"):
            open_store(tmp_path, write=False)
