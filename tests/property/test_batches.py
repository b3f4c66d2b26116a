"""Batches are their calls, made at once: same decisions, same answers, same log."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.calls import JSON, Completed, Route
from caxton_host.core.grants.grants import Grant
from caxton_host.core.grants.journal import Journal
from caxton_host.core.limits import Limits
from caxton_host.core.log.events import (
    Event,
    Recorded,
    ToolDenied,
    ToolInvoked,
    outcome_of,
)
from caxton_host.gateway.gateway import Gateway
from caxton_host.gateway.guest_calls import GuestCalls
from caxton_host.gateway.judge import Judge
from caxton_host.gateway.recorder import Recorder
from caxton_host.lib import codec
from caxton_host.ports.sandbox import Answer, Door, Ending, Guest
from caxton_host.ports.tools import ToolRequest
from caxton_host.store.memory import MemoryLog, MemoryStore
from caxton_host.telemetry import NoTelemetry
from caxton_host.testing import FakeClock, FakeEntropy, FakeTools, Script
from tests.scene import ANSWERS, JSON_VALUES, Scene, Watched, ended, rule

pytestmark = pytest.mark.no_cover

Item: TypeAlias = tuple[str, bytes]
#: A call, or a batch of them.
Step: TypeAlias = Item | list[Item]

NAMES = st.sampled_from(
    ["weather", "mcp__demo__echo", "mcp__demo__fail", "rm", "nothing", "bad name"]
)
PARAMS = st.dictionaries(st.text(max_size=4), JSON_VALUES, max_size=3).map(
    codec.encode
) | st.sampled_from([b"\xc0", b"\x90", b"\xc4\x01a", b"\x82\xa1a\x01\xa1a\x02"])
ITEMS = st.tuples(NAMES, PARAMS)
BATCHES = st.lists(ITEMS, max_size=6)
STEPS = st.lists(ITEMS | BATCHES, max_size=4)

GRANT = Grant(
    allow=(rule("demo/get_*", calls=2), rule("demo/*", calls=3, name="allow[2]")),
    deny=(rule("shell/*", name="deny[1]"),),
)
ROUTES = {
    "weather": Route(server="demo", tool="get_weather", effect="read"),
    "mcp__demo__echo": Route(server="demo", tool="echo", effect="keyed"),
    "mcp__demo__fail": Route(server="demo", tool="fail", effect="idempotent"),
    "rm": Route(server="shell", tool="exec"),
}


def packed(items: list[Item]) -> bytes:
    head = bytes([0x90 | len(items)])
    pairs = (b"\x92" + codec.encode(name) + params for name, params in items)
    return head + b"".join(pairs)


class Shuffling(FakeTools):
    """Tools that answer when their turn comes, not when they are asked."""

    delays: list[int]

    async def call_tool(self, request: ToolRequest) -> Completed:
        for _ in range(self.delays[request.call % len(self.delays)]):
            await asyncio.sleep(0)
        return await super().call_tool(request)


def new_door(
    delays: list[int], history: list[Recorded] | None = None
) -> tuple[GuestCalls, MemoryLog]:
    tools = Shuffling(ANSWERS)
    tools.delays = delays
    journal = Journal()
    for entry in history or []:
        assert entry.event
        journal.apply(entry.event, entry.recorded_at, entry.seq)
    store = MemoryStore(clock=FakeClock(), entropy=FakeEntropy())
    log = store.create("run/1")
    gateway = Gateway(
        judge=Judge(
            run_id="1",
            grant=GRANT,
            routes=ROUTES,
            journal=journal,
            now=FakeClock().now,
        ),
        recorder=Recorder(log, journal),
        tools=tools,
    )
    door = GuestCalls(gateway=gateway, limits=Limits(), span=NoTelemetry())
    return door, log


async def take(door: Door, step: Step, fuel: int) -> list[Answer]:
    """Return the answer of a call, or of a batch."""
    if isinstance(step, list):
        return [await door.call_many(packed(step), fuel)]
    return [await door.call(step[0].encode(), step[1], fuel)]


def by_call(events: list[Event]) -> list[tuple[ToolInvoked, object]]:
    opened = {e.call: e for e in events if isinstance(e, ToolInvoked)}
    closed = dict(end for e in events if (end := outcome_of(e)))
    assert sorted(opened) == sorted(closed) == list(range(1, len(opened) + 1))
    return [(opened[number], closed[number]) for number in sorted(opened)]


@given(items=BATCHES, delays=st.lists(st.integers(0, 9), min_size=1, max_size=6))
async def test_batch_is_the_same_calls_made_one_by_one(
    items: list[Item], delays: list[int]
) -> None:  # law 4, law 5
    many, together = new_door(delays)
    one, alone = new_door([0])

    [answer] = await take(many, items, 7)
    singles = [(await take(one, item, 7))[0] for item in items]

    assert codec.decode_trusted(answer.reply) == [
        codec.decode_trusted(single.reply) for single in singles
    ]
    assert by_call(together.events) == by_call(alone.events)
    assert many.gateway.recorder.journal.tallies == one.gateway.recorder.journal.tallies
    assert many.gateway.recorder.journal.calls == one.gateway.recorder.journal.calls
    assert many.gateway.recorder.journal.in_doubt == []
    asked = [door.gateway.tools for door in (many, one)]
    assert isinstance(asked[0], FakeTools)
    assert isinstance(asked[1], FakeTools)
    in_order = sorted(asked[0].asked, key=lambda request: request.call)
    assert in_order == asked[1].asked


def guest_of(steps: list[Step]) -> Script:
    async def script(door: Door, guest: Guest) -> Ending:
        del guest
        statuses: list[JSON] = []
        for fuel, step in enumerate(steps):
            statuses += [answer.status for answer in await take(door, step, fuel)]
        return ended(statuses)

    return script


async def run(steps: list[Step]) -> tuple[Scene, Watched]:
    guest = Watched(guest_of(steps))
    scene = Scene(guest)
    scene.request = replace(scene.request, grant=GRANT)
    await scene.run()
    return scene, guest


def prefix(history: list[Recorded], cut: int) -> list[Recorded]:
    """Return what a crash leaves: whole transactions."""
    kept = history[: 1 + cut % len(history)]
    while len(kept) < len(history) and _together(kept, history[len(kept)].event):
        kept.pop()
    return kept


def _together(kept: list[Recorded], lost: Event | None) -> bool:
    """Return whether *lost* came in the transaction of the last one kept."""
    if isinstance(lost, ToolDenied):
        return True
    fuels = [e.event.fuel for e in kept if isinstance(e.event, ToolInvoked)]
    return isinstance(lost, ToolInvoked) and fuels[-1:] == [lost.fuel]


@given(steps=STEPS, cut=st.integers(0, 99))
async def test_any_prefix_of_a_log_with_batches_replays_identical(
    steps: list[Step], cut: int
) -> None:  # law 5, law 6
    scene, live = await run(steps)
    stream = scene.store.streams[f"run/{scene.run_id}"]
    stream[:] = prefix(stream, cut)
    assert isinstance(scene.tools, FakeTools)
    asked = len(scene.tools.asked)
    again = Watched(live.script)

    replayed = await scene.replay(again)

    assert replayed.divergence is None
    assert again.answers == live.answers[: len(again.answers)]
    assert len(scene.tools.asked) == asked


@given(
    steps=STEPS,
    cut=st.integers(0, 99),
    delays=st.lists(st.integers(0, 9), min_size=1, max_size=6),
)
async def test_cut_log_goes_on_to_the_answers_of_the_uncut_one(
    steps: list[Step], cut: int, delays: list[int]
) -> None:  # law 7, law 10
    whole, _ = new_door(delays)
    answers = [a for n, step in enumerate(steps) for a in await take(whole, step, n)]
    store = whole.gateway.recorder.log
    assert isinstance(store, MemoryLog)
    history = await store._store.reader.read("run/1")
    if not history:
        return
    door, log = new_door(delays, kept := prefix(history, cut))

    again = [a for n, step in enumerate(steps) for a in await take(door, step, n)]

    assert [(a.status, a.reply) for a in again] == [
        (a.status, a.reply) for a in answers
    ]
    events = [entry.event for entry in kept if entry.event] + log.events
    assert len(by_call(events)) == whole.gateway.recorder.journal.calls
    assert door.gateway.recorder.journal.in_doubt == []
    assert (
        door.gateway.recorder.journal.tallies == whole.gateway.recorder.journal.tallies
    )


@given(data=st.binary(max_size=200))
async def test_whatever_a_guest_says_is_answered_and_recorded(
    data: bytes,
) -> None:  # law 2, law 9
    door, log = new_door([0])

    answer = await door.call_many(data, 0)

    assert answer.status in {0, 4}
    attempts = len(by_call(log.events))
    if answer.status:
        assert attempts == 1
    else:
        assert attempts == len(codec.decode_trusted(answer.reply)) == door.calls
