"""Leases on a real PostgreSQL server: renewed, lapsed, taken over."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import anyio
import psycopg
import pytest

from caxton_host.core.log.events import RunResumed, RunSuspended, ToolRetried
from caxton_host.errors import BusyError, LeaseLost, ReadOnlyError, StoreError
from caxton_host.lib.machine import SystemClock
from caxton_host.store import leases_postgres
from caxton_host.store.leases_postgres import PostgresLeases, elapsed
from caxton_host.store.postgres import PostgresCommitter
from caxton_host.store.sql import SqlStore
from tests.unit.store.fakes import line, run_started

ONE, TWO = "host/1", "host/2"
LONG = 300.0


def opened(url: str, lease: float = LONG) -> SqlStore:
    return SqlStore.open(url, clock=SystemClock(), entropy=os.urandom, lease=lease)


@pytest.fixture
def server(postgres_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


def lapse(server: psycopg.Connection) -> None:
    server.execute(
        "UPDATE hosts SET lease_until = clock_timestamp() - interval '1 s' "
        "WHERE host = %s",
        [ONE],
    )


def resumed(host: str = TWO) -> RunResumed:
    return RunResumed(actor={}, host=host, epoch=2, reason="", grants_sha256="00")


def of(store: SqlStore) -> PostgresLeases:
    assert isinstance(store.leases._hosts, PostgresLeases)
    return store.leases._hosts


def run_out(store: SqlStore) -> None:
    """Let the host believe that its lease has run out."""
    of(store)._until = elapsed()


async def test_lease_is_renewed(postgres_url: str, server: psycopg.Connection) -> None:
    async with opened(postgres_url, lease=0.6) as store:
        await store.leases.join(ONE)
        log = store.create("run/1")
        await log.append(run_started())
        with anyio.fail_after(30):
            for _ in range(4):
                (before,) = server.execute("SELECT lease_until FROM hosts").fetchall()
                while (  # noqa: ASYNC110 -- nobody tells
                    server.execute("SELECT lease_until FROM hosts").fetchall()[0]
                    <= before
                ):
                    await asyncio.sleep(0.01)
        assert log.holds()
    assert server.execute("SELECT * FROM hosts").fetchall() == []  # given back


async def test_host_believes_less_than_the_server_grants(
    postgres_url: str, server: psycopg.Connection
) -> None:
    async with opened(postgres_url, lease=15) as store:
        await store.leases.join(ONE)

        believed = of(store)._until - elapsed()

        (granted,) = server.execute(
            "SELECT extract(epoch FROM lease_until - clock_timestamp())::float "
            "FROM hosts"
        ).fetchone() or (0,)
        assert believed < granted - 1.9
        assert store.create("run/1").holds()
        run_out(store)
        assert not store.create("run/2").holds()


async def test_store_that_has_not_joined_may_send_nothing(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        assert not store.create("run/1").holds()
        await store.leases.join(ONE)
        with pytest.raises(StoreError, match="host/1 already"):
            await store.leases.join(TWO)


async def test_a_host_whose_lease_has_lapsed_is_not_well(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        await store.health.check()
        await store.leases.join(ONE)
        await store.health.check()
        run_out(store)
        with pytest.raises(LeaseLost, match="lapsed"):
            await store.health.check()
        await of(store)._renew()
        await store.health.check()


async def test_a_database_that_takes_no_writes_is_not_well(
    postgres_url: str, server: psycopg.Connection
) -> None:
    # as after a failover to a standby
    name = server.info.dbname
    async with opened(postgres_url) as store:
        await store.health.check()
    server.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    async with opened(postgres_url) as store:
        with pytest.raises(ReadOnlyError, match="read-only"):
            await store.health.check()


async def test_late_renewal_keeps_what_nobody_took(
    postgres_url: str, server: psycopg.Connection
) -> None:
    async with opened(postgres_url) as one, opened(postgres_url) as two:
        await one.leases.join(ONE)
        await two.leases.join(TWO)
        logs = [one.create(f"run/{i}") for i in range(3)]
        for log in logs[:2]:
            await log.append(run_started())
        lapse(server)
        run_out(one)
        told: list[bool] = []
        one.leases.tell(lambda: told.append(True))
        assert not any(log.holds() for log in logs)
        await two.claim("run/1", resumed(), after=1)
        assert server.execute(
            "SELECT lease_until FROM hosts WHERE host = %s "
            "AND lease_until = '-infinity'",
            [ONE],
        ).rowcount

        await of(one)._renew()
        await of(one)._renew()

        # It dropped the runs whose next call came meanwhile, and may take them up.
        assert told == [True]
        # The one that was taken is lost before the host may send again; the last
        # one has not begun, so nobody can have taken it.
        assert [log.holds() for log in logs] == [True, False, True]
        with pytest.raises(LeaseLost):
            logs[1].queue(line(1))
        await logs[0].append(line(1))
        assert await two.leases.owner("0") == ONE
        with pytest.raises(BusyError):
            await two.claim("run/0", resumed(), after=2)


async def test_a_death_is_noticed_when_the_lease_lapses(
    postgres_url: str, server: psycopg.Connection
) -> None:
    # law 10; the next renewal would come after 100 s
    server.execute(
        "INSERT INTO hosts VALUES (%s, clock_timestamp() + interval '2 s')", [ONE]
    )
    async with opened(postgres_url) as store:
        gone = asyncio.Event()
        store.leases.tell(gone.set)
        await store.leases.join(TWO)

        with anyio.fail_after(30):
            await gone.wait()

        assert await store.leases.hosts() == [TWO]


async def test_host_whose_row_is_gone_has_it_again(
    postgres_url: str, server: psycopg.Connection
) -> None:
    async with opened(postgres_url) as store:
        await store.leases.join(ONE)
        log = store.create("run/1")
        await log.append(run_started())
        server.execute("DELETE FROM hosts")

        await of(store)._renew()

        assert log.holds()
        assert await store.leases.owner("1") == ONE


async def test_renewal_waits_for_a_claim_that_has_begun(
    postgres_url: str, server: psycopg.Connection
) -> None:
    async with opened(postgres_url) as store:
        await store.leases.join(ONE)
        log = store.create("run/1")
        await log.append(run_started())
        lapse(server)
        server.execute("BEGIN")
        assert of(store).is_dead(server, ONE)
        renewal = asyncio.create_task(of(store)._renew())
        await asyncio.sleep(0.2)
        assert not renewal.done()
        server.execute("UPDATE runs SET owner = 'host/2'")
        server.execute("COMMIT")

        await renewal

        assert not log.holds()


async def test_claim_waits_for_a_renewal_that_has_begun(
    postgres_url: str, server: psycopg.Connection
) -> None:
    async with opened(postgres_url) as one, opened(postgres_url) as two:
        await one.leases.join(ONE)
        await one.create("run/1").append(run_started())
        lapse(server)
        server.execute("BEGIN")
        server.execute(leases_postgres._BEGIN, [ONE, LONG])
        claim = asyncio.create_task(two.claim("run/1", resumed(), after=1))
        await asyncio.sleep(0.2)
        assert not claim.done()
        server.execute("COMMIT")

        with pytest.raises(BusyError, match=ONE):
            await claim


async def test_claim_of_a_host_without_a_row_leaves_one_to_lock(
    postgres_url: str, server: psycopg.Connection
) -> None:
    async with opened(postgres_url) as store:
        await store.create("run/1").append(run_started())

        await store.claim("run/1", resumed(), after=1)

        marked = server.execute("SELECT host, isfinite(lease_until) FROM hosts")
        assert marked.fetchall() == [(ONE, False)]
        await store.leases.join(TWO)  # nothing names it any more
        assert server.execute("SELECT host FROM hosts").fetchall() == [(TWO,)]


async def test_rows_of_dead_hosts_stay_as_long_as_runs_name_them(
    postgres_url: str, server: psycopg.Connection
) -> None:
    async with opened(postgres_url) as one, opened(postgres_url) as two:
        await one.leases.join(ONE)
        await one.create("run/1").append(run_started())
        lapse(server)

        await two.leases.join(TWO)

        found = server.execute("SELECT host FROM hosts ORDER BY host").fetchall()
        assert found == [(ONE,), (TWO,)]


async def test_host_that_let_go_of_a_run_can_take_it_up_again(
    postgres_url: str,
) -> None:
    async with opened(postgres_url) as store:
        await store.leases.join(ONE)
        log = store.create("run/1")
        await log.append(run_started())
        with pytest.raises(BusyError, match=ONE):
            await store.claim("run/1", resumed(ONE), after=1)
        assert await store.leases.idle() == []
        log._line.error = StoreError("the disk is full")
        assert [row.run_id for row in await store.leases.idle()] == ["1"]

        again = await store.claim("run/1", resumed(ONE), after=1)

        assert again.holds()
        assert not log.holds()
        await again.append(ToolRetried(call=1, attempt=2, reason="resumed"))


async def test_claim_that_is_given_up_once_it_is_stored_leaves_nothing_behind(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # law 10: the host passed for one that drives the run, for as long as it lived
    def given_up(*_: object) -> None:
        raise asyncio.CancelledError

    async with opened(database) as store:
        await store.leases.join(ONE)
        log = store.create("run/1")  # Kept: by the writer, or by the error of a task.
        await log.append(run_started(), RunSuspended(reason="host_stopped"))
        with monkeypatch.context() as patch:
            patch.setattr(store, "_log", given_up)
            with pytest.raises(asyncio.CancelledError):
                await store.claim("run/1", resumed(ONE), after=2)

        assert [row.run_id for row in await store.leases.idle()] == ["1"]
        again = await store.claim("run/1", resumed(ONE), after=3)
        assert again.holds()
        assert await store.leases.idle() == []


async def test_lost_connection_is_made_again(
    postgres_url: str, server: psycopg.Connection
) -> None:
    async with opened(postgres_url, lease=0.6) as store:
        await store.leases.join(ONE)
        server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        until = of(store)._until
        with anyio.fail_after(30):
            while of(store)._until <= until:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert store.create("run/1").holds()


async def test_host_that_may_not_have_a_lease_is_told_so(
    postgres_url: str, server: psycopg.Connection
) -> None:
    async with opened(postgres_url) as store:
        server.execute("DROP TABLE hosts")
        with pytest.raises(StoreError, match="cannot take its lease") as refusal:
            await store.leases.join(ONE)
        assert "caxton db status" in refusal.value.fix
        with pytest.raises(StoreError, match="cannot be read"):
            of(store).living([ONE])


async def test_claim_whose_answer_is_lost_was_made_once(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[int] = []
    store_batch = PostgresCommitter._store

    def lose(self: PostgresCommitter, groups: object, last: object) -> object:
        done = store_batch(self, groups, last)  # type: ignore[arg-type]
        if groups[0].guard and not lost:  # type: ignore[index]
            lost.append(1)
            self._driver.close()
            raise psycopg.OperationalError("the connection is lost")
        return done

    monkeypatch.setattr(PostgresCommitter, "_store", lose)
    async with opened(postgres_url) as store:
        await store.leases.join(TWO)
        await store.create("run/1").append(run_started())

        log = await store.claim("run/1", resumed(), after=1)

        assert lost
        await log.append(line(1))
        assert len(await store.reader.read("run/1")) == 3
