"""What every event log promises. Each store passes all of it."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import anyio.lowlevel
import pytest

from caxton_host.core.log.chain import GENESIS, envelope, event_hash, payload_digest
from caxton_host.core.log.events import (
    Event,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunResumed,
    RunSuspended,
    to_payload,
)
from caxton_host.core.log.runs import RunFilter
from caxton_host.core.names import called_run, uuid7
from caxton_host.errors import LeaseLost, NotFoundError, StoreError
from caxton_host.lib.codec import encode, sha256
from caxton_host.ports.log import Refused, Reservation
from caxton_host.store.drafts import salts
from tests.contract.conftest import Place, Store
from tests.unit.store.fakes import FakeEntropy, line, run_started, traced

RUN = "run/0193"


async def numbers(store: Store, stream: str = RUN) -> list[int]:
    found = await store.reader.read(stream)
    assert [event.seq for event in found] == list(range(1, len(found) + 1))
    return [event.event.n for event in found]  # type: ignore[union-attr]  # lines only


async def test_events_are_read_as_they_were_appended(store: Store) -> None:
    log = store.create(RUN)
    given = [run_started(), line(1, "größe"), RunSuspended(reason="approval", call=1)]

    assert await log.append(*given) is None
    found = await store.reader.read(RUN)

    assert [event.event for event in found] == given
    assert [event.seq for event in found] == [1, 2, 3]  # law 2: without gaps
    assert [event.type for event in found] == [type(event).__name__ for event in given]
    assert {event.stream for event in found} == {RUN}
    assert {event.schema_version for event in found} == {1}


async def test_stream_without_events_is_empty(store: Store) -> None:
    assert await store.reader.read("run/none") == []


async def test_append_brings_what_was_queued_before_it(store: Store) -> None:
    log = store.create(RUN)
    log.queue(line(1))
    log.queue(line(2), line(3))

    await log.append(line(4))  # law 3

    assert await numbers(store) == [1, 2, 3, 4]


async def test_append_without_events_waits_for_what_is_queued(store: Store) -> None:
    log = store.create(RUN)
    log.queue(line(1))

    assert await log.append() is None

    assert await numbers(store) == [1]


async def test_append_of_nothing_after_nothing_returns(store: Store) -> None:
    log = store.create(RUN)
    log.queue()

    assert await log.append() is None

    assert await store.reader.streams() == []


async def test_queued_events_are_stored_without_an_append(store: Store) -> None:
    store.create(RUN).queue(line(1))  # law 3: a timer of a few milliseconds

    with anyio.fail_after(30):
        while not await store.reader.read(RUN):  # noqa: ASYNC110 -- nobody tells
            await anyio.sleep(0.001)


async def test_closing_stores_what_is_queued(place: Place) -> None:
    async with place.open() as store:
        store.create(RUN).queue(line(1))

    async with place.open() as store:
        assert await numbers(store) == [1]


async def test_cancelled_append_loses_nothing(store: Store) -> None:
    log = store.create(RUN)
    log.queue(line(1))
    with anyio.CancelScope() as scope:
        scope.cancel()
        await log.append(line(2))

    await log.append(line(3))

    assert await numbers(store) in ([1, 2, 3], [1, 3])


async def test_task_cancelled_while_it_waits_loses_nothing(store: Store) -> None:
    logs = [store.create(f"run/{i}") for i in range(8)]
    async with anyio.create_task_group() as tasks:
        for log in logs:
            tasks.start_soon(log.append, line(1), line(2))
        await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()

    for log in logs:
        await log.append(line(3))

    for i in range(8):
        assert await numbers(store, f"run/{i}") in ([1, 2, 3], [3])


async def test_second_writer_of_a_stream_is_refused(store: Store) -> None:
    # attack 45
    first, second = store.create(RUN), store.create(RUN)
    await first.append(line(1))

    with pytest.raises(StoreError, match="another host drives this run now"):
        await second.append(line(2))

    await first.append(line(3))
    assert await numbers(store) == [1, 3]


async def test_stream_that_failed_takes_no_more(store: Store) -> None:
    await store.create(RUN).append(line(1))
    log = store.create(RUN)
    with pytest.raises(StoreError):
        await log.append(line(2))

    with pytest.raises(StoreError, match="another host"):
        await log.append(line(3))
    with pytest.raises(StoreError, match="another host"):
        log.queue(line(4))
    with pytest.raises(StoreError, match="another host"):
        await log.append()

    assert await numbers(store) == [1]


async def test_queued_event_that_failed_shows_in_the_next_append(store: Store) -> None:
    await store.create(RUN).append(line(1))
    log = store.create(RUN)
    log.queue(line(2))

    with pytest.raises(StoreError, match="another host"):
        await log.append()


async def test_failure_of_one_stream_leaves_the_others_alone(store: Store) -> None:
    await store.create("run/bad").append(line(1))
    failed: list[str] = []

    async def append(stream: str) -> None:
        try:
            await store.create(stream).append(line(1))
        except StoreError:
            failed.append(stream)

    async with anyio.create_task_group() as tasks:
        for stream in ("run/a", "run/bad", "run/b", "run/c"):
            tasks.start_soon(append, stream)

    assert failed == ["run/bad"]
    for stream in ("run/a", "run/bad", "run/b", "run/c"):
        assert await numbers(store, stream) == [1]


async def test_event_without_a_stored_form_is_refused_alone(store: Store) -> None:
    log = store.create(RUN)

    with pytest.raises(StoreError, match="cannot be stored"):
        await log.append(line(1), line(2**70))

    await log.append(line(3))
    assert await numbers(store) == [3]


def budget(amount: int, limit: int, key: str = "b", rule: str = "r") -> Reservation:
    return Reservation(key=key, amount=amount, limit=limit, rule=rule)


async def test_refused_reservation_drops_that_append_only(store: Store) -> None:
    log = store.create(RUN)
    log.queue(line(1))
    data = b"never kept"

    refused = await log.append(
        line(2), reserve=[budget(3, 2)], blobs={sha256(data): data}
    )

    assert refused == Refused(0, "r")
    await log.append(line(3))
    assert await numbers(store) == [1, 3]  # law 2: the number is used again
    with pytest.raises(NotFoundError):
        await store.reader.blob(sha256(data))


async def test_budget_is_spent_across_streams_and_restarts(place: Place) -> None:
    async with place.open() as store:
        for stream in ("run/1", "run/2"):
            log = store.create(stream)
            assert await log.append(line(1), reserve=[budget(2, 5)]) is None
    async with place.open() as store:
        log = store.create("run/3")
        assert await log.append(line(1), reserve=[budget(2, 5)]) == Refused(0, "r")
        assert await log.append(line(2), reserve=[budget(1, 5)]) is None
        assert await log.append(line(3), reserve=[budget(1, 5)]) == Refused(0, "r")
        assert await numbers(store, "run/3") == [2]


async def test_refused_append_spends_none_of_its_budgets(store: Store) -> None:
    log = store.create(RUN)
    both = [budget(9, 5, key="z", rule="too much"), budget(5, 5, key="a")]

    assert await log.append(line(1), reserve=both) == Refused(0, "too much")

    assert await log.append(line(2), reserve=[budget(5, 5, key="a")]) is None


async def test_who_lost_the_stream_cannot_spend_without_events(store: Store) -> None:
    # laws 4 and 10
    mine = store.create(RUN)
    await mine.append(line(1))
    other = await store.resume_log(RUN)
    await other.append(line(2))

    with pytest.raises(LeaseLost):
        await mine.append(reserve=[budget(1, 5)])

    assert await other.append(reserve=[budget(5, 5)]) is None


async def test_one_append_can_spend_a_budget_twice(store: Store) -> None:
    log = store.create(RUN)
    twice = [budget(3, 5), budget(3, 5, rule="second")]

    assert await log.append(line(1), reserve=twice) == Refused(1, "second")

    assert await log.append(line(2), reserve=[budget(5, 5)]) is None


async def test_budget_holds_when_many_streams_spend_it_at_once(store: Store) -> None:
    outcomes: list[Refused | None] = []

    async def spend(i: int) -> None:
        log = store.create(f"run/{i}")
        outcomes.append(await log.append(line(i), reserve=[budget(1, 10)]))

    async with anyio.create_task_group() as tasks:
        for i in range(32):
            tasks.start_soon(spend, i)

    assert outcomes.count(None) == 10
    assert len(await store.reader.streams()) == 10


async def test_recorded_at_never_goes_back(place: Place) -> None:
    # attack 45
    async with place.open() as store:
        log = store.create(RUN)
        await log.append(line(1))
        assert log.recorded_at == 1_000_000
        place.clock.time = 999
        log.queue(line(2))
        assert log.recorded_at == 1_000_000
        place.clock.time = 2_000_000
        await log.append(line(3))
    place.clock.time = 5
    async with place.open() as store:
        again = await store.resume_log(RUN)
        assert again.recorded_at == 2_000_000
        await again.append(line(4))
        found = await store.reader.read(RUN)

    stamps = [event.recorded_at for event in found]
    assert stamps == [1_000_000, 1_000_000, 2_000_000, 2_000_000]


async def test_event_is_stamped_when_it_is_queued(place: Place) -> None:
    async with place.open() as store:
        log = store.create(RUN)
        log.queue(line(1))
        place.clock.time += 7
        await log.append(line(2))
        found = await store.reader.read(RUN)

    assert [event.recorded_at for event in found] == [1_000_000, 1_000_007]


async def test_events_carry_the_span_they_were_queued_in(store: Store) -> None:
    def trace(seq: int, events: Sequence[Event]) -> list[tuple[str | None, str | None]]:
        asked.append((seq, len(events)))
        return [("a" * 32, f"{n:016x}") for n, _ in enumerate(events, seq)]

    asked: list[tuple[int, int]] = []
    log = store.create(RUN, trace)

    log.queue(line(1))
    await log.append(line(2), line(3))

    found = await store.reader.read(RUN)
    assert asked == [(1, 1), (2, 2)]
    assert [(event.trace_id, event.span_id) for event in found] == [
        ("a" * 32, f"{event.seq:016x}") for event in found
    ]
    assert log.head == (3, found[-1].hash)


async def test_claimed_stream_goes_on_with_its_numbers(store: Store) -> None:
    await store.create(RUN).append(run_started(), line(1))
    asked: list[int] = []

    def trace(seq: int, events: Sequence[Event]) -> list[tuple[None, None]]:
        asked.append(seq)
        return [(None, None)] * len(events)

    log = await store.claim(RUN, line(2), after=2, trace=trace)
    await log.append(line(3))

    assert asked == [3, 4]
    assert log.head[0] == 4


async def test_each_event_is_bound_to_the_one_before(store: Store) -> None:
    await store.create(RUN, trace=traced("a" * 32)).append(line(1), line(2))

    previous, drawn = GENESIS, salts(FakeEntropy())
    for event in await store.reader.read(RUN):
        assert event.event is not None
        digest = payload_digest(next(drawn), encode(to_payload(event.event)))
        head = envelope(
            RUN, event.seq, event.type, 1, event.recorded_at, event.trace_id, None
        )
        previous = event_hash(previous, head, digest)
        assert event.hash == previous


async def test_log_goes_on_where_it_ended(place: Place) -> None:
    async with place.open() as store:
        await store.create(RUN).append(line(1), line(2))
    async with place.open() as store:
        await (await store.resume_log(RUN)).append(line(3))
        assert await numbers(store) == [1, 2, 3]


async def test_stream_without_events_cannot_go_on(store: Store) -> None:
    with pytest.raises(NotFoundError):
        await store.resume_log(RUN)


@pytest.mark.parametrize("name", ["", "run/" + "x" * 252])
async def test_stream_has_a_short_name(store: Store, name: str) -> None:
    with pytest.raises(StoreError):
        store.create(name)


async def test_blobs_are_kept_by_digest(store: Store) -> None:
    small, empty = b"\0asm", b""
    log = store.create(RUN)
    log.queue(line(1), blobs={sha256(small): small})
    await log.append(line(2), blobs={sha256(small): small, sha256(empty): empty})
    await log.append(blobs={sha256(b"alone"): b"alone"})

    for data in (small, empty, b"alone"):
        assert await store.reader.blob(sha256(data)) == data
    with pytest.raises(NotFoundError):
        await store.reader.blob("no digest at all")


async def test_large_blob_that_each_run_brings_is_kept(store: Store) -> None:
    runtime = bytes(200_000)
    for number in range(3):
        log = store.create(f"run/{number}")
        await log.append(line(1), blobs={sha256(runtime): runtime})

    assert await store.reader.blob(sha256(runtime)) == runtime


async def test_64_streams_append_at_once(store: Store) -> None:
    async def work(i: int) -> None:
        log = store.create(f"run/{i:02}")
        for n in range(1, 21, 2):
            log.queue(line(n))
            await log.append(line(n + 1))

    async with anyio.create_task_group() as tasks:
        for i in range(64):
            tasks.start_soon(work, i)

    assert await store.reader.streams() == [f"run/{i:02}" for i in range(64)]
    for i in range(64):
        assert await numbers(store, f"run/{i:02}") == list(range(1, 21))
    positions = [event.position async for event in store.reader.stream_events()]
    assert positions == sorted(set(positions))
    assert len(positions) == 64 * 20


async def test_events_are_read_in_the_order_of_their_positions(store: Store) -> None:
    one, two = store.create("run/1"), store.create("run/2")
    for n in range(1, 151):
        one.queue(line(2 * n - 1))
        two.queue(line(2 * n))
    await one.append()
    await two.append()

    everything = [event async for event in store.reader.stream_events()]
    second = [event async for event in store.reader.stream_events("run/2")]
    rest = [
        event
        async for event in store.reader.stream_events(after=everything[9].position)
    ]
    some = [
        event
        async for event in store.reader.stream_events(
            "run/2", after=second[19].position
        )
    ]

    assert [event.event for event in everything] == [line(n) for n in range(1, 301)]
    assert second == await store.reader.read("run/2")
    assert rest == everything[10:]
    assert some == second[20:]


RESUMED = RunResumed(
    actor={}, host=None, epoch=1, reason="approval", grants_sha256="00"
)


@pytest.mark.parametrize(
    ("events", "state", "ended"),
    [
        ([], "running", False),
        ([RunSuspended(reason="approval", call=1)], "suspended", False),
        ([RunSuspended(reason="approval", call=1), RESUMED], "running", False),
        ([RunCompleted(output=1, output_sha256="00", fuel=1)], "completed", True),
        ([RunFailed(kind="trap", message="", fuel=None)], "failed", True),
        ([RunCancelled(actor={}, reason="")], "cancelled", True),
    ],
)
async def test_list_of_runs_shows_the_last_state(
    place: Place, events: list[RunCompleted], state: str, *, ended: bool
) -> None:
    async with place.open() as store:
        log = store.create(RUN, trace=traced("a" * 32))
        await log.append(run_started())
        place.clock.time += 5
        await log.append(line(1), *events)

        (row,) = await store.reader.runs(10)

    assert (row.run_id, row.agent, row.state) == ("0193", "weather", state)
    assert (row.started_at, row.ended_at) == (1_000_000, 1_000_005 if ended else None)
    assert (row.host, row.trace_id, row.module_sha256) == (
        "host/1",
        "a" * 32,
        "ab" * 32,
    )
    assert row.actor == '{"authenticated": false, "id": "me", "kind": "local"}'


async def test_runs_are_listed_newest_first_and_filtered(place: Place) -> None:
    async with place.open() as store:
        for i, agent in enumerate(["one", "two", "one"]):
            place.clock.time += 1
            log = store.create(f"run/{i}")
            await log.append(run_started(agent))
            if i == 0:
                await log.append(RunFailed(kind="trap", message="", fuel=None))
        await store.create("host/1").append(line(1))

        async def listed(
            limit: int, agent: str | None = None, state: str | None = None
        ) -> list[str]:
            only = RunFilter(agent=agent, state=state)
            return [row.run_id for row in await store.reader.runs(limit, only)]

        assert await listed(10) == ["2", "1", "0"]
        assert await listed(2) == ["2", "1"]
        assert await listed(10, agent="one") == ["2", "0"]
        assert await listed(10, agent="one", state="running") == ["2"]
        assert await listed(10, state="suspended") == []


@pytest.mark.parametrize(
    "name", ["x'; DROP TABLE events; --", "' OR '1'='1", '"; --', "%", "_", "\\"]
)
async def test_a_name_is_never_a_part_of_a_statement(store: Store, name: str) -> None:
    # attack 45
    for number, agent in enumerate(["x", name]):
        await store.create(f"run/{number}").append(run_started(agent))

    (row,) = await store.reader.runs(9, RunFilter(agent=name))
    assert row.agent == name
    assert await store.reader.runs(9, RunFilter(actor=name, tool=name)) == []
    with pytest.raises(NotFoundError):
        await store.reader.find_run(name)
    assert len(await store.reader.runs(9)) == 2


async def test_run_is_found_by_a_unique_beginning(place: Place) -> None:
    async with place.open() as store:
        for name in ("abc1", "abc2", "abd", "ab"):
            place.clock.time += 1
            await store.create(f"run/{name}").append(run_started())

        assert await store.reader.find_run("abc1") == "abc1"
        assert await store.reader.find_run("abd") == "abd"
        assert (
            await store.reader.find_run("ab") == "ab"
        )  # whole, though others begin so
        assert await store.reader.find_run("run/abc2") == "abc2"
        assert await store.reader.find_run("@last") == "ab"
        with pytest.raises(NotFoundError, match="abc1, abc2") as ambiguous:
            await store.reader.find_run("abc")
        with pytest.raises(NotFoundError, match="no run 'ABD'"):
            await store.reader.find_run("ABD")
    assert ambiguous.value.fix


async def test_last_run_is_the_newest_that_no_other_run_called(place: Place) -> None:
    top = uuid7(1_700_000_000_000_000, bytes(10))
    async with place.open() as store:
        for name in (top, called_run(top, "ab" * 32)):
            place.clock.time += 1
            await store.create(f"run/{name}").append(run_started())

        assert await store.reader.find_run("@last") == top
        (row,) = await store.reader.runs(9, RunFilter(top=True))
        assert row.run_id == top
        assert len(await store.reader.runs(9)) == 2


async def test_last_run_is_not_found_where_there_is_none(store: Store) -> None:
    with pytest.raises(NotFoundError, match="@last"):
        await store.reader.find_run("@last")
