"""What an operator freezes makes no calls; its runs wait and lose nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pytest

from caxton_host.core.calls import JSON, Completed
from caxton_host.core.grants.approvals import Approve
from caxton_host.core.grants.freezes import FREEZES, Freezes, Halted, Key, Kind
from caxton_host.core.grants.grants import Grant
from caxton_host.core.log.events import (
    Event,
    Frozen,
    RunCompleted,
    RunSuspended,
    Thawed,
    ToolCompleted,
    ToolInvoked,
    ToolRetried,
)
from caxton_host.errors import NotFoundError, OverloadedError, UsageError
from caxton_host.lib import codec
from caxton_host.ports.sandbox import Door, Ending, Guest
from caxton_host.ports.serving import TokenRow
from caxton_host.ports.tools import ToolRequest
from caxton_host.runs.freezing import FreezeWatch, freeze, freezes_of, thaw
from caxton_host.runs.run_request import ForkRequest
from caxton_host.testing import FakeTools, Script
from tests.scene import ANSWERS, DEMO, Scene, calling, ended, pack, types

BOB: dict[str, JSON] = {"kind": "local", "id": "bob", "authenticated": False}
ANN: dict[str, JSON] = {
    "kind": "token",
    "id": "0f3c2a915be04d77",
    "authenticated": True,
}
WEATHER, ECHO = "mcp__demo__get_weather", "mcp__demo__echo"
AGENT: tuple[Kind, str] = ("agent", "weather")
SERVER: tuple[Kind, str] = ("server", "demo")
TOKEN: tuple[Kind, str] = ("token", str(ANN["id"]))


class Icy(Scene):
    """A host that freezes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.host = replace(self.host, freezes=FreezeWatch(self.store.reader))
        self.request = replace(self.request, actor=ANN)

    async def freeze(self, kind: Kind, name: str) -> None:
        if kind == "token":
            self.store.tokens._tokens[name] = TokenRow(
                id=name, name="laptop", digest="", scopes=("run",), created_at=1
            )
        event = Frozen(kind=kind, name=name, actor=BOB, reason="odd")
        await freeze(self.store, event, agents={"weather"}, servers={"demo"})
        await self.host.freezes.look()

    async def thaw(self, kind: Kind, name: str) -> None:
        await thaw(
            self.store, Thawed(kind=kind, name=name, actor=BOB, reason="well again")
        )

    async def resume(self) -> list[Event]:
        """Resume the run, and return the events that came by that."""
        before = len(await self.events())
        grant = self.request.grant
        await self.host.resume(self.run_id, actor=BOB, grant=grant)
        return (await self.events())[before:]

    @property
    def sent(self) -> list[int]:
        assert isinstance(self.tools, FakeTools)
        return [request.call for request in self.tools.asked]


def frozen_at(call: int, key: tuple[str, str], *unsent: int) -> RunSuspended:
    what: dict[str, JSON] = {"kind": key[0], "name": key[1]}
    return RunSuspended(reason="frozen", call=call, frozen=what, unsent=unsent)


def freezing_before(scene: Callable[[], Icy], key: tuple[Kind, str]) -> Script:
    """Return a guest before whose second call something is frozen, once."""
    is_frozen = False

    async def script(door: Door, guest: Guest) -> Ending:
        nonlocal is_frozen
        del guest
        await door.call(WEATHER.encode(), pack(city="Oslo"), 1)
        if not is_frozen:
            is_frozen = True
            await scene().freeze(*key)
        await door.call(ECHO.encode(), pack(), 2)
        return ended("done")

    return script


@pytest.mark.parametrize("key", [AGENT, SERVER, TOKEN])
async def test_next_call_of_what_is_frozen_suspends_the_run_and_is_not_recorded(
    key: tuple[Kind, str],
) -> None:  # law 2, law 3
    scene = Icy(freezing_before(lambda: scene, key))
    events = await scene.run()
    assert types(events)[1:] == ["ToolInvoked", "ToolCompleted", "RunSuspended"]
    assert events[-1] == frozen_at(2, key)
    assert scene.sent == [1]
    assert (await scene.replay()).verdict == "identical"  # law 5
    with pytest.raises(Halted, match=f"{key[0]} {key[1]} is frozen"):
        await scene.resume()
    assert await scene.events() == events
    await scene.thaw(*key)
    assert types(await scene.resume())[-1] == "RunCompleted"
    assert scene.sent == [1, 2]  # law 7
    assert (await scene.replay()).verdict == "identical"


async def test_calls_to_other_servers_go_on_and_a_run_without_calls_ends() -> None:
    scene = Icy(calling(WEATHER))
    await scene.freeze("server", "demo")
    scene.request = replace(scene.request, grant=DEMO)
    assert (await scene.run())[-1] == frozen_at(1, SERVER)
    idle = Icy(calling())
    await idle.freeze("server", "demo")
    assert types(await idle.run()) == ["RunStarted", "RunCompleted"]


@pytest.mark.parametrize("key", [AGENT, TOKEN])
async def test_run_of_a_frozen_agent_or_token_does_not_start(
    key: tuple[Kind, str],
) -> None:
    scene = Icy(calling(WEATHER))
    await scene.run()
    parent, before = scene.run_id, len(scene.store.events)
    await scene.freeze(*key)
    with pytest.raises(UsageError, match=f"{key[0]} {key[1]} is frozen"):
        await scene.run()
    fork = ForkRequest(run_id=parent, seq=3, actor=ANN, grant=DEMO)
    with pytest.raises(UsageError, match="is frozen"):
        await scene.host.fork(fork)
    assert [e.type for e in scene.store.events[before:]] == ["Frozen"]
    await scene.thaw(*key)
    assert isinstance((await scene.run())[-1], RunCompleted)


async def test_a_host_that_hands_over_refuses_a_start_for_now() -> None:
    scene = Icy(calling(WEATHER))
    scene.host.freezes.hand_over()

    with pytest.raises(OverloadedError, match="about to stop"):
        await scene.run()

    assert scene.store.events == []
    # The caller is not frozen, so it may read on.
    assert scene.host.freezes.now == Freezes()
    assert scene.host.freezes.of_calls == Freezes(stopping=True)


async def test_frozen_call_asks_nobody_for_approval() -> None:
    rule = replace(DEMO.allow[0], approve=Approve())
    scene = Icy(calling(WEATHER))
    scene.request = replace(scene.request, grant=Grant(allow=(rule,)))
    await scene.freeze("server", "demo")
    assert types(await scene.run()) == ["RunStarted", "RunSuspended"]
    await scene.thaw("server", "demo")
    assert types(await scene.resume())[1:] == ["ApprovalRequested", "RunSuspended"]


@dataclass(slots=True)
class Queue(FakeTools):
    """Tools whose server is frozen while all calls but the first *free* wait."""

    scene: Icy | None = None
    free: int = 0
    under_way: asyncio.Event = field(default_factory=asyncio.Event)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    frozen: bool = False

    async def call_tool(self, request: ToolRequest) -> Completed:
        with request.queued():
            if request.call > self.free:
                await self._freeze()
        self.under_way.set()
        await asyncio.sleep(0)
        return await FakeTools.call_tool(self, request)

    async def _freeze(self) -> None:
        assert self.scene
        await self.under_way.wait()
        async with self.turn:
            if not self.frozen:
                self.frozen = True
                await self.scene.freeze("server", "demo")


def queue(free: int, script: Script) -> Icy:
    tools = Queue(ANSWERS, free=free)
    tools.scene = scene = Icy(script, tools)
    if not free:
        tools.under_way.set()
    return scene


async def test_call_that_waits_for_its_turn_is_not_sent_and_is_sent_once_later() -> (
    None
):
    # law 7: its effect is unsafe, but it was certainly not sent
    scene = queue(0, calling(WEATHER))
    events = await scene.run()
    assert types(events) == ["RunStarted", "ToolInvoked", "RunSuspended"]
    assert events[-1] == frozen_at(1, SERVER, 1)
    assert scene.sent == []
    assert (await scene.replay()).verdict == "identical"
    await scene.thaw("server", "demo")
    resumed = await scene.resume()
    assert resumed[1] == ToolRetried(call=1, attempt=2, reason="resolved")
    assert isinstance(resumed[-1], RunCompleted)
    assert scene.sent == [1]
    assert (await scene.replay()).verdict == "identical"


async def batch(door: Door, guest: Guest) -> Ending:
    del guest
    items: list[JSON] = [[WEATHER, {"city": "Oslo"}], [ECHO, {}], [ECHO, {}]]
    answer = await door.call_many(codec.encode(items), 1)
    return ended(codec.decode(answer.reply, limit=1 << 20))


async def test_sent_calls_of_a_batch_are_answered_and_the_others_wait() -> None:
    scene = queue(1, batch)
    events = await scene.run()
    assert [e.call for e in events if isinstance(e, ToolInvoked)] == [1, 2, 3]
    assert [e.call for e in events if isinstance(e, ToolCompleted)] == [1]
    assert events[-1] == frozen_at(2, SERVER, 2, 3)
    assert scene.sent == [1]
    await scene.thaw("server", "demo")
    assert isinstance((await scene.resume())[-1], RunCompleted)
    assert sorted(scene.sent) == [1, 2, 3]


async def test_call_in_doubt_is_not_sent_again_while_it_is_frozen() -> None:
    tools = FakeTools(ANSWERS, effects={("demo", "get_weather"): "read"})
    whole = Icy(calling(WEATHER), tools)
    await whole.run()
    scene = Icy(calling(WEATHER), tools)
    scene.run_id, scene.request = whole.run_id, whole.request
    log = scene.store.create(f"run/{scene.run_id}")
    await log.append(*(await whole.events())[:2], blobs=whole.store.blobs)
    await scene.freeze("server", "demo")
    assert (await scene.resume())[1:] == [frozen_at(1, SERVER)]
    assert scene.sent == [1]
    with pytest.raises(Halted):
        await scene.resume()
    await scene.thaw("server", "demo")
    assert isinstance((await scene.resume())[-1], RunCompleted)
    assert scene.sent == [1, 1]


async def test_unknown_names_are_refused_and_the_newest_word_counts() -> None:
    scene = Icy(calling(WEATHER))
    for kind in ("agent", "server", "token"):
        event = Frozen(kind=kind, name="wether", actor=BOB, reason="")
        with pytest.raises(NotFoundError, match=f"no {kind} 'wether'"):
            await freeze(scene.store, event, agents={"weather"}, servers={"demo"})
    with pytest.raises(NotFoundError, match="agent weather is not frozen"):
        await scene.thaw("agent", "weather")
    for _ in range(2):
        await scene.freeze("agent", "weather")
    await scene.thaw("agent", "weather")
    assert not (await freezes_of(scene.store)).standing
    await scene.freeze(*TOKEN)
    await scene.thaw("token", "laptop")
    assert not (await freezes_of(scene.store)).standing


async def test_freezes_of_many_processes_are_all_recorded() -> None:
    scene = Icy(calling())
    names = [f"oauth/{n}" for n in range(10)]

    async def one(name: str) -> None:
        event = Frozen(kind="token", name=name, actor=BOB, reason="")
        await freeze(scene.store, event, agents=(), servers=())

    await asyncio.gather(*map(one, names))
    standing: Mapping[Key, object] = (await freezes_of(scene.store)).standing
    assert {name for _, name in standing} == {*names}
    assert len(await scene.store.reader.read(FREEZES)) == len(names)


async def test_a_subject_of_a_tenant_is_frozen_alone() -> None:
    scene = Icy(calling(WEATHER))
    ann: dict[str, JSON] = {"kind": "oauth", "id": "ann", "authenticated": True}
    event = Frozen(kind="token", name="@acme/oauth/ann", actor=BOB, reason="")
    for name in ("@acme", "@acme/ann", "@/oauth/ann"):
        with pytest.raises(NotFoundError, match="no token"):
            await freeze(scene.store, replace(event, name=name), agents=(), servers=())
    await freeze(scene.store, event, agents=(), servers=())
    await scene.host.freezes.look()

    await scene.host.freezes.check("weather", {**ann, "tenant": "globex"})
    await scene.host.freezes.check("weather", ann)
    with pytest.raises(UsageError, match="@acme/oauth/ann is frozen"):
        await scene.host.freezes.check("weather", {**ann, "tenant": "acme"})
    await scene.thaw("token", "@acme/oauth/ann")
