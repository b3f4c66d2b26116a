"""A freeze on one host stops calls on every host that shares its database."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.grants.freezes import FREEZES, Halted
from caxton_host.core.log.events import Frozen, RunSuspended, Thawed
from caxton_host.lib.machine import SystemClock
from caxton_host.ports.sandbox import Door, Ending, Guest
from caxton_host.runs.freezing import FreezeWatch, freeze, freezes_of, thaw
from caxton_host.runs.host import Host
from caxton_host.runs.run_request import RunRequest
from caxton_host.store import migrate
from caxton_host.store.sql import SqlStore
from caxton_host.telemetry import NoTelemetry
from caxton_host.testing import FakeSandbox, FakeTools
from tests.scene import ANSWERS, DEMO, ended, pack
from tests.unit.store.fakes import url

from .driver import opened

BOB: dict[str, JSON] = {"kind": "local", "id": "bob", "authenticated": False}
SOON = 60.0
#: More calls than a host makes before it sees a freeze.
MANY = 100_000


@dataclass(slots=True)
class One:
    """A host whose guest calls until it has made so many calls."""

    store: SqlStore
    tools: FakeTools = field(default_factory=lambda: FakeTools(ANSWERS))
    most: int = MANY
    host: Host = field(init=False)

    def __post_init__(self) -> None:
        self.host = Host(
            store=self.store,
            tools=self.tools,
            sandbox=FakeSandbox(self.guest),
            clock=SystemClock(),
            entropy=os.urandom,
            telemetry=NoTelemetry(),
            stream=f"host/{os.urandom(4).hex()}",
            servers=["demo"],
            freezes=FreezeWatch(self.store.reader),
        )

    async def guest(self, door: Door, guest: Guest) -> Ending:
        del guest
        for number in range(1, MANY):
            await door.call(b"mcp__demo__echo", pack(), number)
            await asyncio.sleep(0)
            if number >= self.most:
                break
        return ended(None)

    async def run(self) -> str:
        request = RunRequest(agent="a", module=b"\0asm", actor=BOB, grant=DEMO)
        return await self.host.start(request)

    async def has_called(self) -> None:
        while len(self.tools.asked) < 3:  # noqa: ASYNC110 -- nobody tells
            await asyncio.sleep(0.01)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        found: str = request.getfixturevalue("postgres_url")
        return found
    place = url(tmp_path)
    migrate.upgrade(place)
    return place


async def test_freeze_stops_the_calls_of_every_host_and_loses_no_run(
    database: str,
) -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(SOON):
        stores = [await stack.enter_async_context(opened(database)) for _ in range(3)]
        hosts = [One(store) for store in stores[:2]]
        for one in hosts:
            await one.store.leases.join(str(one.host.stream))
            await stack.enter_async_context(one.host.freezes.watching())
        running = [asyncio.create_task(one.run()) for one in hosts]
        for one in hosts:
            await one.has_called()

        event = Frozen(kind="agent", name="a", actor=BOB, reason="it runs wild")
        await freeze(stores[2], event, agents={"a"}, servers=())

        ids = [await task for task in running]
        for one, run_id in zip(hosts, ids, strict=True):
            history = await one.store.reader.read(f"run/{run_id}")
            last = history[-1].event
            assert isinstance(last, RunSuspended)
            assert (last.reason, last.frozen) == (
                "frozen",
                {"kind": "agent", "name": "a"},
            )
            sent = len(one.tools.asked)
            with pytest.raises(Halted):
                await one.host.resume(run_id, actor=BOB, grant=DEMO)
            assert len(one.tools.asked) == sent

        await thaw(stores[2], Thawed(kind="agent", name="a", actor=BOB, reason=""))
        for one, run_id in zip(hosts, ids, strict=True):
            one.most = len(one.tools.asked) + 2
            await one.host.resume(run_id, actor=BOB, grant=DEMO)
            row = await one.store.reader.row(run_id)
            assert row
            assert row.state == "completed"
            # law 7
            assert [call.call for call in one.tools.asked] == [*range(1, one.most + 1)]


async def test_freezes_by_several_processes_at_once_are_all_recorded(
    database: str,
) -> None:
    names = [f"oauth/{n}" for n in range(12)]
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(opened(database)) for _ in range(3)]

        async def one(number: int, name: str) -> None:
            event = Frozen(kind="token", name=name, actor=BOB, reason="")
            await freeze(stores[number % 3], event, agents=(), servers=())

        await asyncio.gather(*(one(*item) for item in enumerate(names)))
        standing = (await freezes_of(stores[0])).standing
        assert {name for _, name in standing} == {*names}
        recorded = await stores[0].reader.read(FREEZES)
        assert [event.seq for event in recorded] == [*range(1, len(names) + 1)]
