"""A call is judged by its parameters, wherever it is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.grants.conditions import Conditions
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.log.events import Event, ToolDenied, ToolInvoked
from caxton_host.core.text.globs import Pattern
from caxton_host.lib import codec
from caxton_host.ports.sandbox import Door, Ending, Guest
from caxton_host.runs.run_request import ForkRequest
from caxton_host.testing import FakeTools
from tests.scene import ANSWERS, DEMO, Scene, ended, types

ANN: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}
CITY: Mapping[str, JSON] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"maximum": 3}},
    "required": ["city"],
}


def granted(calls: int | None = None, **params: JSON) -> Grant:
    rule = Rule(
        id="allow[1]",
        tools=(Pattern.parse("demo/*"),),
        params=Conditions.parse(params),
        calls=calls,
    )
    return Grant(allow=(rule,))


def denying(**params: JSON) -> tuple[Rule, ...]:
    spec = Conditions.parse(params, deny=True)
    return (Rule(id="deny[1]", tools=(Pattern.parse("demo/*"),), params=spec),)


def tools() -> FakeTools:
    return FakeTools(ANSWERS, schemas={("demo", "get_weather"): CITY})


def asking(*params: dict[str, JSON]) -> Scene:
    """Return a host whose guest asks for the weather, so often."""

    async def script(door: Door, guest: Guest) -> Ending:
        del guest
        for fuel, one in enumerate(params, 1):
            await door.call(b"weather", codec.encode(one), fuel)
        return ended()

    return Scene(script, tools=tools())


def sent(scene: Scene) -> list[Mapping[str, JSON]]:
    assert isinstance(scene.tools, FakeTools)
    return [request.params for request in scene.tools.asked]


def denials(events: list[Event]) -> list[tuple[str, str | None, str]]:
    found = [event for event in events if isinstance(event, ToolDenied)]
    return [(event.code, event.rule, event.message) for event in found]


async def test_call_with_other_parameters_is_recorded_and_never_sent() -> None:
    # laws 2 and 4
    scene = asking({"city": "Rome"})
    scene.request = replace(scene.request, grant=granted(city={"const": "Oslo"}))

    events = await scene.run()

    assert types(events)[1:3] == ["ToolInvoked", "ToolDenied"]
    assert denials(events) == [
        ("params", "allow[1]", "$.city is not the value that the grant allows")
    ]
    assert sent(scene) == []


async def test_what_is_judged_is_what_is_sent() -> None:  # law 4
    scene = asking({"city": "Oslo"})
    scene.request = replace(scene.request, grant=granted(city={"pattern": "[A-Z].*"}))

    await scene.run()

    assert sent(scene) == [{"city": "Oslo"}]


async def test_schema_of_the_tool_is_asked_after_the_grant() -> None:  # law 4
    scene = asking({"city": "Oslo", "days": 4}, {"days": 4}, {"city": "Oslo"})

    events = await scene.run()

    assert [code for code, _, _ in denials(events)] == ["schema", "schema"]
    assert denials(events)[0][2].startswith(
        "does not match the tool's schema: $.days: "
    )
    assert sent(scene) == [{"city": "Oslo"}]


async def test_each_call_of_a_batch_is_judged_by_its_parameters() -> None:  # law 4
    async def script(door: Door, guest: Guest) -> Ending:
        del guest
        items: list[JSON] = [["weather", {"city": x}] for x in ("Oslo", "Rome", 5)]
        await door.call_many(codec.encode(items), 1)
        return ended()

    scene = Scene(script, tools=tools())
    scene.request = replace(scene.request, grant=granted(city={"max_length": 4}))

    events = await scene.run()

    assert [code for code, _, _ in denials(events)] == ["params"]
    assert sent(scene) == [{"city": "Oslo"}, {"city": "Rome"}]


@pytest.mark.parametrize("grant", [DEMO, granted(city={"type": "string"})])
async def test_name_of_a_parameter_that_is_a_secret_is_not_told(grant: Grant) -> None:
    scene = asking({"city": "Oslo", "canary-4711-canary": 1})  # law 8
    assert isinstance(scene.tools, FakeTools)
    closed: dict[str, JSON] = {**CITY, "additionalProperties": False}
    scene.tools.schemas = {("demo", "get_weather"): closed}
    scene.redact.learn(["canary-4711-canary"])
    scene.request = replace(scene.request, grant=grant)

    events = await scene.run()

    assert len(denials(events)) == 1
    assert "canary" not in str(events)


async def test_key_that_the_host_sends_counts_for_the_schema() -> None:
    scene = asking({"city": "Oslo"}, {"city": 5})
    assert isinstance(scene.tools, FakeTools)
    wanted: dict[str, JSON] = {**CITY, "required": ["city", "key"]}
    scene.tools.schemas = {("demo", "get_weather"): wanted}
    scene.tools.keys = {("demo", "get_weather"): "key"}

    events = await scene.run()

    assert [code for code, _, _ in denials(events)] == ["schema"]
    assert sent(scene) == [{"city": "Oslo"}]


async def cut_off(scene: Scene, after: int) -> Scene:
    """Return a new host whose log holds the first *after* events of the run."""
    await scene.run()
    later = Scene(scene.script, tools=tools())
    later.run_id = scene.run_id
    log = later.store.create(f"run/{scene.run_id}")
    await log.append(*(await scene.events())[:after], blobs=scene.store.blobs)
    return later


async def test_resumed_call_needs_the_yes_of_todays_conditions() -> None:  # law 4
    scene = await cut_off(asking({"city": "Oslo"}, {"city": "Rome"}), after=3)

    await scene.host.resume(
        scene.run_id, actor=ANN, grant=granted(city={"pattern": "O.*"})
    )

    assert denials(await scene.events()) == [
        (
            "params",
            "today.allow[1]",
            "$.city does not fit the pattern of the grant, in the grants of today",
        )
    ]


async def test_calls_that_were_made_count_if_todays_conditions_allow_them() -> None:
    scene = await cut_off(asking({"city": "Oslo"}, {"city": "Oslo"}), after=3)

    await scene.host.resume(
        scene.run_id, actor=ANN, grant=granted(calls=1, city={"pattern": "O.*"})
    )

    ((code, rule, _),) = denials(await scene.events())
    assert (code, rule) == ("budget", "today.allow[1]")


@pytest.mark.parametrize(
    ("today", "sends"),
    [
        (granted(city={"pattern": "O.*"}), 1),
        (granted(city={"pattern": "R.*"}), 0),
        (replace(DEMO, deny=denying(city={"const": "Oslo"})), 0),
        (replace(DEMO, deny=denying(city={"const": "Rome"})), 1),
        (Grant(allow=(replace(DEMO.allow[0], expires=1),)), 0),
    ],
)
async def test_call_in_doubt_is_repeated_if_todays_conditions_allow_it(
    today: Grant, sends: int
) -> None:  # laws 4 and 7
    first = asking({"city": "Oslo"})
    assert isinstance(first.tools, FakeTools)
    first.tools.effects = {("demo", "get_weather"): "read"}
    scene = await cut_off(first, after=2)
    assert isinstance(scene.tools, FakeTools)
    scene.tools.effects = first.tools.effects

    await scene.host.resume(scene.run_id, actor=ANN, grant=today)

    assert len(sent(scene)) == sends
    assert types(await scene.events())[3] == ("RunSuspended", "ToolRetried")[sends]


async def test_schema_is_asked_in_a_resumed_run_too() -> None:  # law 4
    scene = await cut_off(asking({"city": "Oslo"}, {"city": 5}), after=3)

    await scene.host.resume(scene.run_id, actor=ANN, grant=DEMO)

    assert [code for code, _, _ in denials(await scene.events())] == ["schema"]


async def test_fork_asks_the_schema_and_counts_what_it_inherits() -> None:  # law 4
    scene = asking({"city": "Oslo"}, {"city": 5}, {"city": "Oslo"})
    await scene.run()

    fork = await scene.host.fork(
        ForkRequest(
            run_id=scene.run_id,
            seq=3,
            grant=granted(calls=1, city={"pattern": "O.*"}),
            actor=ANN,
        )
    )

    events = [r.event for r in await scene.store.reader.read(f"run/{fork}") if r.event]
    assert [code for code, _, _ in denials(events)] == ["params", "budget"]
    assert sum(isinstance(event, ToolInvoked) for event in events) == 2


@pytest.mark.parametrize("schema", [{"$ref": "#"}, {"type": 5}])
async def test_schema_that_cannot_be_used_denies_every_call(
    schema: Mapping[str, JSON],
) -> None:  # laws 4 and 9
    scene = asking({"city": "Oslo"})
    assert isinstance(scene.tools, FakeTools)
    scene.tools.schemas = {("demo", "get_weather"): schema}

    events = await scene.run()

    ((code, _, message),) = denials(events)
    assert code == "schema"
    assert "the input schema cannot be used" in message
