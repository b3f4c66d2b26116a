"""``events tail`` and ``db status``, as programs and people use them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from caxton_host.cli import execute
from caxton_host.core.log.events import RunCompleted
from caxton_host.errors import StoreError
from caxton_host.store.database import Database
from caxton_host.store.sql import SqlStore
from tests.postgres import Server
from tests.unit.store.fakes import line, run_started

from .support import opened

DONE = RunCompleted(output=None, output_sha256="00", fuel=None)


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))


@pytest.fixture
def runs(database: str) -> str:
    anyio.run(fill, database)
    return database


async def fill(database: str) -> None:
    async with opened(database) as store:
        await fill_with(store)


async def fill_with(store: SqlStore) -> None:
    await store.create("host/1").append(line(0))
    await store.create("run/a").append(run_started(), line(1, "x\x1b[31m"), DONE)
    await store.create("run/b").append(run_started(), line(2))


def tail(capsys: pytest.CaptureFixture[str], url: str, *words: str) -> list[Any]:
    assert execute(["--db", url, "events", "tail", "--json", *words]) == 0
    return [json.loads(row) for row in capsys.readouterr().out.splitlines()]


def places(documents: list[Any]) -> list[tuple[str, int]]:
    return [(document["stream"], document["seq"]) for document in documents]


RUN_A = [("run/a", n) for n in (1, 2, 3)]
RUN_B = [("run/b", n) for n in (1, 2)]


def test_tail_prints_what_was_asked_for(
    runs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert places(tail(capsys, runs)) == RUN_A + RUN_B
    assert places(tail(capsys, runs, "--all")) == [("host/1", 1), *RUN_A, *RUN_B]
    assert places(tail(capsys, runs, "a")) == RUN_A
    assert tail(capsys, runs, "--after", "end") == []
    (first, *_) = tail(capsys, runs, "--all")
    assert first["$type"] == "caxton.event/v1"
    assert first["payload"]["text"] == "hello"


@pytest.mark.parametrize("what", ["--all", "a"])
def test_tail_goes_on_behind_the_cursor_of_a_line(
    runs: str, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    documents = tail(capsys, runs, what)

    for number, document in enumerate(documents, 1):
        rest = tail(capsys, runs, what, "--after", document["cursor"])
        assert rest == documents[number:]


def test_following_a_run_ends_with_the_run(
    runs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    documents = tail(capsys, runs, "a", "--follow")

    assert places(documents) == RUN_A
    assert tail(capsys, runs, "a", "-f", "--after", documents[-1]["cursor"]) == []


def test_tail_for_people_is_one_harmless_line_an_event(
    runs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["--db", runs, "events", "tail", "a"]) == 0

    rows = capsys.readouterr().out.splitlines()
    assert [row.split("  ")[1:4] for row in rows] == [
        ["a", "1", "RunStarted"],
        ["a", "2", "LogWritten"],
        ["a", "3", "RunCompleted"],
    ]
    assert "\x1b" not in "".join(rows)


def test_cursor_that_is_none_is_a_usage_error(
    runs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["--db", runs, "events", "tail", "--after", "never"]) == 2
    assert "To fix: " in capsys.readouterr().err
    assert execute(["--db", runs, "events", "tail", "a", "--all"]) == 2


async def test_follower_prints_what_comes_and_stops_at_ctrl_c(runs: str) -> None:
    words = ["--db", runs, "events", "tail", "--json", "--follow"]
    with subprocess.Popen(  # noqa: ASYNC220 -- it is read in turns
        [sys.executable, "-m", "caxton_host", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as follower:
        try:
            assert follower.stdout is not None
            assert follower.stderr is not None
            found = [json.loads(follower.stdout.readline()) for _ in range(5)]
            async with opened(runs) as store:
                await _write(store)
            found += [json.loads(follower.stdout.readline()) for _ in range(2)]
            follower.send_signal(signal.SIGINT)
            rest, wrong = follower.communicate(timeout=30)
        finally:
            follower.kill()

    assert (follower.returncode, rest, wrong) == (0, "", "")
    assert places(found) == [*RUN_A, *RUN_B, ("run/b", 3), ("run/b", 4)]


async def _write(store: SqlStore) -> None:
    await (await store.resume_log("run/b")).append(line(3), DONE)


def status(capsys: pytest.CaptureFixture[str], url: str, code: int) -> tuple[Any, str]:
    assert execute(["--db", url, "db", "status", "--json"]) == code
    told = capsys.readouterr()
    return json.loads(told.out or "null"), told.err


def test_status_tells_of_the_server(
    postgres_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    document, _ = status(capsys, postgres_url, 0)

    assert document["state"] == "current"
    server = document["server"]
    assert int(server["version"].split(".")[0]) >= 14
    assert (server["synchronous_commit"], server["may_append"]) == ("on", True)
    assert server["holding"] == []
    assert execute(["--db", postgres_url, "db", "status"]) == 0
    assert "synchronous_commit on" in capsys.readouterr().out


def test_database_is_made_by_the_command_that_says_so(
    postgres: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    url = postgres.make(template="template0")

    document, wrong = status(capsys, url, 1)
    assert document["state"] == "empty"
    assert f"caxton --db '{url}' db migrate" in wrong
    assert execute(["--db", url, "db", "migrate"]) == 0
    capsys.readouterr()

    assert status(capsys, url, 0)[0]["state"] == "current"


def test_server_that_is_too_old_is_an_error_with_a_fix(
    postgres_url: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("caxton_host.store.engine._OLDEST", 990_000)

    _, wrong = status(capsys, postgres_url, 2)

    assert "To fix: use PostgreSQL 99 or newer" in wrong


def test_password_is_never_printed(
    postgres_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url = postgres_url.replace("postgres:@", "postgres:hunter2@", 1)
    for words in (["db", "status"], ["db", "status", "--json"], ["runs", "list"]):
        assert execute(["--db", url, *words]) == 0
        assert execute(["--db", f"{url}x", *words]) == 2  # law 8
    told = capsys.readouterr()
    assert "hunter2" not in told.out + told.err


@pytest.mark.parametrize("words", ["db status", "runs list", "events tail"])
def test_user_without_its_grants_is_told_to_get_them(
    postgres: Server, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    url = postgres.make()
    postgres.execute("DROP ROLE IF EXISTS stranger")
    postgres.execute("CREATE ROLE stranger LOGIN")

    stranger = url.replace("postgres:@", "stranger:@", 1)
    assert execute(["--db", stranger, *words.split()]) == 2

    wrong = capsys.readouterr().err
    assert "permission denied" in wrong
    assert "To fix: GRANT what docs/how-to/postgresql.md lists" in wrong


def test_user_who_may_not_migrate_is_told_who_may(
    postgres: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    url = postgres.make(template="template0")
    postgres.execute("DROP ROLE IF EXISTS stranger")
    postgres.execute("CREATE ROLE stranger LOGIN")
    stranger = url.replace("postgres:@", "stranger:@", 1)

    for words, code in (["db", "status"], 1), (["db", "migrate"], 2):
        assert execute(["--db", stranger, *words]) == code
        wrong = capsys.readouterr().err
        assert wrong.endswith(
            "To fix: caxton --db URL db migrate, as the owner of the database\n"
        )


@pytest.mark.parametrize("password", ["hunter@2two", "hunter2@t/wo", "h@t:wo"])
def test_password_that_splits_the_url_is_never_printed(
    capsys: pytest.CaptureFixture[str], password: str
) -> None:
    # law 8
    url = f"postgresql://me:{password}@127.0.0.1:1/caxton"

    assert execute(["--db", url, "runs", "list"]) == 2

    assert capsys.readouterr().err == (
        "Error: --db has more than one @\n"
        "To fix: write the @ of a user or password as %40\n"
    )


def test_named_store_needs_no_password_of_the_configured_one(
    runs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "caxton.toml").write_text(
        '[store]\nurl = "postgresql://caxton:${env:NOT_SET_HERE}@db/caxton"\n'
    )

    assert execute(["--db", runs, "runs", "list"]) == 0
    assert execute(["runs", "list"]) == 2
    assert "NOT_SET_HERE is not set" in capsys.readouterr().err


async def test_follower_goes_on_when_the_database_was_away(postgres: Server) -> None:
    url = postgres.make()
    async with opened(url) as store:
        await fill_with(store)
    words = ["--db", url, "events", "tail", "--json", "--follow", "--after", "end"]
    with subprocess.Popen(  # noqa: ASYNC220 -- it is read in turns
        [sys.executable, "-m", "caxton_host", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as follower:
        try:
            assert follower.stdout is not None
            await until_followed(postgres)
            for number in (3, 4):
                postgres.stop()
                await anyio.sleep(0.5)
                postgres.start()
                async with opened(url) as store:
                    await (await store.resume_log("run/b")).append(line(number))
                found = json.loads(follower.stdout.readline())
                assert (found["stream"], found["seq"]) == ("run/b", number)
            follower.send_signal(signal.SIGINT)
            rest, wrong = follower.communicate(timeout=30)
        finally:
            follower.kill()
    assert (follower.returncode, rest) == (0, "")
    assert "Error" not in wrong


async def until_followed(postgres: Server) -> None:
    query = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%FROM events%'"
    with anyio.fail_after(30):
        while postgres.execute(f"{query} AND pid <> pg_backend_pid()")[0][0] == 0:  # noqa: ASYNC110 -- of another process
            await anyio.sleep(0.05)


def test_follower_of_a_database_that_stays_away_says_so(
    runs: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("caxton_host.cli.events.PATIENCE", 0.2)
    tried = 0

    def away(*_: object) -> None:
        nonlocal tried
        tried += 1
        raise StoreError("it is away")

    monkeypatch.setattr(Database, "look", away)

    assert execute(["--db", runs, "events", "tail", "--follow"]) != 0

    assert "it is away" in capsys.readouterr().err
    assert tried > 1
    tried = 0
    assert execute(["--db", runs, "events", "tail"]) != 0
    assert tried == 1


def test_status_of_a_file_has_no_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/caxton.db"
    assert execute(["--db", url, "db", "migrate"]) == 0
    capsys.readouterr()

    assert status(capsys, url, 0)[0]["server"] is None
