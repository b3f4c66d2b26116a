"""A reader that follows sees every event once, whatever the writers do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

import anyio
import anyio.lowlevel
import psycopg
import pytest

from caxton_host.errors import UsageError
from caxton_host.store.sql import SqlStore
from tests.unit.store.fakes import line

from .support import opened

BATCH = 50


@pytest.fixture
async def store(database: str) -> AsyncIterator[SqlStore]:
    async with opened(database) as found:
        yield found


async def seen(
    store: SqlStore, after: str | None = None, stream: str | None = None
) -> list[tuple[str, int]]:
    found = store.reader.tail(after, stream=stream, follow=False)
    return [(event.stream, event.seq) async for event, _ in found]


async def two_streams(store: SqlStore) -> list[tuple[str, int]]:
    one, two = store.create("run/1"), store.create("host/2")
    for n in range(5):
        await one.append(line(n))
        await two.append(line(n))
    return [(stream, seq) for seq in range(1, 6) for stream in ("run/1", "host/2")]


@pytest.mark.parametrize("stream", [None, "run/1"])
async def test_tail_goes_on_behind_any_cursor(
    store: SqlStore, stream: str | None
) -> None:
    given = await two_streams(store)
    wanted = [event for event in given if stream in {None, event[0]}]
    assert await seen(store, stream=stream) == wanted

    found = store.reader.tail(stream=stream, follow=False)
    cursors = [cursor async for _, cursor in found]

    for number, cursor in enumerate(cursors, 1):
        assert await seen(store, cursor, stream) == wanted[number:]


@pytest.mark.parametrize("stream", [None, "run/1"])
async def test_follower_sees_what_comes(store: SqlStore, stream: str | None) -> None:
    await two_streams(store)
    later = await store.resume_log("run/1")
    cursor = [c async for _, c in store.reader.tail(stream=stream, follow=False)][-1]
    found: list[int] = []

    async with (
        aclosing(store.reader.tail(cursor, stream=stream, follow=True)) as tail,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(later.append, line(10), line(11))
        async for event, _ in tail:
            found.append(event.seq)
            if event.seq == 8:
                break
            if event.seq == 7:
                tasks.start_soon(later.append, line(12))

    assert found == [6, 7, 8]


@pytest.mark.parametrize("stream", [None, "run/1"])
async def test_end_is_behind_all_there_is(store: SqlStore, stream: str | None) -> None:
    assert await seen(store, "end", stream) == []
    await two_streams(store)
    assert await seen(store, "end", stream) == []


@pytest.mark.parametrize(
    "cursor",
    ["", "x", "7", "-1", "p-", "p-x", "s-1", "n-1-2", "p-1-2", "p-" + "9" * 30],
)
async def test_what_is_no_cursor_is_refused(store: SqlStore, cursor: str) -> None:
    with pytest.raises(UsageError, match="is not a cursor of this tail") as refusal:
        await seen(store, cursor)
    assert refusal.value.fix


async def test_cursor_of_one_stream_is_none_for_all(store: SqlStore) -> None:
    await two_streams(store)
    async for _, cursor in store.reader.tail(stream="run/1", follow=False):
        with pytest.raises(UsageError):
            await seen(store, cursor)


class Naive:
    """Follows by positions, as one would who did not know."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.position = 0

    def look(self) -> set[tuple[str, int]]:
        with psycopg.connect(self.url) as connection:
            rows = connection.execute(
                "SELECT position, stream, seq FROM events WHERE position > %s "
                "ORDER BY position",
                [self.position],
            ).fetchall()
        self.position = rows[-1][0] if rows else self.position
        return {(stream, seq) for _, stream, seq in rows}


async def test_tail_waits_for_a_slow_transaction_that_positions_miss(
    postgres_url: str,
) -> None:
    row = (
        "INSERT INTO events (stream, seq, type, schema_version, recorded_at, digest, "
        "hash) VALUES (%s, 1, 'Gone', 1, 1, sha256(''), sha256(''))"
    )
    naive = Naive(postgres_url)
    async with opened(postgres_url) as store:
        with psycopg.connect(postgres_url) as slow:
            slow.execute(row, ["run/slow"])  # draws position 1
            await store.create("run/fast").append(line(1))  # commits position 2

            missed = naive.look()
            assert await seen(store) == []
        missed |= naive.look()

        wanted = [("run/slow", 1), ("run/fast", 1)]
        assert await seen(store) == wanted
        assert missed == {("run/fast", 1)}  # the first event, for ever


async def write(store: SqlStore, stream: str, count: int) -> None:
    log = store.create(stream)
    for n in range(0, count, 5):
        await log.append(*(line(n + i) for i in range(5)))


async def follow(url: str, count: int) -> list[tuple[str, int]]:
    """Return what a tail has seen once it has seen *count*."""
    found: list[tuple[str, int]] = []
    async with (
        opened(url, write=False) as store,
        aclosing(store.reader.tail(follow=True)) as tail,
    ):
        async for event, _ in tail:
            found.append((event.stream, event.seq))
            if len(found) == count:
                break
    return found


@pytest.mark.parametrize(
    "count", [20_000, pytest.param(200_000, marks=pytest.mark.slow)]
)
async def test_tail_under_load_misses_nothing(database: str, count: int) -> None:
    hosts = 4 if database.startswith("postgresql") else 1
    stores = [opened(database) for _ in range(hosts)]
    streams = [f"run/{i}" for i in range(hosts * BATCH)]
    each = count // len(streams)
    found: list[tuple[str, int]] = []

    with anyio.fail_after(110):
        async with anyio.create_task_group() as tasks:
            for i, stream in enumerate(streams):
                tasks.start_soon(write, stores[i % hosts], stream, each)
            found = await follow(database, count)
    for store in stores:
        await store.aclose()

    assert len(found) == count
    assert set(found) == {(s, n) for s in streams for n in range(1, each + 1)}
    for stream in streams[:3]:
        assert [n for s, n in found if s == stream] == list(range(1, each + 1))
