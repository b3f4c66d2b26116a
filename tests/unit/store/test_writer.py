"""When the writer commits, seen from a committer that only counts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence

import anyio
import anyio.lowlevel
import pytest

from caxton_host.core.log.events import RunSuspended
from caxton_host.errors import StoreError
from caxton_host.ports.log import Refused, Reservation, was_refused
from caxton_host.store.commit import Committer, Group, Line, LockedError, Outcome
from caxton_host.store.drafts import Draft
from caxton_host.store.writer import BATCH, LIGHT, Writer

from .fakes import eventually


class CountingCommitter(Committer):
    """Keeps the batches it is given, and can be told to fail or to block."""

    def __init__(self) -> None:
        self.batches: list[list[Group]] = []
        self.here: list[bool] = []
        self.locked = False
        self.bad: Line | None = None
        self.gate = threading.Event()
        self.gate.set()

    def commit(self, groups: Sequence[Group], *, wait: bool = True) -> list[Outcome]:
        if not wait and self.locked:
            raise LockedError
        assert self.gate.wait(30)
        self.batches.append(list(groups))
        self.here.append(threading.current_thread() is threading.main_thread())
        return [StoreError("no") if g.line is self.bad else None for g in groups]

    def close(self) -> None:
        pass


@pytest.fixture
def committer() -> CountingCommitter:
    return CountingCommitter()


@pytest.fixture
async def writer(committer: CountingCommitter) -> AsyncIterator[Writer]:
    writer = Writer(committer)
    yield writer
    await writer.aclose()


def group(line: Line, *drafts: Draft) -> Group:
    return Group(line=line, drafts=drafts, blobs={"key": b""})


def suspended() -> Draft:
    event = RunSuspended(reason="in_doubt", call=1)
    return Draft("RunSuspended", 1, 0, None, None, b"", b"", b"", event)


async def test_run_that_is_alone_commits_on_the_loop(
    writer: Writer, committer: CountingCommitter
) -> None:
    line = Line("run/1")
    for _ in range(4):
        await writer.append(group(line))

    assert committer.here == [False, True, True, True]


async def test_run_that_follows_one_that_is_over_is_alone_as_well(
    writer: Writer, committer: CountingCommitter
) -> None:
    first, second, third = (Line(f"run/{i}") for i in range(3))
    await writer.append(group(first))
    await writer.append(group(first, suspended()))
    await writer.append(group(second))
    await writer.append(group(third))

    assert committer.here == [False, True, True, False]


async def test_loop_does_not_wait_for_a_large_module(
    writer: Writer, committer: CountingCommitter
) -> None:
    first = Line("run/1")
    await writer.append(group(first, suspended()))
    large = group(Line("run/2"))
    large.blobs = {"key": bytes(LIGHT + 1)}
    await writer.append(large)

    assert committer.here == [False, False]


async def test_queued_groups_ride_the_next_append(
    writer: Writer, committer: CountingCommitter
) -> None:
    line = Line("run/1")
    await writer.append(group(line))
    queued = [group(line), group(line)]
    for each in queued:
        writer.queue(each)
    last = group(line)

    await writer.append(last)  # law 3: one wait and one commit a call

    assert committer.batches[1:] == [[*queued, last]]


async def test_queueing_wakes_nobody_before_its_time(
    writer: Writer, committer: CountingCommitter
) -> None:
    writer.queue(group(Line("run/1")))

    for _ in range(20):
        await anyio.lowlevel.checkpoint()

    assert committer.batches == []


async def test_timer_takes_what_is_old_enough(
    writer: Writer, committer: CountingCommitter
) -> None:
    line = Line("run/1")
    await writer.append(group(line))
    writer.queue(group(line))
    await writer.append(group(line))
    late = group(line)
    writer.queue(late)  # the timer of the first is still on

    await eventually(lambda: late.settled)

    assert [len(batch) for batch in committer.batches] == [1, 2, 1]
    assert committer.here[-1] is False  # nobody waits, so the loop goes on


async def test_streams_that_append_at_once_share_a_commit(
    writer: Writer, committer: CountingCommitter
) -> None:
    async with anyio.create_task_group() as tasks:
        for i in range(64):
            tasks.start_soon(writer.append, group(Line(f"run/{i}")))

    assert [len(batch) for batch in committer.batches] == [64]


async def test_what_comes_during_a_commit_is_the_next_batch(
    writer: Writer, committer: CountingCommitter
) -> None:
    committer.gate.clear()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.append, group(Line("run/0")))
        await anyio.sleep(0.01)
        for i in range(1, 9):
            tasks.start_soon(writer.append, group(Line(f"run/{i}")))
        await anyio.sleep(0.01)
        committer.gate.set()

    assert [len(batch) for batch in committer.batches] == [1, 8]


async def test_batch_has_an_upper_bound(
    writer: Writer, committer: CountingCommitter
) -> None:
    line = Line("run/1")
    await writer.append(group(line))
    for _ in range(BATCH + 5):
        writer.queue(group(line))

    await writer.append(group(line))

    assert [len(batch) for batch in committer.batches] == [1, BATCH, 6]


async def test_run_that_was_not_alone_leaves_the_loop_free(
    writer: Writer, committer: CountingCommitter
) -> None:
    one, two = Line("run/1"), Line("run/2")
    for line in (one, two, one, two):
        await writer.append(group(line))

    assert committer.here == [False] * 4


async def test_waiting_for_another_process_does_not_block_the_loop(
    writer: Writer, committer: CountingCommitter
) -> None:
    line = Line("run/1")
    await writer.append(group(line))
    committer.locked = True

    await writer.append(group(line))

    assert committer.here == [False, False]


async def test_failure_reaches_all_that_wait_and_what_is_behind(
    writer: Writer, committer: CountingCommitter
) -> None:
    line, other = Line("run/1"), Line("run/2")
    committer.bad = line
    committer.gate.clear()
    failed: list[int] = []
    queued, kept = group(line), group(other)

    async def append(number: int) -> None:
        try:
            await writer.append(group(line))
        except StoreError:
            failed.append(number)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(append, 1)
        await anyio.sleep(0.01)
        tasks.start_soon(append, 2)
        await anyio.lowlevel.checkpoint()
        writer.queue(queued)
        writer.queue(kept)
        committer.gate.set()

    await eventually(lambda: kept.settled)
    assert sorted(failed) == [1, 2]
    assert [len(batch) for batch in committer.batches] == [1, 1]  # never tried again
    assert isinstance(queued.outcome, StoreError)
    assert kept.outcome is None
    assert line.outstanding == other.outstanding == 0


async def test_closed_writer_takes_no_more_and_stores_what_it_has(
    writer: Writer, committer: CountingCommitter
) -> None:
    line = Line("run/1")
    committer.gate.clear()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.append, group(line))
        await anyio.sleep(0.01)
        writer.queue(group(line))
        tasks.start_soon(writer.aclose)
        await anyio.sleep(0.01)
        committer.gate.set()

    await writer.aclose()
    assert [len(batch) for batch in committer.batches] == [1, 1]
    with pytest.raises(StoreError, match="closed"):
        writer.check(line)


# -- budgets that nobody waits for ---------------------------------------------


class RefusingCommitter(CountingCommitter):
    """Has no room for whatever asks for any."""

    def commit(self, groups: Sequence[Group], *, wait: bool = True) -> list[Outcome]:
        # As it is when the transaction begins, however long that takes.
        refused = [bool(group.reserve) for group in groups]
        super().commit(groups, wait=wait)
        return [Refused(0, "r") if each else None for each in refused]


@pytest.mark.parametrize("when", ["waiting", "during", "after"])
async def test_append_that_is_refused_while_its_caller_goes_away_is_not_stored(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # law 2
    committer = RefusingCommitter()
    writer, line = Writer(committer), Line("run/1")
    wish = Reservation(key="b", amount=1, limit=0, rule="r")
    refused = Group(line=line, drafts=(), blobs={"key": b""}, reserve=[wish])
    committer.gate.clear()
    if when == "waiting":
        writer.queue(group(Line("run/2")))
        writer._dispatch()  # the thread has this one

    task = asyncio.ensure_future(writer.append(refused))
    await asyncio.sleep(0.02)
    if when == "after":  # it is settled, and has not woken up yet
        settle = writer._settle

        def settled(batch: Sequence[Group], outcomes: Sequence[Outcome]) -> None:
            settle(batch, outcomes)
            task.cancel()

        monkeypatch.setattr(writer, "_settle", settled)
        committer.gate.set()
    else:
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        committer.gate.set()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert was_refused(caught.value)
    monkeypatch.undo()
    follower = group(line)
    writer.queue(follower)
    await writer.aclose()

    assert isinstance(refused.outcome, Refused)
    assert follower.outcome is None
    assert (line.outstanding, writer._waiters) == (0, 0)


async def test_each_transaction_is_told_of_with_its_events_and_what_waits(
    committer: CountingCommitter,
) -> None:
    told: list[tuple[int, int]] = []
    it: list[Writer] = []

    def tell(seconds: float, events: int) -> None:
        assert seconds >= 0
        told.append((events, it[0].queued))

    def some(line: Line, events: int) -> Group:
        draft = suspended()._replace(type="LogWritten")
        return Group(line=line, drafts=[draft] * events, blobs={})

    writer, line = Writer(committer, tell), Line("run/1")
    it.append(writer)
    await writer.append(some(line, 1))
    writer.queue(some(line, 2))
    await writer.append(some(line, 1))
    committer.gate.clear()
    first = asyncio.create_task(writer.append(some(Line("run/2"), 1)))
    await eventually(lambda: writer._committing)
    writer.queue(some(line, 1))
    committer.gate.set()
    await first
    committer.bad = line
    with pytest.raises(StoreError):
        await writer.append(some(line, 1))
    await writer.aclose()

    assert told[:3] == [(1, 0), (3, 0), (1, 1)]
    assert {events for events, _ in told[3:]} == {0}


async def test_large_blob_that_this_process_has_stored_is_left_out(
    writer: Writer,
) -> None:
    large, small = {"large": bytes(64 * 1024 + 1)}, {"small": bytes(64 * 1024)}
    both = {**large, **small}
    assert writer.missing(both) == both

    await writer.append(Group(line=Line("run/1"), drafts=(), blobs=both))

    assert writer.missing(both) == small


async def test_blob_of_a_commit_that_failed_is_not_left_out(
    writer: Writer, committer: CountingCommitter
) -> None:
    large, committer.bad = {"large": bytes(64 * 1024 + 1)}, Line("run/1")
    with pytest.raises(StoreError):
        await writer.append(Group(line=committer.bad, drafts=(), blobs=large))

    assert writer.missing(large) == large
