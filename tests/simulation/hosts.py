"""Simulated hosts that start and crash, and the invariants that must hold."""

from __future__ import annotations

import asyncio
import contextlib
import random  # noqa: TID251 -- drawn from a seed that is printed
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, cast

from caxton_host.core.calls import JSON, Completed
from caxton_host.core.clients import ABI
from caxton_host.core.grants.approvals import Verdict
from caxton_host.core.grants.grants import Grant
from caxton_host.core.limits import Limits
from caxton_host.core.log.events import (
    Frozen,
    RunCancelled,
    RunStarted,
    RunSuspended,
    Thawed,
    ToolInvoked,
)
from caxton_host.core.log.requests import Abort, Fail, GiveResult, Resend, Resolution
from caxton_host.core.log.runs import RunFilter
from caxton_host.errors import BusyError, StoreError, Suspend, UsageError
from caxton_host.lib import codec
from caxton_host.ports.serving import TokenRow
from caxton_host.ports.tools import ToolRequest
from caxton_host.runs.agent_calls import CallingAgents
from caxton_host.runs.approvals import Word, say
from caxton_host.runs.cancellation import cancel_idle
from caxton_host.runs.freezing import FreezeWatch, freeze, thaw
from caxton_host.runs.host import Host
from caxton_host.runs.recording import Recording
from caxton_host.runs.replay import replay
from caxton_host.runs.run_request import ForkRequest, RunRequest
from caxton_host.service.sessions import Sessions
from caxton_host.telemetry import NoTelemetry

from .agents import CONFIGS, GRANTS, NARROWED, PEOPLE, TIGHT, WHO, Programs
from .checks import (
    OVER,
    check_bounds,
    check_effects,
    check_families,
    check_form,
    check_tables,
    check_tightened,
)
from .clients import Visitor
from .loop import Process, SimLoop
from .world import Sandbox, Store, Tools, World, answer, start_of

_RUNS, _HOSTS, _STEPS = 4, 2, 200_000
_TOOLS = (
    *("look", "set", "pay", "send", "send", *["buy"] * 4),
    *("fail", "nothing", "log", "helper", "clerk"),
)
_FROZEN: tuple[tuple[str, str], ...] = (
    *(("agent", "agent"), ("agent", "helper"), ("agent", "clerk")),
    *(("server", "demo"), ("token", "ann")),
)
_LATE = (
    *("already", "not a call in doubt", "wait for an approval", "time to decide"),
    *("has approved it", "started the run", "is frozen"),
)
#: Why a run cannot be forked there.
_UNFIT = (
    "cannot fork",
    "is frozen",
    "not of a call",
    "is in doubt beside",
    "ancestors",
)
_WORDS: tuple[Verdict | None, ...] = ("approve", "approve", "deny", None)
_LIKELY = {
    "refuses": 0.1,
    "loses": 0.1,
    "full": 0.02,
    "locked": 0.2,
    "worker": 0.05,
    "interrupts": 0.2,
}


class Living(Process):
    """One simulated host process."""

    def __init__(self, story: Story, number: int) -> None:
        world = story.world
        self.story = story
        self.store = Store(world, self)
        freezes = FreezeWatch(self.store.reader)
        stream = f"host/{number}"
        world.loaded[stream] = [(0, world.tight)]
        self.is_tight = world.tight
        calling = CallingAgents(
            source=Tools(world, lambda: freezes.now),
            config=lambda: CONFIGS[self.is_tight],
            library=Programs(),
        )
        self.host = calling.host = Host(
            store=self.store,
            tools=calling,
            sandbox=Sandbox(world),
            clock=world.clock,
            entropy=world.chance.randbytes,
            telemetry=NoTelemetry(),
            stream=stream,
            servers=["demo", "agents"],
            freezes=freezes,
            present=self.granted,
        )
        self.sessions = Sessions.of(
            self.host, self.store, lambda: CONFIGS[self.is_tight]
        )
        self._busy: set[asyncio.Task[None]] = set()
        self._mine: set[str] = set()

    def begin(self) -> asyncio.Task[None]:
        return asyncio.create_task(self.live())

    def interrupt(self) -> None:
        """Cancel a run, as a client that hangs up."""
        if self._busy:
            self.story.chance.choice(sorted(self._busy, key=id_of)).cancel()

    def granted(self, agent: str) -> Grant:
        """Return what this host grants an agent now."""
        return (TIGHT if self.is_tight else GRANTS)[agent]

    def reload(self) -> None:
        """Load the newest configuration."""
        world, stream = self.story.world, self.host.stream or ""
        if self.is_tight != world.tight:
            self.is_tight = world.tight
            world.loaded[stream].append((world.clock.now(), world.tight))
            world.met["reload"] += 1

    async def live(self) -> None:
        """Take over abandoned runs, and start new ones."""
        await self.store.leases.join(self.host.stream or "")
        async with self.host.freezes.watching(), self.sessions.running():
            await self._live()

    async def _live(self) -> None:
        story = self.story
        while not story.over():
            if story.chance.random() < 0.5:
                self.reload()
            for run_id in await self._idle():
                if run_id not in self._mine:
                    self._spawn(run_id, self._see_to(run_id))
            if story.to_start and story.chance.random() < 0.3:
                self._spawn("", self._start(story.to_start.pop()))
            if story.chance.random() < 0.02:
                self.interrupt()
            if story.chance.random() < 0.03:
                self._stop_one()
            if story.forks and story.chance.random() < 0.05:
                self._fork_one()
            await story.world.pause(0.1)
            await asyncio.sleep(0.001)

    async def _idle(self) -> list[str]:
        """Return the runs that no living host drives."""
        rows = await self.store.reader.runs(_STEPS, RunFilter(state="suspended"))
        return [row.run_id for row in [*rows, *await self.store.leases.idle()]]

    def _fork_one(self) -> None:
        """Fork some run, at some event, with another answer or as it is."""
        story, disk = self.story, self.story.world.disk
        known = [row.run_id for row in disk.rows.values() if story.is_known(row.run_id)]
        known = [run for run in known if story.started(run).abi != ABI]
        if not known:
            return
        story.forks -= 1
        run_id = story.chance.choice(known)
        other = Completed(message="other", data={"cost": 1})
        request = ForkRequest(
            run_id=run_id,
            seq=story.chance.randrange(len(disk.streams[f"run/{run_id}"])) + 1,
            actor=WHO,
            grant=self.granted(story.started(run_id).agent),
            edited=other if story.chance.random() < 0.3 else None,
        )
        self._spawn("", self._fork(request))

    async def _fork(self, request: ForkRequest) -> None:
        try:
            await self.host.fork(request)
            self.story.world.met["fork"] += 1
        except (StoreError, UsageError) as exc:
            if not (isinstance(exc, StoreError) or any(t in str(exc) for t in _UNFIT)):
                raise
            self.story.world.met["no fork"] += 1

    def _stop_one(self) -> None:
        """Cancel a run; or suspend one that no other called, as a host that stops."""
        chance, under_way = self.story.chance, self.host.under_way
        known = [run for run in under_way._runs if self.story.is_known(run)]
        end: RunCancelled | RunSuspended
        end = RunCancelled(actor=WHO, reason="asked")
        if chance.random() < 0.7:
            end = RunSuspended(reason="host_stopped")
            known = [run for run in known if not self.story.started(run).callers]
        if known:
            self.story.world.met["stopped"] += 1
            self._spawn("", self._stop(chance.choice(known), end))

    async def _stop(self, run_id: str, end: RunCancelled | RunSuspended) -> None:
        with contextlib.suppress(StoreError):
            await self.host.under_way.stop(run_id, end)

    def _spawn(self, run_id: str, work: Coroutine[Any, Any, None]) -> None:
        self._mine.add(run_id)
        task = asyncio.create_task(work, name=str(next(self.story.numbers)))
        self._busy.add(task)
        task.add_done_callback(lambda done: self._ended(run_id, done))

    def _ended(self, run_id: str, done: asyncio.Task[None]) -> None:
        self._busy.discard(done)
        self._mine.discard(run_id)
        if not done.cancelled() and (exc := done.exception()):
            self.story.world.wrong.append(f"a host failed: {exc!r}")

    async def _start(self, request: RunRequest) -> None:
        run_id = self.host.new_id()
        try:
            await self.host.start(request, run_id=run_id)
        except StoreError:
            self.story.world.met["lost"] += 1
        except UsageError as exc:
            if not any(text in str(exc) for text in _LATE):
                raise
            self.story.world.met["unstarted"] += 1
            self.story.to_start.append(request)

    async def _see_to(self, run_id: str) -> None:
        try:
            recording = await Recording.load(run_id, self.store.reader)
            if recording.state == "suspended":
                await self._resolve(recording)
                await self._decide(recording)
            if recording.is_session:
                if self.story.visitor.is_gone:
                    await cancel_idle(self.store, run_id, WHO, "its client is gone")
                return  # Its client goes on with it.
            if parent := recording.started.parent:
                if parent not in self.story._going_on():
                    await cancel_idle(self.store, run_id, WHO, "it is left")
                return  # Its caller resumes it.
            grant = self.granted(recording.started.agent)
            await self.host.resume(run_id, actor=WHO, grant=grant)
        except (StoreError, BusyError, Suspend) as exc:
            self.story.world.met[type(exc).__name__] += 1
        except UsageError as exc:
            # The other host was faster.
            if not any(text in str(exc) for text in _LATE):
                raise

    async def _resolve(self, recording: Recording) -> None:
        """Resolve each call in doubt as a person who knows its effect would."""
        world = self.story.world
        for doubt in recording.journal().in_doubt:
            call = doubt.invoked
            while world.flying[recording.run_id, call.call]:  # noqa: ASYNC110 -- virtual
                await asyncio.sleep(0.01)
            if doubt.resolved or doubt.seq is None or call.server == "agents":
                continue
            resolution = self.story.says(recording.run_id, call)
            world.met[type(resolution).__name__] += 1
            await self.host.resolve(
                recording.run_id, doubt.seq, resolution, actor=WHO, reason="looked"
            )

    async def _decide(self, recording: Recording) -> None:
        """Approve or deny each request, or let it time out."""
        world = self.story.world
        for asked in recording.journal().waiting:
            verdict: Verdict | None = self.story.chance.choice(_WORDS)
            world.met[f"said {verdict}"] += 1
            if verdict is None or asked.is_over(world.clock.now()):
                continue
            who = {**WHO, "id": self.story.chance.choice(PEOPLE)}
            word = Word(verdict=verdict, actor=who, reason="looked", role="ops")
            run_id, now = recording.run_id, world.clock.now()
            await say(self.store, run_id, asked.seq, word, now=now)


def id_of(task: asyncio.Task[None]) -> int:
    return int(task.get_name())


@dataclass
class Story:
    """
    The simulation of one seed.

    Attributes:
        to_start: Runs that no host has started yet.

        crashes: Number of steps after which a host dies.

        visitor: A client of a session.

        forks: How many are still to be made.
    """

    seed: int
    chance: random.Random = field(init=False)
    world: World = field(init=False)
    to_start: list[RunRequest] = field(init=False)
    crashes: set[int] = field(init=False)
    visitor: Visitor = field(init=False)
    forks: int = 2
    steps: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)  # noqa: S311 -- not for secrets
        loop = SimLoop(self.chance, self._step)
        # The fault rate differs between seeds.
        kind = self.chance.choice([0.0, 0.5, 1.0, 2.0])
        faults = {name: each * kind for name, each in _LIKELY.items()}
        self.world = World(loop, self.chance, faults)
        self.to_start = [self._request() for _ in range(_RUNS)]
        self.crashes = {
            self.chance.randrange(1, 600) for _ in range(self.chance.randrange(12))
        }
        self.numbers = iter(range(_STEPS))
        self.visitor = Visitor(self.world)

    def _request(self) -> RunRequest:
        count = self.chance.randrange(1, 7)
        program = [self._step_of() for _ in range(count)]
        wall = self.chance.choice([600.0, 600.0, 600.0, 0.1])
        return RunRequest(
            agent="agent",
            module=codec.encode(cast("JSON", program)),
            actor=WHO,
            grant=GRANTS["agent"],
            limits=replace(Limits(), wall=wall),
            bounds=(NARROWED,) if self.chance.random() < 0.3 else (),
        )

    def _step_of(self) -> list[JSON]:
        """Return a step of a program: a call, or sometimes several at once."""
        if self.chance.random() < 0.1:
            some = [self._step_of() for _ in range(self.chance.randrange(1, 4))]
            calls = [one for one in some if one[0] not in {"many", "log"}]
            return ["many", cast("JSON", calls)]
        return [self.chance.choice(_TOOLS), {"n": self.chance.randrange(3)}]

    def _step(self, process: Process) -> None:
        self.steps += 1
        if self.steps > _STEPS:
            raise AssertionError("the simulation does not end")
        if self.steps in self.crashes and process.alive:
            self.world.met["crash"] += 1
            process.alive = False
            check_tables(self.world.disk)

    def run(self) -> None:
        """Run the simulation and check the result."""
        loop = self.world.loop
        try:
            loop.run_until_complete(self._all())
        finally:
            loop.close()

    async def _all(self) -> None:
        try:
            await asyncio.gather(
                *(self._place(n) for n in range(_HOSTS)),
                self._freeze(),
                self._configure(),
                self.visitor.visit(),
            )
            assert not self.world.wrong, self.world.wrong
            check_tables(self.world.disk)
            check_families(self.world.disk)
            for row in await self.world.disk.reader.runs(_STEPS):
                await self._check(row.run_id)
        finally:
            self.world.loop.forget()

    async def _freeze(self) -> None:
        """Freeze one thing after another, as an operator does, and thaw it."""
        world, chance = self.world, self.chance
        world.disk.tokens._tokens["ann"] = TokenRow(
            id="ann", name="ann", digest="", scopes=("run",), created_at=1
        )
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(chance.uniform(0, 1))
            kind, name = chance.choice(_FROZEN)
            odd = Frozen(kind=kind, name=name, actor=WHO, reason="odd")
            await freeze(world.disk, odd, agents=GRANTS, servers={"demo"})
            world.met[f"froze {kind}"] += 1
            await asyncio.sleep(chance.uniform(0, 2))
            well = Thawed(kind=kind, name=name, actor=WHO, reason="well")
            await thaw(world.disk, well)

    async def _configure(self) -> None:
        """Tighten the grants, and loosen them."""
        for _ in range(self.chance.randrange(4)):
            await asyncio.sleep(self.chance.uniform(0, 1))
            self.world.tight = not self.world.tight

    async def _place(self, number: int) -> None:
        """Restart the host of one place whenever it dies."""
        while not self.over():
            await self.world.pause()
            living = Living(self, number)
            self.visitor.living[number % _HOSTS] = living
            task = self.world.spawn(living, living.begin)
            while living.alive and not task.done():  # noqa: ASYNC110 -- virtual
                await asyncio.sleep(0.01)
            if living.alive:
                task.result()
                living.alive = False
            number += _HOSTS

    def over(self) -> bool:
        return not (self.to_start or self._going_on()) and self.visitor.is_gone

    def _going_on(self) -> list[str]:
        rows = self.world.disk.rows.values()
        return [row.run_id for row in rows if row.state not in OVER]

    def is_known(self, run_id: str) -> bool:
        return f"run/{run_id}" in self.world.disk.streams

    def started(self, run_id: str) -> RunStarted:
        started = start_of(self.world.disk.streams[f"run/{run_id}"])
        assert started
        return started

    def says(self, run_id: str, call: ToolInvoked) -> Resolution:
        """Return the resolution by a person who knows whether the call took effect."""
        if any((run_id, call.call) == one[:2] for one in self.world.effects):
            request = ToolRequest(
                run_id=run_id,
                call=call.call,
                server="demo",
                tool=call.tool or "",
                params=call.params or {},
                definition_sha256=None,
                idempotency_key=call.idempotency_key,
            )
            return GiveResult(answer(request))
        words: list[Resolution] = [Resend(), Resend(), Fail(), Abort()]
        return self.chance.choice(words)

    async def _check(self, run_id: str) -> None:
        history = await self.world.disk.reader.read(f"run/{run_id}")
        check_form(history, self.world.disk)
        check_effects(run_id, history, self.world)
        check_bounds(history)
        check_tightened(history, self.world)
        if self.started(run_id).abi == ABI:
            return  # A session cannot be executed again.
        sound = Sandbox(self.world, sound=True)
        again = await replay(
            run_id, store=self.world.disk.reader, sandbox=sound, telemetry=NoTelemetry()
        )
        assert again.divergence is None, again
