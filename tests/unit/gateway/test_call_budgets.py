"""Calls spend budgets of the store: when they are made, and once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from caxton_host.core.calls import JSON, Completed, Denied, Effect, Route, ToolCall
from caxton_host.core.grants.bounds import TODAY, Bound
from caxton_host.core.grants.budgets import (
    Budget,
    CallCount,
    Concurrency,
    Pace,
    Sum,
    Use,
)
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.grants.journal import Journal
from caxton_host.core.limits import Limits
from caxton_host.core.log.events import (
    Event,
    ToolDenied,
    ToolFailed,
    ToolInvoked,
    to_payload,
)
from caxton_host.core.text.globs import Pattern
from caxton_host.errors import StoreError, ToolError
from caxton_host.gateway.gateway import Gateway
from caxton_host.gateway.guest_calls import GuestCalls
from caxton_host.gateway.judge import Judge
from caxton_host.gateway.recorder import Recorder
from caxton_host.lib import codec
from caxton_host.ports.log import Refused, Reservation
from caxton_host.ports.tools import ToolRequest
from caxton_host.runs.run_request import ForkRequest
from caxton_host.store.memory import MemoryLog, MemoryStore
from caxton_host.telemetry import NoTelemetry
from caxton_host.testing import FakeClock, FakeEntropy, FakeTools
from tests import scene as scenes
from tests.scene import types

LIMITS = Limits()
SECOND = 1_000_000
DOWN = ToolError("transport", "no", "it is down")
TWO_A_DAY = CallCount(limit=2, per="day")
SUM = Sum(of="amount", limit=100 * SECOND, per="day")


def paying(*budgets: Budget, number: int = 1) -> Rule:
    return Rule(
        id=f"allow[{number}]",
        tools=(Pattern.parse("bank/*"),),
        name=f"pay{number}",
        budgets=budgets,
    )


def granted(*budgets: Budget) -> Grant:
    return Grant(allow=(paying(*budgets),))


@dataclass(slots=True)
class Bank(FakeTools):
    """A tool whose work takes as long as it is told to."""

    answers: Mapping[tuple[str, str], Any] = field(
        default_factory=lambda: {("bank", "pay"): "paid"}
    )
    open_: asyncio.Event | None = None

    async def call_tool(self, request: ToolRequest) -> Completed:
        if self.open_:
            await self.open_.wait()
        return await super(Bank, self).call_tool(request)


@dataclass
class Scene:
    """One run of an agent, in a store that others may share."""

    grant: Grant
    today: Grant | None = None
    store: MemoryStore = field(
        default_factory=lambda: MemoryStore(clock=FakeClock(), entropy=FakeEntropy())
    )
    run: str = "1"
    agent: str = "payer"
    effect: Effect = "unsafe"
    history: Sequence[Event] = ()
    bank: Bank = field(default_factory=Bank)
    waits: list[float] = field(default_factory=list)
    log: MemoryLog = field(init=False)
    journal: Journal = field(init=False)
    gate: Gateway = field(init=False)
    door: GuestCalls = field(init=False)
    pause: float = 0.0

    def __post_init__(self) -> None:
        self.log = self.store.create(f"run/{self.run}")
        today = self.today
        bounds = [] if today is None else [Bound(name=TODAY, grant=today)]
        self.journal = Journal(bounds=bounds)
        for seq, event in enumerate(self.history, 2):
            self.journal.apply(event, 7, seq)
        self.gate = Gateway(
            judge=Judge(
                run_id=self.run,
                agent=self.agent,
                grant=self.grant,
                routes={"pay": Route(server="bank", tool="pay", effect=self.effect)},
                journal=self.journal,
                now=self.clock.now,
            ),
            recorder=Recorder(self.log, self.journal),
            tools=self.bank,
            wait=self.wait,
        )
        self.door = GuestCalls(
            gateway=self.gate, limits=LIMITS, span=NoTelemetry(), seeds={}
        )

    @property
    def clock(self) -> FakeClock:
        clock = self.store._clock
        assert isinstance(clock, FakeClock)
        return clock

    async def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.clock.time += round(seconds * SECOND)
        await asyncio.sleep(self.pause)

    def beside(self, run: str = "2", **changed: Any) -> Scene:  # noqa: ANN401 -- fields of all kinds
        """Return another run in the same store."""
        given = {"grant": self.grant, "today": self.today, "agent": self.agent}
        return Scene(store=self.store, run=run, **(given | changed))

    async def pay(self, number: int = 1, amount: JSON = 1) -> str:
        """Make a call, and return what came of it: a code, or a message."""
        outcome = (await self.gate.call(paid(number, amount))).outcome
        return outcome.code if isinstance(outcome, Denied) else outcome.message

    async def pay_many(self, *amounts: JSON) -> list[str]:
        """Make calls in one batch, and return their statuses or codes."""
        items: list[JSON] = [["pay", {"amount": amount}] for amount in amounts]
        answer = await self.door.call_many(codec.encode(items), 7)
        replies: Any = codec.decode_trusted(answer.reply)
        return [reply.get("error", {}).get("code", "paid") for reply in replies]

    @property
    def used(self) -> dict[str, int]:
        return {key: use.used for key, use in self.store.budgets.items()}

    @property
    def spends(self) -> list[object]:
        return [e.spends for e in self.log.events if isinstance(e, ToolInvoked)]


def paid(number: int, amount: JSON = 1) -> ToolCall:
    params = {"amount": amount}
    digest = codec.sha256(codec.encode(params))
    return ToolCall(number=number, name="pay", params=params, digest=digest, fuel=7)


# -- shared by runs ------------------------------------------------------------


async def test_calls_of_a_day_are_shared_by_all_runs_of_an_agent() -> None:
    one = Scene(granted(TWO_A_DAY))
    two = one.beside()
    stranger = one.beside("3", agent="another")

    assert [await one.pay(1), await two.pay(1), await one.pay(2)] == [
        "paid",
        "paid",
        "budget",
    ]
    assert await stranger.pay() == "paid"

    one.clock.time += 86_400 * SECOND
    assert await one.pay(3) == "paid"


async def test_denied_call_is_recorded_and_spends_nothing() -> None:  # law 2
    scene = Scene(granted(TWO_A_DAY, SUM))

    assert await scene.pay(1, 60) == "paid"
    assert await scene.pay(2, 60) == "budget"
    assert await scene.pay(3, 40) == "paid"

    assert scene.used == {
        "payer/pay1/calls/day": 2,
        "payer/pay1/sum/day/amount": 100 * SECOND,
    }
    assert scene.spends == [
        {"pay1/calls/day": 1, "pay1/sum/day/amount": 60 * SECOND},
        None,
        {"pay1/calls/day": 1, "pay1/sum/day/amount": 40 * SECOND},
    ]
    denied = scene.log.events[3]
    assert isinstance(denied, ToolDenied)
    assert (denied.code, denied.rule) == ("budget", "allow[1]")
    assert denied.message.startswith("that grant has no room for so much of 'amount'; ")
    assert "spends" not in to_payload(scene.log.events[2])


async def test_denial_says_when_there_is_room_again() -> None:
    scene = Scene(granted(CallCount(limit=1, per="hour")))
    scene.clock.time = 3600 * SECOND * 1000 + 600 * SECOND

    await scene.pay(1)
    denied = (await scene.gate.call(paid(2))).outcome

    assert denied.message == (
        "all 1 calls per hour of that grant are spent; try again in 3000 s"
    )


async def test_failed_call_has_spent() -> None:
    scene = Scene(granted(TWO_A_DAY), bank=Bank(answers={("bank", "pay"): DOWN}))

    await scene.pay()

    assert scene.used == {"payer/pay1/calls/day": 1}


async def test_next_rule_takes_over_from_one_whose_budget_is_spent() -> None:
    scene = Scene(
        Grant(
            allow=(paying(TWO_A_DAY), paying(CallCount(limit=1, per="day"), number=2))
        )
    )

    assert [await scene.pay(n) for n in (1, 2, 3, 4)] == [*["paid"] * 3, "budget"]
    rules = [e.rule for e in scene.log.events if isinstance(e, ToolInvoked)]
    assert rules == ["allow[1]", "allow[1]", "allow[2]", None]


async def test_sum_of_a_run_is_spent_in_the_run_alone() -> None:
    scene = Scene(granted(replace(SUM, per="run")))

    assert [await scene.pay(1, 60), await scene.pay(2, 60)] == ["paid", "budget"]
    assert await scene.beside().pay(1, 60) == "paid"
    assert scene.used == {}
    assert scene.spends == [{"pay1/sum/run/amount": 60 * SECOND}, None]


# -- rates ---------------------------------------------------------------------


async def test_call_above_the_rate_is_denied() -> None:
    scene = Scene(granted(Pace(limit=2, every=60 * SECOND)))

    assert [await scene.pay(n) for n in (1, 2, 3)] == ["paid", "paid", "rate"]
    scene.clock.time += 30 * SECOND
    assert [await scene.pay(n) for n in (4, 5)] == ["paid", "rate"]
    assert scene.waits == []


async def test_call_above_the_rate_waits_for_its_turn_if_it_may() -> None:
    scene = Scene(granted(Pace(limit=1, every=2 * SECOND, wait=5 * SECOND)))

    assert [await scene.pay(n) for n in (1, 2)] == ["paid", "paid"]
    assert scene.waits == [2.0]


async def test_call_never_waits_longer_than_its_rule_says() -> None:
    scene = Scene(granted(Pace(limit=1, every=10 * SECOND, wait=5 * SECOND)))

    assert [await scene.pay(n) for n in (1, 2)] == ["paid", "rate"]
    assert scene.waits == []


async def test_others_may_take_the_turn_that_a_call_waits_for() -> None:
    scene = Scene(granted(Pace(limit=1, every=2 * SECOND, wait=5 * SECOND)))
    other = scene.beside()
    await scene.pay(1)

    @dataclass
    class Quicker:
        number: int = 0

        async def wait(self, seconds: float) -> None:
            await scene.wait(seconds)
            self.number += 1
            assert await other.pay(self.number) == "paid"

    gate = replace(scene.gate, wait=Quicker().wait)

    outcome = (await gate.call(paid(2))).outcome
    assert isinstance(outcome, Denied)
    assert outcome.code == "rate"
    assert scene.waits == [2.0, 2.0]


@pytest.mark.parametrize("batch", [False, True])
async def test_run_that_is_stopped_while_a_call_waits_is_closed(
    *, batch: bool
) -> None:  # law 2
    one = Scene(granted(Pace(limit=1, every=2 * SECOND, wait=5 * SECOND)))
    await one.pay()
    scene = one.beside(pause=30.0)

    task = asyncio.ensure_future(scene.pay_many(1) if batch else scene.pay())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert types(scene.log.events) == ["ToolInvoked", "ToolFailed"]
    failed = scene.log.events[1]
    assert isinstance(failed, ToolFailed)
    assert (failed.kind, failed.sent) == ("cancelled", "no")
    assert scene.spends == [None]
    assert scene.journal.open_calls == []
    assert scene.bank.asked == []


@pytest.mark.parametrize("batch", [False, True])
async def test_call_that_waits_when_its_host_leaves_is_the_next_ones(
    *, batch: bool
) -> None:  # law 7
    one = Scene(granted(Pace(limit=1, every=2 * SECOND, wait=5 * SECOND)))
    await one.pay()
    scene = one.beside(pause=30.0)

    task = asyncio.ensure_future(scene.pay_many(1) if batch else scene.pay())
    await asyncio.sleep(0)
    scene.gate.recorder.leaving = True
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert scene.log.events == []


@pytest.mark.parametrize("leaving", [False, True])
async def test_call_that_is_refused_while_its_run_is_stopped_spends_nothing(
    *, leaving: bool, monkeypatch: pytest.MonkeyPatch
) -> None:  # laws 2 and 7
    async def append(*_: Event, **__: object) -> Refused | None:
        raise asyncio.CancelledError(Refused(0, "r"))

    scene = Scene(granted(TWO_A_DAY))
    scene.gate.recorder.leaving = leaving
    monkeypatch.setattr(scene.log, "append", append)

    with pytest.raises(asyncio.CancelledError):
        await scene.pay()

    closed = [] if leaving else ["ToolInvoked", "ToolFailed"]
    assert types(scene.log.events) == closed
    assert scene.spends == [None] * (not leaving)
    assert scene.journal.open_calls == []
    assert scene.bank.asked == []


# -- calls under way -----------------------------------------------------------


async def test_calls_under_way_are_counted_over_all_runs() -> None:
    gate = asyncio.Event()
    one = Scene(granted(Concurrency(limit=1)), bank=Bank(open_=gate))
    two = one.beside()

    task = asyncio.ensure_future(one.pay())
    await asyncio.sleep(0)
    assert await two.pay(1) == "busy"
    gate.set()
    assert await task == "paid"
    assert await two.pay(2) == "paid"
    assert one.store.slots == {}


# -- batches -------------------------------------------------------------------


async def test_batch_spends_for_as_many_calls_as_there_is_room_for() -> None:
    scene = Scene(granted(TWO_A_DAY))

    assert await scene.pay_many(1, 1, 1, 1) == ["paid", "paid", "budget", "budget"]
    assert scene.used == {"payer/pay1/calls/day": 2}
    assert scene.journal.tallies.recorded.used == {"allow[1]": 2}


async def test_smaller_call_of_a_batch_may_fit_behind_one_that_does_not() -> None:
    scene = Scene(granted(SUM))

    assert await scene.pay_many(60, 50, 40, 10) == ["paid", "budget", "paid", "budget"]
    assert scene.used == {"payer/pay1/sum/day/amount": 100 * SECOND}


async def test_batch_waits_for_its_turn_but_not_for_its_own_calls() -> None:
    scene = Scene(granted(Pace(limit=2, every=4 * SECOND, wait=5 * SECOND)))
    await scene.pay_many(1)

    assert await scene.pay_many(1, 1) == ["paid", "paid"]
    assert scene.waits == [2.0]
    assert await scene.beside().pay_many(1, 1, 1) == ["paid", "paid", "rate"]


async def test_refusal_leaves_the_retries_of_a_batch_alone() -> None:
    doubt = replace(intent(), params_sha256=codec.sha256(codec.encode({"amount": 1})))
    scene = Scene(
        granted(CallCount(limit=1, per="day")), history=[doubt], effect="read"
    )
    await scene.beside().pay()

    assert await scene.pay_many(1, 1) == ["paid", "budget"]
    assert [request.call for request in scene.bank.asked] == [1]


def intent(**spends: int) -> ToolInvoked:
    call = paid(1)
    return ToolInvoked(
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
        spends={**spends} or None,
    )


# -- resumed runs --------------------------------------------------------------


async def test_call_in_doubt_that_is_sent_again_spends_nothing_more() -> None:
    scene = Scene(granted(TWO_A_DAY), history=[intent()], effect="read")
    scene.store.budgets["payer/pay1/calls/day"] = Use(2, 0)

    assert await scene.pay(1) == "paid"  # law 7
    assert scene.used == {"payer/pay1/calls/day": 2}


async def test_grants_of_today_spend_what_is_theirs_and_share_what_is_the_same() -> (
    None
):
    today = granted(
        CallCount(limit=1, per="day"),
        CallCount(limit=5, per="hour"),
        Concurrency(limit=9),
    )
    scene = Scene(granted(TWO_A_DAY), today=today)

    assert [await scene.pay(1), await scene.pay(2)] == ["paid", "budget"]

    denied = scene.log.events[-1]
    assert isinstance(denied, ToolDenied)
    assert denied.rule == "today.allow[1]"  # the stricter one counts
    assert "in the grants of today" in denied.message
    assert scene.used == {"payer/pay1/calls/day": 1, "payer/pay1/calls/hour": 1}


async def test_recorded_limit_counts_where_todays_is_higher() -> None:
    scene = Scene(granted(CallCount(limit=1, per="day")), today=granted(TWO_A_DAY))

    assert [await scene.pay(1), await scene.pay(2)] == ["paid", "budget"]
    denied = scene.log.events[-1]
    assert isinstance(denied, ToolDenied)
    assert denied.rule == "allow[1]"


async def test_todays_sum_of_a_run_counts_what_the_run_had_spent() -> None:
    today = granted(Sum(of="amount", limit=2 * SECOND, per="run"))
    scene = Scene(granted(), today=today, history=[intent()])

    scene.journal.bind(Bound(name=TODAY, grant=today))
    assert scene.journal.tallies.of("today").spent == {"pay1/sum/run/amount": SECOND}
    assert scene.journal.tallies.recorded.spent == {}
    assert [await scene.pay(2), await scene.pay(3)] == ["paid", "budget"]


async def test_what_a_run_had_spent_counts_even_if_today_would_not_allow_it() -> None:
    run_sum = Sum(of="amount", limit=2 * SECOND, per="run")
    scene = Scene(
        granted(run_sum),
        today=Grant(),
        history=[intent(**{"pay1/sum/run/amount": SECOND})],
    )

    assert scene.journal.tallies.recorded.spent == {"pay1/sum/run/amount": SECOND}
    assert scene.journal.tallies.of("today").spent == {"pay1/sum/run/amount": SECOND}


# -- the store -----------------------------------------------------------------


class Failing(MemoryLog):
    """A log whose disk is full once a budget is asked for."""

    async def append(
        self,
        *events: Event,
        blobs: Mapping[str, bytes] | None = None,
        reserve: Sequence[Reservation] = (),
    ) -> Refused | None:
        del events, blobs
        assert reserve
        raise StoreError("disk full")


async def test_nothing_is_sent_if_what_it_spends_cannot_be_stored() -> None:  # law 3
    scene = Scene(granted(TWO_A_DAY))
    failing = Failing(scene.store, scene.log._drafter, 0)
    gate = replace(scene.gate, recorder=Recorder(failing, scene.journal))

    with pytest.raises(StoreError, match="disk full"):
        await gate.call(paid(1))
    assert (scene.bank.asked, scene.used) == ([], {})


# -- whole runs ----------------------------------------------------------------


async def test_fork_spends_what_it_sends_itself_and_replay_spends_nothing() -> None:
    weather, echo = "mcp__demo__get_weather", "mcp__demo__echo"
    scene = scenes.Scene(scenes.calling(weather, echo))
    rule = Rule(
        id="allow[1]",
        tools=(Pattern.parse("demo/*"),),
        name="demo",
        budgets=(CallCount(limit=9, per="day"),),
    )
    grant = Grant(allow=(rule,))
    scene.request = replace(scene.request, grant=grant)
    await scene.run()
    assert scene.store.budgets["weather/demo/calls/day"].used == 2

    fork = ForkRequest(
        run_id=scene.run_id, seq=3, actor=scene.request.actor, grant=grant
    )
    forked = await scene.host.fork(fork)

    assert scene.store.budgets["weather/demo/calls/day"].used == 3
    assert (await scene.replay()).verdict == "identical"
    assert scene.store.budgets["weather/demo/calls/day"].used == 3  # law 6
    intents = [
        recorded.event
        for recorded in await scene.store.reader.read(f"run/{forked}")
        if isinstance(recorded.event, ToolInvoked)
    ]
    assert [intent.spends for intent in intents] == [{"demo/calls/day": 1}]
