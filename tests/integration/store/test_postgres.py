"""What only a server can do to a log: vanish, come back, and be shared."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import anyio
import psycopg
import pytest

from caxton_host.core.log.events import RunCompleted
from caxton_host.errors import LogBrokenError, StoreError
from caxton_host.lib.codec import sha256
from caxton_host.ports import Refused, Reservation
from caxton_host.store.postgres import HELD
from caxton_host.store.verify import verify
from tests.postgres import Server, name_of
from tests.unit.store.fakes import line, run_started

from .support import committer, instead, opened

RUN = "run/0193"


def numbers(found: Sequence[Any]) -> list[int]:
    return [event.event.n for event in found]


def end_connections(postgres: Server, url: str) -> None:
    postgres.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "  # noqa: S608
        f"WHERE datname = '{name_of(url)}'"
    )


@contextmanager
def transaction(url: str) -> Iterator[psycopg.Connection]:
    """Give a transaction that somebody else has open, and roll it back."""
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("BEGIN")
        yield other
        other.rollback()


async def test_append_survives_a_connection_that_was_closed(
    postgres: Server, postgres_url: str
) -> None:
    async with opened(postgres_url) as store:
        log = store.create(RUN)
        await log.append(line(1))
        end_connections(postgres, postgres_url)

        await log.append(line(2))

        assert numbers(await store.reader.read(RUN)) == [1, 2]


def budget(amount: int, limit: int, key: str = "b") -> Reservation:
    return Reservation(key=key, amount=amount, limit=limit, rule="r")


async def used(url: str, key: str = "b") -> int:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        cursor = await connection.execute(
            "SELECT used FROM budgets WHERE key = %s", [key]
        )
        row = await cursor.fetchone()
        return int(row[0]) if row else 0


@pytest.mark.parametrize("reserve", [(), (budget(2, 3),)])
async def test_commit_whose_answer_is_lost_is_found(
    postgres_url: str, reserve: tuple[Reservation, ...]
) -> None:
    async with opened(postgres_url) as store:
        log = store.create(RUN)
        await log.append(line(1))
        driver = committer(store)._driver
        execute = driver.execute

        def commit(query: bytes, params: Sequence[Any]) -> None:
            execute(query, params)
            if reserve:
                execute("COMMIT")

        sent = instead(store, commit)

        # law 10; the budget has room for one
        assert await log.append(line(2), reserve=reserve) is None

        assert len(sent) == 1
        await log.append(line(3))
        assert numbers(await store.reader.read(RUN)) == [1, 2, 3]
        assert (await verify(store.reader)).first_bad is None
        assert await used(postgres_url) == (2 if reserve else 0)


async def test_commit_that_never_arrived_is_sent_again(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        log = store.create(RUN)
        await log.append(line(1))
        instead(store, lambda _query, _params: None)

        assert await log.append(line(2), reserve=[budget(2, 3)]) is None

        assert numbers(await store.reader.read(RUN)) == [1, 2]
        assert await used(postgres_url) == 2


@pytest.mark.parametrize("outcome", ["COMMIT", "ROLLBACK"])
@pytest.mark.parametrize("reserve", [(), (budget(2, 3),)])
async def test_commit_that_is_still_under_way_is_waited_for(
    postgres_url: str, outcome: str, reserve: tuple[Reservation, ...]
) -> None:
    async with opened(postgres_url) as store:
        log = store.create(RUN)
        await log.append(line(1))
        zombie = psycopg.connect(postgres_url, autocommit=True)

        def arrive(query: bytes, params: Sequence[Any]) -> None:
            # The server has the statement, and is not done with it.
            committer(store)._driver.rollback()
            zombie.execute("BEGIN")
            if reserve:
                zombie.execute(HELD, [["b"]])
            zombie.execute(query, params)
            threading.Timer(0.3, zombie.execute, [outcome]).start()

        instead(store, arrive)
        started = time.monotonic()

        assert await log.append(line(2), reserve=reserve) is None

        assert time.monotonic() - started > 0.2
        await log.append(line(3))
        assert numbers(await store.reader.read(RUN)) == [1, 2, 3]
        assert (await verify(store.reader)).first_bad is None
        assert await used(postgres_url) == (2 if reserve else 0)
        zombie.close()


async def test_server_that_is_down_fails_the_stream_and_not_the_store(
    postgres: Server, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("caxton_host.store.postgres._PATIENCE_S", 0.2)
    async with opened(postgres_url) as store:
        lost, also, fine = (store.create(f"run/{n}") for n in ("lost", "also", "fine"))
        await lost.append(line(1))
        postgres.stop()
        try:
            with pytest.raises(StoreError, match="cannot be written") as failure:
                await lost.append(line(2))
            started = time.monotonic()
            with pytest.raises(StoreError, match="cannot be written"):
                await also.append(line(1))
            assert time.monotonic() - started < 5  # it does not wait again
            with pytest.raises(StoreError, match="cannot be read") as unread:
                await store.reader.read("run/lost")
        finally:
            postgres.start()

        await fine.append(line(1))
        assert numbers(await store.reader.read("run/lost")) == [1]
        assert await store.reader.read("run/also") == []
        with pytest.raises(StoreError):
            await lost.append(line(3))
    assert "server" in failure.value.fix
    assert not isinstance(unread.value, LogBrokenError)


async def test_append_waits_while_the_server_restarts(
    postgres: Server, postgres_url: str
) -> None:
    async with opened(postgres_url) as store:
        log = store.create(RUN)
        await log.append(line(1))
        postgres.stop()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(log.append, line(2))
            await anyio.to_thread.run_sync(postgres.start)

        assert numbers(await store.reader.read(RUN)) == [1, 2]


async def test_budget_holds_between_hosts(postgres_url: str) -> None:
    outcomes: list[Refused | None] = []

    async with opened(postgres_url) as one, opened(postgres_url) as two:

        async def spend(i: int) -> None:
            log = (one, two)[i % 2].create(f"run/{i}")
            # Two keys, named in either order: hosts never wait for each other.
            both = [budget(1, 70, key="a"), budget(1, 60, key="b")]
            for n in range(4):
                reserve = both if (i + n) % 3 else both[::-1]
                outcomes.append(await log.append(line(n), reserve=reserve))

        async with anyio.create_task_group() as tasks:
            for i in range(40):
                tasks.start_soon(spend, i)
        stored = [event async for event in one.reader.stream_events()]

    assert len(outcomes) == 160
    assert outcomes.count(None) == len(stored) == 60
    assert await used(postgres_url, "a") == await used(postgres_url, "b") == 60


async def test_hosts_that_append_to_one_run_leave_one_of_them(
    postgres_url: str,
) -> None:
    async with opened(postgres_url) as one, opened(postgres_url) as two:
        logs = [store.create(RUN) for store in (one, two)]
        others = [store.create(f"run/{i}") for i, store in enumerate((one, two))]
        failed: list[str] = []

        async def append(n: int) -> None:
            others[n].queue(line(n))
            try:
                await logs[n].append(line(n))
            except StoreError as exc:
                failed.append(str(exc))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(append, 0)
            tasks.start_soon(append, 1)
        for log in others:
            await log.append()

        assert failed == ["another host drives this run now"]
        assert len(await one.reader.read(RUN)) == 1
        assert sorted(await one.reader.streams()) == ["run/0", "run/0193", "run/1"]


async def test_loop_is_free_while_the_server_makes_a_host_wait(
    postgres_url: str,
) -> None:
    async with opened(postgres_url) as store:
        log = store.create(RUN)
        await log.append(line(1))
        await log.append(line(2), reserve=[budget(1, 9)])
        with transaction(postgres_url) as other:
            other.execute("SELECT * FROM budgets FOR UPDATE")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: log.append(line(3), reserve=[budget(1, 9)]))
                await anyio.sleep(0.05)  # the loop is free
                other.rollback()

        assert numbers(await store.reader.read(RUN)) == [1, 2, 3]


async def test_deadlock_is_tried_again(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        log = store.create(RUN)
        with transaction(postgres_url) as other:
            other.execute("SET deadlock_timeout = '60s'")
            other.execute("INSERT INTO blobs VALUES (%s, %s, 1)", [sha256(b"b"), b"b"])
            blobs = {sha256(b"b"): b"b"}
            first = log.append(line(1), blobs=blobs, reserve=[budget(1, 9)])
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: first)
                await anyio.sleep(0.1)
                # Each holds what the other wants; the host is the one that gives way.
                insert = "INSERT INTO budgets VALUES ('b', 0) ON CONFLICT DO NOTHING"
                await anyio.to_thread.run_sync(other.execute, insert)
                other.execute("ROLLBACK")

        assert numbers(await store.reader.read(RUN)) == [1]
        assert await used(postgres_url) == 1


async def test_text_that_the_server_cannot_hold_fails_its_stream_only(
    postgres_url: str,
) -> None:
    async with opened(postgres_url) as store:
        bad, fine = store.create("run/bad\0"), store.create("run/fine")
        bad.queue(line(1))

        await fine.append(line(1))

        with pytest.raises(StoreError, match="cannot be written") as failure:
            await bad.append(line(2))
        assert await store.reader.streams() == ["run/fine"]
    assert "hello" not in str(failure.value)


async def test_run_may_begin_and_end_in_one_commit(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        done = RunCompleted(output=None, output_sha256="00", fuel=None)
        await store.create(RUN).append(run_started(), line(1), done)
        (row,) = await store.reader.runs(1)

    assert row.state == "completed"
    assert row.ended_at is not None


async def test_events_are_streamed_and_may_be_left_at_any_place(
    postgres_url: str,
) -> None:
    async with opened(postgres_url) as store:
        log = store.create(RUN)
        for n in range(0, 3000, 500):
            log.queue(*(line(n + i) for i in range(500)))
        await log.append()
        async for event in store.reader.stream_events():
            if event.seq == 1500:
                break

        found = [event async for event in store.reader.stream_events()]

        assert numbers(found) == list(range(3000))
        assert (await verify(store.reader)).events == 3000


async def test_edit_by_an_administrator_shows(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        await store.create(RUN).append(line(1), line(2), line(3))
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            admin.execute("ALTER TABLE events DISABLE TRIGGER ALL")
            admin.execute("UPDATE events SET recorded_at = 5 WHERE seq = 2")

        verdict = await verify(store.reader)

    assert verdict.first_bad == (RUN, 2, "it is not what was written, or not where")


async def test_store_opened_to_read_takes_nothing(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        await store.create(RUN).append(line(1))
    async with opened(postgres_url, write=False) as store:
        assert len(await store.reader.read(RUN)) == 1
        with (
            store.engine.connect() as connection,
            pytest.raises(Exception, match="read-only transaction"),
        ):
            connection.exec_driver_sql("DELETE FROM payloads")
