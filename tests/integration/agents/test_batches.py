"""Batches of an agent in C, from the guest to the log and back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from caxton_host.core.calls import JSON, Completed
from caxton_host.core.grants.grants import Grant
from caxton_host.core.grants.tool_catalog import Offered
from caxton_host.core.limits import Limits
from caxton_host.core.log.events import (
    Recorded,
    RunCompleted,
    RunFailed,
    RunSuspended,
    ToolCompleted,
    ToolInvoked,
    ToolRetried,
    outcome_of,
)
from caxton_host.core.log.requests import Resend
from caxton_host.errors import ToolError
from caxton_host.ports import ToolRequest
from caxton_host.runs.host import Host
from caxton_host.runs.replay import Replayed, replay
from caxton_host.runs.run_request import RunRequest
from caxton_host.sandbox import WasmSandbox
from caxton_host.store.memory import MemoryStore
from caxton_host.telemetry import NoTelemetry
from caxton_host.testing import FakeClock, FakeEntropy, FakeTools, offer
from tests.scene import rule

ANN: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}
GRANT = Grant(allow=(rule("demo/*"), rule("shop/*", name="allow[2]")))
ANSWERS: Mapping[tuple[str, str], JSON | ToolError | Completed] = {
    ("demo", "one"): "first",
    ("demo", "two"): "second",
    ("demo", "big"): "x" * 200_000,
    ("demo", "bad"): Completed(is_error=True, message="no such city"),
    ("demo", "gone"): ToolError("timeout", "unknown", "no answer in 5 s"),
    ("shop", "pay"): "paid",
    ("shell", "exec"): "root",
}


@dataclass(slots=True)
class Tools(FakeTools):
    """
    Tools of which those in *meet* answer once all of them were asked.

    Those of the server ``demo`` may be asked again.
    """

    meet: frozenset[str] = frozenset()
    clock: FakeClock = field(default_factory=FakeClock)
    _came: set[str] = field(default_factory=set)
    _all: asyncio.Event = field(default_factory=asyncio.Event)

    async def offered(self, servers: Collection[str]) -> Offered:
        del servers
        return Offered(
            offers=tuple(
                replace(offer(*key), effect="read" if key[0] == "demo" else "unsafe")
                for key in self.answers
            )
        )

    async def call_tool(self, request: ToolRequest) -> Completed:
        if request.tool in self.meet:
            self._came.add(request.tool)
            if self._came == self.meet:
                self._all.set()
            await self._all.wait()
        self.clock.time += 1_000
        return await super(Tools, self).call_tool(request)


@dataclass(slots=True)
class House:
    """A host over a real sandbox, a store in memory and fake tools."""

    sandbox: WasmSandbox
    module: bytes
    tools: Tools = field(default_factory=lambda: Tools(ANSWERS))
    run_id: str = ""
    host: Host = field(init=False)
    store: MemoryStore = field(init=False)

    def __post_init__(self) -> None:
        clock, entropy = self.tools.clock, FakeEntropy()
        self.store = MemoryStore(clock=clock, entropy=entropy)
        self.host = Host(
            store=self.store,
            tools=self.tools,
            sandbox=self.sandbox,
            clock=clock,
            entropy=entropy,
            telemetry=NoTelemetry(),
            servers=["demo", "shop", "shell"],
        )

    async def start(
        self, *batches: list[Any], limits: Limits | None = None
    ) -> list[Recorded]:
        """Run the agent; an item that is a name has no params."""
        items: list[JSON] = [
            [[i, {}] if isinstance(i, str) else i for i in b] for b in batches
        ]
        request = RunRequest(
            agent="batch",
            module=self.module,
            actor=ANN,
            input={"batches": items},
            grant=GRANT,
            limits=limits or Limits(),
            names={
                "one": ("demo", "one"),
                "two": ("demo", "two"),
                "big": ("demo", "big"),
                "bad": ("demo", "bad"),
                "gone": ("demo", "gone"),
                "pay": ("shop", "pay"),
                "rm": ("shell", "exec"),
            },
        )
        async with asyncio.timeout(60):
            self.run_id = await self.host.start(request)
        return await self.history()

    async def history(self) -> list[Recorded]:
        return await self.store.reader.read(f"run/{self.run_id}")

    def cut(self, history: list[Recorded]) -> None:
        """Leave no more of the run than that."""
        self.store.streams[f"run/{self.run_id}"][:] = history
        self.store.events[:] = history

    async def replay(self) -> Replayed:
        asked = len(self.tools.asked)
        found = await replay(
            self.run_id,
            store=self.store.reader,
            sandbox=self.sandbox,
            telemetry=NoTelemetry(),
        )
        assert len(self.tools.asked) == asked  # law 6
        return found


@pytest.fixture
async def house(batching: bytes, tmp_path: Path) -> AsyncIterator[House]:
    async with WasmSandbox(tmp_path, bytes(32)) as sandbox:
        yield House(sandbox, batching)


def output(history: list[Recorded]) -> Any:  # noqa: ANN401 -- whatever it output
    end = history[-1].event
    assert isinstance(end, RunCompleted), end
    return end.output


MIXED = ["one", "rm", "bad", ["two", 7], "gone", "nothing", "two"]


async def test_agent_gets_an_answer_for_each_item_in_order(house: House) -> None:
    history = await house.start(MIXED, [], ["big", "one"])

    mixed, empty, last = output(history)
    at = {
        end[0]: one.recorded_at
        for one in history
        if one.event and (end := outcome_of(one.event))
    }
    assert mixed == [
        0,
        max(at[number] for number in range(1, 8)),
        [
            [0, "first"],
            [2, "this agent has no grant for that tool"],
            [1, "no such city"],
            [4, "params: params are not a map"],
            [3, "no answer in 5 s"],
            [2, "this agent has no grant for that tool"],
            [0, "second"],
        ],
    ]
    assert empty == [0, mixed[1], []]
    assert last == [0, max(at[8], at[9]), [[0, "x" * 200_000], [0, "first"]]]
    assert last[1] > mixed[1]
    assert (await house.replay()).divergence is None


async def test_tools_of_a_batch_are_asked_at_the_same_time(
    batching: bytes, house: House
) -> None:
    tools = Tools(ANSWERS, meet=frozenset({"one", "two", "big"}))
    met = House(house.sandbox, batching, tools)

    history = await met.start(["one", "two", "big"])

    assert [answer[0] for answer in output(history)[0][2]] == [0, 0, 0]


async def test_batch_of_65_is_one_bad_attempt(house: House) -> None:  # law 2
    history = await house.start(["one"] * 65)

    [[status, _, _]] = output(history)
    assert status == 4
    [intent] = [e.event for e in history if isinstance(e.event, ToolInvoked)]
    assert intent.name == "mcp_call_many()"
    assert house.tools.asked == []
    assert (await house.replay()).divergence is None


async def test_limit_inside_a_batch_ends_the_run_before_anything_is_sent(
    house: House,
) -> None:
    history = await house.start(["one"], ["two", "rm", "one"], limits=_limit(3))

    end = history[-1].event
    assert isinstance(end, RunFailed)
    assert end.message.startswith("total_calls")
    assert [request.tool for request in house.tools.asked] == ["one"]
    assert (await house.replay()).divergence is None


def _limit(calls: int) -> Limits:
    return replace(Limits(), total_calls=calls)


def boundaries(history: list[Recorded]) -> list[int]:
    """Return how many events each crash leaves: all of a transaction or nothing."""
    ends = []
    for count in range(1, len(history) + 1):
        opened = history[count - 1].event
        lost = history[count].event if count < len(history) else None
        inside = isinstance(lost, ToolInvoked) and not isinstance(opened, ToolCompleted)
        if count == 1 or not (inside or type(lost).__name__ == "ToolDenied"):
            ends.append(count)
    return ends


async def test_log_that_is_cut_at_any_transaction_replays_and_goes_on(
    house: House,
) -> None:  # law 5, law 7, law 10
    history = await house.start(["one", "rm", "big", "two"], ["two", ["one", 7]])
    said = [[batch[0], batch[2]] for batch in output(history)]
    ends = boundaries(history)
    assert ends[:2] == [1, 6]  # the start, and the first batch whole

    for count in ends[:-1]:
        house.cut(history[:count])
        assert (await house.replay()).divergence is None
        house.tools.asked.clear()

        async with asyncio.timeout(60):
            await house.host.resume(house.run_id, actor=ANN, grant=GRANT)

        again = await house.history()
        assert [[batch[0], batch[2]] for batch in output(again)] == said
        events = [entry.event for entry in history[:count]]
        answered = {e.call for e in events if isinstance(e, ToolCompleted)}
        assert {r.call for r in house.tools.asked} == {1, 3, 4, 5} - answered
        assert (await house.replay()).divergence is None


async def test_batch_with_an_unsafe_call_in_doubt_waits_for_a_person(
    house: House,
) -> None:  # law 7
    history = await house.start(["one", "pay", "two"])
    house.cut(history[:4])
    assert isinstance(history[3].event, ToolInvoked)
    house.tools.asked.clear()

    async with asyncio.timeout(60):
        await house.host.resume(house.run_id, actor=ANN, grant=GRANT)

    again = await house.history()
    end = again[-1].event
    assert isinstance(end, RunSuspended)
    assert (end.reason, end.call) == ("in_doubt", 2)
    assert house.tools.asked == []
    assert not [e for e in again if isinstance(e.event, ToolRetried)]
    assert (await house.replay()).divergence is None

    await house.host.resolve(house.run_id, 3, Resend(), actor=ANN, reason="not paid")
    async with asyncio.timeout(60):
        await house.host.resume(house.run_id, actor=ANN, grant=GRANT)

    last = await house.history()
    assert [answer[1] for answer in output(last)[0][2]] == ["first", "paid", "second"]
    retries = [e.event for e in last if isinstance(e.event, ToolRetried)]
    assert [(e.call, e.reason) for e in retries] == [
        (1, "resumed"),
        (2, "resolved"),
        (3, "resumed"),
    ]
    assert (await house.replay()).divergence is None
