"""Whatever an agent did, its log can be cut anywhere and read again."""

from __future__ import annotations

from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.calls import JSON
from caxton_host.core.grants.journal import Journal
from caxton_host.core.log.events import (
    Recorded,
    ToolDenied,
    ToolInvoked,
    from_payload,
    to_payload,
)
from caxton_host.gateway.gateway import Gateway
from caxton_host.gateway.guest_calls import GuestCalls
from caxton_host.gateway.judge import Judge
from caxton_host.gateway.recorder import Recorder
from caxton_host.lib import codec
from caxton_host.ports.sandbox import Door, Ending, Guest
from caxton_host.store.memory import MemoryStore
from caxton_host.telemetry import NoTelemetry
from caxton_host.testing import FakeClock, FakeEntropy, FakeTools, Script
from tests.scene import ANSWERS, DEMO, JSON_VALUES, Scene, Watched, ended, types

pytestmark = pytest.mark.no_cover

#: A call by name and parameters, or a log line.
Step: TypeAlias = tuple[bytes, bytes] | bytes

NAMES = st.sampled_from(
    [b"weather", b"mcp__demo__echo", b"mcp__demo__fail", b"rm", b"nothing", b"bad name"]
)
PARAMS = st.dictionaries(st.text(max_size=4), JSON_VALUES, max_size=3).map(
    codec.encode
) | st.binary(max_size=12)
STEPS = st.lists(st.tuples(NAMES, PARAMS) | st.binary(max_size=12), max_size=7)


def guest_of(steps: list[Step]) -> Script:
    async def script(door: Door, guest: Guest) -> Ending:
        del guest
        statuses: list[JSON] = []
        for fuel, step in enumerate(steps):
            if isinstance(step, bytes):
                door.log(1, step)
            else:
                statuses.append((await door.call(*step, fuel)).status)
        return ended(statuses)

    return script


async def run(steps: list[Step]) -> tuple[Scene, Watched]:
    guest = Watched(guest_of(steps))
    scene = Scene(guest)
    scene.limit(total_calls=5, log=60)
    await scene.run()
    return scene, guest


def prefix(history: list[Recorded], cut: int) -> list[Recorded]:
    """
    Return what a crash leaves.

    One transaction hold an attempt and its denial, and the last line of a log and
    what says that it is the last.
    """
    kept = history[: 1 + cut % len(history)]
    for lost in history[len(kept) : len(kept) + 1]:
        event = lost.event
        if isinstance(event, ToolDenied) or getattr(event, "level", "") == "truncated":
            return kept[:-1]
    return kept


@given(steps=STEPS, cut=st.integers(0, 99))
async def test_any_prefix_of_a_log_replays_identical(
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


@given(recorded=STEPS, now=STEPS)
async def test_replay_diverges_where_the_calls_do(
    recorded: list[Step], now: list[Step]
) -> None:
    # Without log lines, whose number moves the fuel that the scripts make up.
    one = [step for step in recorded if not isinstance(step, bytes)]
    other = [step for step in now if not isinstance(step, bytes)]
    scene, _ = await run(list(one))

    replayed = await scene.replay(guest_of(list(other)))

    reached = slice(6)  # the sixth call ends the run, whatever comes after
    same = one[reached] == other[reached]
    assert (replayed.verdict == "identical") is same


@given(steps=STEPS, cut=st.integers(0, 99))
async def test_resumed_run_asks_only_for_what_the_log_does_not_answer(
    steps: list[Step], cut: int
) -> None:  # law 7
    calls = [step for step in steps if not isinstance(step, bytes)][:5]
    scene, live = await run(list(calls))
    kept = prefix(await scene.recorded(), cut)
    journal = Journal()
    for entry in kept:
        assert entry.event
        journal.apply(entry.event, entry.recorded_at, entry.seq)
    answered = journal.calls - len(journal.in_doubt)
    store = MemoryStore(clock=FakeClock(), entropy=FakeEntropy())
    start = scene.sandbox.guests[0]
    tools = FakeTools(ANSWERS)
    gateway = Gateway(
        judge=Judge(
            run_id=scene.run_id,
            grant=DEMO,
            routes={},
            journal=journal,
            now=FakeClock().now,
        ),
        recorder=Recorder(store.create("run/again"), journal),
        tools=tools,
    )
    door = GuestCalls(gateway=gateway, limits=start.limits, span=NoTelemetry())

    replies = [
        await door.call(*step, fuel) for fuel, step in enumerate(calls[:answered])
    ]

    assert replies == live.answers[:answered]
    assert tools.asked == []


@given(STEPS)
async def test_journal_of_a_stored_log_is_the_journal_of_the_run(
    steps: list[Step],
) -> None:
    scene, _ = await run(steps)
    live, read = Journal(), Journal()

    for entry in await scene.recorded():
        assert entry.event
        data = codec.encode(to_payload(entry.event))
        again = from_payload(
            entry.type, entry.schema_version, codec.decode_trusted(data)
        )
        live.apply(entry.event, entry.recorded_at, entry.seq)
        read.apply(again, entry.recorded_at, entry.seq)

    assert (live.tallies, live.logged, live.calls) == (
        read.tallies,
        read.logged,
        read.calls,
    )
    assert live.in_doubt == read.in_doubt == []  # law 2: every attempt was closed


@given(STEPS)
async def test_every_attempt_is_recorded_and_closed_once(steps: list[Step]) -> None:
    scene, live = await run(steps)  # law 2
    events = await scene.events()
    names = types(events)

    opened = [e.call for e in events if isinstance(e, ToolInvoked)]
    closed = [
        getattr(e, "call", None)
        for e, name in zip(events, names, strict=True)
        if name in {"ToolCompleted", "ToolFailed", "ToolDenied"}
    ]

    assert opened == closed == list(range(1, len(opened) + 1))
    assert len(live.answers) in {len(opened), len(opened) - 1}
