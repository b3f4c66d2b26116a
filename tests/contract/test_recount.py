"""Budgets whose tables were lost are counted again from the log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa

from caxton_host.core.analysis.rule_uses import Spent
from caxton_host.core.calls import Completed, Route
from caxton_host.core.grants.bounds import PARENT, Bound
from caxton_host.core.grants.budgets import Budget, CallCount, Concurrency, Pace, Sum
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.grants.journal import Journal
from caxton_host.core.log.events import Event, RunCancelled, ToolInvoked, settled
from caxton_host.core.text.globs import Pattern
from caxton_host.gateway.gateway import Gateway
from caxton_host.gateway.judge import Judge
from caxton_host.gateway.recorder import Recorder
from caxton_host.ports.log import Reservation
from caxton_host.store import budgets
from caxton_host.store.sql import SqlStore
from caxton_host.testing import FakeTools
from tests.postgres import Server
from tests.unit.gateway.test_call_budgets import paid
from tests.unit.store.fakes import FakeClock, FakeEntropy, run_started, url

DAY = 86_400_000_000
BUDGETS: tuple[Budget, ...] = (
    CallCount(limit=9, per="day"),
    CallCount(limit=90, per="month"),
    Sum(of="amount", limit=50_000_000, per="week"),
    Sum(of="amount", limit=50_000_000, per="run"),
    Sum(of="result$.n", limit=50_000_000, per="day", estimate=5_000_000),
    Pace(limit=3, every=DAY),
    Concurrency(limit=9),
)
GRANT = Grant(
    allow=(
        Rule(
            id="allow[1]",
            tools=(Pattern.parse("bank/pay"),),
            name="pay",
            budgets=BUDGETS,
        ),
    )
)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return url(tmp_path)
    server: Server = request.getfixturevalue("postgres")
    return server.make()


def opened(database: str, clock: FakeClock) -> SqlStore:
    return SqlStore.open(database, clock=clock, entropy=FakeEntropy())


async def pay(
    store: SqlStore,
    run: str,
    count: int,
    *after: Event,
    bounds: Sequence[Bound] = (),
    callers: tuple[str, ...] = (),
) -> None:
    log = store.create(f"run/{run}")
    await log.append(run_started("payer"))
    journal = Journal(bounds=bounds)
    gateway = Gateway(
        judge=Judge(
            run_id=run,
            agent="payer",
            grant=GRANT,
            routes={"pay": Route(server="bank", tool="pay")},
            journal=journal,
            now=store._database.clock.now,
            callers=callers,
        ),
        recorder=Recorder(log, journal),
        tools=FakeTools({("bank", "pay"): Completed(data={"n": 7, "settles": 1})}),
    )
    for number in range(1, count + 1):
        await gateway.call(paid(number, 2.5))
    await log.append(*after)


def lost(store: SqlStore) -> None:
    with store.engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM budgets"))
        connection.execute(sa.text("DELETE FROM slots"))


def known(spent: Spent) -> object:
    uses = {key: use for key, use in spent.uses.items() if use.since}
    return uses, spent.places


async def test_what_was_spent_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # law 10
    monkeypatch.setattr(budgets, "_PAGE", 2)
    clock = FakeClock(20_000 * DAY + DAY // 2)
    async with opened(url(tmp_path), clock) as store:
        await pay(store, "1", 2)
        clock.time += DAY
        await pay(store, "2", 5)  # of which the rate allows three
        clock.time += 3_600_000_000
        before = await store.budgets.spent("payer")
        assert before.uses["pay/calls/day"].used == 3
        assert before.uses["pay/sum/day/result$.n"].used == 21_000_000
        lost(store)

        assert await store.budgets.recount() == (5, 0)

        assert known(await store.budgets.spent("payer")) == known(before)
        assert await store.budgets.recount() == (5, 0)


async def test_what_runs_share_with_their_caller_is_found_again(
    tmp_path: Path,
) -> None:  # law 10
    rule = Rule(id="allow[1]", tools=(Pattern.parse("bank/*"),), name="all", calls=2)
    caller = Bound(name=PARENT, grant=Grant(allow=(rule,)), owner="boss")
    async with opened(url(tmp_path), FakeClock()) as store:
        await pay(store, "1", 1, bounds=[caller], callers=("0",))
        lost(store)

        await store.budgets.recount()

        await pay(store, "3", 2, bounds=[caller], callers=("0",))
        await pay(store, "4", 1, bounds=[caller], callers=("other",))
        types = {
            run: [one.type for one in await store.reader.read(f"run/{run}")]
            for run in "34"
        }
    assert types["3"][-2:] == ["ToolInvoked", "ToolDenied"]
    assert types["3"].count("ToolCompleted") == 1
    assert types["4"][-1] == "ToolCompleted"


async def test_calls_that_are_open_have_their_places_again(database: str) -> None:
    async with opened(database, FakeClock()) as store:
        await store.leases.join("host/1")
        doubt = held("1", 7)
        await pay(store, "1", 1, doubt)
        await pay(store, "2", 1, held("2", 7), RunCancelled(actor={}, reason=""))
        await pay(store, "3", 1, held("3", 7), settled(7, Completed()))
        lost(store)

        assert await store.budgets.recount() == (5, 1)

        assert (await store.budgets.spent("payer")).places == {
            "pay/open": [("run/1", 7)]
        }
        spent = await store.budgets.spent("payer")
        assert spent.uses["pay/calls/month"].used == 6
        assert spent.uses["pay/sum/day/result$.n"].used == 21_000_000


def held(run: str, call: int) -> ToolInvoked:
    return ToolInvoked(
        call=call,
        name="pay",
        server="bank",
        tool="pay",
        params={},
        params_sha256=run,
        effect="unsafe",
        rule="allow[1]",
        idempotency_key="",
        fuel=1,
        spends={
            "pay/calls/day": 1,
            "pay/calls/month": 1,
            "pay/sum/week/amount": 1,
            "pay/rate/3/86400000000": 9,
            "pay/open": 1,
        },
    )


async def test_what_servers_allow_in_all_stays_as_it_is(database: str) -> None:
    places = Reservation(key="!server/s/open", amount=1, limit=9, rule="", call=1)
    rate = Reservation(key="!server/s/rate/9/9", amount=1, limit=9, rule="", every=DAY)
    async with opened(database, FakeClock(100 * DAY)) as store:
        log = store.create("run/1")
        await log.append(run_started("payer"))
        assert await log.append(reserve=[places, rate]) is None
        before = await store.budgets.spent("!server")
        assert [*before.places] == ["s/open"]

        assert await store.budgets.recount() == (0, 0)

        after = await store.budgets.spent("!server")
        assert (after.uses, after.places) == (before.uses, before.places)
