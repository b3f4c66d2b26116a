"""A run that ends over a call in doubt closes it: an open one is in doubt for ever."""

from __future__ import annotations

import asyncio

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.log.events import Event, RunCancelled, RunFailed, ToolFailed
from caxton_host.errors import SandboxError
from caxton_host.ports import Door, Ending, Guest
from caxton_host.testing import FakeSandbox, Script
from tests.crash import Ledger, doubts, leave
from tests.scene import DEMO, Scene, calling, types

WHO: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}


async def in_doubt(script: Script) -> Scene:
    """Return a host over a run whose one call is in doubt, with another guest."""
    before = Scene(calling("mcp__demo__pay"), tools=Ledger())
    await before.run()
    scene = Scene(calling("mcp__demo__pay"), tools=Ledger())
    scene.run_id = before.run_id
    scene.store.blobs |= before.store.blobs
    commits = before.store.commits[f"run/{before.run_id}"]
    await leave(await before.recorded(), commits[:2], scene.store)
    assert isinstance(scene.host.sandbox, FakeSandbox)
    scene.host.sandbox.script = script
    assert len(doubts(await scene.recorded())) == 1
    return scene


def check_closed(events: list[Event]) -> None:
    closed = events[-2]
    assert isinstance(closed, ToolFailed)
    assert (closed.call, closed.kind, closed.sent) == (1, "cancelled", "unknown")


async def test_run_that_fails_before_it_comes_to_a_call_in_doubt_closes_it() -> None:
    # law 2
    async def dies(door: Door, guest: Guest) -> Ending:
        del door, guest
        raise SandboxError("the worker died")

    scene = await in_doubt(dies)

    await scene.host.resume(scene.run_id, actor=WHO, grant=DEMO)

    events = await scene.events()
    assert isinstance(events[-1], RunFailed)
    check_closed(events)
    assert (await scene.replay()).verdict == "identical"


async def test_run_that_is_cancelled_before_it_comes_to_a_call_in_doubt_closes_it() -> (
    None
):  # law 2
    async def waits(door: Door, guest: Guest) -> Ending:
        del door, guest
        await asyncio.Event().wait()
        raise AssertionError

    scene = await in_doubt(waits)
    task = asyncio.create_task(scene.host.resume(scene.run_id, actor=WHO, grant=DEMO))
    while types(await scene.events())[-1] != "RunResumed":  # noqa: ASYNC110 -- soon
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    events = await scene.events()
    assert isinstance(events[-1], RunCancelled)
    check_closed(events)


async def test_suspended_run_keeps_its_call_in_doubt() -> None:
    scene = await in_doubt(calling("mcp__demo__pay"))
    ledger = scene.tools
    assert isinstance(ledger, Ledger)
    ledger.effects = {**ledger.effects, "pay": "unsafe"}

    await scene.host.resume(scene.run_id, actor=WHO, grant=DEMO)

    assert types(await scene.events())[-1] == "RunSuspended"
    assert len(doubts(await scene.recorded())) == 1
