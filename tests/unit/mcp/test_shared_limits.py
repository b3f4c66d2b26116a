"""The rate and the concurrency of a server hold for all hosts on one log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from caxton_host.core.log.events import Event, ToolCompleted, ToolInvoked
from caxton_host.core.tools.servers import Rate, ServerConfig
from caxton_host.errors import ToolError
from caxton_host.mcp.admission import Gate
from caxton_host.ports.log import Refused, Reservation
from caxton_host.ports.tools import ToolRequest
from caxton_host.store.memory import MemoryStore
from tests.unit.store.fakes import FakeClock, FakeEntropy, eventually, run_started

SOON = 30.0


@dataclass
class Host:
    """A host with one run, which makes its calls through a gate of its own."""

    store: MemoryStore
    name: str
    options: dict[str, Any]
    asked: list[Sequence[Reservation]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        config = ServerConfig(name="crm", command=("crm",), **self.options)
        self.gate = Gate(config, self.events.append)
        self.log = self.store.create(f"run/{self.name}")
        self.log.queue(run_started())

    async def reserve(self, items: Sequence[Reservation]) -> Refused | None:
        self.asked.append(items)
        return await self.log.append(reserve=items)

    async def enter(self, call: int, patience: float = SOON) -> float:
        request = ToolRequest(
            run_id=self.name,
            call=call,
            server="crm",
            tool="find",
            params={},
            definition_sha256=None,
            idempotency_key="",
            reserve=self.reserve,
        )
        deadline = asyncio.get_running_loop().time() + patience
        return await self.gate.enter(request, deadline, patience)

    async def ends(self, call: int, began: float) -> None:
        self.gate.leave(began, None)
        await self.log.append(
            ToolInvoked(
                call=call,
                name="find",
                server="crm",
                tool="find",
                params={},
                params_sha256="",
                effect="read",
                rule=None,
                idempotency_key="",
                fuel=0,
            ),
            ToolCompleted(call=call, is_error=False, message="", data=None),
        )


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> MemoryStore:
    return MemoryStore(clock=clock, entropy=FakeEntropy())


async def test_what_is_not_configured_costs_the_log_nothing(store: MemoryStore) -> None:
    host = Host(store, "a", {})
    began = [await host.enter(number) for number in range(1, 17)]
    with pytest.raises(ToolError, match="not ready for it within"):
        await host.enter(17, 0.01)
    for one in began:
        host.gate.leave(one, None)
    assert host.asked == []


async def test_calls_of_two_hosts_share_the_places_and_none_waits_for_ever(
    store: MemoryStore,
) -> None:
    one, other = (Host(store, name, {"concurrency": 1}) for name in "ab")
    began = await one.enter(1)
    waits = asyncio.create_task(other.enter(1))
    await eventually(lambda: len(other.asked) > 1)
    assert not waits.done()

    # The next call of the first host is at the gate before the place is free.
    next_one = asyncio.create_task(one.enter(2))
    await one.ends(1, began)
    await other.ends(1, await waits)
    assert not next_one.done()
    await one.ends(2, await next_one)
    assert store.slots == {}


async def test_a_call_that_is_sent_again_keeps_its_place(store: MemoryStore) -> None:
    host = Host(store, "a", {"concurrency": 1})
    for _ in range(3):
        host.gate.leave(await host.enter(1), ToolError("transport", "no", "gone"))
    assert [*store.slots] == [("!server/crm/open", ("run/a", 1))]


async def test_a_place_in_doubt_is_free_once_its_call_is_closed(
    store: MemoryStore,
) -> None:
    # law 7: nobody knows whether the server still works on it
    dead, other = (Host(store, name, {"concurrency": 1}) for name in "ab")
    began = await dead.enter(1)
    with pytest.raises(ToolError, match="not ready for it") as caught:
        await other.enter(1, 0.01)
    assert (caught.value.kind, caught.value.sent) == ("timeout", "no")
    await dead.ends(1, began)
    await other.enter(1)


async def test_a_rate_is_that_of_all_hosts(
    store: MemoryStore, clock: FakeClock
) -> None:
    hosts = [Host(store, name, {"rate": Rate(2, 60.0)}) for name in "abc"]
    passed = [await host.enter(1) for host in hosts[:2]]
    for host, began in zip(hosts, passed, strict=False):
        host.gate.leave(began, None)
    with pytest.raises(ToolError, match="the rate of the server crm") as caught:
        await hosts[2].enter(1)
    assert (caught.value.kind, caught.value.sent) == ("timeout", "no")
    # What it was refused takes nothing from its own host, either.
    for number in (2, 3):
        with pytest.raises(ToolError, match="the rate of the server crm"):
            await hosts[2].enter(number)
    clock.time += 30_000_000
    await hosts[2].enter(4)


async def test_a_call_waits_for_its_turn_and_one_behind_it_too(
    store: MemoryStore, clock: FakeClock
) -> None:
    one, other = (Host(store, name, {"rate": Rate(2, 0.2)}) for name in "ab")
    await one.enter(1)
    await one.enter(2)
    waits = [asyncio.create_task(other.enter(number)) for number in (1, 2)]
    await eventually(lambda: len(other.asked) == 1)
    clock.time += 1_000_000
    await asyncio.gather(*waits)
    # They asked one by one.
    assert [len(items) for items in other.asked] == [1, 1, 1]


async def test_who_gives_up_waiting_leaves_the_gate_as_it_was(
    store: MemoryStore,
) -> None:
    one, other = (Host(store, name, {"concurrency": 1}) for name in "ab")
    began = await one.enter(1)
    waits = asyncio.create_task(other.enter(1))
    await eventually(lambda: bool(other.asked))
    waits.cancel()
    await asyncio.wait([waits])
    await one.ends(1, began)
    await other.enter(2)


async def test_a_server_that_fails_meanwhile_gets_no_call(store: MemoryStore) -> None:
    one, other = (Host(store, name, {"concurrency": 1}) for name in "ab")
    began = await one.enter(1)
    waits = asyncio.create_task(other.enter(1))
    await eventually(lambda: bool(other.asked))
    for _ in range(5):
        other.gate.breaker.ended("failed", began=1e9, now=1e9)
    await one.ends(1, began)
    with pytest.raises(ToolError, match="calls are refused"):
        await waits
