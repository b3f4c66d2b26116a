"""Copies of a log by the clock, and the way back from one: ``caxton db``."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from caxton_host.app import copies as app_copies
from caxton_host.cli import execute
from caxton_host.store import copies, restoring
from caxton_host.store.copies import Shelf
from caxton_host.store.file_guard import hosts_of
from caxton_host.store.leases import FileLeases
from tests.integration.store.support import opened
from tests.integration.store.test_commands import DONE, fill_with
from tests.unit.store.fakes import line, run_started

from .shell import Done, Shell

TOKEN = ("serve", "token", "create", "--scope", "run", "--name")
SECOND = 1_000_000


@pytest.fixture
def log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    """Return where a signed log is: run a has ended, run b goes on."""
    shell = Shell(tmp_path, tmp_path, monkeypatch, capsys)
    shell.write("caxton.toml", "version = 1\n")
    written(shell, *"ab")
    assert shell("audit", "checkpoint").code == 0
    return shell


def written(shell: Shell, *runs: str) -> None:
    async def write() -> None:
        async with opened(f"sqlite:///{shell.database}") as store:
            if runs == (*"ab",):
                await fill_with(store)
                return
            for run in runs:
                new = store.create(f"run/{run}")
                await new.append(run_started(), line(1), DONE)

    anyio.run(write)


def copied(shell: Shell, name: str = "copy.db") -> Path:
    assert shell("db", "backup", name).code == 0
    return shell.folder / name


def files(shell: Shell) -> dict[str, bytes]:
    """Return the database and what is beside it, without locks."""
    found = shell.folder.glob("*caxton.db*"), shell.folder.glob(".*")
    return {
        path.name: path.read_bytes()
        for each in found
        for path in each
        if path.is_file()
    }


# -- restore -------------------------------------------------------------------


def test_a_log_that_lost_nothing_is_restored_and_its_runs_wait(log: Shell) -> None:
    # laws 7 and 10
    copy = copied(log)
    shutil.move(log.database, log.folder / "lost")

    done = log("db", "restore", str(copy))

    assert done.code == 0, done.err
    told = [f"restored: 6 events of {copy}", "lost: unknown", "suspended: 1 run"]
    assert done.out.splitlines() == told
    listed = log("runs", "list", "--state", "suspended", "--json").document
    assert [(one["run_id"], one["reason"]) for one in listed] == [("b", "restored")]
    assert log("audit", "verify").code == 0
    assert log("db", "verify-projections").code == 0


def test_what_a_copy_lacks_is_said_and_lost_only_if_asked_for(log: Shell) -> None:
    # laws 7 and 10
    for name in ("kept", "leaked"):
        assert log(*TOKEN, name).code == 0
    copy = copied(log)
    assert log("serve", "token", "revoke", "leaked").code == 0
    assert log("audit", "erase", "a", "--reason", "asked for").code == 0
    written(log, "c")
    published = log.folder / "published.txt"
    assert log("audit", "checkpoint", "-o", str(published)).code == 0
    before = log.database.read_bytes()

    refused = log("db", "restore", str(copy))
    assert (refused.code, log.database.read_bytes()) == (2, before)
    assert re.search(r"has \d+ events that the copy lacks", refused.err)
    assert refused.fix.endswith(f"caxton db restore {copy} --lose-events")

    made = log("db", "restore", str(copy), "--lose-events", "--json").document
    assert made["lost"] > 3
    assert made["unsigned"] > 3
    assert (made["suspended"], made["erased"], made["returned"]) == (1, ["a"], [])
    assert (len(made["revoked"]), made["tokens"]) == (1, 1)
    tokens = log("serve", "token", "list", "--json").document
    assert {one["name"]: one["state"] for one in tokens} == {
        "kept": "good",
        "leaked": "revoked",
    }
    whole = log("--db", f"sqlite:///{made['kept']}", "runs", "list", "--json")
    assert [one["run_id"] for one in whole.document] == ["c", "b", "a"]
    assert log("audit", "verify").code == 0
    # The loss stays visible to those who kept a checkpoint.
    assert log("audit", "verify", "--checkpoint", str(published)).code == 5
    restored = log("events", "export", "--all").out
    assert re.search(r'"LogRestored".*"had_size": ?\d', restored)


def test_a_loss_that_only_checkpoints_show_is_said(log: Shell) -> None:
    copy = copied(log)
    written(log, "c")
    assert log("audit", "checkpoint", "-o", "published.txt").code == 0
    shutil.move(log.database, log.folder / "lost")
    shutil.rmtree(Path(log.environ["XDG_STATE_HOME"], "caxton", "signed"))
    elsewhere = ("--checkpoint", "published.txt")

    refused = log("db", "restore", str(copy), *elsewhere)
    assert (refused.code, log.database.exists()) == (2, False)
    assert "the copy lacks 3 events that were signed" in refused.err

    done = log("db", "restore", str(copy), *elsewhere, "--lose-events")
    assert "lost, and covered by checkpoints: 3" in done.out


def test_a_log_that_cannot_be_read_is_kept_beside_the_restored_one(log: Shell) -> None:
    copy = copied(log)
    log.database.write_bytes(b"SQLite format 3\0" + bytes(9000))
    wal = log.database.with_name("caxton.db-wal")
    wal.write_bytes(b"the end of it")

    refused = log("db", "restore", str(copy))
    assert refused.code == 2
    assert "nobody knows which events it has" in refused.err
    made = log("db", "restore", str(copy), "--lose-events", "--json").document

    kept = Path(made["kept"])
    assert kept.read_bytes().startswith(b"SQLite format 3\0\0")
    assert kept.with_name(f"{kept.name}-wal").read_bytes() == b"the end of it"
    assert (made["lost"], log("audit", "verify").code) == (None, 0)


def no_log(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE notes (text)")


def changed(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("DROP TRIGGER IF EXISTS payloads_no_update")
        database.execute("UPDATE payloads SET payload = salt WHERE position = 2")
        database.commit()


def newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
        database.commit()


def cut(size: int) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, size)


def test_what_is_no_sound_copy_changes_nothing(log: Shell) -> None:
    # law 9
    good, before = copied(log), files(log)
    for number, (spoil, code, words) in enumerate(
        [
            (changed, 5, "its payload is not what was written"),
            (cut(70_000), 5, "malformed"),
            (cut(0), 2, "holds no log of this host"),
            (lambda path: path.write_text("x" * 999), 2, "file is not a database"),
            (no_log, 2, "holds no log of this host"),
            (newer, 2, "schema 9999, which this version does not know"),
            (lambda path: (path.unlink(), path.mkdir()), 2, "is no file"),
            (lambda path: path.unlink(), 2, "is no file"),
        ]
    ):
        copy = log.folder / f"{number}.copy"
        shutil.copy(good, copy)
        spoil(copy)

        done = log("db", "restore", str(copy), "--lose-events")

        assert (done.code, words in done.err) == (code, True), (number, done.err)
        assert done.fix
        assert files(log) == before


def test_a_copy_of_an_unknown_signer_needs_its_key(log: Shell) -> None:
    key = log("audit", "key", "--json").document["public_key"]
    copy = copied(log)
    log.set(XDG_STATE_HOME=str(log.home / "another"))

    for words, code in (((), 5), (("--key", key), 0)):
        given = ("--db", "sqlite:///new/caxton.db", "db", "restore", str(copy))
        assert log(*given, *words).code == code
        assert Path("new/caxton.db").exists() is (code == 0)


def test_nothing_is_restored_under_a_host_or_another_restore(log: Shell) -> None:
    copy, url = copied(log), f"sqlite:///{log.database}"
    assert log("db", "restore", str(log.database)).code == 2

    async def beside(name: str) -> Done:
        leases = FileLeases(hosts_of(log.database))
        await leases.join(f"host/{name}")
        try:
            return await asyncio.to_thread(log, "db", "restore", str(copy))
        finally:
            await leases.aclose()

    for name, words in (
        ("0193", "host/0193 has the log open"),
        ("restore", "another restore of "),
    ):
        refused = anyio.run(beside, name)
        assert (refused.code, words in refused.err) == (1, True), refused.err
    with closing(sqlite3.connect(log.database)) as reader:
        reader.execute("PRAGMA journal_mode = WAL")
        reader.execute("BEGIN").execute("SELECT * FROM events").fetchone()
        refused = log("db", "restore", str(copy))
        assert (refused.code, "fuser" in refused.fix or "wait for" in refused.fix) == (
            1,
            True,
        )
    assert log("--db", url, "audit", "verify").code == 0
    assert log("db", "restore", str(copy)).code == 0


@contextmanager
def killed_at(patch: pytest.MonkeyPatch, where: object, name: str) -> Iterator[None]:
    """End a child of this process as by ``kill -9`` where it calls something."""

    def die(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with patch.context() as patched:
        patched.setattr(where, name, die)
        yield


def in_a_child(*words: str) -> int:
    """Run a command in a child of this process; return the signal that ended it."""
    if not (child := os.fork()):
        try:
            os._exit(execute([*words]))
        finally:
            os._exit(99)
    return os.WTERMSIG(os.waitpid(child, 0)[1])


@pytest.mark.parametrize(
    ("where", "name", "is_restored"),
    [
        (restoring, "upgrade", False),
        (Path, "replace", False),
        (app_copies, "open_signed", True),
    ],
)
def test_a_restore_that_is_killed_leaves_the_log_or_the_copy(
    log: Shell,
    monkeypatch: pytest.MonkeyPatch,
    where: object,
    name: str,
    *,
    is_restored: bool,
) -> None:
    # law 10
    copy = copied(log)
    written(log, "c")

    with killed_at(monkeypatch, where, name):
        assert in_a_child("db", "restore", str(copy), "--lose-events") == 9

    listed = log("runs", "list", "--json").document
    assert ("c" in [one["run_id"] for one in listed]) is not is_restored
    assert log("audit", "verify").code == 0
    assert log("db", "restore", str(copy), "--lose-events").code == 0
    assert log("audit", "verify").code == 0
    assert not [name for name in files(log) if "restoring" in name]


def test_postgresql_is_restored_by_its_own_program(log: Shell) -> None:
    place = ("--db", "postgresql://me:hunter2hunter2@db.example/log")
    refused = log(*place, "db", "restore", str(copied(log)))
    assert refused.code == 2
    assert "pg_restore" in refused.fix


# -- copies by the clock -------------------------------------------------------


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the seconds at which copies are named, the next one last."""
    left, stamp = [*range(60, 0, -1)], copies.stamp
    monkeypatch.setattr(copies, "stamp", lambda _: stamp(left.pop() * SECOND))
    return left


def names(shell: Shell) -> list[str]:
    return sorted(path.name for path in (shell.folder / "copies").glob("[!.]*"))


def test_copies_by_the_clock_are_verified_and_the_oldest_ones_go(
    log: Shell, seconds: list[int]
) -> None:
    (log.folder / "copies").mkdir()
    log.write("copies/notes.db", "not ours")
    made = [
        log("db", "backup", "copies", "--keep", "2", "--json").document
        for _ in range(3)
    ]
    assert [one["removed"] for one in made[:2]] == [[], []]
    assert made[2]["removed"] == [made[0]["file"]]
    assert made[2]["events"] == 6
    stamps = [f"caxton-19700101T00000{n}Z.db" for n in (2, 3)]
    assert names(log) == [*stamps, "notes.db"]
    copy = ("--db", f"sqlite:///copies/{stamps[1]}")
    assert log(*copy, "audit", "verify", "--copy").code == 0
    # A clock that was set back makes the new copy look like the oldest one.
    seconds.append(1)
    assert log("db", "backup", "copies", "--keep", "1").code == 0
    assert names(log) == ["caxton-19700101T000001Z.db", "notes.db"]


@pytest.mark.usefixtures("seconds")
def test_a_copy_that_fails_removes_none_and_the_next_one_is_made(
    log: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    # law 10
    sleeps: list[float] = []
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    (good,) = log.rows("SELECT payload, position FROM payloads WHERE position = 2")

    async def sleep(pause: float) -> None:
        sleeps.append(pause)
        match len(sleeps):
            case 1:  # A disk that takes no whole copy.
                resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
            case 2:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
                changed(log.database)
            case 3:
                with closing(sqlite3.connect(log.database)) as database:
                    query = "UPDATE payloads SET payload = ? WHERE position = ?"
                    database.execute(query, good)
                    database.commit()
            case _:
                raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "sleep", sleep)
    try:
        done = log("db", "backup", "copies", "--every", "1h", "--keep", "1")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert sleeps == [3600, 300, 300, 3600]
    assert done.out.count("verified 6 events") == 2
    assert done.err.count("the last good copy: caxton-19700101T000001Z.db") == 2
    full, broken, *_ = [text for text in done.err.splitlines() if "Error: " in text]
    assert "cannot be made" in full
    assert "its payload is not what was written" in broken
    assert names(log) == ["caxton-19700101T000002Z.db"]


@pytest.mark.usefixtures("seconds")
def test_a_first_copy_that_fails_is_tried_again_and_names_the_last_good_one(
    log: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    # law 10
    words = ("db", "backup", "copies", "--keep", "2")
    assert log(*words).code == 0
    (good,) = log.rows("SELECT payload, position FROM payloads WHERE position = 2")
    changed(log.database)
    last = "the last good copy: caxton-19700101T000001Z.db"
    once = log(*words)
    assert (once.code, once.err.count(last)) == (5, 1)

    async def sleep(pause: float) -> None:
        if pause > 300:
            raise asyncio.CancelledError
        with closing(sqlite3.connect(log.database)) as database:
            query = "UPDATE payloads SET payload = ? WHERE position = ?"
            database.execute(query, good)
            database.commit()

    monkeypatch.setattr(asyncio, "sleep", sleep)
    done = log(*words, "--every", "1h")
    assert done.err.count(last) == 1
    assert done.out.count("verified 6 events") == 1


def test_a_backup_that_is_killed_leaves_no_half_copy(
    log: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    # law 10
    words = ("db", "backup", "copies", "--keep", "1")
    with killed_at(monkeypatch, Shelf, "put"):
        assert in_a_child(*words) == 9
    assert names(log) == []
    assert [*(log.folder / "copies").glob(".*unverified*")]
    assert log(*words).code == 0
    assert len(names(log)) == 1
    assert not [*(log.folder / "copies").glob(".*unverified*")]


def test_options_of_a_backup_need_each_other(log: Shell) -> None:
    refused = log("db", "backup", "copies", "--every", "1h")
    assert (refused.code, refused.fix) == (2, "add --keep 24")


def test_a_database_of_an_older_schema_is_copied_as_it_is(log: Shell) -> None:
    with closing(sqlite3.connect(log.database)) as database:
        database.execute("UPDATE alembic_version SET version_num = '0010'")
        database.commit()
    copy = copied(log)
    with closing(sqlite3.connect(copy)) as database:
        query: Any = database.execute("SELECT version_num FROM alembic_version")
        assert query.fetchone() == ("0010",)
