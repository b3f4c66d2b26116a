"""What others read of a log. Each store passes all of it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.log.events import RunCompleted
from caxton_host.core.log.runs import RunFilter
from caxton_host.core.log.tree import Frontier
from caxton_host.errors import UsageError
from caxton_host.ports.history import Readings
from caxton_host.store.sql import SqlStore
from tests.contract.conftest import Place, Store
from tests.turns import completed, invoked, trapped
from tests.unit.store.fakes import line, run_started

END = RunCompleted(output=None, output_sha256="00", fuel=None)


async def begun(store: Store, *runs: str) -> None:
    for run_id in runs:
        await store.create(f"run/{run_id}").append(run_started())


async def listed(store: Readings, prefix: str) -> list[str]:
    return [row.run_id for row in await store.runs(10, RunFilter(prefix=prefix))]


async def test_pages_of_runs_leave_none_out_though_they_began_at_once(
    store: Store,
) -> None:
    await begun(store, "a1", "a2", "b1", "b2", "b3")

    found: list[str] = []
    before: tuple[int, str] | None = None
    while rows := await store.reader.runs(2, before=before):
        found += [row.run_id for row in rows]
        before = rows[-1].started_at, rows[-1].run_id

    assert found == ["b3", "b2", "b1", "a2", "a1"]


async def test_runs_are_found_by_how_their_ids_begin(store: Store) -> None:
    await begun(store, "a1", "a2", "b1")

    assert await listed(store.reader, "a") == ["a2", "a1"]
    assert await listed(store.reader, "a_") == []
    assert await listed(store.reader, "%") == []


async def test_newest_events_come_by_stream_from_its_end(store: Store) -> None:
    for host in ("host/1", "host/2"):
        log = store.create(host)
        for n in (1, 2):
            await log.append(line(n))
    await begun(store, "a1")

    found = await store.reader.newest(
        "host/", ["LogWritten", type(line(1)).__name__], 3
    )

    assert [(e.stream, e.seq) for e in found] == [
        ("host/2", 2),
        ("host/2", 1),
        ("host/1", 2),
    ]


async def test_events_go_on_behind_a_cursor(store: Store) -> None:
    log = store.create("run/a1")
    await log.append(run_started(), line(1))

    async with aclosing(store.reader.tail(stream="run/a1", follow=False)) as tail:
        seen = [(event.seq, cursor) async for event, cursor in tail]
    await log.append(END)
    async with aclosing(
        store.reader.tail(seen[-1][1], stream="run/a1", follow=False)
    ) as tail:
        rest = [event.seq async for event, _ in tail]

    assert [seq for seq, _ in seen] == [1, 2]
    assert rest == [3]


async def test_who_follows_gets_what_comes_and_only_that(store: Store) -> None:
    log = store.create("run/a1")
    await log.append(run_started())

    end = await store.reader.end("run/a1")
    async with aclosing(store.reader.tail(end, stream="run/a1", follow=True)) as tail:
        coming = asyncio.create_task(anext(tail))
        await asyncio.sleep(0.05)
        assert not coming.done()
        await log.append(END)
        async with asyncio.timeout(20):
            event, _ = await coming

    assert event.event == END


@pytest.mark.parametrize("stream", ["run/a1", None])
async def test_the_end_stays_where_it_was(store: Store, stream: str | None) -> None:
    await begun(store, "a1")

    end = await store.reader.end(stream)
    await store.create("host/1").append(line(1))
    log = await store.claim("run/a1", line(1), after=1)
    await log.append(END)
    async with aclosing(store.reader.tail(end, stream=stream, follow=False)) as tail:
        found = [(event.stream, event.seq) async for event, _ in tail]

    assert [one for one in found if one[0] == "run/a1"] == [
        ("run/a1", 2),
        ("run/a1", 3),
    ]
    assert (("host/1", 1) in found) is (stream is None)


async def test_all_streams_are_followed_at_once(store: Store) -> None:
    await begun(store, "a1", "b1")

    async with aclosing(store.reader.tail(follow=False)) as tail:
        found = [(event.stream, cursor) async for event, cursor in tail]
    async with aclosing(store.reader.tail("end", follow=False)) as tail:
        rest = [event async for event in tail]

    assert [stream for stream, _ in found] == ["run/a1", "run/b1"]
    assert len({cursor for _, cursor in found}) == 2
    assert rest == []


@pytest.mark.parametrize("cursor", ["", "x", "n-", "q-1", "p-1-2-3", "n-1"])
async def test_what_is_no_cursor_is_refused(store: Store, cursor: str) -> None:
    with pytest.raises(UsageError, match="not a cursor"):
        async with aclosing(store.reader.tail(cursor, follow=False)) as tail:
            await anext(tail, None)


async def test_without_a_signer_there_is_no_checkpoint(store: Store) -> None:
    assert await store.reader.checkpoint() is None
    assert await store.reader.checkpoint(1) is None


async def test_the_tree_has_a_leaf_for_each_event(store: Store) -> None:
    assert await store.reader.tree() == (0, Frontier().root())
    await begun(store, "a1", "a2")
    if isinstance(store, SqlStore) and store.engine.dialect.name == "postgresql":
        # There it grows with each checkpoint.
        assert await store.reader.leaf("run/a2", 1) is None
        return
    assert await store.reader.leaf("run/a2", 1) == 1
    assert await store.reader.leaf("run/a2", 2) is None
    grown = Frontier()
    for stream in ("run/a1", "run/a2"):
        grown.extend(one.hash for one in await store.reader.read(stream))
    assert await store.reader.tree() == (2, grown.root())


async def of_tenants(store: Store) -> None:
    """Start runs of two tenants, and one of none, in turns."""
    for number, tenant in enumerate(["acme", "globex", None] * 3):
        actor: dict[str, JSON] = {"kind": "oauth", "id": "ann", "authenticated": True}
        if tenant:
            actor["tenant"] = tenant
        begun = replace(run_started(), actor=actor)
        await store.create(f"run/{number}").append(begun, line(1))


async def test_pages_of_a_tenant_have_its_runs_and_leave_none_out(store: Store) -> None:
    await of_tenants(store)

    found: list[str] = []
    before: tuple[int, str] | None = None
    while rows := await store.reader.runs(1, RunFilter(tenant="acme"), before=before):
        found += [row.run_id for row in rows]
        before = rows[-1].started_at, rows[-1].run_id

    assert found == ["6", "3", "0"]
    assert len(await store.reader.runs(10)) == 9
    assert await store.reader.runs(10, RunFilter(tenant="other")) == []


async def test_events_of_a_tenant_go_on_behind_a_cursor(store: Store) -> None:
    await of_tenants(store)
    await store.create("host/1").append(line(1))
    read = store.reader.tail

    async with aclosing(read(tenant="acme", follow=False)) as tail:
        seen = [(event.stream, event.seq, cursor) async for event, cursor in tail]
    async with aclosing(read(seen[2][2], tenant="acme", follow=False)) as tail:
        rest = [(event.stream, event.seq, cursor) async for event, cursor in tail]

    assert [one[:2] for one in seen] == [
        (f"run/{run}", seq) for run in (0, 3, 6) for seq in (1, 2)
    ]
    assert rest == seen[3:]


async def test_who_follows_a_tenant_misses_nothing_between_events_of_others(
    store: Store,
) -> None:
    await of_tenants(store)
    end = await store.reader.end()
    mine, others = [await store.claim(f"run/{run}", line(2), after=2) for run in (0, 1)]
    async with (
        aclosing(store.reader.tail(end, tenant="acme", follow=True)) as tail,
        asyncio.timeout(20),
    ):
        found = [(await anext(tail))[0]]
        for number in (3, 4, 5):
            coming = asyncio.create_task(anext(tail))
            await others.append(line(number))
            await asyncio.sleep(0.12)
            assert not coming.done()
            await mine.append(line(number))
            found.append((await coming)[0])

    assert [(one.stream, one.seq) for one in found] == [
        ("run/0", seq) for seq in (3, 4, 5, 6)
    ]


async def test_pages_of_a_filtered_list_neither_skip_nor_repeat_while_runs_start(
    place: Place,
) -> None:
    only = RunFilter(tool="s/t", outcome="ok")
    async with place.open() as store:
        for number in range(6):
            place.clock.time += number % 2
            log = store.create(f"run/{number}")
            await log.append(run_started(), invoked(), completed(), trapped())

        found, before = list[str](), None
        while rows := await store.reader.runs(2, only, before=before):
            found += [row.run_id for row in rows]
            before = rows[-1].started_at, rows[-1].run_id
            place.clock.time += 1
            late = store.create(f"run/late{len(found)}")
            await late.append(run_started(), invoked(), completed(), trapped())

    assert found == ["5", "4", "3", "2", "1", "0"]
