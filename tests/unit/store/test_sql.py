"""What the SQL store promises beyond the contract: the disk."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import anyio
import pytest
import sqlalchemy as sa

from caxton_host.core.log.chain import payload_digest
from caxton_host.core.log.events import RunSuspended
from caxton_host.errors import LogBrokenError, StoreError
from caxton_host.lib.codec import encode, sha256
from caxton_host.store.sql import SqlStore
from caxton_host.store.sqlite import SqliteCommitter
from caxton_host.store.verify import verify

from .fakes import FakeEntropy, line, open_store, run_started, traced

RUN = "run/0193"


def look(folder: Path, query: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(folder / "caxton.db")
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def committer(store: SqlStore) -> SqliteCommitter:
    assert store._writer is not None
    assert isinstance(store._writer._committer, SqliteCommitter)
    return store._writer._committer


async def test_append_is_durable_when_it_returns(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        log = store.create(RUN)
        for n in range(1, 4):  # by the thread, then on the loop
            await log.append(line(n))  # law 3
            assert look(tmp_path, "SELECT max(seq) FROM events") == [(n,)]
            assert look(tmp_path, "SELECT max(position) FROM payloads") == [(n,)]


async def test_commits_reach_the_disk_before_they_return(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        driver = committer(store)._driver
        settings = [
            driver.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "foreign_keys")
        ]

    assert settings == ["wal", 2, 1]  # law 10: 2 is FULL


async def test_call_costs_one_commit(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        log = store.create(RUN)
        await log.append(line(0))
        before = store.commits
        for n in range(1, 21, 2):
            await log.append(line(n))
            log.queue(line(n + 1))
        await log.append()

        # law 3: the outcome rides the next intent, or the timer if that is late
        assert len(await store.reader.read(RUN)) == 21
        assert 11 <= store.commits - before <= 21
    async with open_store(tmp_path, write=False) as store:
        assert store.commits == 0


async def test_exact_stored_bytes_are_hashed(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await store.create(RUN).append(line(1))

    ((salt, payload, digest),) = look(
        tmp_path,
        "SELECT salt, payload, digest FROM payloads JOIN events USING(position)",
    )
    assert payload == encode({"n": 1, "level": "info", "text": "hello"})
    assert salt == FakeEntropy()(16)
    assert digest == payload_digest(salt, payload)


async def test_run_and_its_event_are_one_transaction(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await store.create(RUN).append(run_started())
        again = store.create(RUN)
        with pytest.raises(StoreError):
            await again.append(RunSuspended(reason="approval", call=1))

        (row,) = await store.reader.runs(1)

    assert row.state == "running"


async def test_two_hosts_share_a_database(tmp_path: Path) -> None:
    async with open_store(tmp_path) as one, open_store(tmp_path) as two:
        ours, theirs = one.create("run/1"), two.create("run/2")
        for n in range(1, 6):
            await ours.append(line(n))
            await theirs.append(line(n))
        late = two.create("run/1")
        with pytest.raises(StoreError, match="another host drives this run now"):
            await late.append(line(1))

        assert [e.position async for e in one.reader.stream_events()] == list(
            range(1, 11)
        )


async def test_append_waits_while_another_process_writes(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        log = store.create(RUN)
        await log.append(line(1))
        await log.append(line(2))
        other = sqlite3.connect(tmp_path / "caxton.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(log.append, line(3))
            await anyio.sleep(0.05)  # the loop is free
            other.execute("ROLLBACK")
        other.close()

        assert len(await store.reader.read(RUN)) == 3


async def test_append_without_events_waits_for_a_commit_under_way(
    tmp_path: Path,
) -> None:
    async with open_store(tmp_path) as store:
        log = store.create(RUN)
        other = sqlite3.connect(tmp_path / "caxton.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        log.queue(line(1))
        await anyio.sleep(0.02)  # the timer has handed it to the thread

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(log.append)
            await anyio.sleep(0.01)
            assert await store.reader.read(RUN) == []
            other.execute("ROLLBACK")
        other.close()

        assert len(await store.reader.read(RUN)) == 1  # law 3


async def test_full_disk_fails_the_stream_and_not_the_store(tmp_path: Path) -> None:
    # attack 45
    async with open_store(tmp_path) as store:
        full, fine = store.create("run/full"), store.create("run/fine")
        await full.append(line(1))
        driver = committer(store)._driver
        pages = driver.execute("PRAGMA page_count").fetchone()[0]
        driver.execute(f"PRAGMA max_page_count = {pages + 10}")

        with pytest.raises(StoreError, match="full") as failure:
            await full.append(line(2, "x" * 1_000_000))

        with pytest.raises(StoreError, match="full"):
            await full.append(line(3))
        await fine.append(line(1))
        driver.execute("PRAGMA max_page_count = 1000000")
        await fine.append(line(2, "x" * 1_000_000))
        assert [
            len(await store.reader.read(s)) for s in await store.reader.streams()
        ] == [2, 1]
    assert failure.value.fix
    assert "xxx" not in str(failure.value)


async def test_lost_connection_fails_the_stream_and_not_the_store(
    tmp_path: Path,
) -> None:
    async with open_store(tmp_path) as store:
        lost, fine = store.create("run/lost"), store.create("run/fine")
        await lost.append(line(1))
        committer(store)._driver.close()

        with pytest.raises(StoreError, match="closed"):
            await lost.append(line(2))

        await fine.append(line(1))
        assert len(await store.reader.read("run/lost")) == 1


async def test_group_that_cannot_be_built_fails_its_stream_only(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        bad = store.create("run/bad", trace=traced("x" * 300))
        fine = store.create("run/fine")
        bad.queue(line(1))

        await fine.append(line(1))

        with pytest.raises(StoreError, match="ValueError"):
            await bad.append(line(2))
        assert await store.reader.streams() == ["run/fine"]


async def test_closed_store_takes_no_more(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log = store.create(RUN)
    await log.append(line(1))
    await store.aclose()
    await store.aclose()

    with pytest.raises(StoreError, match="closed"):
        await log.append(line(2))


async def test_store_opened_to_read_takes_nothing(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await store.create(RUN).append(line(1))
    async with open_store(tmp_path, write=False) as store:
        assert len(await store.reader.read(RUN)) == 1
        with pytest.raises(StoreError, match="read only"):
            store.create("run/2")
        with pytest.raises(StoreError, match="read only"):
            await store.resume_log(RUN)
        with (
            store.engine.connect() as connection,
            pytest.raises(sa.exc.OperationalError, match="readonly"),
        ):
            connection.exec_driver_sql("DELETE FROM payloads")


async def test_erased_payload_is_no_event(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await store.create(RUN).append(line(1), line(2))
        with store.engine.connect() as connection:
            connection.exec_driver_sql("DELETE FROM payloads WHERE position = 1")

        assert [event.event for event in await store.reader.read(RUN)] == [
            None,
            line(2),
        ]


@pytest.mark.parametrize(
    "payload", [b"", b"\xc1", b"\x01", encode({"n": 1}), encode([1]), b"\x91" * 5000]
)
async def test_payload_that_is_none_is_a_broken_log(
    tmp_path: Path, payload: bytes
) -> None:
    async with open_store(tmp_path) as store:
        await store.create(RUN).append(line(1))
        with store.engine.connect() as connection:
            connection.exec_driver_sql("DROP TRIGGER payloads_no_update")
            connection.exec_driver_sql("UPDATE payloads SET payload = ?", (payload,))

        with pytest.raises(LogBrokenError, match="event 1 of run/0193"):
            await store.reader.read(RUN)


async def test_text_that_is_none_is_a_broken_log_and_not_quoted(
    tmp_path: Path,
) -> None:
    async with open_store(tmp_path) as store:
        await store.create(RUN).append(line(1, "secret"))
        with store.engine.connect() as connection:
            connection.exec_driver_sql("DROP TRIGGER payloads_no_update")
            connection.exec_driver_sql("UPDATE payloads SET payload = payload || x'ff'")

        with pytest.raises(LogBrokenError) as failure:
            await store.reader.read(RUN)
    assert "secret" not in str(failure.value)  # law 8


async def test_blob_with_other_bytes_is_a_broken_log(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await store.create(RUN).append(line(1), blobs={sha256(b"module"): b"module"})
        with store.engine.connect() as connection:
            connection.exec_driver_sql("DROP TRIGGER blobs_no_update")
            connection.exec_driver_sql("UPDATE blobs SET bytes = x'00'")

        with pytest.raises(LogBrokenError):
            await store.reader.blob(sha256(b"module"))


@pytest.mark.parametrize("span", [None, "b" * 16])
async def test_trace_and_span_are_kept_in_a_batch_of_both_kinds(
    tmp_path: Path, span: str | None
) -> None:
    async with open_store(tmp_path) as store:
        plain = store.create("run/a")
        spanned = store.create("run/b", lambda _, events: [(None, span)] * len(events))
        plain.queue(line(1))
        spanned.queue(line(1))
        await plain.append(line(2))
        found = [(e.stream, e.span_id) async for e in store.reader.stream_events()]
        verdict = await verify(store.reader)

    assert sorted(found) == [("run/a", None), ("run/a", None), ("run/b", span)]
    assert verdict.first_bad is None


async def test_position_of_an_erased_payload_is_not_given_again(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        log = store.create("run/a")
        await log.append(line(1), line(2))
        with store.engine.connect() as connection:
            connection.exec_driver_sql("DELETE FROM payloads WHERE position = 2")
        await log.append(line(3))
        found = [(e.position, e.event) async for e in store.reader.stream_events()]

    assert found == [(1, line(1)), (2, None), (3, line(3))]


async def test_the_newest_events_of_some_streams_are_found(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        for stream in ("host/1", "host/2", "run/1", "hostess/1"):
            await store.create(stream).append(line(1), line(2))
        kind = type(line(1)).__name__
        found = await store.reader.newest("host/", [kind], 3)
        assert [(event.stream, event.seq) for event in found] == [
            ("host/2", 2),
            ("host/2", 1),
            ("host/1", 2),
        ]
        assert await store.reader.newest("host/", ["RunStarted"], 3) == []
