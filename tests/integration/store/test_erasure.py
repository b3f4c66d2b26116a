"""What is erased is gone from the file, and the chain holds without it."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.log.chain import payload_digest
from caxton_host.core.log.events import RunCompleted, RunErased
from caxton_host.errors import StoreError
from caxton_host.store import erasure
from caxton_host.store.sql import SqlStore
from caxton_host.store.verify import verify
from tests.postgres import Server, name_of
from tests.unit.store.fakes import line, run_started, url

from .support import opened
from .test_postgres_schema import GRANTS

ANN: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}
CANARY = "a-canary-that-sings"


async def written(store: SqlStore, run_id: str, text: str, lines: int = 1) -> None:
    log = store.create(f"run/{run_id}")
    await log.append(run_started())
    for n in range(1, lines + 1):
        await log.append(line(n, f"{text} {os.urandom(200).hex()}"))
    await log.append(RunCompleted(output=text * 2000, output_sha256="", fuel=1))


async def erase(store: SqlStore, run_id: str) -> RunErased:
    return await store.erasure.erase(run_id, "host/1", actor=ANN, reason="asked for")


async def test_chain_holds_without_the_payloads(database: str) -> None:
    async with opened(database) as store:
        await written(store, "1", CANARY)
        await written(store, "2", "kept")
        await erase(store, "1")

        found = await verify(store.reader)
        of_one = await verify(store.reader, "run/1")

    assert (found.first_bad, found.events, found.erased) == (None, 7, 3)
    assert (of_one.first_bad, of_one.erased) == (None, 3)


async def test_payload_that_is_missing_without_an_erasure_is_found(
    database: str,
) -> None:
    async with opened(database) as store:
        await written(store, "1", "kept")
        await written(store, "2", CANARY)
        await erase(store, "2")
        with store.engine.connect() as connection:
            connection.exec_driver_sql("DELETE FROM payloads WHERE position = 2")
        found = await verify(store.reader)

    assert found.first_bad == ("run/1", 2, "its payload is missing")


@pytest.mark.parametrize("stream", [None, "run/1"])
@pytest.mark.parametrize(
    ("restored", "bad"), [([1], 1), ([2], 2), ([2, 3], 2), ([1, 2], 1), ([1, 2, 3], 1)]
)
async def test_payload_of_an_erased_run_that_was_written_back_is_found(
    tmp_path: Path, restored: list[int], bad: int, stream: str | None
) -> None:
    """Decision 0013: an erasure removes every payload of its run."""
    async with opened(url(tmp_path)) as store:
        await written(store, "1", "some")
        with closing(sqlite3.connect(tmp_path / "caxton.db")) as reader:
            kept = reader.execute("SELECT * FROM payloads ORDER BY position").fetchall()
        await erase(store, "1")
    with closing(sqlite3.connect(tmp_path / "caxton.db")) as forger:
        forger.executemany(
            "INSERT INTO payloads VALUES (?, ?, ?)", [kept[n - 1] for n in restored]
        )
        forger.commit()

    async with opened(url(tmp_path), write=False) as store:
        found = await verify(store.reader, stream)

    message = "its run was erased, and its payload is there"
    assert found.first_bad == ("run/1", bad, message)
    assert (len(found.faults), found.verdict) == (1, "broken")


async def test_edited_envelope_of_an_erased_run_is_found(tmp_path: Path) -> None:
    async with opened(url(tmp_path)) as store:
        await written(store, "1", CANARY)
        await erase(store, "1")
    with closing(sqlite3.connect(tmp_path / "caxton.db")) as forger:
        forger.execute("DROP TRIGGER events_no_update")
        forger.execute("UPDATE events SET type = 'LogWritten' WHERE position = 3")
        forger.commit()

    async with opened(url(tmp_path), write=False) as store:
        found = await verify(store.reader)

    assert found.first_bad == ("run/1", 3, "it is not what was written, or not where")


async def test_edited_erasure_excuses_nothing(tmp_path: Path) -> None:
    async with opened(url(tmp_path)) as store:
        await written(store, "1", CANARY)
        await erase(store, "1")
    with closing(sqlite3.connect(tmp_path / "caxton.db")) as forger:
        forger.execute("DROP TRIGGER payloads_no_update")
        forger.execute(
            "UPDATE payloads SET payload = payload || x'c0' WHERE position = "
            "(SELECT max(position) FROM events)"
        )
        forger.commit()

    async with opened(url(tmp_path), write=False) as store:
        found = await verify(store.reader)

    assert found.first_bad is not None
    assert found.first_bad[0] == "host/1"


@pytest.mark.parametrize("stream", [None, "run/1"])
async def test_other_event_that_was_made_an_erasure_excuses_nothing(
    tmp_path: Path, stream: str | None
) -> None:
    async with opened(url(tmp_path)) as store:
        await written(store, "1", CANARY)
        await written(store, "2", "kept")
        await erase(store, "2")
    with closing(sqlite3.connect(tmp_path / "caxton.db")) as forger:
        for table in ("events", "payloads"):
            forger.execute(f"DROP TRIGGER {table}_no_update")
        salt, payload = forger.execute(
            "SELECT salt, payload FROM payloads WHERE position = 7"
        ).fetchone()
        # As long as before: what runs are called is known.
        payload = payload.replace(b"\xa12", b"\xa11")
        digest = payload_digest(salt, payload)
        forger.execute(
            "UPDATE payloads SET salt = ?, payload = ? WHERE position = 7",
            (salt, payload),
        )
        forger.execute("UPDATE events SET digest = ? WHERE position = 7", (digest,))
        forger.execute("DELETE FROM payloads WHERE position <= 3")
        forger.commit()

    async with opened(url(tmp_path), write=False) as store:
        found = await verify(store.reader, stream)
        assert await store.reader.erased() == {}

    bad = {(fault.stream, fault.seq) for fault in found.faults}
    assert ("run/1", 1) in bad


async def test_bytes_are_gone_from_file_and_log_while_a_host_has_it_open(
    tmp_path: Path,
) -> None:
    async with opened(url(tmp_path)) as host, opened(url(tmp_path)) as store:
        await written(host, "1", CANARY, lines=300)
        await written(host, "2", "kept", lines=300)
        assert CANARY.encode() in everything(tmp_path)

        await erase(store, "1")
        assert await store.erasure.scrub()

        left = everything(tmp_path)
        assert CANARY.encode() not in left
        assert b"kept" in left
        assert (tmp_path / "caxton.db-wal").stat().st_size == 0
        await written(host, "3", "afterwards")
        assert (await verify(store.reader)).first_bad is None


async def test_reader_keeps_the_file_from_being_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasure, "_PATIENCE_MS", 10)
    async with opened(url(tmp_path)) as store:
        await written(store, "1", CANARY)
        with closing(sqlite3.connect(tmp_path / "caxton.db")) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM payloads").fetchone()
            await erase(store, "1")
            assert not await store.erasure.scrub()
        assert await store.erasure.scrub()
        assert CANARY.encode() not in everything(tmp_path)


def everything(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.glob("caxton.db*"))


async def test_user_of_the_hosts_may_not_erase(
    postgres: Server, postgres_url: str
) -> None:
    async with opened(postgres_url) as store:
        await written(store, "1", CANARY)
    name = name_of(postgres_url)
    user = f"host_{name}"
    postgres.execute(f"CREATE ROLE {user} LOGIN")
    for grant in GRANTS:
        postgres.execute(f"{grant} TO {user}", name)

    async with opened(postgres.url(name, user)) as store:
        with pytest.raises(StoreError, match="permission denied for table payloads"):
            await erase(store, "1")
        assert (await verify(store.reader)).erased == 0
    postgres.execute(f"GRANT DELETE ON payloads, submissions TO {user}", name)
    async with opened(postgres.url(name, user)) as store:
        await erase(store, "1")
        assert (await verify(store.reader)).erased == 3


async def test_answer_that_is_lost_does_not_erase_twice(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(postgres_url) as store:
        await written(store, "1", CANARY)
        lost = Lost(store, monkeypatch)
        await erase(store, "1")
        assert lost.times == 1
        assert len(await store.reader.read("host/1")) == 1


class Lost:
    """Loses the connection behind the first COMMIT of an erasure."""

    def __init__(self, store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        execute: Any = psycopg.Connection.execute

        def losing(driver: Any, query: Any, *args: Any) -> Any:  # noqa: ANN401
            done = execute(driver, query, *args)
            if query == "COMMIT" and not self.times:
                self.times += 1
                driver.close()
                raise psycopg.OperationalError("the connection is lost")
            return done

        monkeypatch.setattr(psycopg.Connection, "execute", losing)
        assert store.engine.dialect.name == "postgresql"
