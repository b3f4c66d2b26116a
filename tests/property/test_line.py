"""Whatever becomes of those who come, every place of the line is given back."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from caxton_host.errors import OverloadedError
from caxton_host.runs.admission import RunQueue


class Visit(NamedTuple):
    who: str
    before: int
    asks: bool
    inside: int
    fails: bool
    hangs_up: int | None


_TURNS = st.integers(0, 3)
VISITS = st.lists(
    st.builds(
        Visit,
        who=st.sampled_from("abc"),
        before=_TURNS,
        asks=st.booleans(),
        inside=_TURNS,
        fails=st.booleans(),
        hangs_up=st.none() | st.integers(0, 8),
    ),
    max_size=25,
)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def come(here: RunQueue, visit: Visit) -> None:
    with here.take(visit.who) as ticket:
        await turns(visit.before)
        if visit.asks:
            await ticket.turn()
            assert here.inside <= here.places
            await turns(visit.inside)
        if visit.fails:
            raise LookupError


async def hang_up(task: asyncio.Task[None], after: int) -> None:
    await turns(after)
    task.cancel()


@given(visits=VISITS, places=st.integers(1, 3), gaps=st.lists(_TURNS, max_size=25))
async def test_every_place_is_given_back(
    visits: list[Visit], places: int, gaps: list[int]
) -> None:
    here = RunQueue(places=places, queue=9, each=6, rate=600, now=lambda: 0.0)
    tasks: list[asyncio.Task[None]] = []
    for at, visit in enumerate(visits):
        tasks.append(task := asyncio.create_task(come(here, visit)))
        if visit.hangs_up is not None:
            tasks.append(asyncio.create_task(hang_up(task, visit.hangs_up)))
        await turns(gaps[at] if at < len(gaps) else 0)

    ends = await asyncio.gather(*tasks, return_exceptions=True)

    known = (LookupError, OverloadedError, asyncio.CancelledError)
    assert [end for end in ends if end and not isinstance(end, known)] == []
    assert (here.inside, here.present, here.waiting) == (0, 0, 0)
