"""Many times to wake up at, and one timer."""

from __future__ import annotations

import asyncio
from functools import partial

from caxton_host.mcp.transport.timing import Alarms, Bucket


def _now() -> float:
    return asyncio.get_running_loop().time()


def _rung(alarms: Alarms, *after: float) -> tuple[list[int], asyncio.Event]:
    """Set alarms that many seconds from now; return which rang, in that order."""
    rung: list[int] = []
    last = asyncio.Event()

    def ring(number: int) -> None:
        rung.append(number)
        if number == len(after) - 1:
            last.set()

    for number, seconds in enumerate(after):
        alarms.at(_now() + seconds, partial(ring, number))
    return rung, last


async def test_alarms_ring_in_the_order_of_their_times() -> None:
    rung, last = _rung(Alarms(), 0.02, 0.0, 0.04)
    await asyncio.wait_for(last.wait(), 10)
    assert rung == [1, 0, 2]


async def test_one_that_is_taken_back_does_not_ring_and_the_others_do() -> None:
    alarms = Alarms()
    taken = alarms.at(_now(), lambda: rung.append(-1))
    rung, last = _rung(alarms, 0.0, 0.02)
    alarms.off(taken)
    await asyncio.wait_for(last.wait(), 10)
    assert rung == [0, 1]


async def test_one_that_has_rung_can_be_taken_back_and_nothing_happens() -> None:
    alarms, rang = Alarms(), asyncio.Event()
    number = alarms.at(_now(), rang.set)
    await asyncio.wait_for(rang.wait(), 10)
    alarms.off(number)


async def test_one_may_be_set_while_another_rings() -> None:
    alarms, rang = Alarms(), asyncio.Event()

    def again() -> None:
        alarms.at(_now(), rang.set)

    alarms.at(_now(), again)
    await asyncio.wait_for(rang.wait(), 10)


async def test_none_rings_after_the_end() -> None:
    alarms = Alarms()
    rung, _ = _rung(alarms, 0.0, 0.01)
    alarms.end()
    await asyncio.sleep(0.03)
    assert rung == []
    alarms.end()


def test_what_is_not_there_yet_is_ordered_in_turn() -> None:
    bucket = Bucket(2, 2.0)
    assert [bucket.reserve(100.0, 200.0) for _ in range(4)] == [0, 0, 1, 2]
    assert bucket.reserve(101.0, 200.0) == 2


def test_what_would_come_too_late_is_not_taken() -> None:
    bucket = Bucket(1, 10.0)
    assert bucket.reserve(0, 5) == 0
    assert [bucket.reserve(0, 5) for _ in range(3)] == [None] * 3
    assert bucket.reserve(0, 10) == 10


def test_a_long_rest_saves_no_more_than_the_bucket_holds() -> None:
    bucket = Bucket(3, 3.0)
    assert [bucket.reserve(1e6, 1e6) for _ in range(4)] == [0, 0, 0, None]


def test_what_is_given_back_can_be_taken() -> None:
    bucket = Bucket(1, 10.0)
    assert bucket.reserve(0, 0) == 0
    bucket.give_back()
    bucket.give_back()
    assert [bucket.reserve(0, 0) for _ in range(2)] == [0, None]
