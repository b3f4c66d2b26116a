"""Simulated hosts that start and crash, and the invariants that must hold."""

from __future__ import annotations

import asyncio
import random  # noqa: TID251 -- drawn from a seed that is printed
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, cast

from caxton_host.core.calls import JSON
from caxton_host.core.grants.approvals import Approve, Verdict
from caxton_host.core.grants.conditions import Conditions
from caxton_host.core.grants.grants import Grant
from caxton_host.core.limits import Limits
from caxton_host.core.log.events import (
    ApprovalDecided,
    CallResolved,
    Recorded,
    RunResumed,
    RunStarted,
    ToolCompleted,
    ToolInvoked,
    ToolRetried,
    outcome_of,
)
from caxton_host.core.log.requests import Abort, Fail, GiveResult, Resend, Resolution
from caxton_host.core.names import idempotency_key
from caxton_host.errors import BusyError, StoreError, Suspend, UsageError
from caxton_host.lib import codec
from caxton_host.ports.tools import ToolRequest
from caxton_host.runs.approvals import Word, say
from caxton_host.runs.host import Host
from caxton_host.runs.recording import Recording
from caxton_host.runs.replay import replay
from caxton_host.runs.run_request import RunRequest
from caxton_host.telemetry import NoTelemetry
from tests.crash import answer
from tests.scene import rule

from .loop import Process, SimLoop
from .world import Program, Sandbox, Store, Tools, World

WHO: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}
_OVER = {"completed", "failed", "cancelled"}
_RUNS, _HOSTS, _STEPS = 4, 2, 100_000
_TOOLS = ("look", "set", "pay", "send", "send", "fail", "nothing", "log")
_LATE = ("already", "not a call in doubt", "wait for an approval", "time to decide")
#: The rule of approvals: a call with n = 2 needs an approval in time.
_ASKED = Approve(
    by=("ops",), within=0.5, when=Conditions.parse({"n": {"const": 2}}, deny=True)
)
GRANT = Grant(
    allow=(
        replace(rule("demo/send"), approve=_ASKED),
        rule("demo/*", name="allow[2]"),
    )
)
_WORDS: tuple[Verdict | None, ...] = ("approve", "approve", "deny", None)
_LIKELY = {"refuses": 0.1, "loses": 0.1, "full": 0.02, "locked": 0.2, "worker": 0.05}


class Living(Process):
    """One simulated host process."""

    def __init__(self, story: Story, number: int) -> None:
        world = story.world
        self.story = story
        self.store = Store(world, self)
        self.host = Host(
            store=self.store,
            tools=Tools(world),
            sandbox=Sandbox(world),
            clock=world.clock,
            entropy=world.chance.randbytes,
            telemetry=NoTelemetry(),
            stream=f"host/{number}",
            servers=["demo"],
        )
        self._busy: set[asyncio.Task[None]] = set()
        self._mine: set[str] = set()

    def begin(self) -> asyncio.Task[None]:
        return asyncio.create_task(self.live())

    async def live(self) -> None:
        """Take over abandoned runs, and start new ones."""
        story = self.story
        while not story.over():
            for run_id in story.idle():
                if run_id not in self._mine:
                    self._spawn(run_id, self._see_to(run_id))
            if story.to_start:
                self._spawn("", self._start(story.to_start.pop()))
            if self._busy and story.chance.random() < 0.02:
                story.chance.choice(sorted(self._busy, key=id_of)).cancel()
            await story.world.pause(0.1)
            await asyncio.sleep(0.001)

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
        ours: list[str] = []
        try:
            await self.host.start(request, on_started=ours.append)
        except StoreError:
            self.story.world.met["lost"] += 1
        finally:
            for run_id in ours or self.story.started_by(self):
                self.store.leave(f"run/{run_id}")

    async def _see_to(self, run_id: str) -> None:
        try:
            recording = await Recording.load(run_id, self.store.reader)
            if recording.state == "suspended":
                await self._resolve(recording)
                await self._decide(recording)
            await self.host.resume(run_id, actor=WHO, grant=GRANT)
        except (StoreError, BusyError, Suspend) as exc:
            self.story.world.met[type(exc).__name__] += 1
        except UsageError as exc:
            # The other host was faster.
            if not any(text in str(exc) for text in _LATE):
                raise
        finally:
            self.store.leave(f"run/{run_id}")

    async def _resolve(self, recording: Recording) -> None:
        """Resolve each call in doubt as a person who knows its effect would."""
        world = self.story.world
        for doubt in recording.journal().in_doubt:
            call = doubt.invoked
            while world.flying[recording.run_id, call.call]:  # noqa: ASYNC110 -- virtual
                await asyncio.sleep(0.01)
            if doubt.resolved or doubt.seq is None:
                continue
            resolution = self.story.says(recording.run_id, call)
            world.met[type(resolution).__name__] += 1
            await self.host.resolve(
                recording.run_id, doubt.seq, resolution, actor=WHO, reason="looked"
            )
            self.store.leave(f"run/{recording.run_id}")

    async def _decide(self, recording: Recording) -> None:
        """Approve or deny each request, or let it time out."""
        world = self.story.world
        for asked in recording.journal().waiting:
            verdict: Verdict | None = self.story.chance.choice(_WORDS)
            world.met[f"said {verdict}"] += 1
            if verdict is None or asked.is_over(world.clock.now()):
                continue
            await say(
                self.store,
                recording.run_id,
                asked.seq,
                Word(verdict=verdict, actor=WHO, reason="looked", role="ops"),
                now=world.clock.now(),
            )
            self.store.leave(f"run/{recording.run_id}")


def id_of(task: asyncio.Task[None]) -> int:
    return int(task.get_name())


@dataclass
class Story:
    """
    The simulation of one seed.

    Attributes:
        to_start: Runs that no host has started yet.

        crashes: Number of steps after which a host dies.
    """

    seed: int
    chance: random.Random = field(init=False)
    world: World = field(init=False)
    to_start: list[RunRequest] = field(init=False)
    crashes: set[int] = field(init=False)
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

    def _request(self) -> RunRequest:
        count = self.chance.randrange(1, 7)
        program: Program = [
            [self.chance.choice(_TOOLS), {"n": self.chance.randrange(3)}]
            for _ in range(count)
        ]
        wall = self.chance.choice([600.0, 600.0, 600.0, 0.1])
        return RunRequest(
            agent="agent",
            module=codec.encode(cast("JSON", program)),
            actor=WHO,
            grant=GRANT,
            limits=replace(Limits(), wall=wall),
        )

    def _step(self, process: Process) -> None:
        self.steps += 1
        if self.steps > _STEPS:
            raise AssertionError("the simulation does not end")
        if self.steps in self.crashes and process.alive:
            self.world.met["crash"] += 1
            process.alive = False

    def run(self) -> None:
        """Run the simulation and check the result."""
        loop = self.world.loop
        try:
            loop.run_until_complete(self._all())
        finally:
            loop.close()

    async def _all(self) -> None:
        try:
            await asyncio.gather(*(self._place(n) for n in range(_HOSTS)))
            assert not self.world.wrong, self.world.wrong
            for row in await self.world.disk.reader.runs(_STEPS):
                await self._check(row.run_id)
        finally:
            self.world.loop.forget()

    async def _place(self, number: int) -> None:
        """Restart the host of one place whenever it dies."""
        while not self.over():
            await self.world.pause()
            living = Living(self, number)
            task = self.world.spawn(living, living.begin)
            while living.alive and not task.done():  # noqa: ASYNC110 -- virtual
                await asyncio.sleep(0.01)
            if living.alive:
                task.result()
                living.alive = False
            number += _HOSTS

    def over(self) -> bool:
        return not (self.to_start or self._going_on())

    def _going_on(self) -> list[str]:
        rows = self.world.disk.rows.values()
        return [row.run_id for row in rows if row.state not in _OVER]

    def idle(self) -> list[str]:
        """Return the runs that no live host drives."""
        owners = self.world.owners
        return [
            run_id
            for run_id in self._going_on()
            if not ((owner := owners.get(f"run/{run_id}")) and owner.alive)
        ]

    def started_by(self, process: Process) -> list[str]:
        owned = [s for s, owner in self.world.owners.items() if owner is process]
        return [stream.removeprefix("run/") for stream in owned]

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
        check_form(history)
        check_effects(run_id, history, self.world)
        sound = Sandbox(self.world, sound=True)
        again = await replay(
            run_id, store=self.world.disk.reader, sandbox=sound, telemetry=NoTelemetry()
        )
        assert again.divergence is None, again


def check_form(history: list[Recorded]) -> None:
    events = [one.event for one in history]
    types = [one.type for one in history]
    assert [one.seq for one in history] == [*range(1, len(history) + 1)]
    assert isinstance(events[0], RunStarted)
    assert types.count("RunStarted") == 1
    ends = [
        one for one in types if one in {"RunCompleted", "RunFailed", "RunCancelled"}
    ]
    assert ends == types[-1:]
    made = [event.call for event in events if isinstance(event, ToolInvoked)]
    closed = Counter(end[0] for event in events if event and (end := outcome_of(event)))
    assert made == [*range(1, len(made) + 1)]
    assert closed == Counter(made)
    epochs = [event.epoch for event in events if isinstance(event, RunResumed)]
    assert epochs == [*range(2, len(epochs) + 2)]


def check_effects(run_id: str, history: list[Recorded], world: World) -> None:
    done = Counter(call for run, call, _ in world.effects if run == run_id)
    for run, call, key in world.effects:
        assert run != run_id or key == idempotency_key(run_id, call)
    intents: dict[int, ToolInvoked] = {}
    words: dict[int, list[str]] = {}
    said: dict[int, str] = {}
    for event in (one.event for one in history):
        match event:
            case ToolInvoked():
                intents[event.call] = event
            case ApprovalDecided():
                assert event.call not in said
                said[event.call] = event.verdict
            case CallResolved():
                words.setdefault(event.call, []).append(event.verdict)
            case ToolRetried() if intents[event.call].effect == "unsafe":
                assert words[event.call].pop() == "retry"
            case ToolCompleted():
                assert done[event.call] >= 1
            case _:
                continue
    for number, intent in intents.items():
        asked = intent.tool == "send" and (intent.params or {}).get("n") == 2
        assert not asked or not done[number] or said[number] == "approve"
        if intent.effect in {"unsafe", "keyed"}:
            assert done[number] <= 1, f"call {number} of {run_id} happened twice"
    assert set(done) <= set(intents)
