"""
A fleet on one log, in virtual time: many hosts, clients of several tenants, and faults.

    clients -> Service.submit -> RunStarted, or RunQueued and the shared queue -> a host
    faults  -> hosts crash, hang past their lease, stop in order, and start again

Afterwards the faults stop: then every run has to end within bounded time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, TypeAlias, TypeVar, cast
from unittest.mock import patch

from caxton_host.app.bootstrap import Running
from caxton_host.app.serve_app import Serving
from caxton_host.config import Agent, Config
from caxton_host.core.calls import JSON
from caxton_host.core.grants.principals import Principal, TokenScope
from caxton_host.core.log.events import (
    Frozen,
    RunQueued,
    RunResumed,
    RunStarted,
    Thawed,
    ToolInvoked,
)
from caxton_host.core.names import is_called, run_of
from caxton_host.errors import CaxtonError, OverloadedError, StoreError
from caxton_host.lib import codec
from caxton_host.placement.in_process import InProcess
from caxton_host.ports.placement import Job
from caxton_host.ports.serving import TokenRow
from caxton_host.runs.admission import RunQueue
from caxton_host.runs.agent_calls import CallingAgents
from caxton_host.runs.cancellation import GO_ON, watching
from caxton_host.runs.freezing import FreezeWatch, freeze, thaw
from caxton_host.runs.host import Host
from caxton_host.runs.modules import Code
from caxton_host.runs.recording import Recording
from caxton_host.service.resumer import Resumer
from caxton_host.service.run_service import Service, Submission
from caxton_host.service.run_tasks import RunTasks
from caxton_host.store import leases_postgres
from caxton_host.store.leases_postgres import PostgresLeases
from caxton_host.telemetry import NoTelemetry
from caxton_host.testing import FakePlacement
from caxton_host.testing.fakes import Fate

from .agents import GRANTS, PROGRAMS, Programs
from .checks import (
    check_bounds,
    check_effects,
    check_families,
    check_form,
    check_submissions,
    check_tables,
)
from .hosts import _WORDS, Story
from .loop import Process
from .world import Sandbox, Store, Tools, start_of

#: The lease of `SqlStore`.
_LEASE_S = 15.0
#: Seconds in which clients ask for runs, and in which hosts fail.
_BUSY_S, _FAULTY_S = 20.0, 30.0
#: Seconds in which the tenant that floods asks for all of its runs.
_FLOOD_S = 3.0
#: Seconds in which all runs have to end once all hosts are well again.
_CALM_S = 240.0
#: What happens after the death of a host, in this order.
_PARTS = ("lease lapsed", "noticed", "has a place", "goes on")
#: Runs that a host drives at a time.
_PLACES = 1
_TOKENS = {"acme-1": "acme", "acme-2": "acme", "bell-1": "bell", "corp-1": "corp"}
#: The tenant that asks for most runs.
FLOODS = "acme"
_PRIORITIES = {"agent": 0, "urgent": 10, "batch": -10}
_TOOLS = ("look", "look", "set", "pay", "send", "send", "buy", "helper")
_OPS: tuple[TokenScope, ...] = ("admin",)

_T = TypeVar("_T")
#: What a client does at a host.
_Work: TypeAlias = Callable[[Service], Coroutine[Any, Any, _T]]


def _agents() -> Config:
    names = {**dict.fromkeys(PROGRAMS, 0), **_PRIORITIES}
    grants = {name: GRANTS.get(name, GRANTS["agent"]) for name in names}
    agents = {
        name: Agent(
            name=name,
            grant=grants[name],
            priority=priority,
            authority="own" if name == "clerk" else "both",
        )
        for name, priority in names.items()
    }
    return Config(store_url="", agents=agents)


CONFIG = _agents()


class Jobs(Programs):
    """Agents whose callers say what they do."""

    def code(self, agent: Agent, value: JSON) -> Code:
        if agent.name in PROGRAMS:
            return super().code(agent, value)
        program = cast("dict[str, JSON]", value)["program"]
        return Code(module=codec.encode(program), program=None, input=value)


class Member(Process):
    """
    One process of the fleet.

    Attributes:
        fuse: Steps until it dies or hangs, if that is to happen.

        hangs: For how many seconds it hangs then; ``None``: it dies.
    """

    def __init__(self, fleet: Fleet, name: str) -> None:
        world = fleet.world
        self.fleet, self.name = fleet, name
        self.fuse = 0
        self.hangs: float | None = None
        self.is_up = False
        self.gone = asyncio.Event()
        self.asked = asyncio.Event()
        self.store = Store(world, self)
        freezes = FreezeWatch(self.store.reader)
        calling = CallingAgents(
            source=Tools(world, lambda: freezes.now),
            config=lambda: CONFIG,
            library=Jobs(),
        )
        self.host = calling.host = Host(
            store=self.store,
            tools=calling,
            sandbox=Sandbox(world),
            clock=world.clock,
            entropy=world.chance.randbytes,
            telemetry=NoTelemetry(),
            stream=name,
            servers=["demo", "agents"],
            freezes=freezes,
        )
        service = Service(
            host=self.host,
            store=self.store,
            config=lambda: CONFIG,
            background=RunTasks(
                line=RunQueue(
                    places=_PLACES,
                    queue=10_000,
                    each=10_000,
                    rate=1_000_000,
                    now=world.clock.monotonic,
                ),
                under_way=self.host.under_way,
            ),
            library=Jobs(),
            placement=FakePlacement(
                queue=fleet.queue, fate=fleet.fate, delay=fleet.delay
            ),
        )
        resumer = Resumer(service=service)
        self.store.leases.tell(resumer.search)
        service.decided = service.background.suspended = resumer.look
        freezes.thawed = resumer.look_again
        self.serving = Serving(
            up=cast("Running", self), service=service, resumer=resumer
        )

    def begin(self) -> asyncio.Task[None]:
        return asyncio.create_task(self.live())

    async def live(self) -> None:
        """Serve until this process is asked to stop, and hand its runs over."""
        await self.store.leases.join(self.name)
        beat = cast("PostgresLeases", self.store.leases._hosts)._task
        assert beat
        beat.add_done_callback(self._watched)
        serving, under_way = self.serving, self.host.under_way
        kinds = {GO_ON: serving.resumer.asked}
        async with (
            watching(self.store, self.name, under_way, 1.0, kinds=kinds),
            self.host.freezes.watching(self.fleet.world.heeded - 1.0),
        ):
            serving.begin()
            for watch in serving._taking:
                watch.add_done_callback(self._watched)
            self.is_up = True
            await self.asked.wait()
            self.is_up = False
            await serving.drain("hand_over")
        await self.store.aclose()

    def _watched(self, watch: asyncio.Task[None]) -> None:
        if not watch.cancelled() and (exc := watch.exception()):
            self.fleet.world.wrong.append(f"a host failed: {exc!r}")

    def burn(self) -> None:
        """Take a step towards the fault that is to come."""
        self.fuse -= 1
        if self.fuse:
            return
        world = self.fleet.world
        self.is_up = False
        if self.hangs is None:
            self.alive = False
            self.fleet.died[self.name] = world.clock.now()
            self.gone.set()
            return
        self.held = []
        began = world.clock.now()
        self.fleet.hung.setdefault(self.name, []).append((began, self.hangs))
        self.fleet.go(self._wake())

    async def _wake(self) -> None:
        await asyncio.sleep(self.hangs or 0)
        self.fleet.world.loop.wake(self)
        self.is_up = not self.asked.is_set()


@dataclass(eq=False)
class Client:
    """
    A request for a run, which may be sent more than once.

    Attributes:
        number: Part of its input.

        given: The ids that hosts returned for it.
    """

    number: int
    who: Principal
    wanted: Submission
    given: list[str] = field(default_factory=list)


@dataclass
class Fleet(Story):
    """
    The simulation of one seed.

    Attributes:
        size: How many hosts there are.

        died: When each dead host died.

        hung: When each host hung, and for how many seconds.

        revoked: When each token was revoked.

        frozen: When an agent was frozen, and thawed.
    """

    size: int = 20
    died: dict[str, int] = field(default_factory=dict)
    hung: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    revoked: dict[str, int] = field(default_factory=dict)
    frozen: list[tuple[str, int, int]] = field(default_factory=list)
    queue: InProcess = field(default_factory=InProcess)
    members: dict[int, Member] = field(default_factory=dict)
    clients: list[Client] = field(default_factory=list)
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)
    calm: bool = False
    ended: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.crashes = set()
        self.to_start = []
        world = self.world
        world.lease, world.lasting, world.heeded = _LEASE_S, 8.0, 3.0

    def _step(self, process: Process) -> None:
        if isinstance(process, Member) and process.fuse:
            process.burn()

    def fate(self, _job: Job) -> Fate | None:
        if self.calm or self.chance.random() > 0.1:
            return None
        fate: Fate = self.chance.choice(("lost", "doubled"))
        self.world.met[fate] += 1
        return fate

    def delay(self) -> float:
        return self.chance.choice((0.0, 0.0, self.chance.uniform(0, 2)))

    def run(self) -> None:
        """Run the simulation and check the result."""
        # PostgresLeases asks the machine for the time, as no clock is passed to it.
        with patch.object(leases_postgres, "elapsed", self.world.loop.time):
            super().run()

    async def _all(self) -> None:
        world = self.world
        self.clients = [self._client(n) for n in range(self.size * 3)]
        self._issue()
        try:
            for number in range(self.size):
                self.go(self._place(number))
            self.go(self._operate())
            asking = [self.task(self._ask(client)) for client in self.clients]
            asking.append(self.task(self._freeze()))
            await self._trouble()
            self.calm = True
            world.faults = dict.fromkeys(world.faults, 0.0)
            until = world.loop.time() + _CALM_S
            await asyncio.wait(asking, timeout=_CALM_S)
            while self._going_on():
                assert world.loop.time() < until, f"left: {self._left()}"
                await asyncio.sleep(0.5)
            self.ended = True
            assert all(task.done() for task in asking)
            for task in [*asking, *self.tasks]:
                if task.done() and not task.cancelled():
                    task.result()
            assert not world.wrong, world.wrong
            check_tables(world.disk)
            check_families(world.disk)
            given = {client.number: client.given for client in self.clients}
            check_submissions(given, world.disk)
            self._check_authority()
            for run_id in world.disk.rows:
                await self._check(run_id)
        finally:
            world.loop.forget()

    async def _check(self, run_id: str) -> None:
        history = self.world.disk.streams[f"run/{run_id}"]
        check_form(history, self.world.disk)
        if start_of(history):
            check_effects(run_id, history, self.world)
            check_bounds(history)

    def _check_authority(self) -> None:
        """Check that nothing starts that is not allowed any more."""
        for recorded in self.world.disk.events:
            event, at = recorded.event, recorded.recorded_at
            if not isinstance(event, RunStarted) or is_called(run_of(recorded.stream)):
                continue
            # Hosts look for freezes now and then; tokens are judged by the queue.
            late = round(self.world.heeded * 1e6) + self._slept(str(event.host))
            for agent, since, until in self.frozen:
                frozen = event.agent == agent and since + late < at < until
                assert not frozen, f"was started, although it is frozen: {recorded}"
            revoked = self.revoked.get(str(event.actor["id"]), at)
            assert at <= revoked + late, f"its token was revoked: {recorded}"

    def _slept(self, host: str) -> int:
        """Return for how long a host could not know what had changed."""
        return round(sum(seconds for _, seconds in self.hung.get(host, ())) * 1e6)

    def _left(self) -> list[tuple[str, str | None, list[str]]]:
        rows, streams = self.world.disk.rows, self.world.disk.streams
        return [
            (run, rows[run].owner, [one.type for one in streams[f"run/{run}"][-9:]])
            for run in self._going_on()
        ]

    def task(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Do something in no process of the fleet."""
        return self.world.spawn(None, lambda: asyncio.create_task(work))

    def go(self, work: Coroutine[Any, Any, object]) -> None:
        """Do something that must not fail."""
        self.tasks.append(self.task(work))

    # -- hosts -----------------------------------------------------------------

    async def _place(self, number: int) -> None:
        """Restart the host of one place whenever it has ended."""
        chance, life = self.chance, 0
        while not self.ended:
            await asyncio.sleep(chance.uniform(0, 2))
            member = self.members[number] = Member(self, f"host/{number:03}-{life}")
            task = self.world.spawn(member, member.begin)
            gone = self.task(member.gone.wait())
            await asyncio.wait([task, gone], return_when=asyncio.FIRST_COMPLETED)
            if member.alive:
                task.result()
                member.alive = False
            gone.cancel()
            life += 1
            await asyncio.sleep(0 if self.calm else chance.uniform(0, 15))

    async def _trouble(self) -> None:
        """Let hosts crash, hang and stop."""
        chance, count = self.chance, max(3, self.size // 2)
        for _ in range(count):
            await asyncio.sleep(chance.uniform(0, 2 * _FAULTY_S / count))
            up = [one for one in self.members.values() if one.is_up and not one.fuse]
            if not up:
                continue
            member = chance.choice(up)
            kind = chance.choice(("crash", "crash", "hang", "stop"))
            self.world.met[kind] += 1
            if kind == "stop":
                member.asked.set()
                continue
            member.hangs = chance.uniform(1, 40) if kind == "hang" else None
            member.fuse = chance.randrange(1, 100)

    async def _at_some(self, work: _Work[_T], seconds: float = 10.0) -> _T:
        """
        Do something at a host.

        Raises:
            StoreError: There is no answer.
        """
        up = [one for one in self.members.values() if one.is_up]
        if not up:
            await asyncio.sleep(1.0)
            raise StoreError("no host is up")
        member = self.chance.choice(up)
        task = self.world.spawn(
            member, lambda: asyncio.create_task(work(member.serving.service))
        )
        await asyncio.wait([task], timeout=seconds)
        if not task.done():
            task.cancel()  # The client hangs up.
            raise StoreError("no answer")
        return task.result()

    # -- who asks them ---------------------------------------------------------

    def _issue(self) -> None:
        for name, tenant in _TOKENS.items():
            self.world.disk.tokens._tokens[name] = TokenRow(
                id=name,
                name=name,
                digest="",
                scopes=("run",),
                created_at=1,
                tenant=tenant,
            )

    def _client(self, number: int) -> Client:
        chance = self.chance
        names = [name for name, tenant in _TOKENS.items() if tenant == FLOODS]
        if chance.random() < 0.3:
            names = [name for name in _TOKENS if name not in names]
        program = [
            [chance.choice(_TOOLS), {"n": chance.randrange(3)}]
            for _ in range(chance.randrange(1, 4))
        ]
        wanted = Submission(
            agent=chance.choice([*_PRIORITIES]),
            input={"number": number, "program": cast("JSON", program)},
            key=str(number) if chance.random() < 0.7 else None,
        )
        row = TokenRow(
            id=(name := chance.choice(names)),
            name=name,
            digest="",
            scopes=("run",),
            created_at=1,
            tenant=_TOKENS[name],
        )
        return Client(number, row.bearer, wanted)

    async def _ask(self, client: Client) -> None:
        """Ask for a run until a host answers, or the answer cannot be known."""
        chance, who, wanted = self.chance, client.who, client.wanted
        floods = who.tenant == FLOODS
        await asyncio.sleep(chance.uniform(0, _FLOOD_S if floods else _BUSY_S))
        twice = wanted.key is not None and chance.random() < 0.2
        asking = [self.task(self._ask_once(client)) for _ in range(1 + twice)]
        await asyncio.wait(asking)
        for one in asking:
            one.result()
        if client.given and chance.random() < 0.05:
            run_id = client.given[0]
            self.world.met["cancelled"] += 1
            with_reason = lambda s: s.cancel(who, run_id, "not needed")  # noqa: E731
            try:
                await self._at_some(with_reason)
            except CaxtonError:
                self.world.met["not cancelled"] += 1

    async def _ask_once(self, client: Client) -> None:
        who, wanted = client.who, client.wanted
        while who.id not in self.revoked:
            try:
                run_id = await self._at_some(lambda s: s.submit(who, wanted))
            except OverloadedError:
                await asyncio.sleep(1.0)
            except StoreError:
                self.world.met["asked again"] += 1
                if wanted.key is None:
                    return
            except CaxtonError as exc:
                self.world.met[type(exc).__name__] += 1
                return
            else:
                client.given.append(run_id)
                return

    async def _freeze(self) -> None:
        """Freeze an agent for a while, and revoke a token."""
        world, chance = self.world, self.chance
        actor: dict[str, JSON] = {"kind": "token", "id": "ops", "authenticated": True}
        await asyncio.sleep(chance.uniform(5, _BUSY_S))
        if chance.random() < 0.5:
            odd = Frozen(kind="agent", name="batch", actor=actor, reason="odd")
            await freeze(world.disk, odd, agents=CONFIG.agents, servers={"demo"})
            began = world.clock.now()
            await asyncio.sleep(chance.uniform(0, 20))
            await thaw(
                world.disk,
                Thawed(kind="agent", name="batch", actor=actor, reason="well"),
            )
            self.frozen.append(("batch", began, world.clock.now()))
        if chance.random() < 0.5:
            tokens, token = world.disk.tokens, chance.choice([*_TOKENS])
            now = self.revoked[token] = world.clock.now()
            tokens._tokens[token] = replace(tokens._tokens[token], revoked_at=now)
            world.met["revoked"] += 1

    async def _operate(self) -> None:
        """Decide what waits for a person."""
        seen: set[tuple[str, int]] = set()
        while not self.ended:
            await asyncio.sleep(1.0)
            for row in [*self.world.disk.rows.values()]:
                at = row.run_id, len(self.world.disk.streams[f"run/{row.run_id}"])
                if row.state == "suspended" and at not in seen:
                    seen.add(at)
                    self.go(self._see_to(row.run_id))

    async def _see_to(self, run_id: str) -> None:
        try:
            recording = await Recording.load(run_id, self.world.disk.reader)
            for doubt in recording.journal().in_doubt:
                if not doubt.resolved and doubt.invoked.server != "agents":
                    await self._resolve(run_id, doubt.seq, doubt.invoked)
            for asked in recording.journal().waiting:
                for name in ("bob", "cyn"):
                    await self._decide(run_id, asked.seq, name)
        except CaxtonError as exc:
            self.world.met[f"operator: {type(exc).__name__}"] += 1

    async def _resolve(self, run_id: str, seq: int | None, call: ToolInvoked) -> None:
        while self.world.flying[run_id, call.call]:  # noqa: ASYNC110 -- virtual
            await asyncio.sleep(0.5)
        said, who = self.says(run_id, call), _person("ops")
        self.world.met[type(said).__name__] += 1
        await self._insist(
            lambda s: s.resolve(who, run_id, seq or 0, said, reason="looked")
        )

    async def _decide(self, run_id: str, seq: int | None, name: str) -> None:
        verdict, who = self.chance.choice(_WORDS), _person(name)
        self.world.met[f"said {verdict}"] += 1
        if verdict:
            await self._insist(lambda s: s.decide(who, run_id, seq, verdict, "looked"))

    async def _insist(self, work: _Work[None]) -> None:
        """Ask hosts until one answers."""
        while True:
            try:
                await self._at_some(work)
            except StoreError:
                await asyncio.sleep(1.0)
            else:
                return


def _person(name: str) -> Principal:
    return Principal(kind="token", id=name, scopes=frozenset({"admin"}), roles=("ops",))


@dataclass
class Figures:
    """
    What fleets took, in seconds.

    Attributes:
        takeovers: From the death of a host until each step for each of its runs.

        waits: In the queue, by tenant.

        shares: Starts of the host with most of them, over the mean.
    """

    takeovers: dict[str, list[float]] = field(default_factory=dict)
    waits: dict[str, list[float]] = field(default_factory=dict)
    shares: list[float] = field(default_factory=list)
    starts: int = 0
    conflicts: int = 0

    def add(self, fleet: Fleet) -> None:
        """Count a fleet whose simulation is over."""
        drivers: dict[str, str] = {}
        queued: dict[str, int] = {}
        begun = Counter[str]()
        for recorded in fleet.world.disk.events:
            event, run_id = recorded.event, run_of(recorded.stream)
            if isinstance(event, RunQueued):
                queued[run_id] = recorded.recorded_at
            elif isinstance(event, RunStarted) and not is_called(run_id):
                if since := queued.get(run_id):
                    waits = self.waits.setdefault(str(event.actor["tenant"]), [])
                    waits.append((recorded.recorded_at - since) / 1e6)
                begun[str(event.host).partition("-")[0]] += 1
                drivers[run_id] = str(event.host)
            elif isinstance(event, RunResumed):
                died = fleet.died.get(before := drivers.get(run_id, ""))
                if died is not None and died < recorded.recorded_at:
                    at, key = recorded.recorded_at, (run_id, event.epoch - 1)
                    self._taken(fleet, before, key, at)
                drivers[run_id] = str(event.host)
            elif recorded.type == "RunSuspended":
                drivers.pop(run_id, None)
        self.shares.append(max(begun.values()) * fleet.size / begun.total())
        self.starts += begun.total()
        self.conflicts += fleet.world.met["conflict"]

    def _taken(self, fleet: Fleet, host: str, key: tuple[str, int], at: int) -> None:
        """Count a run that was taken over, unless it had to wait for its thaw."""
        world, started = (
            fleet.world,
            start_of(fleet.world.disk.streams[f"run/{key[0]}"]),
        )
        died = fleet.died[host]
        for agent, since, until in fleet.frozen:
            if started and started.agent == agent and since < at and until > died:
                return
        times = world.lapses[host], world.found[key], world.claimed[key], at
        for name, until in zip(_PARTS, accumulate(times, max), strict=True):
            self.takeovers.setdefault(name, []).append((until - died) / 1e6)

    def table(self, hosts: int, seconds: float) -> list[str]:
        """Return the lines of a table."""
        seeds = len(self.shares)
        rows = [
            *(
                (f"after a death: {name}, {len(each)} runs", _spread(each))
                for name, each in self.takeovers.items()
            ),
            *(
                (
                    f"in the queue, {name}{' (floods)' * (name == FLOODS)}",
                    _spread(waits),
                )
                for name, waits in sorted(self.waits.items())
            ),
        ]
        lines = ["| seconds | p50 | p99 | max |", "| --- | --- | --- | --- |"]
        lines += [f"| {name} | {figures} |" for name, figures in rows]
        return [
            *lines,
            f"{seeds} seeds of {hosts} hosts, {self.starts} starts",
            f"seeds a minute: {seeds * 60 / seconds:.1f}",
            f"conflicts at the fence: {self.conflicts / self.starts:.3f} a start",
            f"most starts of a host, over the mean: {sum(self.shares) / seeds:.1f}",
        ]


def percentile(values: list[float], share: float) -> float:
    """Return the value below which that share of *values* is."""
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def _spread(values: list[float]) -> str:
    if not values:
        return "- | - | -"
    found = percentile(values, 0.5), percentile(values, 0.99), max(values)
    return " | ".join(f"{one:.1f}" for one in found)


def told(seed: int, size: int) -> Fleet:
    """Return the fleet of a seed, whose simulation is over."""
    fleet = Fleet(seed, size=size)
    try:
        fleet.run()
    except BaseException as exc:
        again = f"python -m tests.simulation --hosts {size} --seeds 1 --from {seed}"
        exc.add_note(f"To repeat it: {again}")
        raise
    return fleet
