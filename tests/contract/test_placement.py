"""Engines that place runs. Each passes all of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import psycopg
import pytest

from caxton_host.core.log.runs import RunRow
from caxton_host.errors import LeaseLost
from caxton_host.placement.in_process import InProcess
from caxton_host.placement.procrastinate import Procrastinate, prepare
from caxton_host.ports.placement import Job, Placement, Within
from caxton_host.store.memory import MemoryStore
from caxton_host.store.sql import SqlStore
from caxton_host.testing import FakePlacement
from caxton_host.testing.fakes import Fate
from tests.unit.store.fakes import FakeClock, FakeEntropy, run_queued

#: Those whose queue all hosts of a log share.
SHARED = ("fake", "procrastinate")
ENGINES = ("in process", *SHARED)
_GONE = "UPDATE procrastinate_workers SET last_heartbeat = '-infinity'"
_TWICE = """\
INSERT INTO procrastinate_jobs (queue_name, task_name, queueing_lock, args)
SELECT queue_name, task_name, queueing_lock, args FROM procrastinate_jobs"""


@dataclass
class Yard:
    """A queue, and the log of what is in it."""

    store: SqlStore | MemoryStore
    stack: AsyncExitStack
    address: str | None = None
    engine: Placement = field(default_factory=InProcess)

    async def host(self) -> Placement:
        """Return the queue as one more host sees it."""
        if self.address is not None:
            assert isinstance(self.store, SqlStore)
            self.engine = Procrastinate(over=self.store.over, bell=self.store.bell)
        elif isinstance(self.engine, FakePlacement):
            self.engine = FakePlacement(self.engine.queue)
        await self.stack.enter_async_context(self.engine.running())
        return self.engine

    async def submit(
        self, run_id: str, who: str = "token/ann", priority: int = 0
    ) -> None:
        async def record(within: Within | None) -> None:
            await self.store.enter(f"run/{run_id}", run_queued(), within=within)

        await self.engine.submit(Job(run_id=run_id, who=who, priority=priority), record)

    async def rows(self) -> list[RunRow]:
        return await self.store.reader.runs(100)


@pytest.fixture(params=ENGINES)
async def yard(request: pytest.FixtureRequest) -> AsyncIterator[Yard]:
    async with AsyncExitStack() as stack:
        clock, entropy = FakeClock(), FakeEntropy()
        if request.param != "procrastinate":
            it = Yard(MemoryStore(clock=clock, entropy=entropy), stack)
            it.engine = FakePlacement() if request.param == "fake" else InProcess()
            yield it
            return
        address = request.getfixturevalue("postgres_url")
        store = SqlStore.open(address, clock=clock, entropy=entropy, write=True)
        await stack.enter_async_context(store)
        plain = address.replace("+psycopg", "")
        await prepare(plain)
        await prepare(plain)
        yield Yard(store, stack, plain)


async def claimed(engine: Placement, count: int) -> list[str]:
    """Return the next runs that come out of the queue."""
    async with asyncio.timeout(20):
        return [(await engine.claim()).run_id for _ in range(count)]


async def test_what_is_claimed_was_recorded_and_is_nobody_elses(yard: Yard) -> None:
    # law 3
    engine = await yard.host()
    claiming = asyncio.create_task(engine.claim())
    await asyncio.sleep(0.05)

    await yard.submit("0193", "@acme/token/ann", 3)

    job = await claiming
    assert job == Job(run_id="0193", who="@acme/token/ann", priority=3)
    assert [row.state for row in await yard.rows()] == ["queued"]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await engine.claim()
    assert engine.is_empty


async def test_a_job_whose_event_is_not_recorded_is_not_in_the_queue(
    yard: Yard,
) -> None:
    engine = await yard.host()
    await yard.submit("0193")

    with pytest.raises(LeaseLost):  # The same request, at another host.
        await yard.submit("0193")

    assert await claimed(engine, 1) == ["0193"]
    assert await engine.waiting("token/ann") == (0, 0)


async def test_a_higher_class_comes_first_and_tenants_alternate(yard: Yard) -> None:
    engine = await yard.host()
    for number in range(4):
        await yard.submit(f"a{number}", f"@acme/token/{number}")
    assert await claimed(engine, 2) == ["a0", "a1"]
    for number in range(2):
        await yard.submit(f"b{number}", "token/bob")
    await yard.submit("c0", "token/carl", 1)
    await yard.submit("d0", "token/dora", -100)

    assert await engine.waiting("token/bob") == (6, 2)
    assert await claimed(engine, 6) == ["c0", "a2", "b0", "a3", "b1", "d0"]


async def test_a_job_that_is_given_back_comes_again(yard: Yard) -> None:
    engine = await yard.host()
    await yard.submit("0193")
    job = await engine.claim()

    await engine.release(job, again=True)
    assert await claimed(engine, 1) == ["0193"]
    await engine.release(job)

    assert await engine.waiting("token/ann") == (0, 0)
    assert await engine.missing(["0193"]) == {"0193"}


async def test_a_job_that_is_cancelled_does_not_come(yard: Yard) -> None:
    engine = await yard.host()
    await yard.submit("0193")
    await yard.submit("0194")

    await engine.cancel("0193")
    await engine.cancel("0195")

    assert await claimed(engine, 1) == ["0194"]
    await engine.cancel("0194")
    assert await engine.missing(["0193", "0194"]) == {"0193"}


async def test_what_the_engine_lost_is_submitted_again_and_once(yard: Yard) -> None:
    engine = await yard.host()
    await yard.submit("0193")
    if yard.address:
        with psycopg.connect(yard.address, autocommit=True) as connection:
            connection.execute("DELETE FROM procrastinate_jobs")
        assert await engine.missing(["0193"]) == {"0193"}

    for _ in range(2):
        await engine.submit(Job(run_id="0193", who="token/ann"))

    assert await engine.missing(["0193"]) == set()
    assert await claimed(engine, 1) == ["0193"]
    assert await engine.waiting("token/ann") == (0, 0)


@pytest.mark.parametrize("yard", SHARED, indirect=True)
async def test_hosts_share_one_queue_and_each_job_has_one_host(yard: Yard) -> None:
    hosts = [await yard.host() for _ in range(3)]

    async def some(host: Placement) -> list[str]:
        found: list[str] = []
        try:
            async with asyncio.timeout(3):
                while True:
                    job = await host.claim()
                    found.append(job.run_id)
                    await host.release(job)
        except TimeoutError:
            return found

    claiming = [asyncio.create_task(some(host)) for host in hosts]
    for number in range(30):
        await yard.submit(f"r{number:02}")
    found = await asyncio.gather(*claiming)

    assert sorted(one for some in found for one in some) == [
        f"r{number:02}" for number in range(30)
    ]


async def test_a_job_that_comes_twice_is_released_twice(yard: Yard) -> None:
    engine = await yard.host()
    await yard.submit("0193")
    jobs = [await engine.claim()]
    if yard.address:
        with psycopg.connect(yard.address, autocommit=True) as connection:
            connection.execute(_TWICE)
        jobs.append(await engine.claim())

    for job in jobs:
        await engine.release(job)

    assert await engine.missing(["0193"]) == {"0193"}
    if yard.address:
        with psycopg.connect(yard.address) as connection:
            assert not connection.execute("TABLE procrastinate_jobs").fetchall()


@pytest.mark.parametrize("yard", SHARED, indirect=True)
async def test_what_a_dead_host_had_claimed_is_missing(yard: Yard) -> None:
    dead = await yard.host()
    await yard.submit("0193")
    await dead.claim()

    engine = await yard.host()

    assert await engine.missing(["0193"]) == {"0193"}
    await engine.submit(Job(run_id="0193", who="token/ann"))
    assert await claimed(engine, 1) == ["0193"]
    if yard.address:
        with psycopg.connect(yard.address, autocommit=True) as connection:
            connection.execute(_GONE)
            await yard.host()  # It sweeps what nobody will release.
            assert not connection.execute("TABLE procrastinate_jobs").fetchall()


async def test_a_job_that_is_given_back_is_told_to_a_host_that_waits(
    postgres_url: str,
) -> None:
    clock, entropy = FakeClock(), FakeEntropy()
    plain = postgres_url.replace("+psycopg", "")
    async with AsyncExitStack() as stack:
        stores = [
            SqlStore.open(postgres_url, clock=clock, entropy=entropy) for _ in range(2)
        ]
        await prepare(plain)
        for number, store in enumerate(stores):
            await stack.enter_async_context(store)
            await store.leases.join(f"host/{number}")
        one, two = [Yard(store, stack, plain) for store in stores]
        giving, waiting = await one.host(), await two.host()
        await one.submit("0193")
        job = await giving.claim()
        claiming = asyncio.create_task(claimed(waiting, 1))
        await asyncio.sleep(0.2)
        assert waiting.is_empty

        await giving.release(job, again=True)

        assert await claiming == ["0193"]


async def test_a_fake_engine_loses_jobs_and_gives_them_out_twice() -> None:
    fates: list[Fate | None] = ["lost", "doubled", None]
    engine = FakePlacement(fate=lambda _: fates.pop(0))
    for name in ("0193", "0194"):
        await engine.submit(Job(run_id=name, who="token/ann"))

    assert await claimed(engine, 2) == ["0194", "0194"]
    assert await engine.missing(["0193", "0194"]) == {"0193"}
