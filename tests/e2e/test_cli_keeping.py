"""Erasing, exporting, copying and archiving, as typed."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from caxton_host.cli import output
from caxton_host.core.log.checkpoint import Note
from caxton_host.errors import StoreError
from caxton_host.lib.machine import local_actor
from caxton_host.store import copies as backups
from caxton_host.store.erasure import Erasures
from caxton_host.store.sql import SqlStore
from tests import standin

from .guests import call, guest
from .shell import Shell, toml

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"

YEAR_3000 = "3000-01-01"


@pytest.fixture
def ran(shell: Shell) -> Shell:
    shell("init")
    shell("run", "weather", "-q", "-i", '{"location": "Atlantis"}')
    return shell


def exported(shell: Shell, *words: str) -> list[dict[str, Any]]:
    done = shell("events", "export", *words)
    assert done.code == 0, done.err
    return [json.loads(text) for text in done.out.splitlines()]


# -- who -----------------------------------------------------------------------


def test_host_and_configuration_have_an_actor(ran: Shell) -> None:
    found = exported(ran, "--all")
    actors = {line["type"]: line["payload"].get("actor") for line in found}
    me = found[-1]["actor"]
    assert me["kind"] == "local"
    assert actors["HostStarted"] == actors["ConfigLoaded"] == me
    assert actors["RunStarted"] == me


def test_each_line_stands_alone(ran: Shell) -> None:
    run = ran("runs", "show", "@last", "--json").document["run_id"]
    found = exported(ran, "@last")
    assert {(line["run"], line["agent"]) for line in found} == {(run, "weather")}
    tools = [line["tool"] for line in found]
    assert tools[:3] == [None, "demo/get_weather", "demo/get_weather"]
    assert [line["outcome"] for line in found if line["outcome"]] == [
        "tool_error",
        "denied",
        "denied",
    ]


def test_filters_narrow_an_export(ran: Shell) -> None:
    ran("run", "weather", "-q")
    whole = exported(ran, "--all")
    me = whole[-1]["actor"]["id"]
    assert exported(ran, "--since", "1h") == whole
    assert exported(ran, "--until", "1h") == []
    assert exported(ran, "--since", "2000-01-01", "--until", YEAR_3000) == whole
    assert exported(ran, "--since", f"{YEAR_3000}T00:00:00+02:00") == []
    assert exported(ran, "--agent", "nobody") == []
    assert exported(ran, "--actor", me, "--run", "@last") == exported(ran, "@last")
    ends = ("--outcome", "ok", "--outcome", "tool_error")
    calls = exported(ran, "--tool", "demo/get_*", *ends)
    assert [line["type"] for line in calls] == ["ToolCompleted"] * 2
    array = ran("events", "export", "--outcome", "denied", "--json").document
    assert array == exported(ran, "--outcome", "denied")
    assert ran("events", "export", "--agent", "x", "--json").document == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "or a filter"),
        (("@last", "--run", "@last"), "name one run"),
        (("@last", "--all"), "name a run"),
        (("--since", "soon"), "is no time"),
        (("--outcome", "good"), "denied"),
    ],
)
def test_export_that_makes_no_sense_is_refused(
    ran: Shell, words: tuple[str, ...], said: str
) -> None:
    done = ran("events", "export", *words)
    assert done.code == 2
    assert said in done.err
    assert done.fix


# -- erase ---------------------------------------------------------------------


def test_erased_run_is_gone_and_the_log_verifies(ran: Shell) -> None:
    assert b"Atlantis" in ran.database.read_bytes()
    me = ran("runs", "show", "@last", "--json").document["actor"]

    done = ran("audit", "erase", "@last", "--reason", "asked for", "--json")

    assert done.code == 0, done.err
    assert done.document == {
        "$type": "caxton.erasure/v1",
        "run_id": done.document["run_id"],
        "agent": "weather",
        "actor": me,
        "reason": "asked for",
        "events": 9,
        "scrubbed": True,
    }
    for path in filter(Path.is_file, ran.folder.glob("caxton.db*")):
        assert b"Atlantis" not in path.read_bytes(), path
    verified = ran("audit", "verify")
    assert verified.code == 0
    assert "erased: 9 payloads, of which the digests are left, of run" in verified.out
    [erased] = [e for e in exported(ran, "--all") if e["type"] == "RunErased"]
    assert erased["payload"]["actor"] == me
    assert erased["payload"]["reason"] == "asked for"


def test_every_command_says_that_a_run_was_erased(ran: Shell) -> None:
    ran("audit", "erase", "@last", "--reason", "asked for")
    shown = ran("runs", "show", "@last")
    assert "erased  by local" in shown.out
    assert "asked for" in shown.out
    document = ran("runs", "show", "@last", "--json").document
    assert (document["erased"], document["agent"]) == (True, "weather")
    assert document["state"] == "completed"
    assert "completed, erased" in ran("runs", "list").out
    (listed,) = ran("runs", "list", "--json").document
    same = ("run_id", "agent", "actor", "state", "erased", "calls", "module_sha256")
    gone = {**document, "module_sha256": listed["module_sha256"]}
    assert [listed[key] for key in same] == [gone[key] for key in same]
    listed = ran("events", "list", "@last").out.splitlines()
    assert all(row.endswith("\terased") for row in listed)
    for words in (
        ("replay", "@last"),
        ("runs", "explain", "@last", "2"),
        ("runs", "resume", "@last"),
        ("audit", "erase", "@last", "--reason", "again"),
    ):
        done = ran(*words)
        assert done.code == 2, words
        assert "erased" in done.err
        assert done.fix


def test_payloads_that_nobody_erased_are_said_to_be_gone(ran: Shell) -> None:
    with ran.tampering() as connection:
        connection.execute("DELETE FROM payloads WHERE position > 2")
    assert "without a record" in ran("runs", "show", "@last").out
    assert ran("audit", "verify").code == 5


def test_file_that_stays_as_it_is_is_no_failure(ran: Shell) -> None:
    done = ran("audit", "erase", "@last", "--reason", "x", "--keep-file")
    assert (done.code, done.err) == (0, "")
    assert "erased the data of 9 events" in done.out


def test_file_that_cannot_be_written_anew_is_told(
    ran: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def busy(self: SqlStore) -> bool:
        del self
        return False

    monkeypatch.setattr(Erasures, "scrub", busy)
    done = ran("audit", "erase", "@last", "--reason", "x")
    assert done.code == 1
    assert "may still contain the data" in done.err
    assert "VACUUM" in done.fix


def test_run_that_is_not_there_makes_no_database(shell: Shell) -> None:
    done = shell("audit", "erase", "@last", "--reason", "x")
    assert done.code == 2
    assert not shell.database.exists()


# -- hold ----------------------------------------------------------------------


def test_run_on_hold_is_neither_erased_nor_archived(ran: Shell) -> None:
    run = ran("runs", "show", "@last", "--json").document["run_id"]
    done = ran("runs", "hold", "@last", "--reason", "litigation 4711", "--json")
    assert done.code == 0, done.err
    hold = done.document["hold"]
    assert (done.document["run_id"], hold["reason"]) == (run, "litigation 4711")

    erased = ran("audit", "erase", "@last", "--reason", "x")
    archived = ran("db", "archive", "--to", "old", "--before", YEAR_3000, "--json")

    assert (erased.code, archived.document) == (2, [])
    assert f"run {run} is on hold" in erased.err
    assert f"caxton runs release {run}" in erased.fix
    assert "held    by local" in ran("runs", "show", "@last").out
    assert ran("runs", "show", "@last", "--json").document["hold"] == hold
    again = ran("runs", "hold", "@last", "--reason", "x")
    assert (again.code, again.fix) == (2, f"caxton runs show {run}")
    assert ran("audit", "verify").code == 0
    types = [e["type"] for e in exported(ran, "--all")]
    assert types.count("RunHeld") == 1
    released = ran("runs", "release", "@last", "--reason", "settled")
    assert released.out == f"run {run} is not on hold\n"
    assert "hold" not in ran("runs", "show", "@last", "--json").document
    assert ran("runs", "release", "@last", "--reason", "settled").code == 2
    assert ran("audit", "erase", "@last", "--reason", "x").code == 0


# -- record = "hash" -----------------------------------------------------------


@pytest.fixture
def hashed(shell: Shell) -> Shell:
    demo = standin.command()
    shell.write(
        "caxton.toml",
        toml(
            {
                "servers.demo": demo,
                "servers.demo.tools.echo": {"record": "hash"},
                "agents.a": {"module": "a.wasm"},
            },
            '[[agents.a.allow]]\ntools = ["demo/*"]',
        ),
    )
    steps = [call("mcp__demo__get_weather", location="Oslo")]
    steps.append(call("mcp__demo__echo", text="quite private"))
    shell.write("a.wasm", guest(*steps))
    assert shell("run", "a", "-q").code == 0
    return shell


def test_replay_of_a_hashed_answer_says_where_it_ends(hashed: Shell) -> None:
    shell = hashed
    done = shell("replay", "@last")
    assert done.code == 2
    assert done.out.startswith("incomplete: 1 call answered")
    assert "call 2 (event 4), demo/echo" in done.err
    assert 'record = "full"' in done.fix
    assert shell("replay", "@last", "--json").document["not_kept"] == 2
    listed = shell("events", "list", "@last").out
    assert '"$cut"' in listed
    assert shell("audit", "verify").code == 0


# -- backup and archive --------------------------------------------------------


def test_backup_is_a_database_of_its_own(ran: Shell) -> None:
    done = ran("db", "backup", "copy.db")
    assert done.code == 0, done.err
    assert "audit verify" in done.err
    copy = ("--db", "sqlite:///copy.db")
    assert ran(*copy, "audit", "verify").code == 0
    assert ran(*copy, "replay", "@last").code == 0
    again = ran("db", "backup", "copy.db")
    assert again.code == 2
    assert "already" in again.err
    sized = ran("db", "backup", "other.db", "--json").document
    assert sized["bytes"] == Path("other.db").stat().st_size


def test_backup_of_postgresql_names_the_command_that_does_it(shell: Shell) -> None:
    place = "postgresql://me:hunter2hunter2@db.example:5433/log"
    done = shell("--db", place, "db", "backup", "log.dump")
    assert done.code == 2
    assert done.fix == (
        "pg_dump --format=custom --host=db.example --port=5433 --username=me "
        "--file=log.dump log"
    )


def test_progress_is_shown_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with output.progress("copying") as tell:
        tell(1, 2)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(output, "PATIENCE", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with output.progress("copying") as tell:
        tell(1, 2)
        tell(2, 2)


def test_archive_tells_what_it_would_move(ran: Shell) -> None:
    words = ("db", "archive", "--to", "old", "--dry-run", "--before")
    [found] = ran(*words, YEAR_3000, "--json").document
    assert (found["agent"], found["events"], found["bundle"]) == ("weather", 9, None)
    done = ran(*words, YEAR_3000)
    assert found["run_id"] in done.out
    assert "1 run to move" in done.err
    assert ran(*words, "1h", "--json").document == []
    assert not Path("old").exists()


def test_archive_moves_what_is_old(ran: Shell) -> None:
    run = ran("runs", "show", "@last", "--json").document["run_id"]
    key = ran("audit", "key", "--json").document["public_key"]

    done = ran("db", "archive", "--to", "old", "--before", YEAR_3000)

    assert done.code == 0, done.err
    [bundle] = Path("old").iterdir()
    assert bundle.name == f"{run}.caxton"
    assert bundle.stat().st_mode & 0o777 == 0o600
    assert bundle.name in done.out
    shown = ran("runs", "show", "@last").out
    assert f"bundle  {bundle.name}" in shown
    assert b"Atlantis" not in ran.database.read_bytes()
    verified = ran("audit", "verify", "--json").document
    assert (verified["verdict"], verified["behind"]) == ("intact", 0)
    assert verified["erased_runs"] == [run]
    # The bundle is all that its run was.
    words = ("--bundle", str(bundle), "--key", key)
    assert ran("audit", "verify", *words).code == 0
    replayed = ran("replay", *words, "--json").document
    assert (replayed["verdict"], replayed["run_id"]) == ("identical", run)


def test_archive_that_fails_tells_what_is_left(
    ran: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def busy(self: SqlStore) -> bool:
        del self
        return False

    async def unsigned(self: SqlStore) -> Note:
        del self
        raise StoreError("the log cannot be signed: no room")

    monkeypatch.setattr(Erasures, "scrub", busy)
    done = ran("db", "archive", "--to", "old", "--before", YEAR_3000)
    assert done.code == 0
    assert "could not be rewritten" in done.err

    assert ran("run", "weather", "-q").code == 0
    monkeypatch.setattr(SqlStore, "seal", unsigned)
    # Without a signature nothing is moved; erased is erased.
    done = ran("db", "archive", "--to", "old", "--before", YEAR_3000)
    assert (done.code, len([*Path("old").iterdir()])) == (1, 1)
    done = ran("audit", "erase", "@last", "--reason", "x", "--keep-file")
    assert done.code == 0
    assert "the log is not signed: the log cannot be signed: no room" in done.err


def test_archive_takes_a_fork_before_what_it_was_forked_from(ran: Shell) -> None:
    parent = ran("runs", "show", "@last", "--json").document["run_id"]
    assert ran("runs", "fork", parent, "--at", "3").code == 0
    fork = ran("runs", "show", "@last", "--json").document["run_id"]

    done = ran("db", "archive", "--to", "old", "--before", YEAR_3000, "--json")

    assert [one["run_id"] for one in done.document] == [fork, parent]
    key = ran("audit", "key", "--json").document["public_key"]
    for run in (fork, parent):
        words = ("replay", "--bundle", f"old/{run}.caxton", "--key", key)
        assert ran(*words).out.startswith("identical"), run
    assert ran("audit", "verify").code == 0


# -- bundles of what is not all there ------------------------------------------


def test_export_of_an_erased_run_says_so(ran: Shell) -> None:
    run = ran("runs", "show", "@last", "--json").document["run_id"]
    key = ran("audit", "key", "--json").document["public_key"]
    ran("audit", "checkpoint", "-o", "before.txt")
    ran("audit", "erase", "@last", "--reason", "asked for")

    done = ran("audit", "export", "@last", "-o", "run.caxton")

    assert done.code == 0
    assert "was erased: the bundle can be verified, not replayed" in done.err
    words = ("--bundle", "run.caxton", "--key", key)
    verified = ran("audit", "verify", *words)
    assert verified.code == 0
    assert f"of which the digests are left, of run {run}" in verified.out
    replayed = ran("replay", *words)
    assert replayed.code == 2
    assert "was erased" in replayed.err
    second = (sys.executable, REFERENCE / "verify_bundle.py", "run.caxton", key)
    told = subprocess.run(second, capture_output=True, text=True, check=True)
    assert told.stdout == "intact: 9 payloads were erased\n"
    # Checkpoints of before hold.
    assert ran("audit", "verify", "--checkpoint", "before.txt").code == 0
    assert ran("audit", "verify", "@last").code == 0


def test_export_of_a_run_with_hashed_answers_says_so(hashed: Shell) -> None:
    key = hashed("audit", "key", "--json").document["public_key"]

    done = hashed("audit", "export", "@last", "-o", "run.caxton", "--json")

    assert "call 2 (event 4), demo/echo" in done.document["not_kept"]
    words = ("--bundle", "run.caxton", "--key", key)
    assert hashed("audit", "verify", *words).code == 0
    replayed = hashed("replay", *words)
    assert (replayed.code, replayed.out.split(":")[0]) == (2, "incomplete")
    assert b"quite private" not in Path("run.caxton").read_bytes()


def test_dump_command_of_a_socket_names_its_folder() -> None:
    place = "postgresql://me@/log?host=/run/pg&password=x"
    assert backups.dump_command(place, Path("a b")) == (
        "pg_dump --format=custom --host=/run/pg --username=me '--file=a b' log"
    )


def test_password_of_a_store_is_not_in_what_is_to_be_typed(ran: Shell) -> None:
    with closing(sqlite3.connect(ran.database)) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (1,)
    from caxton_host.cli.local_host import (  # noqa: PLC0415 -- what it is about
        LocalHost,
    )

    place = "postgresql://me:hunter2hunter2@db/log?sslpassword=swordfish1"
    host = LocalHost(db=place)
    assert host.command() == "caxton --db 'postgresql://me:***@db/log?sslpassword=***'"
    assert {"hunter2hunter2", "swordfish1"} <= host.load().secrets


def test_lists_are_compared_with_events_and_made_again_from_them(ran: Shell) -> None:
    ran("run", "weather")
    ran("audit", "erase", "@last", "--reason", "asked for")
    sound = ran("db", "verify-projections")
    with sqlite3.connect(ran.folder / "caxton.db") as connection:
        connection.execute("UPDATE runs SET reason = 'limit' WHERE reason IS NULL")
    connection.close()

    found = ran("db", "verify-projections")
    told = ran("db", "verify-projections", "--json").document
    repaired = ran("db", "verify-projections", "--repair")

    assert (sound.code, sound.out) == (0, "2 runs, 0 differences\n")
    assert found.code == 5
    assert found.out.splitlines()[0] == "2 runs, 2 differences"
    assert "reason is 'limit', by its events None" in found.out
    assert found.fix == "caxton db verify-projections --repair"
    assert (told["runs"], told["differ"]) == (2, 2)
    assert {one["column"] for one in told["differences"]} == {"reason"}
    assert (repaired.code, repaired.out) == (0, sound.out)


def test_list_says_that_rows_of_an_older_release_may_be_missing(ran: Shell) -> None:
    with sqlite3.connect(ran.folder / "caxton.db") as connection:
        connection.execute("UPDATE runs SET phase = NULL, tools = '[]'")
        connection.execute("DELETE FROM run_tools")
    connection.close()
    tool = "runs", "list", "--tool", "demo/get_weather"

    listed, waits = ran(*tool), ran("approval", "list")
    ran("db", "migrate")
    filled = ran(*tool)

    for one in (listed, waits):
        assert "may be missing from filtered lists" in one.err
        assert "caxton db migrate" in one.err
    assert "weather" not in listed.out
    assert "weather" in filled.out
    assert "missing" not in filled.err


def test_runs_are_listed_by_tool_outcome_actor_kind_and_time(ran: Shell) -> None:
    def count(*words: str) -> int:
        return len(ran("runs", "list", "--json", *words).document)

    assert count("--tool", "demo/get_weather", "--outcome", "tool_error") == 1
    assert count("--tool", "demo/get_weather", "--outcome", "denied") == 0
    assert count("--outcome", "denied", "--kind", "agent", "--since", "1h") == 1
    assert count("--until", "1h") == 0
    assert count("--actor", str(local_actor()["id"])) == 1
    assert count("--actor", "nobody") == count("--reason", "trap") == 0
