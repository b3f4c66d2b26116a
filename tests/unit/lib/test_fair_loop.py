"""Of the many that could go on, a few do in each turn of the event loop."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, TypeVar

import anyio
import pytest

from caxton_host.lib.fair_loop import Pace, paced

T = TypeVar("T")


async def keep(work: Awaitable[T], pace: Pace) -> T:
    return await paced(work, pace)


@pytest.fixture
def busy() -> Pace:
    """Return a pace of one for each turn, that is gone."""
    pace = Pace(1)
    assert pace.turn() is None
    return pace


async def test_a_few_go_on_in_each_turn_of_the_loop() -> None:
    pace, turns, turn, gate = Pace(4), Counter[int](), 0, asyncio.Event()

    async def work() -> None:
        await gate.wait()
        turns[turn] += 1

    tasks = [asyncio.create_task(keep(work(), pace)) for _ in range(50)]
    await asyncio.sleep(0.01)
    gate.set()
    while turns.total() < len(tasks):
        await asyncio.sleep(0)
        turn += 1
    await asyncio.gather(*tasks)

    assert max(turns.values()) <= 2 * 4  # the last of one turn, the first of the next


async def test_they_go_on_in_the_order_in_which_they_could() -> None:
    pace, seen, gate = Pace(2), list[int](), asyncio.Event()

    async def work(number: int) -> None:
        await gate.wait()
        seen.append(number)

    tasks = [asyncio.create_task(keep(work(number), pace)) for number in range(20)]
    await asyncio.sleep(0.01)
    gate.set()
    await asyncio.gather(*tasks)

    assert seen == list(range(20))


async def test_work_gives_what_it_returns_and_raises_what_it_raises() -> None:
    async def work(number: int) -> int:
        await asyncio.sleep(0)
        return 1 // number

    assert await paced(work(1), Pace(1)) == 1
    with pytest.raises(ZeroDivisionError):
        await paced(work(0), Pace(1))


async def test_what_it_waits_for_may_fail() -> None:
    failing = asyncio.get_running_loop().create_future()
    failing.get_loop().call_soon(failing.set_exception, OSError("gone"))

    async def work() -> str:
        try:
            await failing
        except OSError as exc:
            await asyncio.sleep(0)
            return str(exc)
        return ""

    assert await paced(work(), Pace(1)) == "gone"


async def test_what_work_sets_in_its_context_is_set() -> None:
    name = ContextVar("name", default="nobody")

    async def work() -> str:
        before = name.get()
        await asyncio.sleep(0)
        name.set("bob")
        return before

    name.set("ann")
    assert await paced(work(), Pace(1)) == "ann"
    assert name.get() == "bob"


# -- cancelled -----------------------------------------------------------------


async def test_work_sees_to_it_that_it_is_cancelled() -> None:
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # whoever is cancelled may yet wait
            seen.append("cancelled")
            raise

    task = asyncio.create_task(keep(work(), Pace(1)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled"]


async def test_work_that_waits_for_its_turn_can_be_cancelled() -> None:
    pace, seen = Pace(1), list[str]()

    async def work(name: str) -> None:
        seen.append(name)
        await asyncio.sleep(0)

    tasks = {name: asyncio.create_task(keep(work(name), pace)) for name in "abcdef"}
    asyncio.get_running_loop().call_soon(tasks["c"].cancel)
    await asyncio.wait(tasks.values())

    assert tasks["c"].cancelled()
    assert seen == [*"abdef"]


async def test_cancelled_with_its_answer_it_gives_back_what_it_would_have_had() -> None:
    pace, lock = Pace(1), asyncio.Lock()

    async def work() -> str:
        async with lock:
            return "had it"

    await lock.acquire()
    first, second = (asyncio.create_task(keep(work(), pace)) for _ in "ab")
    while len(lock._waiters or ()) < 2:  # noqa: ASYNC110 -- nobody tells
        await asyncio.sleep(0)
    lock.release()
    while pace.turn() is None:  # so that it waits for its turn
        pass
    await asyncio.sleep(0)
    first.cancel()

    assert await second == "had it"
    assert first.cancelled()


async def test_when_all_that_waited_were_cancelled_the_next_goes_on(
    busy: Pace,
) -> None:
    async def work() -> str:
        return "done"

    tasks = [asyncio.create_task(keep(work(), busy)) for _ in range(3)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)

    assert all(task.cancelled() for task in tasks)
    async with asyncio.timeout(10):
        assert await paced(work(), busy) == "done"


async def test_what_cancelled_work_had_is_kept_by_nobody() -> None:
    class Large:
        pass

    async def work(large: Large) -> None:
        known.append(weakref.ref(large))
        await asyncio.sleep(60)

    known: list[weakref.ref[Large]] = []
    gc.disable()
    try:
        task = asyncio.create_task(keep(work(Large()), Pace(1)))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        del task
        assert known[0]() is None
    finally:
        gc.enable()


async def test_work_that_is_closed_cleans_up(busy: Pace) -> None:
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            seen.append("clean")

    at_work, waits, not_begun = (
        keep(work(), pace) for pace in (Pace(1), Pace(1), busy)
    )
    at_work.send(None)
    at_work.close()
    assert seen == ["clean"]

    waits.send(None)
    waits.send(None)  # it could go on, and its turn is gone
    waits.close()
    assert seen == ["clean", "clean"]

    not_begun.send(None)
    not_begun.close()
    assert seen == ["clean", "clean"]


# -- deadlines, scopes and groups ----------------------------------------------


async def sleeps() -> str:
    await asyncio.sleep(60)
    return "never"


async def test_a_deadline_within_work_is_kept() -> None:
    async def work() -> str:
        try:
            async with asyncio.timeout(0.01):
                return await sleeps()
        except TimeoutError:
            return "late"

    assert await paced(work(), Pace(1)) == "late"


async def test_a_deadline_of_who_asked_is_kept() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await paced(sleeps(), Pace(1))
    with anyio.move_on_after(0.01) as scope:
        await paced(sleeps(), Pace(1))
    assert scope.cancelled_caught
    task = asyncio.current_task()
    assert task
    assert not task.cancelling()


async def test_a_scope_within_work_is_left_when_its_turn_is_not_yet() -> None:
    loop, pace = asyncio.get_running_loop(), Pace(1)

    async def work() -> str:
        with anyio.CancelScope() as scope:
            # It waits for its turn by then.
            loop.call_soon(lambda: loop.call_soon(scope.cancel))
            await asyncio.sleep(0)
            return "not cancelled"
        await asyncio.sleep(0)
        return "left"

    assert await paced(work(), pace) == "left"


@pytest.mark.parametrize("group", [asyncio.TaskGroup, anyio.create_task_group])
async def test_a_group_within_work_ends_with_the_first_that_fails(
    group: Callable[[], Any],
) -> None:
    ended: list[str] = []

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("no")

    async def last() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("last")

    async def work() -> None:
        async with group() as both:
            start = getattr(both, "start_soon", lambda it: both.create_task(it()))
            start(last)
            start(fail)
            await sleeps()

    with pytest.raises(ExceptionGroup) as raised:
        await paced(work(), Pace(1))
    assert raised.group_contains(ValueError, match="no")
    assert ended == ["last"]
