"""Answers settle budgets: in the transaction that records them, and once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from caxton_host.core.calls import Completed, Denied, Retry
from caxton_host.core.grants.bounds import Bound
from caxton_host.core.grants.budgets import PRICE_UNIT, UNIT, Sum, Use, period_of
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.log.events import (
    ToolCompleted,
    ToolFailed,
    ToolInvoked,
    to_payload,
)
from caxton_host.core.text.globs import Pattern
from caxton_host.core.text.jsonpath import JsonPath
from caxton_host.errors import ToolError
from caxton_host.lib import codec
from caxton_host.ports.tools import ToolRequest
from caxton_host.runs.run_request import ForkRequest
from caxton_host.testing import FakeTools
from tests import scene as scenes
from tests.scene import types

from .test_call_budgets import Bank, Scene, paid, paying

DAILY = Sum(of="result$.usage", per="day", limit=100 * UNIT, estimate=10 * UNIT)
OF_RUN = replace(DAILY, per="run")
KEY = "pay1/sum/day/result$.usage"
LOST = ToolError("transport", "unknown", "the connection broke")
DOWN = ToolError("transport", "no", "it is down")


@dataclass(slots=True)
class Model(Bank):
    """A tool whose answers say, one after another, what they took."""

    left: list[Any] = field(default_factory=list[Any])

    async def call_tool(self, request: ToolRequest) -> Completed:
        said = self.left.pop(0)
        if not isinstance(said, (ToolError, Completed)):
            said = Completed(message="paid", data={"usage": said})
        self.answers = {("bank", "pay"): said}
        return await super(Model, self).call_tool(request)


def says(*numbers: Any) -> Model:  # noqa: ANN401 -- a number, an error or an answer
    return Model(left=[*numbers])


def granted(*budgets: Sum, **terms: Any) -> Grant:  # noqa: ANN401 -- fields of a rule
    return Grant(allow=(replace(paying(*budgets), **terms),))


def spent(scene: Scene) -> float:
    """Return what the day has spent, by the store."""
    return scene.used[f"payer/{KEY}"] / UNIT


def settled(scene: Scene) -> list[object]:
    return [e.settles for e in scene.log.events if isinstance(e, ToolCompleted)]


# -- one call ------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 3, 10, 30, 2.5])
async def test_answer_corrects_the_budget_and_is_recorded(number: float) -> None:
    scene = Scene(granted(DAILY), bank=says(number))

    assert await scene.pay() == "paid"

    assert spent(scene) == number
    assert scene.spends == [{KEY: 10 * UNIT}]
    assert settled(scene) == [{KEY: number * UNIT}]


@pytest.mark.parametrize(
    "answer", [Completed(message="paid"), "many", -5, DOWN, LOST], ids=str
)
async def test_answer_without_the_number_and_failure_leave_the_estimate(
    answer: object,
) -> None:
    scene = Scene(granted(DAILY), bank=says(answer))

    await scene.pay()

    assert spent(scene) == 10
    assert "settles" not in to_payload(scene.log.events[-1])


async def test_denied_call_spends_nothing_and_is_not_sent() -> None:  # law 2
    prices = {"m-small": PRICE_UNIT}
    scene = Scene(granted(replace(DAILY, by="amount", prices=prices)))

    assert await scene.pay(1, "m-new") == "budget"

    assert (scene.used, scene.bank.asked) == ({}, [])
    assert "that grant has no price for this 'amount'" in str(scene.log.events)


async def test_money_is_counted_by_the_price_of_the_call() -> None:
    prices = {"m-small": PRICE_UNIT, "m-large": 3 * PRICE_UNIT}
    budget = replace(DAILY, by="amount", prices=prices)
    scene = Scene(granted(budget), bank=says(4, 4))

    await scene.pay(1, "m-small")
    await scene.pay(2, "m-large")

    key = "pay1/cost/day/result$.usage"
    assert scene.used == {f"payer/{key}": 16 * UNIT}
    assert scene.spends == [{key: 10 * UNIT}, {key: 30 * UNIT}]


async def test_answer_settles_the_budget_of_a_rule_for_that_one_tool() -> None:
    only = (Pattern.parse("bank/pay"),)
    scene = Scene(granted(DAILY, tools=only), bank=says(3))

    await scene.pay()

    assert settled(scene) == [{KEY: 3 * UNIT}]


# -- never over by more than the calls in flight --------------------------------


@pytest.mark.parametrize("budget", [DAILY, OF_RUN])
async def test_excess_blocks_the_next_call(budget: Sum) -> None:
    scene = Scene(granted(budget), bank=says(60, 70, 1))

    assert [await scene.pay(n) for n in (1, 2, 3)] == ["paid", "paid", "budget"]
    assert scene.journal.tallies.recorded.spent == {f"pay1/{budget.key}": 130 * UNIT}
    assert len(scene.bank.asked) == 2


@pytest.mark.parametrize("budget", [DAILY, OF_RUN])
async def test_what_is_left_of_estimates_is_there_for_the_next_call(
    budget: Sum,
) -> None:
    scene = Scene(granted(budget), bank=says(*[5] * 30))

    codes = [await scene.pay(n) for n in range(1, 22)]

    # Nineteen calls took 95; another one needs room for its estimate.
    assert codes == ["paid"] * 19 + ["budget"] * 2


async def test_batch_exceeds_by_its_calls_in_flight_alone() -> None:
    scene = Scene(granted(replace(DAILY, limit=20 * UNIT)), bank=says(*[50] * 3))

    assert await scene.pay_many(1, 1, 1) == ["paid", "paid", "budget"]
    assert spent(scene) == 100
    assert await scene.pay(4) == "budget"


async def test_two_runs_share_what_answers_took() -> None:
    one = Scene(granted(DAILY), bank=says(95))
    two = one.beside(bank=says(1))

    await one.pay()

    assert await two.pay() == "budget"


async def test_excess_known_after_midnight_counts_for_the_new_day() -> None:
    gate = asyncio.Event()
    for number, left in ((30, 20), (3, 0)):
        gate.clear()
        scene = Scene(granted(DAILY), bank=says(number))
        scene.bank.open_ = gate
        task = asyncio.ensure_future(scene.pay())
        await asyncio.sleep(0)
        scene.clock.time += 86_400 * UNIT

        gate.set()
        await task

        other = scene.beside("9", bank=says(0))
        await other.pay()  # settles to nothing, on the new day
        assert spent(scene) == left


# -- what the log keeps of the answer ------------------------------------------


@pytest.mark.parametrize(
    ("terms", "route"),
    [
        ({}, {"record": "hash"}),
        ({}, {"reply": "message"}),
        ({"redact_result": (JsonPath.parse("$.usage"),)}, {}),
        ({"max_result": 1}, {"over_limit": "cut"}),
    ],
)
async def test_hidden_answer_settles_before_it_is_hidden(
    terms: dict[str, Any], route: dict[str, Any]
) -> None:  # law 8
    done = Completed(message="paid", data={"usage": 33, "n": "x" * 20}, bytes=50)
    scene = Scene(granted(DAILY, **terms), bank=says(done))
    routes = scene.gate.judge.routes
    judge = replace(scene.gate.judge, routes={"pay": replace(routes["pay"], **route)})
    gate = replace(scene.gate, judge=judge)

    await gate.call(paid(1))

    assert spent(scene) == 33
    event = scene.log.events[-1]
    assert isinstance(event, ToolCompleted)
    assert "33" not in str(event.data)
    assert event.settles == {KEY: 33 * UNIT}


async def test_answer_that_is_too_large_leaves_the_estimate() -> None:
    done = Completed(data={"usage": 33}, bytes=50)
    scene = Scene(granted(DAILY, max_result=1), bank=says(done))

    await scene.pay()

    assert isinstance(scene.log.events[-1], ToolFailed)
    assert spent(scene) == 10


async def test_cached_answer_gives_the_estimate_back() -> None:
    done = Completed(data={"usage": 33}, cached=True)
    scene = Scene(granted(DAILY), bank=says(done))

    await scene.pay()

    assert (spent(scene), settled(scene)) == (0, [{KEY: 0}])


# -- sent again ----------------------------------------------------------------


@pytest.mark.parametrize(("failure", "expected"), [(DOWN, 3), (LOST, 13)])
async def test_send_without_an_answer_keeps_the_estimate(
    failure: ToolError, expected: int
) -> None:
    scene = Scene(granted(DAILY), bank=says(failure, 3), effect="read")
    routes = scene.gate.judge.routes
    retried = replace(routes["pay"], retry=Retry(attempts=2))
    judge = replace(scene.gate.judge, routes={"pay": retried})

    await replace(scene.gate, judge=judge).call(paid(1))

    assert spent(scene) == expected


async def test_call_in_doubt_keeps_its_estimate_and_its_answer_settles_it() -> None:
    call = paid(1)
    doubt = ToolInvoked(
        call=1,
        name="pay",
        server="bank",
        tool="pay",
        params=call.params,
        params_sha256=call.digest,
        effect="read",
        rule="allow[1]",
        idempotency_key="",
        fuel=7,
        spends={KEY: 10 * UNIT},
    )
    scene = Scene(granted(DAILY), history=[doubt], effect="read", bank=says(3))
    today, _ = period_of("day", scene.clock.now())
    scene.store.budgets[f"payer/{KEY}"] = Use(10 * UNIT, today)

    assert await scene.pay(1) == "paid"  # law 7

    # Nobody knows what the first send took.
    assert spent(scene) == 13


async def test_call_that_is_answered_from_the_log_settles_nothing() -> None:  # law 6
    scene = Scene(granted(DAILY), bank=says(3))
    await scene.pay()

    assert await scene.pay() == "paid"

    assert spent(scene) == 3
    assert len(settled(scene)) == 1


async def test_fork_and_replay_count_inherited_answers_and_settle_nothing() -> None:
    weather = "mcp__demo__get_weather"
    said: dict[tuple[str, str], Any] = {("demo", "get_weather"): {"n": 7}}
    scene = scenes.Scene(scenes.calling(weather, weather), tools=FakeTools(said))
    of_answers = replace(OF_RUN, of="result$.n", limit=16 * UNIT)
    tools = (Pattern.parse("demo/*"),)
    both = (of_answers, replace(of_answers, per="day"))
    grant = Grant(allow=(Rule(id="allow[1]", tools=tools, name="x", budgets=both),))
    scene.request = replace(scene.request, grant=grant)
    await scene.run()
    key = "weather/x/sum/day/result$.n"
    assert scene.store.budgets[key].used == 7 * UNIT  # the second finds no room

    fork = ForkRequest(
        run_id=scene.run_id, seq=3, actor=scene.request.actor, grant=grant
    )
    forked = await scene.host.fork(fork)

    assert (await scene.replay()).verdict == "identical"
    assert scene.store.budgets[key].used == 7 * UNIT  # law 6
    events = [e.event for e in await scene.store.reader.read(f"run/{forked}")]
    # It inherits 7, not the estimate of 10; with 10 more, 17 are too many.
    assert types([e for e in events if e])[1:3] == ["ToolInvoked", "ToolDenied"]


# -- several grants ------------------------------------------------------------


async def test_budget_of_two_grants_is_reserved_and_settled_by_the_larger_amount() -> (
    None
):
    dearer = replace(DAILY, estimate=20 * UNIT, limit=50 * UNIT)
    scene = Scene(granted(DAILY), today=granted(dearer), bank=says(DOWN, 45))

    await scene.pay(1)
    assert spent(scene) == 20
    assert await scene.pay(2) == "paid"
    assert spent(scene) == 65
    assert await scene.pay(3) == "budget"


async def test_budget_of_a_caller_is_settled_in_its_name() -> None:
    scene = Scene(granted(), bank=says(33))
    scene.journal.bind(Bound(name="parent", grant=granted(DAILY), owner="lead"))

    await scene.pay()

    assert scene.used == {f"lead/{KEY}": 33 * UNIT}
    assert settled(scene) == [{f"@lead/{KEY}": 33 * UNIT}]


async def test_each_of_two_owners_pays_by_its_own_price() -> None:
    cheap, dear = (
        granted(replace(DAILY, by="amount", prices={"m": n * PRICE_UNIT}))
        for n in (1, 3)
    )
    scene = Scene(dear, bank=says(4))
    scene.journal.bind(Bound(name="parent", grant=cheap, owner="lead"))

    await scene.pay(1, "m")

    key = "pay1/cost/day/result$.usage"
    assert settled(scene) == [{key: 12 * UNIT, f"@lead/{key}": 4 * UNIT}]


async def test_digest_of_an_answer_is_the_same_with_a_budget() -> None:  # law 5
    plain, bounded = (Scene(granted(*b), bank=says(3)) for b in ((), (DAILY,)))

    first, second = await plain.gate.call(paid(1)), await bounded.gate.call(paid(1))

    one, two = first.outcome, second.outcome
    assert not isinstance(one, Denied)
    assert not isinstance(two, Denied)
    assert isinstance(one, Completed)
    assert isinstance(two, Completed)
    assert codec.encode(one.data) == codec.encode(two.data)
    assert "settles" not in to_payload(plain.log.events[-1])
