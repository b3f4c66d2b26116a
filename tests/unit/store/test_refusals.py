"""What a database refuses is explained, and the fix is of what is wrong."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy.exc import DBAPIError

from caxton_host.errors import LogBrokenError, StoreError
from caxton_host.store import diagnosis, engine, sqlite
from caxton_host.store.commit import Group, Outcome
from caxton_host.store.diagnosis import explain, holder_of, unreadable
from caxton_host.store.engine import open_engine
from caxton_host.store.sqlite import SqliteCommitter

from .fakes import line, open_store, url

Provoke = Callable[[Path], object]
NAME = "caxton.db"


def connect(path: Path, mode: str = "rwc") -> sqlite3.Connection:
    uri = f"file:{path}?mode={mode}"
    return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=0)


def made(path: Path) -> None:
    with closing(connect(path)) as connection:
        connection.execute("CREATE TABLE t (x)")


def locked(path: Path) -> None:
    made(path)
    with closing(connect(path)) as first, closing(connect(path)) as second:
        first.execute("BEGIN IMMEDIATE")
        second.execute("BEGIN IMMEDIATE")


def read_only(path: Path) -> None:
    made(path)
    with closing(connect(path, "ro")) as connection:
        connection.execute("INSERT INTO t VALUES (1)")


def full(path: Path) -> None:
    made(path)
    with closing(connect(path)) as connection:
        connection.execute("PRAGMA max_page_count = 2")
        connection.execute("INSERT INTO t VALUES (zeroblob(100000))")


def not_a_database(path: Path) -> None:
    path.write_bytes(b"not a database at all" * 50)
    with closing(connect(path)) as connection:
        connection.execute("SELECT count(*) FROM sqlite_master")


def absent(path: Path) -> None:
    connect(path.parent / "none" / NAME)


def no_room(path: Path) -> None:
    raise OSError(errno.ENOSPC, "No space left on device", str(path))


def on_read_only_disk(path: Path) -> None:
    raise OSError(errno.EROFS, "Read-only file system", str(path))


def provoked(provoke: Provoke, path: Path) -> Exception:
    with pytest.raises((sqlite3.Error, OSError)) as caught:
        provoke(path)
    return caught.value


def mounted_read_only(patch: pytest.MonkeyPatch) -> None:
    flags = SimpleNamespace(f_flag=os.ST_RDONLY)
    patch.setattr(os, "statvfs", lambda _: flags)
    patch.setattr(diagnosis, "mount_of", lambda _: "/")


def not_ours(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(os, "access", lambda target, _: Path(target).is_dir())


def nothing(patch: pytest.MonkeyPatch) -> None:
    del patch


READ_ONLY = "since / is mounted read-only", "mount -o remount,rw /; or"


@pytest.mark.parametrize(
    ("provoke", "around", "expected"),
    [
        (locked, nothing, ("database is locked", "wait for the process that writes")),
        (full, nothing, ("disk is full", "free space on the disk of {}")),
        (no_room, nothing, ("No space left", "free space on the disk of {}")),
        (not_a_database, nothing, ("is not a database", "name a file that is a")),
        (read_only, mounted_read_only, READ_ONLY),
        (on_read_only_disk, mounted_read_only, READ_ONLY),
        (absent, mounted_read_only, READ_ONLY),
        (read_only, not_ours, ("may not write {}/caxton.db", "chmod u+w {}/caxton")),
        (read_only, nothing, ("a readonly database", "otherwise")),
        (absent, nothing, ("unable to open database file", "otherwise")),
    ],
)
def test_each_refusal_has_its_own_fix(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    provoke: Provoke,
    around: Callable[[pytest.MonkeyPatch], None],
    expected: tuple[str, str],
) -> None:
    path = tmp_path / NAME
    error = provoked(provoke, path)
    around(monkeypatch)

    for exc in (error, DBAPIError("SELECT 'secret'", {}, error)):
        text, fix = explain(exc, path, "otherwise")

        assert expected[0].format(tmp_path) in text
        assert fix.startswith(expected[1].format(tmp_path))
        assert "secret" not in text  # law 8


@pytest.mark.parametrize(
    ("provoke", "broken"),
    [(locked, False), (full, False), (absent, False), (not_a_database, True)],
)
def test_what_is_wrong_around_a_file_does_not_make_its_log_broken(
    tmp_path: Path, provoke: Provoke, *, broken: bool
) -> None:
    error = unreadable(provoked(provoke, tmp_path / NAME))
    assert isinstance(error, LogBrokenError) is broken
    assert bool(error.fix) is not broken


@pytest.mark.parametrize(
    ("state", "fix"),
    [
        ("25006", "name the primary server in [store] url"),
        ("53100", "free space on the disk of the server"),
        ("42501", "GRANT what docs/how-to/postgresql.md lists"),
        ("08006", "otherwise"),
    ],
)
def test_a_state_of_postgresql_has_its_own_fix(state: str, fix: str) -> None:
    exc = type("Error", (Exception,), {"sqlstate": state})("it said so\nwith a row")
    said, mends = explain(exc, None, "otherwise")
    assert said == "it said so"
    assert mends.startswith(fix)


HOLD = """
import sqlite3, sys
held = sqlite3.connect(sys.argv[1], isolation_level=None)
held.execute("BEGIN IMMEDIATE")
print(flush=True)
sys.stdin.read()
"""


async def test_the_process_that_keeps_the_log_locked_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_PATIENCE_MS", 1)
    async with open_store(tmp_path) as store:
        log = store.create("run/1")
        await log.append(line(1))
        holder = subprocess.Popen(  # noqa: ASYNC220 -- its own short life
            [sys.executable, "-c", HOLD, tmp_path / NAME],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(StoreError, match="database is locked") as refusal:
            await log.append(line(2))
        holder.communicate()
    assert f"wait for process {holder.pid} (python" in refusal.value.fix


async def test_a_lock_is_waited_for_once_and_not_by_each_stream_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise of docs/how-to/keep-out.md: a host waits for ten seconds."""
    monkeypatch.setattr(sqlite, "_PATIENCE_MS", 1)
    tried: list[int] = []
    whole = SqliteCommitter._commit

    def commit(
        self: SqliteCommitter, groups: Sequence[Group], patience: int
    ) -> list[Outcome]:
        tried.append(patience)
        return whole(self, groups, patience)

    monkeypatch.setattr(SqliteCommitter, "_commit", commit)
    async with open_store(tmp_path) as store:
        await store.create("run/1").append(line(1))
        tried.clear()
        with closing(connect(tmp_path / NAME)) as other:
            other.execute("BEGIN IMMEDIATE")
            logs = [store.create(f"run/{n}") for n in range(2, 9)]
            ends = await asyncio.gather(
                *(log.append(line(1)) for log in logs), return_exceptions=True
            )
    assert all(isinstance(end, StoreError) for end in ends)
    assert [patience for patience in tried if patience] == [1]


def test_opening_waits_for_a_lock_as_long_as_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_PATIENCE_S", 0)
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    with closing(connect(tmp_path / NAME)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreError, match="database is locked") as refusal:
            open_engine(url(tmp_path), write=True)
    assert len(waits) <= 1
    assert refusal.value.fix.startswith("wait for the process")


LOCKS = """\
1: POSIX  ADVISORY  READ 11 {file} 123 123
2: POSIX  ADVISORY  WRITE 12 fd:01:1 120 120
2: -> POSIX  ADVISORY  WRITE 13 {file} 120 120
3: OFDLCK ADVISORY  WRITE -1 {file} 120 120
4: POSIX  ADVISORY  WRITE {own} {file} 120 120
5: POSIX
6: POSIX  ADVISORY  WRITE 4194305 {file} 120 120
"""


def test_only_another_process_that_may_write_is_a_holder(tmp_path: Path) -> None:
    path, locks = tmp_path / NAME, tmp_path / "locks"
    (tmp_path / f"{NAME}-shm").touch()
    found = (tmp_path / f"{NAME}-shm").stat()
    device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}"
    file = f"{device}:{found.st_ino}"
    text = LOCKS.format(file=file, own=os.getpid())
    locks.write_text(text)
    assert holder_of(path, locks) == (4194305, "")
    locks.write_text("".join(text.splitlines(keepends=True)[:-1]))
    assert holder_of(path, locks) is None
    assert holder_of(path, tmp_path / "none") is None
