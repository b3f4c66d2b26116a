"""Budgets against a model that is easy to believe: never over, whatever happens."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caxton_host.core.calls import Completed
from caxton_host.core.grants.budgets import Period, Use, period_of
from caxton_host.core.grants.settlement import corrections
from caxton_host.core.log.events import RunCancelled, ToolInvoked, settled
from caxton_host.ports.log import Refused, Reservation
from caxton_host.store.sql import SqlStore
from caxton_host.store.writer import SqlLog
from tests.postgres import Server, name_of
from tests.unit.store.fakes import FakeClock, FakeEntropy, run_started, url

pytestmark = pytest.mark.no_cover

#: Time goes on in steps that lead to another month, wherever they begin.
STEP = 40 * 86_400_000_000
START = int(datetime(2026, 11, 21, tzinfo=UTC).timestamp()) * 1_000_000
HOSTS, RUNS = 2, 4


@dataclass(frozen=True)
class Item:
    """A budget that a call takes of; its name says of which kind it is."""

    key: str
    amount: int
    limit: int

    def reservation(self, call: int) -> Reservation:
        return Reservation(
            key=self.key,
            amount=self.amount,
            limit=self.limit,
            rule=self.key,
            per="month" if self.key[0] == "m" else None,
            every=self.limit * STEP if self.key[0] == "r" else None,
            call=call if self.key[0] == "p" else None,
        )


@dataclass
class Model:
    """What was taken, and when, and nothing else."""

    step: int = 0
    taken: list[tuple[int, str, int]] = field(default_factory=list)
    places: dict[tuple[str, int, int], None] = field(default_factory=dict)

    def room(self, item: Item) -> int:
        """Return how much of *item* there is now."""
        if item.key[0] == "p":
            return item.limit - sum(key == item.key for key, *_ in self.places)
        mine = [(at, amount) for at, key, amount in self.taken if key == item.key]
        if item.key[0] == "m":
            return item.limit - sum(n for at, n in mine if at == self.step)
        if item.key[0] == "e":
            return item.limit - sum(n for _, n in mine)
        there, seen = item.limit, 0
        for at, amount in [*mine, (self.step, 0)]:
            there = min(item.limit, there + at - seen) - amount
            seen = at
        return there

    def take(self, items: list[Item], run: int, call: int) -> str | None:
        """Take *items*, or nothing, and return which has no room."""
        before = [*self.taken], {**self.places}
        for item in sorted(items, key=lambda item: item.key):
            slot = item.key, run, call
            if item.key[0] == "p" and slot in self.places:
                continue
            if self.room(item) < (1 if item.key[0] == "p" else item.amount):
                self.taken, self.places = before
                return item.key
            if item.key[0] == "p":
                self.places[slot] = None
            else:
                self.taken.append((self.step, item.key, item.amount))
        return None

    def free(self, run: int, call: int | None = None) -> None:
        self.places = {
            slot: None
            for slot in self.places
            if slot[1] != run or call not in {None, slot[2]}
        }


@dataclass
class Call:
    """A run makes a call."""

    run: int
    items: list[Item]


@dataclass
class Rush:
    """All runs make the same call at once."""

    item: Item


@dataclass
class Close:
    """A call is answered; its event rides with the next one of its run."""

    run: int
    back: int


@dataclass
class End:
    """A run ends, and another one begins."""

    run: int


@dataclass
class Reopen:
    """A host goes away, and comes back."""

    host: int


@dataclass
class Tick:
    """Time goes on."""


Step = Call | Rush | Close | End | Reopen | Tick

# One limit a key: as if nobody edits the configuration meanwhile.
item = st.one_of(
    st.builds(Item, st.sampled_from(["m1", "m2"]), st.integers(0, 3), st.just(5)),
    st.builds(Item, st.just("e"), st.integers(0, 3), st.just(7)),
    st.builds(Item, st.just("r"), st.integers(1, 3), st.just(3)),
    st.builds(Item, st.just("p"), st.just(1), st.just(2)),
)
runs = st.integers(0, RUNS - 1)
steps = st.lists(
    st.one_of(
        st.builds(Call, runs, st.lists(item, min_size=1, max_size=3)),
        st.builds(Rush, item),
        st.builds(Close, runs, st.integers(0, 2)),
        st.builds(End, runs),
        st.builds(Reopen, st.integers(0, HOSTS - 1)),
        st.builds(Tick),
    ),
    max_size=20,
)


@dataclass
class World:
    """Two hosts that share a store, and the runs that each of them drives."""

    place: str
    server: Server | None
    clock: FakeClock = field(default_factory=lambda: FakeClock(START))
    stores: list[SqlStore] = field(default_factory=list)
    logs: dict[int, SqlLog] = field(default_factory=dict)
    calls: dict[int, int] = field(default_factory=dict)
    begun: int = 0
    model: Model = field(default_factory=Model)

    def opened(self) -> SqlStore:
        return SqlStore.open(self.place, clock=self.clock, entropy=FakeEntropy())

    async def begin(self, run: int) -> None:
        self.begun += 1
        self.logs[run] = self.stores[run % HOSTS].create(f"run/{self.begun}")
        self.calls[run] = 0
        await self.logs[run].append(run_started())

    async def call(self, run: int, items: list[Item]) -> str | None:
        self.calls[run] += 1
        number = self.calls[run]
        refused = await self.logs[run].append(
            invoked(number, items), reserve=[one.reservation(number) for one in items]
        )
        return refused.rule if isinstance(refused, Refused) else None

    async def rush(self, item: Item) -> None:
        room = max(self.model.room(item), 0)
        outcomes: dict[int, str | None] = {}

        async def one(run: int) -> None:
            outcomes[run] = await self.call(run, [item])

        async with anyio.create_task_group() as tasks:
            for run in range(RUNS):
                tasks.start_soon(one, run)
        allowed = [run for run, outcome in outcomes.items() if outcome is None]
        assert len(allowed) == (min(RUNS, room // item.amount) if item.amount else RUNS)
        for run in allowed:
            assert self.model.take([item], run, self.calls[run]) is None

    async def do(self, step: Step) -> None:
        match step:
            case Call(run, items):
                expected = self.model.take(items, run, self.calls[run] + 1)
                assert await self.call(run, items) == expected
            case Rush(item):
                await self.rush(item)
            case Close(run, back):
                number = max(self.calls[run] - back, 1)
                self.logs[run].queue(settled(number, Completed()))
                await self.logs[run].append()  # or another host might be quicker
                self.model.free(run, number)
            case End(run):
                await self.logs[run].append(RunCancelled(actor={}, reason=""))
                self.model.free(run)
                await self.begin(run)
            case Reopen(host):
                await self.stores[host].aclose()
                self.stores[host] = self.opened()
                for run, log in self.logs.items():
                    if run % HOSTS == host:
                        stream = log._drafter.stream
                        self.logs[run] = await self.stores[host].resume_log(stream)
            case Tick():
                self.model.step += 1
                self.clock.time += STEP
                if self.server:
                    shift = f"UPDATE budgets SET since = since - {STEP} WHERE since > 0"  # noqa: S608
                    self.server.execute(shift, name_of(self.place))

    async def check(self) -> None:
        """Compare the log with the model: what is in it was taken, and once."""
        found: list[tuple[str, int]] = []
        async for recorded in self.stores[0].reader.stream_events():
            if isinstance(recorded.event, ToolInvoked):
                spends = recorded.event.spends or {}
                found += [(key.rstrip("+"), int(str(n))) for key, n in spends.items()]
        taken = [(key, amount) for _, key, amount in self.model.taken]
        assert sorted(found) == sorted(taken)


def invoked(call: int, items: list[Item]) -> ToolInvoked:
    spends: dict[str, int] = {}
    for one in items:
        if one.key[0] != "p":
            key = one.key
            while key in spends:
                key += "+"
            spends[key] = one.amount
    return ToolInvoked(
        call=call,
        name="pay",
        server="bank",
        tool="pay",
        params={},
        params_sha256="",
        effect="unsafe",
        rule="allow[1]",
        idempotency_key="",
        fuel=1,
        spends={**spends} or None,
    )


async def compare(program: list[Step], place: str, server: Server | None) -> None:
    world = World(place, server)
    world.stores = [world.opened() for _ in range(HOSTS)]
    try:
        for run in range(RUNS):
            await world.begin(run)
        for step in program:
            await world.do(step)
        await world.check()
    finally:
        for store in world.stores:
            await store.aclose()


@settings(max_examples=25, deadline=None)
@given(program=steps)
def test_two_hosts_on_sqlite_spend_what_the_model_does(program: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        anyio.run(compare, program, url(Path(folder)), None)


def test_two_hosts_on_postgresql_spend_what_the_model_does(postgres: Server) -> None:
    @settings(max_examples=8, deadline=None)
    @given(program=steps)
    def compared(program: list[Step]) -> None:
        anyio.run(compare, program, postgres.make(), postgres)

    compared()


# -- answers that settle -------------------------------------------------------

AGENT, ROOM, ESTIMATE = "weather", 40, 5
PERS: tuple[Period, ...] = ("hour", "month")
KEYS = {per: f"model/sum/{per}/result$.n" for per in PERS}
MONTH = 30 * 86_400_000_000
SPENDS = dict.fromkeys(KEYS.values(), ESTIMATE)


@dataclass
class Ask:
    """A run makes a call, and nobody knows yet what it takes."""

    run: int


@dataclass
class Answer:
    """The oldest open call of a run is answered, with a number or without one."""

    run: int
    number: int | None


@dataclass
class Later:
    """Time goes on, within the hour or beyond."""

    minutes: int


settling = st.lists(
    st.one_of(
        st.builds(Ask, runs),
        st.builds(Answer, runs, st.none() | st.integers(0, 30)),
        st.builds(Reopen, st.integers(0, HOSTS - 1)),
        st.builds(Later, st.sampled_from([1, 25, 70, 60 * 24 * 40])),
    ),
    max_size=25,
)


@dataclass
class Settling(World):
    """
    A world whose calls are settled by answers.

    Attributes:
        open_: Number and time of each call without an answer, by run.

        known: When something was spent, or given back, and how much, by period.
    """

    open_: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    known: dict[Period, list[tuple[int, int]]] = field(
        default_factory=lambda: {per: [] for per in PERS}
    )

    def spent(self, per: Period) -> int:
        start, _ = period_of(per, self.clock.time)
        return sum(amount for at, amount in self.known[per] if at >= start)

    async def step(self, step: Ask | Answer | Reopen | Later) -> None:
        match step:
            case Ask(run):
                await self.ask(run)
            case Answer(run, number) if self.open_.get(run):
                await self.answer(run, number)
            case Answer():
                pass
            case Reopen():
                await self.do(step)
            case Later(minutes):
                self.clock.time += minutes * 60_000_000

    async def ask(self, run: int) -> None:
        self.calls[run] += 1
        number, now = self.calls[run], self.clock.time
        wish = [
            Reservation(
                key=f"{AGENT}/{key}", amount=ESTIMATE, limit=ROOM, rule=key, per=per
            )
            for per, key in KEYS.items()
        ]
        intent = replace(invoked(number, []), spends={**SPENDS})
        refused = await self.logs[run].append(intent, reserve=wish)
        # Never over by more than the calls in flight, and an excess blocks the next.
        has_room = all(self.spent(per) + ESTIMATE <= ROOM for per in PERS)
        assert (refused is None) == has_room
        if refused is None:
            self.open_.setdefault(run, []).append((number, now))
            for per in PERS:
                self.known[per].append((now, ESTIMATE))

    async def answer(self, run: int, number: int | None) -> None:
        (call, at), now = self.open_[run].pop(0), self.clock.time
        if now - at > MONTH:
            return  # A recount does not look back so far.
        truth = {} if number is None else dict.fromkeys(KEYS.values(), number)
        change = [*corrections(AGENT, SPENDS, truth, now - at)]
        done = settled(call, Completed(settles=truth or None))
        self.logs[run].queue(done, correct=change)
        await self.logs[run].append()  # or another host might be quicker
        extra = (ESTIMATE if number is None else number) - ESTIMATE
        for per in PERS:
            if extra > 0 or period_of(per, at) == period_of(per, now):
                self.known[per].append((now, extra))

    async def recounted(self) -> None:
        """Compare the rows with the fold of the log."""
        expected = {key: self.spent(per) for per, key in KEYS.items()}
        assert await self.stored() == expected
        await self.stores[0].budgets.recount()
        assert await self.stored() == expected

    async def stored(self) -> dict[str, int]:
        uses = (await self.stores[0].budgets.spent(AGENT)).uses
        now, found = self.clock.time, dict[str, int]()
        for per, key in KEYS.items():
            use = uses.get(key, Use())
            found[key] = use.used if use.since == period_of(per, now)[0] else 0
        return found


async def settle_and_recount(program: list[Any], place: str) -> None:
    world = Settling(place, None)
    world.stores = [world.opened() for _ in range(HOSTS)]
    try:
        for run in range(RUNS):
            await world.begin(run)
        for step in program:
            await world.step(step)
        await world.recounted()
    finally:
        for store in world.stores:
            await store.aclose()


@settings(max_examples=10, deadline=None)
@given(program=settling)
def test_rows_that_answers_settle_are_the_fold_of_the_log(
    program: list[Any],
) -> None:  # law 10
    with tempfile.TemporaryDirectory() as folder:
        anyio.run(settle_and_recount, program, url(Path(folder)))


# -- hosts that are killed -----------------------------------------------------

LIMIT = 150

SPENDER = """
import asyncio, os, sys
from caxton_host.lib.machine import SystemClock
from caxton_host.ports.log import Reservation
from caxton_host.store.sql import SqlStore
from tests.property.test_budgets import Item, invoked

async def spend(store, name):
    log, call = store.create("run/" + name), 0
    while True:
        call += 1
        items = [Item("e", 1, int(sys.argv[3]))]
        wish = [item.reservation(call) for item in items]
        if await log.append(invoked(call, items), reserve=wish):
            return
        print(name, call, flush=True)

async def main():
    place, clock = sys.argv[1], SystemClock()
    async with SqlStore.open(place, clock=clock, entropy=os.urandom) as store:
        await asyncio.gather(*(spend(store, sys.argv[2] + n) for n in "xyz"))

asyncio.run(main())
"""


def spender(place: str, name: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SPENDER, place, name, str(LIMIT)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        text=True,
    )


async def killed_hosts_spend_no_more_than_there_is(place: str) -> None:  # law 10
    async with SqlStore.open(
        place, clock=FakeClock(START), entropy=FakeEntropy()
    ) as store:
        first, second = spender(place, "1"), spender(place, "2")
        assert first.stdout
        assert second.stdout
        with first, second:
            promised = sum(1 for _ in zip(range(30), first.stdout, strict=False))
            first.kill()
            promised += sum(line.count("\n") for line in first.stdout)
            promised += sum(line.count("\n") for line in second.stdout)
        assert second.wait() == 0
        intents = [
            e
            async for e in store.reader.stream_events()
            if isinstance(e.event, ToolInvoked)
        ]
        # Each is in the log and in the budget, or in neither.
        assert promised <= len(intents) == LIMIT


def test_killed_hosts_on_sqlite_spend_no_more_than_there_is(tmp_path: Path) -> None:
    anyio.run(killed_hosts_spend_no_more_than_there_is, url(tmp_path))


def test_killed_hosts_on_postgresql_spend_no_more_than_there_is(
    postgres_url: str,
) -> None:
    anyio.run(killed_hosts_spend_no_more_than_there_is, postgres_url)
