"""A run goes on where its log ends, on a host that knows nothing but the log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from caxton_host.core.calls import JSON, Completed, Effect
from caxton_host.core.grants.grants import Grant
from caxton_host.core.log.events import (
    CallResolved,
    Event,
    LogWritten,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunResumed,
    RunStarted,
    RunSuspended,
    ToolDenied,
    ToolFailed,
    ToolInvoked,
    ToolRetried,
)
from caxton_host.core.log.requests import Abort, Fail, GiveResult, Resend, Resolution
from caxton_host.core.log.runs import RESTORED
from caxton_host.errors import NotFoundError, RestoredError, Suspend, UsageError
from caxton_host.ports import Door, Ending, Guest
from caxton_host.testing import FakeTools, Script
from tests.scene import ANSWERS, DEMO, Scene, calling, ended, pack, rule

ANN: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}
WEATHER = "mcp__demo__get_weather"
ECHO = "mcp__demo__echo"


def started_with(event: Event, effect: Effect) -> Event:
    """Return *event* as if its tool had that effect."""
    if isinstance(event, RunStarted):
        catalogue = {
            name: {**entry, "effect": effect} if isinstance(entry, dict) else entry
            for name, entry in event.catalogue.items()
        }
        return replace(event, catalogue=catalogue)
    return replace(event, effect=effect) if isinstance(event, ToolInvoked) else event


async def crashed(
    script: Script, after: int, effect: Effect = "unsafe", grant: Grant = DEMO
) -> Scene:
    """Return a new host whose log holds the first *after* events of a run."""
    first = Scene(script)
    first.request = replace(first.request, grant=grant)
    await first.run()
    scene = Scene(script)
    scene.run_id = first.run_id
    events = [started_with(event, effect) for event in await first.events()]
    log = scene.store.create(f"run/{first.run_id}")
    await log.append(*events[:after], blobs=first.store.blobs)
    tools = scene.tools
    assert isinstance(tools, FakeTools)
    tools.effects = dict.fromkeys(ANSWERS, effect)
    return scene


async def resumed(scene: Scene, grant: Grant = DEMO) -> list[Event]:
    """Resume the run, and return the events that came after the crash."""
    before = len(await scene.events())
    await scene.host.resume(scene.run_id, actor=ANN, grant=grant)
    return (await scene.events())[before:]


def kinds(events: Sequence[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


def asked(scene: Scene) -> list[tuple[str, int, int]]:
    assert isinstance(scene.tools, FakeTools)
    return [(item.tool, item.call, item.attempt) for item in scene.tools.asked]


async def test_resumed_run_sends_nothing_of_its_prefix_again() -> None:
    scene = await crashed(calling(WEATHER, ECHO), 3)  # law 7
    events = await resumed(scene)
    assert kinds(events) == [
        "RunResumed",
        "ToolInvoked",
        "ToolCompleted",
        "RunCompleted",
    ]
    assert asked(scene) == [("echo", 2, 1)]
    end = events[-1]
    assert isinstance(end, RunCompleted)
    assert end.output == [0, 0]


async def test_run_of_a_restored_log_goes_on_only_if_a_person_wants_it_to() -> None:
    scene = await crashed(calling(WEATHER, ECHO), 3)  # law 7
    log = await scene.store.resume_log(f"run/{scene.run_id}")
    await log.append(RunSuspended(reason=RESTORED))

    with pytest.raises(RestoredError) as held:
        await resumed(scene)

    assert "may have taken effect" in str(held.value)
    assert f"caxton runs resume --restored {scene.run_id}" in held.value.fix
    assert asked(scene) == []
    await scene.host.resume(scene.run_id, actor=ANN, grant=DEMO, restored=True)
    assert kinds(await scene.events())[3:] == [
        "RunSuspended",
        "RunResumed",
        "ToolInvoked",
        "ToolCompleted",
        "RunCompleted",
    ]


async def test_resumed_run_still_reaches_the_tools_that_nobody_could_list() -> None:
    script = calling("mcp__demo__x", "mcp__demo__y")
    first = Scene(script, FakeTools(ANSWERS, down=["demo"]))
    await first.run()
    scene = Scene(script, FakeTools({("demo", "y"): "back"}))
    scene.run_id = first.run_id
    log = scene.store.create(f"run/{first.run_id}")
    await log.append(*(await first.events())[:3], blobs=first.store.blobs)

    events = await resumed(scene)

    assert kinds(events[1:]) == ["ToolInvoked", "ToolCompleted", "RunCompleted"]
    assert asked(scene) == [("y", 2, 1)]
    assert isinstance(events[-1], RunCompleted)
    assert events[-1].output == [3, 0]


async def test_taking_over_is_recorded_with_who_where_and_under_what() -> None:
    scene = await crashed(calling(WEATHER), 1)
    first, *_ = await resumed(scene)
    assert isinstance(first, RunResumed)
    assert (first.actor, first.host, first.epoch) == (ANN, "host/1", 2)
    started = (await scene.events())[0]
    assert isinstance(started, RunStarted)
    assert first.grants_sha256 == started.grants_sha256


@pytest.mark.parametrize("effect", ["read", "idempotent", "keyed"])
async def test_call_in_doubt_that_may_be_repeated_is_sent_with_the_same_key(
    effect: Effect,
) -> None:
    scene = await crashed(calling(WEATHER), 2, effect)
    invoked = (await scene.events())[1]
    events = await resumed(scene)
    assert events[1] == ToolRetried(call=1, attempt=2, reason="resumed")  # law 2
    assert kinds(events[2:]) == ["ToolCompleted", "RunCompleted"]
    assert asked(scene) == [("get_weather", 1, 2)]
    assert isinstance(scene.tools, FakeTools)
    assert isinstance(invoked, ToolInvoked)
    assert scene.tools.asked[0].idempotency_key == invoked.idempotency_key


async def test_unsafe_call_in_doubt_suspends_the_run() -> None:
    scene = await crashed(calling(WEATHER), 2)
    events = await resumed(scene)  # law 7
    assert events[1:] == [RunSuspended(reason="in_doubt", call=1)]
    assert asked(scene) == []


async def test_stricter_of_recorded_and_current_effect_holds() -> None:
    scene = await crashed(calling(WEATHER), 2, "read")
    assert isinstance(scene.tools, FakeTools)
    scene.tools.effects = {}
    events = await resumed(scene)
    assert events[1:] == [RunSuspended(reason="in_doubt", call=1)]


async def test_suspended_run_is_not_taken_over_before_its_word() -> None:
    scene = await crashed(calling(WEATHER), 2)
    await resumed(scene)
    before = await scene.events()
    with pytest.raises(Suspend, match=r"call 1 \(event 2\)"):
        await resumed(scene)
    assert await scene.events() == before


async def test_crash_after_a_retry_was_decided_is_in_doubt_again() -> None:
    scene = await crashed(calling(WEATHER), 2)
    log = await scene.store.resume_log(f"run/{scene.run_id}")
    await log.append(
        CallResolved(call=1, verdict="retry", actor=ANN, reason="not there"),
        ToolRetried(call=1, attempt=2, reason="resolved"),
    )
    events = await resumed(scene)
    assert kinds(events) == ["RunResumed", "RunSuspended"]
    assert asked(scene) == []


@pytest.mark.parametrize(
    ("resolution", "told", "output"),
    [
        (Resend(), ["CallResolved", "RunResumed", "ToolRetried", "ToolCompleted"], [0]),
        (
            GiveResult(Completed(message="clear", data=None)),
            ["CallResolved", "ToolCompleted", "RunResumed"],
            [0],
        ),
        (Fail(), ["CallResolved", "ToolFailed", "RunResumed"], [3]),
    ],
)
async def test_run_goes_on_with_what_a_person_said(
    resolution: Resolution, told: list[str], output: JSON
) -> None:
    scene = await crashed(calling(WEATHER), 2)
    await resumed(scene)
    before = len(await scene.events())
    await scene.host.resolve(scene.run_id, 2, resolution, actor=ANN, reason="looked")
    await scene.host.resume(scene.run_id, actor=ANN, grant=DEMO)
    events = (await scene.events())[before:]
    assert kinds(events) == [*told, "RunCompleted"]
    end = events[-1]
    assert isinstance(end, RunCompleted)
    assert end.output == output
    first = events[0]
    assert isinstance(first, CallResolved)
    assert (first.actor, first.reason) == (ANN, "looked")


async def test_aborting_ends_the_run_and_leaves_no_call_open() -> None:
    scene = await crashed(calling(WEATHER), 2)
    await scene.host.resolve(scene.run_id, 2, Abort(), actor=ANN, reason="by phone")
    events = await scene.events()
    assert kinds(events[2:]) == ["CallResolved", "ToolFailed", "RunCancelled"]
    failed, end = events[3:]
    assert isinstance(failed, ToolFailed)
    assert failed.sent == "unknown"
    assert end == RunCancelled(actor=ANN, reason="by phone")
    with pytest.raises(UsageError, match="has been cancelled already"):
        await resumed(scene)


async def test_only_a_call_in_doubt_can_be_resolved() -> None:
    scene = await crashed(calling(WEATHER, ECHO), 4)
    with pytest.raises(UsageError, match="calls in doubt: 4"):
        await scene.host.resolve(scene.run_id, 2, Resend(), actor=ANN, reason="")


async def test_run_that_is_not_there_cannot_be_resumed() -> None:
    with pytest.raises(NotFoundError, match="no run"):
        await Scene(calling()).host.resume("0", actor=ANN, grant=DEMO)


async def test_run_that_has_ended_is_not_resumed() -> None:
    scene = await crashed(calling(WEATHER), 4)
    with pytest.raises(UsageError, match="has completed already"):
        await resumed(scene)


async def test_resumed_call_needs_the_yes_of_todays_grants() -> None:
    scene = await crashed(calling(WEATHER, ECHO), 3)  # law 4
    events = await resumed(scene, Grant(allow=(rule("demo/get_weather"),)))
    denied = events[2]
    assert isinstance(denied, ToolDenied)
    assert denied.code == "not_granted"
    assert "today" in denied.message
    assert asked(scene) == []


async def test_resumed_call_needs_the_yes_of_its_recorded_grants() -> None:
    scene = await crashed(
        calling(WEATHER, ECHO), 3, grant=Grant(allow=(rule("demo/get_weather"),))
    )
    events = await resumed(scene)  # law 4: today's alone are not enough
    denied = events[2]
    assert isinstance(denied, ToolDenied)
    assert "today" not in denied.message


async def test_todays_budget_counts_the_calls_that_were_made_before() -> None:
    scene = await crashed(calling(WEATHER, WEATHER), 3)
    events = await resumed(scene, Grant(allow=(rule("demo/*", calls=1),)))
    denied = events[2]
    assert isinstance(denied, ToolDenied)
    assert (denied.code, denied.rule) == ("budget", "today.allow[1]")


async def test_call_in_doubt_is_not_repeated_against_todays_grants() -> None:
    scene = await crashed(calling(WEATHER), 2, "read")
    events = await resumed(scene, Grant())  # law 4
    assert events[1:] == [RunSuspended(reason="in_doubt", call=1)]
    assert asked(scene) == []


async def test_call_in_doubt_counts_once_in_todays_budget() -> None:
    scene = await crashed(calling(WEATHER), 2, "read")
    events = await resumed(scene, Grant(allow=(rule("demo/*", calls=1),)))
    assert kinds(events) == [
        "RunResumed",
        "ToolRetried",
        "ToolCompleted",
        "RunCompleted",
    ]


async def test_log_line_of_the_prefix_is_not_written_twice() -> None:
    async def script(door: Door, guest: Guest) -> Ending:
        del guest
        door.log(1, b"one")
        await door.call(WEATHER.encode(), pack(), 1)
        door.log(1, b"two")
        return ended()

    scene = await crashed(script, 4)
    assert kinds(await scene.events())[1] == "LogWritten"
    events = await resumed(scene)
    lines = [event for event in events if isinstance(event, LogWritten)]
    assert [line.n for line in lines] == [2]


async def test_agent_that_does_otherwise_fails_as_diverged() -> None:
    scene = await crashed(calling(WEATHER), 3)
    scene.sandbox.script = calling(ECHO)
    events = await resumed(scene)
    end = events[-1]
    assert isinstance(end, RunFailed)
    assert end.kind == "diverged"
    assert asked(scene) == []


async def test_waiting_for_a_person_is_not_driven_time() -> None:
    scene = await crashed(calling(WEATHER, ECHO), 2)
    await resumed(scene)
    scene.clock.time += 10_000 * 1_000_000
    await scene.host.resolve(scene.run_id, 2, Resend(), actor=ANN, reason="")
    events = await resumed(scene)
    assert isinstance(events[-1], RunCompleted)


async def test_time_that_earlier_hosts_drove_counts() -> None:
    async def script(door: Door, guest: Guest) -> Ending:
        del guest
        await door.call(WEATHER.encode(), pack(city="Oslo"), 1)
        await asyncio.sleep(60)
        return ended()

    scene = await crashed(calling(WEATHER), 3)
    log = await scene.store.resume_log(f"run/{scene.run_id}")
    scene.clock.time += 599_999_000
    await log.append(LogWritten(n=1, level="info", text="still here"))
    scene.sandbox.script = script
    end = (await resumed(scene))[-1]
    assert isinstance(end, RunFailed)
    assert (end.kind, end.message) == ("limit", "wall: 600 s")


async def test_cancelling_a_resumed_run_is_recorded() -> None:
    waiting = asyncio.Event()

    async def script(door: Door, guest: Guest) -> Ending:
        del door, guest
        waiting.set()
        await asyncio.sleep(60)
        return ended()

    scene = await crashed(calling(WEATHER), 1)
    scene.sandbox.script = script
    task = asyncio.create_task(resumed(scene))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert kinds(await scene.events())[-1] == "RunCancelled"


async def test_first_answer_after_a_resume_follows_the_recorded_times() -> None:
    seen: list[int] = []

    async def script(door: Door, guest: Guest) -> Ending:
        seen.append(guest.now)
        seen.extend(
            [(await door.call(WEATHER.encode(), pack(), 1)).at for _ in range(2)]
        )
        return ended()

    scene = await crashed(script, 3)
    recorded = await scene.recorded()
    seen.clear()
    scene.clock.time -= 5_000_000
    await resumed(scene)  # law 5
    assert seen[:2] == [recorded[0].recorded_at, recorded[2].recorded_at]
    assert seen[2] >= seen[1]
