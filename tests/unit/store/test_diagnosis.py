"""What around a file keeps a user from writing it."""

from __future__ import annotations

import os
import pwd
import sqlite3
from pathlib import Path
from types import SimpleNamespace

import pytest

from caxton_host.errors import LogBrokenError, StoreError
from caxton_host.store import diagnosis
from caxton_host.store.diagnosis import explain, is_full, mount_of, unwritable
from caxton_host.store.engine import open_engine

from .fakes import line, open_store, url

MOUNTS = """\
21 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
22 21 8:1 /srv /mnt/a\\040b ro,relatime shared:1 - ext4 /dev/sda1 rw
23 21 8:2 / /data rw - ext4 /dev/sdb1 ro
24 21 8:3 / /data/new rw - ext4 /dev/sdc1 rw
cut off
"""


@pytest.mark.parametrize(
    ("folder", "mount"),
    [
        ("/mnt/a b/c", "/mnt/a b"),
        ("/data/old", "/data"),
        ("/data/new/x", None),
        ("/mnt", None),
    ],
)
def test_a_mount_that_is_read_only_is_known_by_the_list_of_mounts(
    tmp_path: Path, folder: str, mount: str | None
) -> None:
    (tmp_path / "mounts").write_text(MOUNTS)
    assert mount_of(Path(folder), tmp_path / "mounts") == mount
    assert mount_of(Path(folder), tmp_path / "none") is None


@pytest.mark.parametrize("mount", ["/srv", None])
def test_a_disk_that_is_read_only_is_named_if_that_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mount: str | None
) -> None:
    found = SimpleNamespace(f_flag=os.ST_RDONLY)
    monkeypatch.setattr(os, "statvfs", lambda _: found)
    monkeypatch.setattr(diagnosis, "mount_of", lambda _: mount)

    why, fix = unwritable(tmp_path / "caxton.db")

    assert f"{mount or tmp_path} is mounted read-only" in why
    assert ("remount,rw /srv" in fix) == bool(mount)


@pytest.mark.parametrize("is_known", [True, False])
def test_who_does_not_own_a_file_is_told_who_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_known: bool
) -> None:
    def named(uid: int) -> SimpleNamespace:
        return {uid: SimpleNamespace(pw_name="ann")}[uid if is_known else -1]

    file = tmp_path / "caxton.db"
    file.touch()
    owner = file.stat().st_uid
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(pwd, "getpwuid", named)
    assert unwritable(file)[1] == f"chmod u+w {file}"

    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert f"as its owner, {'ann' if is_known else owner};" in unwritable(file)[1]


@pytest.mark.parametrize(("left", "names"), [(0, 9), (9, 0)])
@pytest.mark.parametrize(
    "code", [sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_CANTOPEN]
)
def test_a_disk_that_is_full_is_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int, names: int, code: int
) -> None:
    assert not is_full(tmp_path)
    found = SimpleNamespace(
        f_flag=0, f_bavail=left, f_frsize=1 << 20, f_files=9, f_favail=names
    )
    monkeypatch.setattr(os, "statvfs", lambda _: found)
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = code

    text, fix = explain(error, tmp_path / "caxton.db", "name another file with --db")

    assert text == "disk I/O error, since the disk is full"
    assert fix == f"free space on the disk of {tmp_path}"


@pytest.mark.parametrize("write", [True, False])
def test_a_folder_is_no_database(tmp_path: Path, *, write: bool) -> None:
    (tmp_path / "caxton.db").mkdir()
    with pytest.raises(StoreError, match="is a folder"):
        open_engine(url(tmp_path), write=write)


@pytest.mark.parametrize("size", [100, 10_000])
@pytest.mark.parametrize("write", [True, False])
async def test_a_database_that_was_cut_off_is_broken(
    tmp_path: Path, size: int, *, write: bool
) -> None:  # law 3
    async with open_store(tmp_path) as store:
        await store.create("run/1").append(line(1))
    os.truncate(tmp_path / "caxton.db", size)

    with pytest.raises(LogBrokenError, match="cannot be opened") as refusal:
        open_store(tmp_path, write=write)
    assert "docs/how-to/restore.md" in refusal.value.fix
