# ruff: noqa: S608, ISC004 -- statements of an attacker, in full
"""What is written once stays as it is."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from caxton_host.lib.codec import sha256

from .fakes import line, open_store

KEPT = b"kept"


async def write(folder: Path) -> None:
    async with open_store(folder) as store:
        await store.create("run/1").append(line(1), line(2), blobs={sha256(KEPT): KEPT})


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    anyio.run(write, tmp_path)
    connection = sqlite3.connect(tmp_path / "caxton.db", isolation_level=None)
    yield connection
    connection.close()


EVENT = "(position, stream, seq, type, schema_version, recorded_at, digest, hash)"
ROW = "'T', 1, 1, zeroblob(32), zeroblob(32)"


@pytest.mark.parametrize(
    "attack",
    [
        "UPDATE events SET type = 'RunFailed'",
        "UPDATE OR IGNORE events SET seq = seq + 10",
        "DELETE FROM events",
        "DELETE FROM events WHERE position = 2",
        f"INSERT OR REPLACE INTO events {EVENT} VALUES (1, 'run/9', 1, {ROW})",
        f"INSERT OR REPLACE INTO events {EVENT} VALUES (9, 'run/1', 2, {ROW})",
        f"REPLACE INTO events {EVENT} VALUES (NULL, 'run/1', 2, {ROW})",
        f"INSERT INTO events {EVENT} VALUES (1, 'run/1', 1, {ROW}) "
        "ON CONFLICT DO UPDATE SET type = excluded.type",
        "UPDATE payloads SET payload = x'c0'",
        "UPDATE payloads SET position = 9",
        "REPLACE INTO payloads VALUES (1, zeroblob(16), x'c0')",
        "UPDATE blobs SET bytes = x'00'",
        "DELETE FROM blobs",
        "REPLACE INTO blobs(rowid, sha256, bytes, size) VALUES (1, 'ff', x'00', 1)",
    ],
)
def test_change_of_what_was_written_is_refused(
    database: sqlite3.Connection, attack: str
) -> None:
    before = list(database.iterdump())

    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        database.execute(attack)

    assert list(database.iterdump()) == before


def test_kept_bytes_are_never_replaced(database: sqlite3.Connection) -> None:
    for verb in ("REPLACE", "INSERT OR REPLACE", "INSERT OR IGNORE", "INSERT"):
        database.execute(
            f"{verb} INTO blobs VALUES (?, x'00', 1)",
            (sha256(KEPT),),
        )

    assert database.execute("SELECT bytes, size FROM blobs").fetchall() == [
        (KEPT, len(KEPT))
    ]


def test_payload_can_be_erased_and_its_event_stays(
    database: sqlite3.Connection,
) -> None:
    database.execute("PRAGMA foreign_keys = ON")

    database.execute("DELETE FROM payloads WHERE position = 1")

    assert database.execute("SELECT count(*) FROM events").fetchone() == (2,)


def test_payload_belongs_to_an_event(database: sqlite3.Connection) -> None:
    database.execute("PRAGMA foreign_keys = ON")

    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        database.execute("INSERT INTO payloads VALUES (9, zeroblob(16), x'c0')")


@pytest.mark.parametrize(
    "row",
    [
        f"events {EVENT} VALUES (9, 'run/1', 0, {ROW})",
        f"events {EVENT} VALUES (9, 'run/1', 9, 'T', 1, 1, x'00', zeroblob(32))",
        f"events {EVENT} VALUES (9, 'run/1', 9, 'T', 1, 1, zeroblob(32), x'00')",
        "payloads VALUES (9, x'00', x'c0')",
        "runs(run_id, agent, actor, module_sha256, state, started_at) "
        "VALUES ('1', 'a', '{}', '', 'dancing', 1)",
    ],
)
def test_row_out_of_shape_is_refused(database: sqlite3.Connection, row: str) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        database.execute(f"INSERT INTO {row}")
