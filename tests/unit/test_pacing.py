"""Of the many that could go on, a few do in each turn of the event loop."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from caxton_host.pacing import Pace, paced


async def test_a_few_go_on_in_each_turn_of_the_loop() -> None:
    pace, turns, turn, gate = Pace(4), Counter[int](), 0, asyncio.Event()

    async def work() -> None:
        await gate.wait()
        turns[turn] += 1

    async def keep() -> None:
        await paced(work(), pace)

    tasks = [asyncio.create_task(keep()) for _ in range(50)]
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

    async def keep(number: int) -> None:
        await paced(work(number), pace)

    tasks = [asyncio.create_task(keep(number)) for number in range(20)]
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


async def test_work_sees_to_it_that_it_is_cancelled() -> None:
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # whoever is cancelled may yet wait
            seen.append("cancelled")
            raise

    async def keep() -> None:
        await paced(work(), Pace(1))

    task = asyncio.create_task(keep())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled"]


async def test_work_that_waits_for_its_turn_can_be_cancelled() -> None:
    pace, seen = Pace(1), list[str]()

    async def work(name: str) -> None:
        seen.append(name)
        await asyncio.sleep(0)

    async def keep(name: str) -> None:
        await paced(work(name), pace)

    tasks = {name: asyncio.create_task(keep(name)) for name in "abcdef"}
    asyncio.get_running_loop().call_soon(tasks["c"].cancel)
    await asyncio.wait(tasks.values())

    assert tasks["c"].cancelled()
    assert seen == [*"abdef"]


async def test_a_deadline_within_work_is_kept() -> None:
    async def work() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(60)
        except TimeoutError:
            return "late"
        return "never"

    assert await paced(work(), Pace(1)) == "late"
