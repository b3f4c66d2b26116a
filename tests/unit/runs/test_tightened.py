"""A grant that is changed while a run goes on binds it from its next call: law 4."""

from __future__ import annotations

from dataclasses import replace

import pytest

from caxton_host.core.grants.grants import Grant
from caxton_host.core.log.events import Event, ToolCompleted, ToolDenied
from caxton_host.ports.sandbox import Door, Ending, Guest
from tests.scene import DEMO, Scene, ended, pack, rule, types

WEATHER, ECHO = b"mcp__demo__get_weather", b"mcp__demo__echo"


async def changed(*grants: Grant | None) -> tuple[Scene, list[Event]]:
    """Run an agent before each of whose calls its grant is another one."""
    now: list[Grant | None] = []

    async def script(door: Door, guest: Guest) -> Ending:
        del guest
        for number, grant in enumerate(grants, 1):
            now[:] = [grant]
            await door.call(ECHO, pack(), number)
        return ended(None)

    scene = Scene(script)
    scene.host = replace(scene.host, present=lambda _: now[0])
    scene.request = replace(scene.request, grant=DEMO)
    return scene, await scene.run()


def ends(events: list[Event]) -> list[str]:
    found = [e for e in events if isinstance(e, (ToolCompleted, ToolDenied))]
    return [f"{e.code} {e.rule}" if isinstance(e, ToolDenied) else "ok" for e in found]


async def test_next_call_needs_the_new_grant_as_well() -> None:
    deny = replace(DEMO, deny=(rule("demo/echo", name="deny[1]"),))
    scene, events = await changed(None, DEMO, deny, deny, DEMO)
    assert ends(events) == ["ok", "ok", *["denied today.deny[1]"] * 2, "ok"]
    assert (await scene.replay()).verdict == "identical"  # law 5
    denied = next(e for e in events if isinstance(e, ToolDenied))
    assert denied.message.endswith("in the grants of today")


async def test_new_grant_counts_what_the_run_did_before() -> None:
    once = Grant(allow=(replace(DEMO.allow[0], calls=2),))
    _, events = await changed(None, None, once)
    assert ends(events)[-1] == "budget today.allow[1]"
    _, events = await changed(None, once, once)
    assert ends(events) == ["ok", "ok", "budget today.allow[1]"]


@pytest.mark.parametrize("grant", [DEMO, Grant(allow=(rule("demo/*", "shell/*"),))])
async def test_new_grant_never_widens_the_run(grant: Grant) -> None:
    narrow = Grant(allow=(rule("demo/get_weather"),))

    async def script(door: Door, guest: Guest) -> Ending:
        del guest
        await door.call(ECHO, pack(), 1)
        return ended(None)

    scene = Scene(script)
    scene.host = replace(scene.host, present=lambda _: grant)
    scene.request = replace(scene.request, grant=narrow)
    assert ends(await scene.run()) == ["not_granted None"]


async def test_agent_that_is_not_configured_any_more_calls_nothing() -> None:
    _, events = await changed(None, Grant())
    assert ends(events) == ["ok", "not_granted today"]
    assert types(events)[-1] == "RunCompleted"


async def test_same_rules_in_another_place_of_the_file_change_nothing() -> None:
    moved = Grant(allow=tuple(replace(r, source="moved.toml:9") for r in DEMO.allow))
    _, events = await changed(None, moved)
    assert ends(events) == ["ok", "ok"]
