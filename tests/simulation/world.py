"""The environment of simulated hosts: disk, tools and workers, all with faults."""

from __future__ import annotations

import asyncio
import contextvars
import math
import random  # noqa: TID251 -- drawn from a seed that is printed
from collections import Counter
from collections.abc import Callable, Collection, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast
from weakref import WeakValueDictionary

from sqlalchemy import make_url

from caxton_host.core.calls import JSON, Completed, Effect
from caxton_host.core.grants.freezes import FREEZES, Freezes
from caxton_host.core.grants.tool_catalog import Offered
from caxton_host.core.limits import Limits
from caxton_host.core.log.events import (
    Event,
    Recorded,
    RunStarted,
    ToolInvoked,
    ToolRetried,
)
from caxton_host.core.log.runs import UNDER_WAY, RunRow
from caxton_host.core.names import run_of
from caxton_host.errors import LeaseLost, SandboxError, StoreError, ToolError
from caxton_host.gateway.ledger import Ledger, settle
from caxton_host.lib import codec
from caxton_host.lib.bell import Bell
from caxton_host.ports.log import Trace
from caxton_host.ports.sandbox import Answer, Door, Ending, Guest, Prepared
from caxton_host.ports.tools import RunScope, ToolRequest
from caxton_host.store.commit import (
    Committer,
    Driver,
    Group,
    Line,
    LockedError,
    Outcome,
)
from caxton_host.store.database import Database
from caxton_host.store.drafts import CONFLICT, Drafter
from caxton_host.store.incarnation import Incarnation
from caxton_host.store.leases import Leases
from caxton_host.store.leases_postgres import PostgresLeases
from caxton_host.store.memory import MemoryReader, MemoryStore
from caxton_host.store.sql import SqlStore
from caxton_host.store.writer import Writer
from caxton_host.testing import offer
from tests import crash

from .loop import PROCESS, Process, SimLoop

if TYPE_CHECKING:
    import sqlalchemy as sa

#: What an agent does: the tool and its parameters, or a log line; or ``many`` and the
#: calls that it makes at once.
Program = list[list[JSON]]

EFFECTS: dict[str, Effect] = {**crash.EFFECTS, "buy": "unsafe"}
#: Tools that are agents.
AGENT_TOOLS = ("helper", "clerk")
_T = TypeVar("_T")


@dataclass(slots=True)
class Clock:
    """The clock of the loop."""

    loop: SimLoop

    def now(self) -> int:
        return 1_700_000_000_000_000 + round(self.loop.time() * 1e6)

    def monotonic(self) -> float:
        return self.loop.time()


def start_of(history: Sequence[Recorded]) -> RunStarted | None:
    """Return the start of a run, which may be queued before."""
    found = (one.event for one in history[:2])
    return next((one for one in found if isinstance(one, RunStarted)), None)


def answer(request: ToolRequest) -> Completed:
    """Return what a tool says: always the same to the same, with its cost."""
    said = crash.answer(request)
    cost = int(said.message[:4], 16) % 6
    return replace(said, data={"said": said.message, "cost": cost})


@dataclass(slots=True)
class World:
    """
    The state that survives a host.

    Attributes:
        faults: Probability of each fault at each occasion, by name.

        effects: Run, call and key of each effect, in order.

        flying: Calls in flight to a tool, by run and number.

        wrong: Violations of the invariants.

        tight: Whether the newest configuration denies more than the first.

        loaded: When each host loaded a configuration, and whether it denies more.

        lease: Seconds until a host without a renewal is dead; 0: that shows at once.

        lasting: Seconds that a call takes at most until it acts, and after that.

        heeded: Seconds after which no host sends what is frozen.

        locked: The processes that have leases which end with them.

        leases: Until when each host lives, in seconds of the database server.

        lapses: The same on the clock, and never marked.

        found: When a host first saw that nobody drives a run in an epoch.

        claimed: When a host first had a place for that.
    """

    loop: SimLoop
    chance: random.Random
    faults: dict[str, float]
    disk: MemoryStore = field(init=False)
    clock: Clock = field(init=False)
    lease: float = 0.0
    lasting: float = 0.05
    heeded: float = 1.0
    locked: dict[str, Process] = field(default_factory=dict)
    leases: dict[str, float] = field(default_factory=dict)
    lapses: dict[str, int] = field(default_factory=dict)
    found: dict[tuple[str, int], int] = field(default_factory=dict)
    claimed: dict[tuple[str, int], int] = field(default_factory=dict)
    effects: list[tuple[str, int, str]] = field(default_factory=list)
    paid: set[str] = field(default_factory=set)
    flying: Counter[tuple[str, int]] = field(default_factory=Counter)
    met: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    full_until: float = 0.0
    tight: bool = False
    loaded: dict[str, list[tuple[int, bool]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.clock = Clock(self.loop)
        self.disk = MemoryStore(clock=self.clock, entropy=self.chance.randbytes)

    def happens(self, fault: str) -> bool:
        if self.chance.random() >= self.faults[fault]:
            return False
        self.met[fault] += 1
        return True

    def was_tight(self, host: str, at: int) -> bool:
        """Return whether a host had loaded the stricter configuration before *at*."""
        known = [(when, tight) for when, tight in self.loaded[host] if when < at]
        changes = any(when == at for when, _ in self.loaded[host])
        return known[-1][1] and not changes

    def frozen(self, request: ToolRequest, freezes: Freezes) -> bool:
        """Return whether a call must not be sent."""
        started = start_of(self.disk.streams[f"run/{request.run_id}"])
        assert started
        return bool(freezes.on(started.agent, started.actor, request.server))

    def frozen_for_long(self) -> Freezes:
        """Return what every host must know to be frozen."""
        freezes = Freezes()
        for recorded in self.disk.streams.get(FREEZES, ()):
            freezes = freezes.after(recorded)
        before = self.clock.now() - round(self.heeded * 1e6)
        standing = freezes.standing.items()
        return Freezes({key: r for key, r in standing if r.recorded_at < before})

    async def pause(self, most: float = 0.01) -> None:
        await asyncio.sleep(self.chance.choice([0, self.chance.uniform(0, most)]))

    def spawn(
        self, process: Process | None, start: Callable[[], asyncio.Task[_T]]
    ) -> asyncio.Task[_T]:
        """Call *start* as code of the given process."""
        context = contextvars.copy_context()
        context.run(PROCESS.set, process)
        return context.run(start)

    async def act(self, request: ToolRequest) -> Completed | ToolError:
        """Execute a call on the server's side, where no crash of a host stops it."""
        await self.pause(self.lasting)
        refused = self.happens("refuses")
        if not refused:
            await self._do(request)
        self.flying[request.run_id, request.call] -= 1
        await self.pause(self.lasting)
        if refused:
            return ToolError("transport", "no", "it is down")
        if self.happens("loses"):
            return ToolError("transport", "unknown", "it went away")
        if request.tool == "fail":
            return ToolError("timeout", "unknown", "no answer in 5 s")
        return answer(request)

    async def _do(self, request: ToolRequest) -> None:
        history = await self.disk.reader.read(f"run/{request.run_id}")
        if not any(_announces(one.event, request) for one in history):
            self.wrong.append(f"was sent, and no commit says so: {request}")
        key = request.idempotency_key
        if request.tool != "pay" or key not in self.paid:
            self.effects.append((request.run_id, request.call, key))
        if request.tool == "pay":
            self.paid.add(key)


def _announces(event: Event | None, request: ToolRequest) -> bool:
    if isinstance(event, ToolRetried):
        return (event.call, event.attempt) == (request.call, request.attempt)
    return (
        isinstance(event, ToolInvoked)
        and event.rule is not None
        and request.attempt == 1
        and (event.call, event.idempotency_key, event.params)
        == (request.call, request.idempotency_key, request.params)
    )


@dataclass(slots=True)
class Tools:
    """A tool client of one host."""

    world: World
    freezes: Callable[[], Freezes]

    def open(self, _scope: RunScope) -> nullcontext[Self]:
        return nullcontext(self)

    async def offered(self, servers: Collection[str]) -> Offered:
        await self.world.pause()
        del servers
        return Offered(
            offers=tuple(
                replace(offer("demo", tool), effect=effect)
                for tool, effect in EFFECTS.items()
            )
        )

    async def resources(self, _servers: Collection[str], _scope: RunScope) -> tuple[()]:
        return ()

    async def call_tool(self, request: ToolRequest) -> Completed:
        world = self.world
        with request.queued():
            await world.pause(0.1)
        for freezes in (self.freezes(), world.frozen_for_long()):
            if world.frozen(request, freezes):
                world.wrong.append(f"was sent, although it is frozen: {request}")
        world.flying[request.run_id, request.call] += 1
        task = world.spawn(None, lambda: asyncio.create_task(world.act(request)))
        said = await asyncio.shield(task)
        if isinstance(said, ToolError):
            raise said
        return said


class Disk(Committer):
    """The connection with which the real writer commits."""

    def __init__(self, world: World, process: Process) -> None:
        self.inline = not world.lease and world.chance.random() < 0.5
        self._world = world
        self._process = process

    def commit(self, groups: Sequence[Group], *, wait: bool = True) -> list[Outcome]:
        world = self._world
        if not wait and world.happens("locked"):
            raise LockedError
        if world.happens("full"):
            world.full_until = world.loop.time() + world.chance.uniform(0, 0.05)
        if world.loop.time() < world.full_until:
            return [StoreError("the disk is full") for _ in groups]
        self.commits += 1
        return [self._store(group) for group in groups]

    def alone(self, group: Group) -> None:
        """Store *group* in a transaction of its own, or raise."""
        if group.guard:
            group.guard(cast("Driver", Owners(self._world)))
        (outcome,) = self.commit([group])
        if isinstance(outcome, StoreError):
            raise outcome

    def _store(self, group: Group) -> Outcome:
        line, disk = group.line, self._world.disk
        ledger = Ledger(disk)
        refused = ledger.reserve(group.reserve, line.stream)
        if refused:
            self._world.met["refused"] += 1
            if self._world.happens("interrupts"):
                self._process.interrupt()
            return refused
        if line.error is not None or not disk.put(
            line.stream, line.head[0], group.drafts
        ):
            self._world.met["conflict"] += 1
            return LeaseLost(CONFLICT)
        disk.blobs |= group.blobs
        ledger.correct(group.correct)
        for draft in group.drafts:
            settle(ledger, line.stream, draft.event)
        disk.spend(ledger)
        line.head = disk.head(line.stream)
        return None

    def close(self) -> None:
        """Do nothing."""


@dataclass(slots=True)
class _Thread:
    """The thread that commits, in virtual time."""

    world: World

    def submit(self, function: Callable[..., None], *args: object) -> None:
        delay = self.world.chance.uniform(0, 0.005)
        asyncio.get_running_loop().call_later(delay, function, *args)

    def shutdown(self) -> None:
        """Do nothing."""


class Reader(MemoryReader):
    """A reader of the simulated disk that takes time."""

    def __init__(self, world: World) -> None:
        super().__init__(world.disk)
        self._world = world

    async def read(self, stream: str) -> list[Recorded]:
        await self._world.pause()
        return await super().read(stream)

    async def under_way(self) -> list[RunRow]:
        await self._world.pause()
        rows = self._world.disk.rows.values()
        found = [row for row in rows if row.state in UNDER_WAY]
        return sorted(found, key=lambda row: (row.started_at, row.run_id))


@dataclass(frozen=True, slots=True)
class Owners:
    """What the guard of a takeover asks the database: who owns a run."""

    world: World
    run_id: str = ""

    def execute(self, _statement: object, given: Sequence[Any]) -> Owners:
        return replace(self, run_id=str(given[0]))

    def fetchone(self) -> tuple[str | None] | None:
        row = self.world.disk.rows.get(self.run_id)
        return (row.owner,) if row else None


class Locks:
    """Leases that end with their process, as on SQLite. See `HostLeases`."""

    def __init__(self, world: World, process: Process) -> None:
        self.left: Callable[[], None] = lambda: None
        self._locked = world.locked
        self._process = process

    def holds(self) -> bool:
        return True

    async def join(self, host: str) -> None:
        self._locked[host] = self._process

    def is_dead(self, driver: Driver, host: str) -> bool:
        del driver
        return not self.living({host})

    def living(self, hosts: Collection[str]) -> set[str]:
        return {h for h in hosts if h in self._locked and self._locked[h].alive}

    def hosts(self) -> set[str]:
        return self.living(self._locked)

    async def aclose(self) -> None:
        """Do nothing: it ends with the process."""


@dataclass(slots=True)
class _Connection:
    """The connection of a lease, and what it is left with: the end of the lease."""

    world: World
    host: str = ""

    async def do(self, function: Callable[[Any], _T]) -> _T:

        return function(self)

    def execute(self, _statement: str, hosts: Sequence[str]) -> None:
        for host in hosts:
            self.world.leases.pop(host, None)

    async def aclose(self) -> None:
        """Do nothing."""


class ServerLeases(PostgresLeases):
    """The leases of PostgreSQL, whose statements the simulated server carries out."""

    def __init__(self, world: World, lines: MutableMapping[str, Line]) -> None:
        nowhere = SimpleNamespace(url=make_url("postgresql://nowhere/log"))
        super().__init__(cast("sa.Engine", nowhere), Bell(), lines, world.lease)
        self._own = cast("Any", _Connection(world))
        self._world = world

    def _begin(self, driver: Any, host: str) -> None:  # noqa: ANN401 -- psycopg's
        del driver
        world = self._world
        world.leases[host] = world.loop.time() + self._lease
        world.lapses[host] = world.clock.now() + round(self._lease * 1e6)

    def _renew_there(
        self,
        driver: Any,  # noqa: ANN401
    ) -> tuple[set[str] | None, set[str], float]:
        lapsed = not self.living({self._host})
        self._begin(driver, self._host)
        if not lapsed:
            living, now = self.hosts(), self._world.loop.time()
            others = (self._world.leases[one] for one in living - {self._host})
            return None, living, min(others, default=math.inf) - now
        self._world.met["lapsed"] += 1
        rows = self._world.disk.rows.values()
        mine = [r for r in rows if (r.owner, r.state) == (self._host, "running")]
        return {row.run_id for row in mine}, set(), self._lease

    def is_dead(self, driver: Driver, host: str) -> bool:
        del driver
        if self.living({host}):
            return False
        self._world.leases[host] = -math.inf
        return True

    def living(self, hosts: Collection[str]) -> set[str]:
        leases, now = self._world.leases, self._world.loop.time()
        return {host for host in hosts if leases.get(host, -math.inf) > now}

    def hosts(self) -> set[str]:
        return self.living(self._world.leases)


class NotedLeases(Leases):
    """Leases that note when a run without a living host is found, and claimed."""

    world: World

    async def idle(self) -> list[RunRow]:
        rows = await super().idle()
        for row in rows:
            key = row.run_id, row.epoch
            self.world.found.setdefault(key, self.world.clock.now())
        return rows

    def takeover(self, stream: str) -> Callable[[Driver], None]:
        if row := self.world.disk.rows.get(run_of(stream)):
            key = row.run_id, row.epoch
            self.world.claimed.setdefault(key, self.world.clock.now())
        return super().takeover(stream)


@dataclass(slots=True)
class Files:
    """What the store asks of its database, done on the simulated disk."""

    world: World
    disk: Disk
    engine: None = None

    def require_write(self) -> None:
        """Do nothing: it is opened to write."""

    def drafter(self, stream: str, trace: Trace | None = None) -> Drafter:
        return self.world.disk.create(stream, trace)._drafter

    async def end(
        self, stream: str, trace: Trace | None = None
    ) -> tuple[Drafter, Line] | None:
        await self.world.pause()
        events = self.world.disk.streams.get(stream)
        if not events:
            return None
        drafter, last = self.drafter(stream, trace), events[-1]
        drafter.recorded_at, drafter.seq = last.recorded_at, last.seq
        return drafter, Line(stream, (last.seq, last.hash))

    async def commit(self, group: Group) -> None:
        await asyncio.to_thread(self.disk.alone, group)


class Store(SqlStore):
    """The store of one host: the real one, over the disk of the world."""

    def __init__(self, world: World, process: Process) -> None:
        disk, lines = Disk(world, process), WeakValueDictionary[str, Line]()
        database = cast("Database", Files(world, disk))
        hosts = ServerLeases(world, lines) if world.lease else Locks(world, process)
        writer = Writer(disk)
        super().__init__(
            database,
            writer=writer,
            hosts=hosts,
            lines=lines,
            incarnation=cast("Incarnation", None),
            bell=Bell(),
        )
        writer._thread.shutdown()
        writer._thread = cast("ThreadPoolExecutor", _Thread(world))
        shared = world.disk
        self.reader = cast("Any", Reader(world))
        self.leases = leases = NotedLeases(database, self.reader, hosts, lines)
        leases.world = world
        self.requests = cast("Any", shared.requests)
        self.definitions = cast("Any", shared.definitions)
        self.tokens = cast("Any", shared.tokens)
        self.submissions = cast("Any", shared.submissions)
        self.projections = cast("Any", shared.projections)

    async def aclose(self) -> None:
        """Store queued events, and give the lease back."""
        if self._writer:
            await self._writer.aclose()
        await self.leases.aclose()


@dataclass(slots=True)
class Sandbox:
    """A sandbox whose workers can die. A module is a list of calls."""

    world: World
    sound: bool = False
    modules: dict[str, Program] = field(default_factory=dict)

    async def prepare(self, module: bytes, limits: Limits, entry: str) -> Prepared:
        del limits, entry
        await self.world.pause()
        digest = codec.sha256(module)
        self.modules[digest] = cast("Program", codec.decode_trusted(module))
        return Prepared(sha256=digest, abi="core/1", engine="sim", key=digest)

    async def run(self, prepared: Prepared, guest: Guest, door: Door) -> Ending:
        del guest
        statuses: list[JSON] = []
        for fuel, (tool, params) in enumerate(self.modules[prepared.key]):
            if tool == "log":
                door.log(1, str(params).encode())
                continue
            if tool == "many":
                got = await self._call_many(door, cast("Program", params), fuel)
                statuses.append(got.status)
                continue
            got = await self._call(door, str(tool), params, fuel)
            statuses.append(got.status)
            if got.status == 3:
                statuses.append((await self._call(door, "look", {}, fuel)).status)
        return Ending(
            kind="returned", code=0, output=codec.encode(statuses), fuel=len(statuses)
        )

    async def _call(self, door: Door, tool: str, params: JSON, fuel: int) -> Answer:
        await self._compute()
        got = await door.call(_exposed(tool), codec.encode(params), fuel)
        await self._compute()
        return got

    async def _call_many(self, door: Door, calls: Program, fuel: int) -> Answer:
        await self._compute()
        batch = codec.encode([[_exposed(str(tool)).decode(), p] for tool, p in calls])
        got = await door.call_many(batch, fuel)
        await self._compute()
        return got

    async def _compute(self) -> None:
        if self.sound:
            return
        await self.world.pause()
        if self.world.happens("worker"):
            raise SandboxError("the worker died")


def _exposed(tool: str) -> bytes:
    server = "agents" if tool in AGENT_TOOLS else "demo"
    return f"mcp__{server}__{tool}".encode()
