"""What a run is given besides its input: variables, resources and a prompt."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.log.events import RunStarted
from caxton_host.core.text.redact import MASK, Redactor
from caxton_host.core.tools.contexts import ServerResource
from caxton_host.lib import codec
from caxton_host.ports import RunScope
from caxton_host.runs.run_request import ForkRequest
from caxton_host.testing import FakeTools
from tests.scene import ANSWERS, DEMO, Scene, calling

PIN = "pin-0123456789"


def resource(key: str, value: JSON, *, server: str = "demo") -> ServerResource:
    return ServerResource(
        server=server,
        key=key,
        uri=f"crm://{key}",
        value=value,
        sha256="ab",
        size=10,
    )


@dataclass(slots=True)
class Opened(FakeTools):
    """Tools that remember for which runs they were opened."""

    scopes: list[RunScope] = field(default_factory=list[RunScope])

    @asynccontextmanager
    async def open(  # type: ignore[override]  # it is a source all the same
        self, scope: RunScope
    ) -> AsyncGenerator[Opened]:
        self.scopes.append(scope)
        yield self


async def start(scene: Scene, **given: object) -> RunStarted:
    scene.request = replace(scene.request, **given)  # type: ignore[arg-type]  # named
    event = (await scene.run())[0]
    assert isinstance(event, RunStarted)
    return event


def seen(scene: Scene) -> dict[str, JSON]:
    guest = scene.sandbox.guests[-1]
    return {key: codec.decode_trusted(value) for key, value in guest.context.items()}


async def test_resources_are_recorded_and_replayed_without_their_server() -> None:
    tools = FakeTools(ANSWERS, readable=[resource("customer", {"name": "Ada"})])
    scene = Scene(calling("weather"), tools=tools)

    started = await start(scene)

    wanted: JSON = {"demo": {"customer": {"name": "Ada"}}}
    assert started.context == {"resources": wanted} == seen(scene)
    assert started.resources == {
        "demo": [
            {"key": "customer", "uri": "crm://customer", "sha256": "ab", "bytes": 10}
        ]
    }
    assert (await scene.replay()).verdict == "identical"  # law 5


async def test_servers_that_no_grant_speaks_of_are_not_read() -> None:
    tools = FakeTools(ANSWERS, readable=[resource("x", "secret", server="shell")])
    started = await start(Scene(calling(), tools=tools))
    assert (started.context, started.resources) == ({}, None)  # law 4


async def test_prompt_is_filled_in_before_the_agent_sees_it() -> None:
    tools = FakeTools(ANSWERS, readable=[resource("customer", {"name": "Ada"})])
    scene = Scene(calling(), tools=tools)

    started = await start(
        scene,
        context={"tone": "kind"},
        prompt="Be {tone} to {resources.demo.customer.name} {agent} {trigger} {run_id}",
    )

    assert started.context["prompt"] == (f"Be kind to Ada weather cli {scene.run_id}")
    assert seen(scene) == started.context


@pytest.mark.parametrize(
    ("prompt", "said"), [("Hi {nobody}", "keeps {nobody}"), ("Hi {", "no partner")]
)
async def test_a_prompt_that_cannot_be_filled_in_stays(
    prompt: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        started = await start(Scene(calling()), prompt=prompt)
    assert started.context == {"prompt": prompt}
    assert said in caplog.text


async def test_private_variables_reach_servers_and_nobody_else() -> None:
    tools = Opened(ANSWERS, readable=[resource("echo", f"you said {PIN}")])
    scene = Scene(calling("weather"), tools=tools)

    started = await start(
        scene, context={"a": 1}, private={"pin": PIN}, prompt="{pin} {a}"
    )

    assert tools.scopes[0].context == {"a": 1, "pin": PIN}
    assert tools.scopes[0].private == {"pin"}
    assert started.context == {
        "a": 1,
        "prompt": "{pin} 1",
        "resources": {"demo": {"echo": "you said [redacted]"}},
    }
    assert PIN not in str(await scene.events())  # law 8
    assert PIN not in repr(scene.request)


async def test_a_fork_has_the_resources_of_its_parent_and_reads_none() -> None:
    tools = Opened(ANSWERS, readable=[resource("customer", "Ada")])
    scene = Scene(calling("weather"), tools=tools)
    before = await start(scene)
    tools.readable = [resource("customer", "Grace")]
    actor: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}

    fork = await scene.host.fork(
        ForkRequest(
            run_id=scene.run_id, seq=3, actor=actor, grant=DEMO, private={"pin": PIN}
        )
    )

    first = (await scene.store.reader.read(f"run/{fork}"))[0].event
    assert isinstance(first, RunStarted)
    assert (first.context, first.resources) == (before.context, before.resources)
    assert tools.scopes[-1].context["pin"] == PIN
    assert scene.host.redact.text(PIN) == Redactor([PIN]).text(PIN)


async def test_private_variables_of_many_runs_do_not_add_up() -> None:
    # law 9: each would be looked for in whatever anybody gets, for ever; law 8: those
    # of runs that go on, and of the newest, are
    scene = Scene(calling("weather"))
    for n in range(30):
        private = {"pin": f"private-{n:03}"}
        scene.request = replace(scene.request, private=private)
        await scene.run()

    masked = [scene.redact.text(f"private-{n:03}") == MASK for n in range(30)]

    assert masked == [False] * 22 + [True] * 8


def test_who_comes_back_is_not_forgotten_with_those_who_do_not() -> None:
    # law 8: a run may be resumed
    redact = Redactor()
    for owner in range(8):
        redact.hold(f"run/{owner}", [f"private-{owner}"])
        redact.let_go(f"run/{owner}")

    redact.hold("run/0", ["private-0"])
    for owner in range(10, 19):
        redact.hold(f"run/{owner}", [f"private-{owner}"])
        redact.let_go(f"run/{owner}")
    redact.let_go("nobody")

    assert redact.text("private-0") == redact.text("private-18") == MASK
    assert redact.text("private-1") == "private-1"
