"""What every store promises of budgets: never over, and free when they are free."""

from __future__ import annotations

import pytest

from caxton_host.core.grants.budgets import MOST, PERIODS, Period, period_of
from caxton_host.core.grants.settlement import Correction
from caxton_host.core.log.events import (
    Event,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunSuspended,
    ToolCompleted,
    ToolFailed,
)
from caxton_host.ports.log import Refused, Reservation
from caxton_host.store.memory import MemoryStore
from tests.contract.conftest import Place, Store
from tests.unit.store.fakes import FakeClock, FakeEntropy, line, run_started

RUN = "run/1"
NOON = 20_000 * 86_400_000_000 + 43_200_000_000
HOUR = 3_600_000_000


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOON)


def wanted(
    limit: int,
    amount: int = 1,
    key: str = "b",
    per: Period | None = None,
    every: int | None = None,
) -> Reservation:
    return Reservation(
        key=key, amount=amount, limit=limit, rule="r", per=per, every=every
    )


def place_for(call: int, limit: int, key: str = "open") -> Reservation:
    return Reservation(key=key, amount=1, limit=limit, rule="r", call=call)


def completed(call: int) -> ToolCompleted:
    return ToolCompleted(call=call, is_error=False, message="", data=None)


# -- periods -------------------------------------------------------------------


@pytest.mark.parametrize("per", PERIODS)
async def test_budget_of_a_period_is_spent_anew_in_the_next_one(
    place: Place, per: Period
) -> None:
    start, end = period_of(per, NOON)
    async with place.open() as store:
        log = store.create(RUN)
        assert await log.append(line(1), reserve=[wanted(2, 2, per=per)]) is None
        refused = await log.append(line(2), reserve=[wanted(2, per=per)])
        assert refused
        assert refused.retry_after
        assert 0 < refused.retry_after <= (end - start) / 1e6
    async with place.open() as store:
        log = await store.resume_log(RUN)
        assert await log.append(line(2), reserve=[wanted(2, per=per)])
        place.pass_(period_of(per, end)[1] - NOON)  # whatever the time is: the next
        assert await log.append(line(2), reserve=[wanted(2, 2, per=per)]) is None
        assert await log.append(line(3), reserve=[wanted(2, per=per)])


async def test_refusal_tells_when_there_is_room_again() -> None:
    store = MemoryStore(clock=FakeClock(NOON), entropy=FakeEntropy())
    log = store.create(RUN)

    async def after(item: Reservation) -> float | None:
        refused = await log.append(reserve=[item])
        return refused.retry_after if refused else 0

    assert await after(wanted(1, per="day")) == 0
    assert await after(wanted(1, per="day")) == 12 * 3600
    assert await after(wanted(1, 2, per="day")) is None  # there never is
    assert await after(wanted(1, key="ever")) == 0
    assert await after(wanted(1, key="ever")) is None


async def test_clock_that_goes_back_opens_no_period_again() -> None:
    # attack 45
    clock = FakeClock(NOON)
    log = MemoryStore(clock=clock, entropy=FakeEntropy()).create(RUN)
    assert await log.append(reserve=[wanted(1, per="hour")]) is None

    clock.time -= 3 * HOUR

    refused = await log.append(reserve=[wanted(1, per="hour")])
    assert refused == Refused(0, "r", 4 * 3600)


# -- rates ---------------------------------------------------------------------


def paced(amount: int = 1) -> Reservation:
    return wanted(3, amount, every=3 * HOUR)


async def test_rate_comes_back_bit_by_bit(place: Place) -> None:
    async with place.open() as store:
        log = store.create(RUN)
        assert await log.append(reserve=[paced(), paced(), paced()]) is None
        refused = await log.append(reserve=[paced()])
        assert refused
        assert refused.retry_after
        assert 3590 < refused.retry_after <= 3600
        place.pass_(HOUR)
        assert await log.append(reserve=[paced()]) is None
        assert await log.append(reserve=[paced()])
        place.pass_(30 * HOUR)
        assert await log.append(reserve=[paced(3)]) is None
        assert await log.append(reserve=[paced()])


async def test_rate_never_has_room_for_more_than_all_of_it(store: Store) -> None:
    refused = await store.create(RUN).append(reserve=[paced(4)])

    assert refused == Refused(0, "r", None)


async def test_rate_behind_a_clock_that_went_back_is_no_more_than_spent() -> None:
    clock = FakeClock(NOON)
    log = MemoryStore(clock=clock, entropy=FakeEntropy()).create(RUN)
    assert await log.append(reserve=[paced(3)]) is None

    clock.time -= 1000 * HOUR

    assert await log.append(reserve=[paced()]) == Refused(0, "r", 3600)


# -- calls under way -----------------------------------------------------------


async def test_place_is_free_in_the_transaction_of_the_calls_end(store: Store) -> None:
    log, other = store.create(RUN), store.create("run/2")
    assert await log.append(line(1), reserve=[place_for(1, 1)]) is None
    assert await other.append(line(1), reserve=[place_for(1, 1)]) == Refused(0, "r")

    log.queue(completed(1))  # rides on what comes next

    assert await log.append(line(2), reserve=[place_for(2, 1)]) is None
    assert await other.append(line(1), reserve=[place_for(1, 1)])
    await log.append(ToolFailed(call=2, kind="timeout", sent="yes", message=""))
    assert await other.append(line(1), reserve=[place_for(1, 1)]) is None


@pytest.mark.parametrize(
    "end",
    [
        RunFailed(kind="trap", message="", fuel=1),
        RunCancelled(actor={}, reason=""),
    ],
)
async def test_end_of_a_run_frees_all_its_places(store: Store, end: Event) -> None:
    log, other = store.create(RUN), store.create("run/2")
    places = [place_for(1, 2), place_for(2, 2), place_for(3, 1, key="more")]
    assert await log.append(run_started(), reserve=places) is None
    assert await other.append(line(1), reserve=[place_for(1, 2)])

    await log.append(end)

    assert await other.append(line(1), reserve=places) is None


async def test_call_in_doubt_holds_its_place_until_it_is_settled(
    place: Place,
) -> None:  # law 10
    async with place.open() as store:
        log = store.create(RUN)
        doubt = RunSuspended(reason="in_doubt", call=1)
        assert await log.append(run_started(), reserve=[place_for(1, 1)]) is None
        await log.append(doubt)
    async with place.open() as store:
        other = store.create("run/2")
        assert await other.append(line(1), reserve=[place_for(1, 1)])
        log = await store.resume_log(RUN)
        await log.append(completed(1))
        assert await other.append(line(1), reserve=[place_for(1, 1)]) is None


async def test_places_taken_and_freed_at_once_are_free(store: Store) -> None:
    log = store.create(RUN)
    both = [place_for(1, 2), place_for(2, 2)]

    assert await log.append(completed(1), completed(2), reserve=both) is None
    assert await log.append(line(1), reserve=both) is None
    end = RunFailed(kind="trap", message="", fuel=1)
    assert await log.append(end, reserve=[place_for(3, 3)]) is None

    assert await store.create("run/2").append(reserve=[*both, place_for(3, 3)]) is None


async def test_batch_takes_places_for_all_its_calls_or_for_none(store: Store) -> None:
    log = store.create(RUN)

    assert await log.append(reserve=[place_for(n, 2) for n in (1, 2, 3)]) == (
        Refused(2, "r")
    )
    assert await log.append(reserve=[place_for(n, 2) for n in (4, 5)]) is None


async def test_refused_append_spends_nothing_of_any_kind(store: Store) -> None:
    log = store.create(RUN)
    others = [
        wanted(1, key="a", per="day"),
        wanted(1, key="b", every=HOUR),
        place_for(1, 1, key="c"),
    ]

    assert await log.append(line(1), reserve=[*others, wanted(0, key="z")]) == (
        Refused(3, "r")
    )

    assert await log.append(line(1), reserve=others) is None


# -- answers that settle -------------------------------------------------------


def corrected(amount: int, age: int = 0, key: str = "b") -> Correction:
    return Correction(key=key, amount=amount, per="day", age=age)


async def test_outcome_corrects_in_its_own_transaction(store: Store) -> None:
    log, other = store.create(RUN), store.create("run/2")
    assert await log.append(line(1), reserve=[wanted(10, 8, per="day")]) is None
    assert await other.append(line(1), reserve=[wanted(10, 8, per="day")])

    log.queue(completed(1), correct=[corrected(-5)])  # rides on what comes next

    assert await log.append(line(2), reserve=[wanted(10, 7, per="day")]) is None
    assert await other.append(line(1), reserve=[wanted(10, per="day")])


async def test_excess_is_stored_and_leaves_no_room(store: Store) -> None:
    log, other = store.create(RUN), store.create("run/2")
    assert await log.append(line(1), reserve=[wanted(10, 8, per="day")]) is None

    log.queue(completed(1), correct=[corrected(7)])
    await log.append(line(2))

    assert await other.append(line(1), reserve=[wanted(14, 0, per="day")])
    assert await other.append(line(1), reserve=[wanted(15, 0, per="day")]) is None


async def test_no_excess_is_more_than_the_store_can_count(store: Store) -> None:
    log = store.create(RUN)

    for number in (1, 2):  # law 9
        log.queue(completed(number), correct=[corrected(MOST)])
        await log.append(line(number))

    assert await log.append(reserve=[wanted(MOST, 1, per="day")])


async def test_rest_goes_back_to_the_period_that_reserved_it_and_to_no_other(
    place: Place,
) -> None:
    async with place.open() as store:
        log = store.create(RUN)
        assert await log.append(line(1), reserve=[wanted(10, 8, per="day")]) is None
        place.pass_(86_400_000_000)
        assert await log.append(line(2), reserve=[wanted(10, 8, per="day")]) is None
        log.queue(completed(1), correct=[corrected(-8, age=86_400_000_000)])
        assert await log.append(line(3), reserve=[wanted(10, 3, per="day")])
        log.queue(completed(1), correct=[corrected(2, age=86_400_000_000)])
        assert await log.append(line(3), reserve=[wanted(10, per="day")])


async def test_correction_of_a_budget_that_has_no_row_makes_one(store: Store) -> None:
    log = store.create(RUN)

    log.queue(completed(1), correct=[corrected(-8), corrected(7, key="c")])

    assert await log.append(reserve=[wanted(10, 10, per="day")]) is None
    assert await log.append(reserve=[wanted(10, 4, key="c", per="day")])


@pytest.mark.parametrize(
    "end",
    [
        RunCompleted(output=None, output_sha256="", fuel=0),
        RunFailed(kind="trap", message="", fuel=0),
        RunCancelled(actor={}, reason=""),
    ],
)
async def test_budgets_that_a_run_shared_are_deleted_with_its_end(
    place: Place, end: Event
) -> None:
    async with place.open() as store:
        top, below = store.create("run/1"), store.create("run/2")
        for key in ("#1/pay", "#10/pay", "a/pay"):
            assert await top.append(line(1), reserve=[wanted(2, 2, key=key)]) is None
        assert await below.append(line(1), reserve=[wanted(2, 1, key="#1/of")]) is None

        await top.append(end)

        for key, is_spent in (("#10/pay", True), ("a/pay", True), ("#1/pay", False)):
            refused = await below.append(line(2), reserve=[wanted(2, key=key)])
            assert bool(refused) is is_spent
        assert await below.append(line(3), reserve=[wanted(2, 2, key="#1/of")]) is None


# -- calls that wait -------------------------------------------------------------


def turn_for(call: int, tries: int) -> Reservation:
    return Reservation(
        key="!server/s/open", amount=1, limit=1, rule="", call=call, tries=tries
    )


async def test_place_of_a_call_is_its_own_however_often_it_is_sent(
    store: Store,
) -> None:
    log = store.create(RUN)
    await log.append(run_started())
    for _ in range(3):
        assert await log.append(reserve=[turn_for(1, 0)]) is None
    assert await log.append(reserve=[turn_for(2, 0)])
    await log.append(completed(1))
    assert await log.append(reserve=[turn_for(2, 1)]) is None


async def test_who_was_refused_a_place_goes_before_who_comes_later(
    place: Place,
) -> None:
    async with place.open() as store:
        busy, other = store.create("run/1"), store.create("run/2")
        assert await busy.append(reserve=[turn_for(1, 0)]) is None
        assert await other.append(reserve=[turn_for(1, 0)])
        place.pass_(-HOUR)  # Not much is over, however slow this is.
        busy.queue(completed(1))
        assert await busy.append(reserve=[turn_for(2, 0)])
        assert await other.append(reserve=[turn_for(1, 1)]) is None
        await other.append(completed(1))
        place.pass_(2 * HOUR)
        assert await busy.append(reserve=[turn_for(3, 0)]) is None
