"""
A scene: calls, an approval, a fork, a schedule, resumed runs, and retention at the end.

It is what an operator wants to have happened. `House.go_on` does what is missing, so it
can be called again after each failure, by the same host or by the next.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy as sa

from caxton_host.app.maintenance import Maintenance
from caxton_host.app.retention import retain
from caxton_host.config import Agent, Config
from caxton_host.config.model import Schedule
from caxton_host.core.calls import JSON, Completed
from caxton_host.core.grants.approvals import Approve
from caxton_host.core.grants.budgets import CallCount
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.log.events import Event, ToolInvoked, outcome_of
from caxton_host.core.log.requests import GiveResult, Resend, Resolution
from caxton_host.core.log.retention import Retention
from caxton_host.core.log.retention import Rule as Keeping
from caxton_host.core.log.runs import RunRow
from caxton_host.core.names import tick_run
from caxton_host.core.text.globs import Pattern
from caxton_host.core.text.redact import Redactor
from caxton_host.errors import CaxtonError, Suspend
from caxton_host.lib.signing import Keyring
from caxton_host.ports.sandbox import Door, Ending, Guest
from caxton_host.ports.tools import ToolRequest
from caxton_host.runs.admission import RunQueue
from caxton_host.runs.approvals import Word, say
from caxton_host.runs.host import Host
from caxton_host.runs.recording import Recording
from caxton_host.runs.run_request import ForkRequest, RunRequest
from caxton_host.service.run_service import Service
from caxton_host.service.run_tasks import RunTasks
from caxton_host.service.scheduling import Scheduler
from caxton_host.store.schema import budgets, slots
from caxton_host.store.sql import SqlStore
from caxton_host.telemetry import NoTelemetry
from caxton_host.testing import FakeClock, FakeSandbox
from tests.crash import Ledger, answer
from tests.scene import ended, pack

WHO: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}
RUN, FORK = "0193-run", "0193-fork"
_NOON = 1_700_049_600_000_000
_HOURLY = Schedule(name="hourly", agent="weather", cron="0 * * * *")
TICK = tick_run("hourly", _NOON)
_DAY_US = 86_400_000_000
_ASKED = Approve(by=("ops",), within=3600.0)
_PAY = CallCount(limit=100, per="month")


def _rule(number: int, tool: str, **more: object) -> Rule:
    tools = (Pattern.parse(f"demo/{tool}"),)
    return Rule(id=f"allow[{number}]", tools=tools, **more)  # type: ignore[arg-type]


GRANT = Grant(
    allow=(
        _rule(1, "send", approve=_ASKED),
        _rule(2, "pay", name="pay", budgets=(_PAY,)),
        _rule(3, "*"),
    )
)


async def guest(door: Door, guest: Guest) -> Ending:
    """Make calls of each effect, one of which waits for a person."""
    if guest.input == b"\xa5probe":
        await door.call(b"mcp__demo__look", pack(), 1)
        return ended("probe")
    for fuel, tool in enumerate(("look", "pay", "set", "send", "pay"), 1):
        await door.call(f"mcp__demo__{tool}".encode(), pack(n=fuel), fuel)
    return ended("done")


@dataclass(slots=True)
class Watched(Ledger):
    """
    Tools that survive every host.

    Attributes:
        store: In which each call has to be before it comes.

        happened: Tool and key of each effect.

        ended: The events of each run, as they were when it had ended.

        wrong: What was asked although the log did not say so.
    """

    store: SqlStore | None = None
    paid: set[str] = field(default_factory=set[str])
    happened: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    ended: dict[str, list[Event]] = field(default_factory=dict[str, list[Event]])
    wrong: list[str] = field(default_factory=list[str])

    async def call_tool(self, request: ToolRequest) -> Completed:
        assert self.store
        history = await self.store.reader.read(f"run/{request.run_id}")
        intents = {e.event.call for e in history if isinstance(e.event, ToolInvoked)}
        if request.call not in intents:
            self.wrong.append(f"was sent, and no commit says so: {request}")
        key = request.idempotency_key
        if request.tool != "pay" or key not in self.paid:
            self.happened.append((request.tool, key))
        if request.tool == "pay":
            self.paid.add(key)
        return await Ledger.call_tool(self, request)


@dataclass(slots=True, kw_only=True)
class House:
    """
    A host on fakes, but for its log.

    Attributes:
        clock: That of all hosts of the scene.

        told: What was said to be done, and has to be in the log at the end.
    """

    folder: Path
    store: SqlStore
    tools: Watched
    clock: FakeClock
    host: Host
    scheduler: Scheduler

    async def go_on(self) -> None:
        """Do what is missing."""
        if await self._row(RUN) is None:
            await self.host.start(_request(), run_id=RUN)
        await self._see_to(RUN)
        if await self._row(FORK) is None:
            wanted = ForkRequest(run_id=RUN, seq=self._second(), actor=WHO, grant=GRANT)
            await self.host.fork(wanted, run_id=FORK)
        await self._see_to(FORK)
        self.clock.time = max(self.clock.time, _NOON)
        if await self._row(TICK) is None:
            await self.scheduler.look_at(_HOURLY)
            await self.scheduler.service.over(TICK)
        await self._see_to(TICK)
        await self._recount()
        await self._retain()

    def _second(self) -> int:
        """Return the number of the event that ends the second call."""
        ends = [outcome_of(event) for event in self.tools.ended[RUN]]
        return 1 + next(n for n, end in enumerate(ends) if end and end[0] == 2)

    async def probe(self) -> str:
        """Run something new, and return its state."""
        run_id = self.host.new_id()
        await self.host.start(_request("probe"), run_id=run_id)
        row = await self._row(run_id)
        return row.state if row else "lost"

    async def _row(self, run_id: str) -> RunRow | None:
        return await self.store.reader.row(run_id)

    async def _see_to(self, run_id: str) -> None:
        """Drive a run to its end, as the people who decide about its calls too."""
        while run_id not in self.tools.ended:
            recording = await Recording.load(run_id, self.store.reader)
            if recording.end is not None:
                history = await self.store.reader.read(f"run/{run_id}")
                self.tools.ended[run_id] = [one.event for one in history if one.event]
                return
            journal = recording.journal()
            for doubt in journal.in_doubt:
                if not doubt.resolved and doubt.seq is not None:
                    await self._resolve(recording, doubt.invoked, doubt.seq)
            for asked in journal.waiting:
                word = Word(verdict="approve", actor=WHO, reason="fine", role="ops")
                await say(self.store, run_id, asked.seq, word, now=self.clock.now())
            with suppress(Suspend):
                await self.host.resume(run_id, actor=WHO, grant=GRANT)

    async def _resolve(self, recording: Recording, call: ToolInvoked, seq: int) -> None:
        came = any(
            one.idempotency_key == call.idempotency_key for one in self.tools.asked
        )
        request = ToolRequest(
            run_id=recording.run_id,
            call=call.call,
            server="demo",
            tool=call.tool or "",
            params=call.params or {},
            definition_sha256=None,
            idempotency_key=call.idempotency_key,
        )
        resolution: Resolution = GiveResult(answer(request)) if came else Resend()
        await self.host.resolve(
            recording.run_id, seq, resolution, actor=WHO, reason="looked"
        )

    async def _recount(self) -> None:
        before = await _books(self.store)
        await self.store.budgets.recount()
        # An earlier try may have erased runs, whose spending nobody can count.
        if not await self.store.reader.erased() and before != await _books(self.store):
            self.tools.wrong.append(f"budgets were {before}, by a count they are not")

    async def _retain(self) -> None:
        """A day later, all runs go to bundles but what the probe left."""
        self.clock.time += _DAY_US
        rules = [Keeping(name="rule 1", action="archive", after=3600.0)]
        retention = Retention(rules=rules, archive=self.folder / "archive")
        keeper = Maintenance(
            store=self.store,
            keys=Keyring(self.folder),
            stream=f"host/{self.clock.time}",
            announced=(),
            actor=WHO,
            redact=Redactor(),
        )
        found = [one async for one in retain(self.store, retention, keeper)]
        if failed := [one for one in found if one.outcome != "done"]:
            raise CaxtonError(failed[0].message)


def _request(value: JSON = None) -> RunRequest:
    return RunRequest(
        agent="weather", module=b"\0asm", actor=WHO, grant=GRANT, input=value
    )


async def _books(store: SqlStore) -> list[object]:
    def look(connection: sa.Connection) -> list[object]:
        spent = sa.select(budgets.c.key, budgets.c.used).where(budgets.c.used > 0)
        tables = spent.order_by(budgets.c.key), sa.select(slots)
        return [tuple(row) for one in tables for row in connection.execute(one)]

    return await store._database.read(look)


@asynccontextmanager
async def house(
    url: str, folder: Path, tools: Watched, clock: FakeClock
) -> AsyncGenerator[House]:
    """Open the log, as a host that starts."""
    clock.time += 1_000_000
    keys = Keyring(folder)
    store = SqlStore.open(url, clock=clock, entropy=os.urandom, lease=0.25, signer=keys)
    module = folder / "weather.wasm"
    module.write_bytes(b"\0asm")
    agent = Agent(name="weather", module=module, grant=GRANT)
    config = Config(
        store_url=url, agents={"weather": agent}, schedules={"hourly": _HOURLY}
    )
    tools.store = store
    host = Host(
        store=store,
        tools=tools,
        sandbox=FakeSandbox(guest),
        clock=clock,
        entropy=os.urandom,
        telemetry=NoTelemetry(),
        stream=f"host/{clock.time}",
        servers=["demo"],
    )
    line = RunQueue(places=8, queue=8, each=8, rate=600, now=clock.monotonic)
    service = Service(
        host=host,
        store=store,
        config=lambda: config,
        background=RunTasks(line=line, under_way=host.under_way),
    )
    placing = asyncio.create_task(service.placer.watch())
    try:
        await store.leases.join(host.stream or "")
        yield House(
            folder=folder,
            store=store,
            tools=tools,
            clock=clock,
            host=host,
            scheduler=Scheduler(service=service),
        )
    finally:
        placing.cancel()
        with suppress(asyncio.CancelledError):
            await placing
        await store.aclose()
