"""What a host records when it reads its configuration again."""

from __future__ import annotations

from dataclasses import replace

from caxton_host.app.reload import Reloader
from caxton_host.app.tool_generations import Generations
from caxton_host.config import Agent, Config
from caxton_host.core.calls import JSON
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.log.events import ConfigLoaded, Event, GrantChanged
from caxton_host.core.text.globs import Pattern
from caxton_host.runs.run_request import grants_digest

from .test_tool_generations import Opening, config

ANN: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}
MORE, LESS = (
    Grant(allow=(Rule(id="allow[1]", tools=(Pattern.parse(tools),)),))
    for tools in ("demo/*", "demo/echo")
)
NONE = Grant()


def granting(name: str, **grants: Grant) -> Config:
    agents = {agent: Agent(name=agent, grant=it) for agent, it in grants.items()}
    return replace(config(name), agents=agents)


async def test_each_agent_whose_grants_are_others_is_recorded() -> None:
    # law 4: what was granted when can be read from the log
    now = granting("one", same=MORE, cut=MORE, gone=LESS, empty=NONE)
    told: list[Event] = []
    async with Generations(Opening(), lambda it: [it.store_url]) as tools:
        reloader = Reloader(load=lambda: now, tools=tools, on_event=told.append)
        await tools.publish(now)
        await reloader.reload(ANN)
        assert told == []

        now = granting("two", same=MORE, cut=LESS, new=MORE, bare=NONE)
        await reloader.reload(ANN)
        loaded, *changed = told
        told.clear()
        now = replace(now, store_url="three")
        await reloader.reload(ANN)

    assert isinstance(loaded, ConfigLoaded)
    assert changed == [
        GrantChanged(
            agent=agent,
            actor=ANN,
            grants_sha256=grants_digest(after),
            former_sha256=grants_digest(before),
        )
        for agent, before, after in (
            ("cut", MORE, LESS),
            ("gone", LESS, NONE),
            ("new", NONE, MORE),
        )
    ]
    assert [type(event) for event in told] == [ConfigLoaded]
