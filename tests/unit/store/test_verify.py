# ruff: noqa: S608 -- statements of an attacker, in full
"""Whatever is changed inside a stream shows, with its place and a reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from caxton_host.core.log.chain import Verdict
from caxton_host.errors import LogBrokenError
from caxton_host.store.verify import verify

from .fakes import line, open_store, run_started, traced


async def write(folder: Path) -> None:
    async with open_store(folder) as store:
        for stream in ("run/a", "run/b", "run/c"):
            log = store.create(stream, trace=traced("a" * 32, "b" * 16))
            await log.append(run_started(), *(line(n) for n in range(1, 5)))


async def tamper(folder: Path, *statements: str) -> Verdict:
    """Change the database as its administrator could, and verify it."""
    async with open_store(folder) as store:
        with store.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
            for (trigger,) in connection.exec_driver_sql(
                "SELECT name FROM sqlite_master WHERE type = 'trigger'"
            ).all():
                connection.exec_driver_sql(f"DROP TRIGGER {trigger}")
            for statement in statements:
                connection.exec_driver_sql(statement)
        return await verify(store.reader)


async def test_log_as_it_was_written_is_sound(tmp_path: Path) -> None:
    await write(tmp_path)
    async with open_store(tmp_path, write=False) as store:
        whole = await verify(store.reader)
        one = await verify(store.reader, "run/b")
        none = await verify(store.reader, "run/none")
    assert (whole.streams, whole.events, whole.faults) == (3, 15, ())
    assert (one.streams, one.events, one.faults) == (1, 5, ())
    assert (none.streams, none.events, none.faults) == (0, 0, ())


VICTIM = "stream = 'run/b' AND seq = 3"
PAYLOAD = f"position = (SELECT position FROM events WHERE {VICTIM})"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (f"UPDATE payloads SET payload = x'c0' WHERE {PAYLOAD}", "payload"),
        (f"UPDATE payloads SET salt = zeroblob(16) WHERE {PAYLOAD}", "payload"),
        (f"UPDATE events SET digest = zeroblob(32) WHERE {VICTIM}", "payload"),
        (f"UPDATE events SET hash = zeroblob(32) WHERE {VICTIM}", "it is not"),
        (f"UPDATE events SET type = 'RunFailed' WHERE {VICTIM}", "it is not"),
        (f"UPDATE events SET schema_version = 2 WHERE {VICTIM}", "it is not"),
        (f"UPDATE events SET recorded_at = 0 WHERE {VICTIM}", "it is not"),
        (f"UPDATE events SET trace_id = NULL WHERE {VICTIM}", "it is not"),
        (f"UPDATE events SET span_id = 'c' WHERE {VICTIM}", "it is not"),
        (f"UPDATE events SET recorded_at = 'now' WHERE {VICTIM}", "a column"),
        (f"UPDATE events SET hash = printf('%032d', 0) WHERE {VICTIM}", "it is not"),
        (f"UPDATE events SET recorded_at = -1 WHERE {VICTIM}", "a column"),
        (f"UPDATE events SET type = x'ff' WHERE {VICTIM}", "a column"),
        (f"UPDATE payloads SET payload = 'text' WHERE {PAYLOAD}", "a column"),
        (f"UPDATE events SET type = CAST(x'ff' AS TEXT) WHERE {VICTIM}", "a column"),
        (f"DELETE FROM events WHERE {VICTIM}", "missing: the next is 4"),
        (f"UPDATE events SET seq = 9 WHERE {VICTIM}", "missing: the next is 9"),
        (f"DELETE FROM payloads WHERE {PAYLOAD}", "payload is missing"),
        (f"UPDATE payloads SET payload = payload || x'ff' WHERE {PAYLOAD}", "a column"),
    ],
)
async def test_changed_event_is_found(tmp_path: Path, change: str, reason: str) -> None:
    await write(tmp_path)

    verdict = await tamper(tmp_path, change)

    assert verdict.streams == 3
    assert verdict.first_bad is not None
    assert verdict.first_bad[:2] == ("run/b", 3)
    assert reason in verdict.first_bad[2]


async def test_text_that_is_not_utf_8_is_read_by_the_verification_alone(
    tmp_path: Path,
) -> None:
    await write(tmp_path)
    change = f"UPDATE events SET type = CAST(x'ff' AS TEXT) WHERE {VICTIM}"
    assert (await tamper(tmp_path, change)).faults

    async with open_store(tmp_path, write=False) as store:
        assert (await verify(store.reader)).faults
        with (
            store.engine.connect() as connection,
            pytest.raises(OperationalError, match="UTF-8"),
        ):
            connection.exec_driver_sql("SELECT type FROM events").all()


async def test_events_that_changed_places_are_found(tmp_path: Path) -> None:
    await write(tmp_path)

    verdict = await tamper(
        tmp_path,
        "UPDATE events SET seq = 99 WHERE stream = 'run/b' AND seq = 3",
        "UPDATE events SET seq = 3 WHERE stream = 'run/b' AND seq = 4",
        "UPDATE events SET seq = 4 WHERE stream = 'run/b' AND seq = 99",
    )

    assert verdict.first_bad == ("run/b", 3, "event 3 is missing: the next is 4")


async def test_doubled_event_is_found(tmp_path: Path) -> None:
    await write(tmp_path)

    verdict = await tamper(
        tmp_path,
        "CREATE TABLE copy AS SELECT * FROM events",
        f"INSERT INTO copy SELECT * FROM events WHERE {VICTIM}",
        "DROP TABLE events",
        "ALTER TABLE copy RENAME TO events",
    )

    assert verdict.events == 16
    assert verdict.first_bad is not None
    assert verdict.first_bad[:2] == ("run/b", 4)


async def test_event_of_another_stream_is_found(tmp_path: Path) -> None:
    await write(tmp_path)

    verdict = await tamper(
        tmp_path,
        "DELETE FROM events WHERE stream = 'run/c'",
        "UPDATE events SET stream = 'run/c' WHERE stream = 'run/a'",
    )

    assert verdict.first_bad is not None
    assert verdict.first_bad[:2] == ("run/c", 1)


async def test_first_of_several_faults_is_told(tmp_path: Path) -> None:
    await write(tmp_path)

    verdict = await tamper(tmp_path, "UPDATE events SET type = 'X' WHERE seq > 1")

    assert verdict.first_bad is not None
    assert verdict.first_bad[:2] == ("run/a", 2)
    assert (verdict.streams, verdict.events) == (3, 15)


async def test_salt_and_payload_cannot_share_their_border(tmp_path: Path) -> None:
    await write(tmp_path)

    verdict = await tamper(
        tmp_path,
        "PRAGMA ignore_check_constraints = ON",
        "UPDATE payloads SET payload = substr(payload, 2), "
        "salt = CAST(salt || substr(payload, 1, 1) AS BLOB) WHERE position = 1",
    )

    assert verdict.first_bad == ("run/a", 1, "its payload is not what was written")


async def test_damaged_file_is_a_broken_log(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        log = store.create("run/a")
        for n in range(200):
            await log.append(line(n, "x" * 1000))
    path = tmp_path / "caxton.db"
    data = path.read_bytes()
    sound = len(data) // 2
    path.write_bytes(data[:sound] + b"\xee" * (len(data) - sound))

    async with open_store(tmp_path, write=False) as store:
        with pytest.raises(LogBrokenError, match="malformed"):
            await verify(store.reader)
        with pytest.raises(LogBrokenError, match="malformed"):
            await store.reader.read("run/a")
