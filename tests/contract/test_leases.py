"""Who drives a run, and what it takes to take it over. Each store passes all of it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import anyio
import psycopg
import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.grants.journal import Journal
from caxton_host.core.log.events import (
    CallResolved,
    RunCancelled,
    RunCompleted,
    RunResumed,
    RunSuspended,
)
from caxton_host.errors import BusyError, LeaseLost, NotFoundError, StoreError
from caxton_host.gateway.recorder import Recorder
from caxton_host.lib.codec import sha256
from caxton_host.ports.log import EventLog
from caxton_host.runs.cancellation import UnderWay
from caxton_host.store.leases import FileLeases
from caxton_host.store.leases_postgres import PostgresLeases
from caxton_host.store.memory import MemoryStore
from caxton_host.store.sql import SqlStore
from tests.unit.store.fakes import (
    FakeClock,
    FakeEntropy,
    line,
    run_queued,
    run_started,
    url,
)

ONE, TWO = "host/1", "host/2"
RUN = "run/0193"
SUSPENDED = RunSuspended(reason="approval", call=1)
DONE = RunCompleted(output=None, output_sha256="00", fuel=None)
ACTOR: dict[str, JSON] = {"kind": "local", "id": "größe", "authenticated": False}

Store = SqlStore | MemoryStore


def resumed(host: str | None, epoch: int = 2) -> RunResumed:
    return RunResumed(
        actor={}, host=host, epoch=epoch, reason="requested", grants_sha256="00"
    )


class Hosts:
    """Hosts that share a place."""

    def __init__(self, database: str | None, stack: AsyncExitStack) -> None:
        self.clock = FakeClock()
        self._url = database
        self._stack = stack
        self._memory = MemoryStore(clock=self.clock, entropy=FakeEntropy())

    async def store(self, host: str | None = None) -> Store:
        """Open the place, as that host."""
        store: Store = self._memory
        if self._url:
            opened = SqlStore.open(
                self._url, clock=self.clock, entropy=FakeEntropy(), lease=60
            )
            store = await self._stack.enter_async_context(opened)
        if host:
            await store.leases.join(host)
        return store

    async def kill(self, store: Store, host: str) -> None:
        """Let a host die, with all that it would do at its end undone."""
        if isinstance(store, MemoryStore):
            store.leases.joined.discard(host)
            return
        leases = store.leases._hosts
        if isinstance(leases, FileLeases):
            for descriptor in leases._held.values():
                os.close(descriptor)  # as the kernel does
            leases._held.clear()
            return
        assert isinstance(leases, PostgresLeases)
        assert leases._task
        leases._task.cancel()
        leases._until = 0.0
        assert self._url
        lapse(self._url)


def lapse(database: str, host: str = ONE) -> None:
    """Let time pass on the server's clock."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "UPDATE hosts SET lease_until = clock_timestamp() - interval '1 second' "
            "WHERE host = %s",
            [host],
        )


@pytest.fixture(params=["sqlite", "postgresql", "memory"])
async def hosts(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Hosts]:
    database: str | None
    match request.param:
        case "sqlite":
            database = url(tmp_path)
        case "postgresql":
            database = request.getfixturevalue("postgres_url")
        case _:
            database = None
    async with AsyncExitStack() as stack:
        yield Hosts(database, stack)


async def begun(store: Store, host: str = ONE, stream: str = RUN) -> EventLog:
    log = store.create(stream)
    await log.append(replace(run_started(), host=host))
    return log


async def row_of(store: Store, run_id: str = "0193") -> tuple[str, str | None, int]:
    rows = {row.run_id: row for row in await store.reader.runs(10)}
    return rows[run_id].state, rows[run_id].owner, rows[run_id].epoch


async def test_run_is_driven_by_the_host_that_started_it(hosts: Hosts) -> None:
    store = await hosts.store(ONE)
    log = await begun(store)

    assert log.holds()
    assert await store.leases.owner("0193") == ONE
    assert await store.leases.idle() == []
    assert await row_of(store) == ("running", ONE, 1)


async def test_run_that_a_living_host_drives_cannot_be_claimed(hosts: Hosts) -> None:
    one, two = await hosts.store(ONE), await hosts.store(TWO)
    log = await begun(one)

    with pytest.raises(BusyError, match=ONE) as refusal:
        await two.claim(RUN, resumed(TWO), after=1)

    assert "caxton runs cancel 0193" in refusal.value.fix
    await log.append(line(1))  # law 10: nothing happened to it
    assert [event.seq for event in await one.reader.read(RUN)] == [1, 2]


async def test_run_of_a_dead_host_is_claimed(hosts: Hosts) -> None:
    one, two = await hosts.store(ONE), await hosts.store(TWO)
    old = await begun(one)
    await hosts.kill(one, ONE)
    assert await two.leases.owner("0193") is None
    assert [row.run_id for row in await two.leases.idle()] == ["0193"]

    log = await two.claim(RUN, resumed(TWO), after=1)

    assert log.holds()
    assert await two.leases.owner("0193") == TWO
    assert await two.leases.idle() == []
    assert await row_of(two) == ("running", TWO, 2)
    await log.append(line(1))
    with pytest.raises(LeaseLost, match="another host drives this run now"):
        await old.append(line(9))
    assert not old.holds()
    with pytest.raises(LeaseLost):
        old.queue(line(9))
    events = [event.event for event in await two.reader.read(RUN)]
    assert events[1:] == [resumed(TWO), line(1)]


async def test_host_that_closed_its_store_is_dead(hosts: Hosts) -> None:
    one, two = await hosts.store(ONE), await hosts.store(TWO)
    await begun(one)
    if isinstance(one, SqlStore):
        await one.aclose()
    else:
        one.leases.joined.discard(ONE)

    assert (await two.claim(RUN, resumed(TWO), after=1)).holds()


async def test_run_that_its_host_has_left_is_claimed_again_by_it(hosts: Hosts) -> None:
    # law 10: another log than its own failed, as that of a run that it called
    store = await hosts.store(ONE)
    log = await begun(store)

    with pytest.raises(StoreError):
        async with UnderWay().run("0193", Recorder(log, Journal()), ACTOR):
            raise StoreError("the disk is full")

    assert not log.holds()
    assert [row.run_id for row in await store.leases.idle()] == ["0193"]
    again = await store.claim(RUN, resumed(ONE), after=1)
    await again.append(line(1))
    assert again.holds()


async def test_run_whose_host_never_joined_is_anybodys(hosts: Hosts) -> None:
    store = await hosts.store(TWO)
    await begun(store, host="host/unknown")

    assert [row.run_id for row in await store.leases.idle()] == ["0193"]
    await store.claim(RUN, resumed(TWO), after=1)

    assert await store.leases.owner("0193") == TWO


async def test_suspended_run_has_no_owner_and_is_claimed_at_once(hosts: Hosts) -> None:
    one, two = await hosts.store(ONE), await hosts.store(TWO)
    await (await begun(one)).append(SUSPENDED)
    assert await row_of(two) == ("suspended", None, 1)
    assert await two.leases.owner("0193") is None
    assert await two.leases.idle() == []

    await two.claim(RUN, resumed(TWO), after=2)

    assert await row_of(two) == ("running", TWO, 2)


@pytest.mark.parametrize("end", [DONE, RunCancelled(actor={}, reason="")])
async def test_ended_run_has_no_owner(
    hosts: Hosts, end: RunCompleted | RunCancelled
) -> None:
    store = await hosts.store(ONE)
    log = await begun(store)
    await log.append(SUSPENDED, resumed(ONE, 2), SUSPENDED, resumed(ONE, 3))
    assert await row_of(store) == ("running", ONE, 3)

    await log.append(end)

    assert (await row_of(store))[1:] == (None, 3)
    assert await store.leases.idle() == []


async def test_run_resumed_and_paused_in_one_append_keeps_its_epoch(
    hosts: Hosts,
) -> None:
    store = await hosts.store(ONE)
    log = await begun(store)
    await log.append(SUSPENDED)

    await log.append(resumed(ONE, 2), SUSPENDED)

    assert await row_of(store) == ("suspended", None, 2)


async def test_run_that_has_grown_is_not_claimed(hosts: Hosts) -> None:
    one, two = await hosts.store(ONE), await hosts.store(TWO)
    await (await begun(one)).append(SUSPENDED)

    for after in (1, 3):
        with pytest.raises(BusyError, match="has grown"):
            await two.claim(RUN, resumed(TWO), after=after)

    assert await row_of(two) == ("suspended", None, 1)
    assert len(await two.reader.read(RUN)) == 2


async def test_stream_without_events_is_not_claimed(hosts: Hosts) -> None:
    store = await hosts.store(ONE)

    with pytest.raises(NotFoundError):
        await store.claim(RUN, resumed(ONE), after=0)
    assert await store.leases.owner("0193") is None


async def test_claim_that_only_notes_something_takes_no_lease(hosts: Hosts) -> None:
    store = await hosts.store()
    await (await begun(store)).append(SUSPENDED)
    word = CallResolved(call=1, verdict="retry", actor={}, reason="")

    await store.claim(RUN, word, after=2)

    assert await row_of(store) == ("suspended", None, 1)
    await store.claim(RUN, RunCancelled(actor={}, reason=""), after=3)
    assert await row_of(store) == ("cancelled", None, 1)


async def test_of_two_hosts_that_claim_at_once_exactly_one_wins(hosts: Hosts) -> None:
    one, two, three = [await hosts.store(name) for name in (ONE, TWO, "host/3")]
    for i in range(20):
        await begun(one, stream=f"run/{i:02}")
    await hosts.kill(one, ONE)
    won: dict[str, list[str]] = {f"run/{i:02}": [] for i in range(20)}

    async def claim(store: Store, host: str) -> None:
        for stream, winners in won.items():
            try:
                log = await store.claim(stream, resumed(host), after=1)
            except BusyError:
                continue
            winners.append(host)
            await log.append(line(1))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(claim, two, TWO)
        tasks.start_soon(claim, three, "host/3")

    for stream, winners in won.items():
        assert len(winners) == 1, stream
        assert await one.leases.owner(stream.removeprefix("run/")) == winners[0]
        assert len(await one.reader.read(stream)) == 3


async def test_idle_runs_are_listed_oldest_first(hosts: Hosts) -> None:
    one, two = await hosts.store(ONE), await hosts.store(TWO)
    for stream, host, store in (
        ("run/b", ONE, one),
        ("run/a", ONE, one),
        ("run/c", TWO, two),
    ):
        hosts.clock.time += 1
        await begun(store, host, stream)
    await hosts.kill(one, ONE)

    assert [row.run_id for row in await two.leases.idle()] == ["b", "a"]


async def test_request_reaches_the_host_that_drives_the_run(hosts: Hosts) -> None:
    one, two, other = [await hosts.store(name) for name in (ONE, TWO, None)]
    log = await begun(one)
    await begun(two, TWO, "run/2")

    first = await other.requests.ask_run("0193", "cancel", ACTOR, "no more")
    second = await other.requests.ask_run("0193", "cancel", ACTOR, "again")
    third = await other.requests.ask_run("2", "cancel", {}, "")

    assert first < second < third
    mine = await one.requests.waiting(ONE)
    assert [request.id for request in mine] == [first, second]
    assert (mine[0].run_id, mine[0].kind) == ("0193", "cancel")
    assert (mine[0].actor, mine[0].reason) == (ACTOR, "no more")
    assert await other.requests.outcome(first) is None

    await one.requests.answer(first, "cancelled")
    await other.requests.answer(first, "something else")

    assert await other.requests.outcome(first) == "cancelled"
    assert [request.id for request in await one.requests.waiting(ONE)] == [second]
    await log.append(DONE)
    assert await one.requests.waiting(ONE) == []
    assert [request.id for request in await two.requests.waiting(TWO)] == [third]


async def test_request_reaches_the_host_that_it_is_addressed_to(hosts: Hosts) -> None:
    one, two, other = [await hosts.store(name) for name in (ONE, TWO, None)]
    assert await other.leases.hosts() == [ONE, TWO]
    await begun(one)

    of_run = await other.requests.ask_run("0193", "cancel", ACTOR, "no more")
    of_host = await other.requests.ask_host(ONE, "reload", ACTOR, "new keys", "crm")

    first, second = await one.requests.waiting(ONE)
    assert (first.id, first.run_id, first.subject) == (of_run, "0193", None)
    assert (second.id, second.run_id, second.subject) == (of_host, None, "crm")
    assert (second.kind, second.actor, second.reason) == ("reload", ACTOR, "new keys")
    assert await two.requests.waiting(TWO) == []
    await one.requests.answer(of_host, "reloaded")
    assert await other.requests.outcome(of_host) == "reloaded"
    await hosts.kill(one, ONE)
    assert await other.leases.hosts() == [TWO]


async def test_nobody_lives_in_a_place_that_no_host_has_joined(hosts: Hosts) -> None:
    assert await (await hosts.store()).leases.hosts() == []


async def test_request_for_a_run_that_is_not_there_is_refused(hosts: Hosts) -> None:
    store = await hosts.store()

    with pytest.raises(NotFoundError, match="no run 'x'"):
        await store.requests.ask_run("x", "cancel", {}, "")
    assert await store.requests.outcome(1) is None


async def test_a_run_that_is_queued_is_started_once(hosts: Hosts) -> None:
    # law 6
    one, two = await hosts.store(ONE), await hosts.store(TWO)
    module = b"a module"
    await one.enter(RUN, run_queued(), blobs={sha256(module): module})
    row = await two.reader.row("0193")
    assert row is not None
    assert (row.state, row.owner, row.epoch) == ("queued", None, 0)

    started = replace(run_started(), host=TWO)
    await two.claim(RUN, started, after=1, blobs={})
    with pytest.raises(BusyError):
        await one.claim(RUN, replace(run_started(), host=ONE), after=1)

    row = await one.reader.row("0193")
    assert row is not None
    assert (row.state, row.owner, row.host, row.epoch) == ("running", TWO, TWO, 1)
    assert await two.reader.blob(sha256(module)) == module


async def test_a_run_that_is_skipped_is_not_started_by_a_host_that_comes_later(
    hosts: Hosts,
) -> None:
    # law 6
    one, two = await hosts.store(ONE), await hosts.store(TWO)
    await one.enter(RUN, run_queued(), RunCancelled(actor=ACTOR, reason="one goes on"))

    with pytest.raises(LeaseLost):
        await two.create(RUN).append(replace(run_started(), host=TWO))
    with pytest.raises(LeaseLost):
        await two.enter(RUN, run_queued())

    row = await two.reader.row("0193")
    assert row is not None
    assert (row.state, row.owner, row.epoch) == ("cancelled", None, 0)
    assert row.ended_at is not None
    assert await two.leases.idle() == []


async def test_what_is_queued_by_a_living_host_is_not_idle(hosts: Hosts) -> None:
    one, two = await hosts.store(ONE), await hosts.store(TWO)
    await one.enter(RUN, run_queued(host=ONE))
    await one.enter("run/0194", run_queued(host="host/0"))
    await one.enter("run/0195", run_queued())

    idle = await two.leases.idle()

    assert [row.run_id for row in idle] == ["0194", "0195"]
