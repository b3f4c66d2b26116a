"""Sessions on fakes: which stream takes a call, and what that counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from caxton_host.config import Agent, Config
from caxton_host.config.agents import session_limits
from caxton_host.config.model import Session
from caxton_host.core.calls import JSON, Completed, Denied, Failed, Outcome
from caxton_host.core.clients import Client
from caxton_host.core.grants.approvals import Approve
from caxton_host.core.grants.freezes import Freezes
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.grants.journal import Journal
from caxton_host.core.grants.principals import Callers, Principal
from caxton_host.core.limits import Limits
from caxton_host.core.log.events import (
    Event,
    Recorded,
    RunCancelled,
    RunStarted,
    ToolFailed,
    ToolInvoked,
)
from caxton_host.core.text.globs import Pattern
from caxton_host.errors import BusyError, NotFoundError, Suspend
from caxton_host.gateway.gateway import Gateway, PendingCall
from caxton_host.ports.tools import ToolRequest
from caxton_host.runs.approvals import Word, say
from caxton_host.runs.judged_again import judged_again
from caxton_host.runs.recording import Recording
from caxton_host.service.sessions import Asked, Connection, Sessions
from caxton_host.testing import FakeClock, FakeTools
from tests.office import ANN, BOB
from tests.scene import Scene, types

DAY = 86_400_000_000
LOOK, PAY = "mcp__demo__look", "mcp__demo__pay"
ANSWERS: dict[tuple[str, str], JSON] = {("demo", "look"): "clear", ("demo", "pay"): 1}


def rule(tool: str, *, calls: int | None = None, **more: object) -> Rule:
    return Rule(
        id=f"{tool}[1]",
        tools=(Pattern.parse(f"demo/{tool}"),),
        calls=calls,
        **more,  # type: ignore[arg-type]  # of a rule
    )


@dataclass(slots=True)
class SlowTools(FakeTools):
    """Tools that answer when they are let."""

    let: asyncio.Event = field(default_factory=asyncio.Event)
    reached: int = 0

    async def call_tool(self, request: ToolRequest) -> Completed:
        self.reached += 1
        await self.let.wait()
        return await FakeTools.call_tool(self, request)


class Ticking(FakeClock):
    """A clock that tells streams apart by the time of their start."""

    def now(self) -> int:
        self.time += 1
        return self.time


@dataclass
class Desk:
    """A host with one session, and those who call."""

    grant: Grant
    session: Session = field(default_factory=Session)
    limits: Limits = field(default_factory=session_limits)
    tools: FakeTools = field(default_factory=lambda: FakeTools(ANSWERS))
    scene: Scene = field(init=False)
    sessions: Sessions = field(init=False)

    def __post_init__(self) -> None:
        async def nothing(*_: object) -> None:
            raise AssertionError

        self.scene = Scene(
            nothing,  # type: ignore[arg-type]  # nothing is executed
            tools=self.tools,
            clock=Ticking(),
        )
        self.scene.host = replace(self.scene.host, present=lambda _: self.grant)
        self.sessions = self.started_again()

    def started_again(self) -> Sessions:
        """Return the sessions of the next host."""
        return Sessions.of(self.scene.host, self.scene.store, lambda: self.config)

    @property
    def config(self) -> Config:
        agent = Agent(
            name="dev", grant=self.grant, limits=self.limits, session=self.session
        )
        return Config(store_url="sqlite://", agents={"dev": agent})

    def by(self, who: Principal = ANN) -> Connection:
        return Connection(who=who, session="dev", client=Client(name="a client"))

    async def call(
        self, tool: str = LOOK, who: Principal = ANN, **params: JSON
    ) -> Outcome | Asked:
        return await self.sessions.call(self.by(who), tool, params)

    async def said(self, *tools: str, who: Principal = ANN) -> list[str]:
        """Make calls one after the other, and return how each ended."""
        return [_name(await self.call(tool, who)) for tool in tools]

    def streams(self) -> list[list[Event]]:
        """Return the events of each stream of the session, in order."""
        runs = sorted(self.scene.store.rows.values(), key=lambda row: row.started_at)
        found = (self.scene.store.streams[f"run/{row.run_id}"] for row in runs)
        return [[one.event for one in events if one.event] for events in found]

    @property
    def newest(self) -> str:
        rows = self.scene.store.rows.values()
        return max(rows, key=lambda row: row.started_at).run_id


def _name(outcome: Outcome | Asked) -> str:
    match outcome:
        case Denied(code=code):
            return code
        case Failed(kind=kind):
            return kind
        case _:
            return type(outcome).__name__


@asynccontextmanager
async def serving(desk: Desk) -> AsyncGenerator[Desk]:
    async with desk.sessions.running():
        yield desk


OK = "Completed"
TWICE = Grant(allow=(rule("look", calls=2),))
ASKED = Grant(allow=(rule("look"), rule("pay", approve=Approve())))


async def test_an_answer_is_in_the_log_before_its_client_has_it() -> None:  # law 3
    async with serving(Desk(TWICE)) as desk:
        assert await desk.said(LOOK) == [OK]
        log = [type(event).__name__ for event in desk.streams()[0]]
        assert log == ["RunStarted", "ToolInvoked", "ToolCompleted"]


async def test_the_client_is_described_and_vouches_for_nothing() -> None:
    async with serving(Desk(TWICE)) as desk:
        started = await desk.sessions.started(desk.by())
    assert (started.agent, started.abi) == ("dev", "client/1")
    assert started.input == {
        "client": {"name": "a client", "version": ""},
        "protocol": "",
    }
    assert started.vouched == {"input": []}


async def test_the_connections_of_a_principal_share_its_limits() -> None:  # law 4
    async with serving(Desk(TWICE)) as desk:
        both = await asyncio.gather(*(desk.call() for _ in range(5)))
    assert sorted(map(_name, both)) == [OK, OK, *["budget"] * 3]
    assert len(desk.streams()) == 1


async def test_other_principals_have_limits_of_their_own() -> None:
    async with serving(Desk(TWICE)) as desk:
        assert await desk.said(LOOK, LOOK, LOOK) == [OK, OK, "budget"]
        assert await desk.said(LOOK, who=BOB) == [OK]
    assert len(desk.streams()) == 2


async def test_subjects_of_one_name_in_two_tenants_share_no_limits() -> None:
    acme, globex = replace(ANN, tenant="acme"), replace(ANN, tenant="globex")
    async with serving(Desk(TWICE)) as desk:
        assert await desk.said(LOOK, LOOK, LOOK, who=acme) == [OK, OK, "budget"]
        assert await desk.said(LOOK, who=globex) == [OK]
        await desk.sessions.close(desk.by(acme).key)
        assert await desk.said(LOOK, who=acme) == ["budget"]
        assert await desk.said(LOOK) == [OK]


async def test_the_next_stream_carries_what_the_last_one_counted() -> None:  # law 4
    async with serving(Desk(TWICE)) as desk:
        await desk.said(LOOK)
        await desk.sessions.close(desk.by().key)
        assert await desk.said(LOOK, LOOK) == [OK, "budget"]
        await desk.sessions.close(desk.by().key)
        assert await desk.said(LOOK) == ["budget"]
    first, second, third = (events[0] for events in desk.streams())
    assert isinstance(second, RunStarted)
    assert isinstance(third, RunStarted)
    assert second.carried == {
        "used": {"look[1]": 1},
        "spent": {},
        "called": ["demo/look"],
        "done": ["demo/look"],
    }
    assert isinstance(first, RunStarted)
    assert first.carried is None


async def test_a_tightened_grant_counts_what_was_carried() -> None:  # law 4
    async with serving(Desk(Grant(allow=(rule("look", calls=5),)))) as desk:
        await desk.said(LOOK, LOOK)
        await desk.sessions.close(desk.by().key)
        await desk.said(LOOK)
        desk.grant = Grant(allow=(rule("look", calls=3),))
        assert await desk.said(LOOK) == ["budget"]


@pytest.mark.parametrize("steps", range(8))
async def test_hanging_up_while_a_stream_begins_resets_nothing(
    steps: int,
) -> None:  # law 4
    desk = Desk(TWICE)
    async with serving(desk):
        await desk.said(LOOK, LOOK)
    desk.sessions = desk.started_again()
    async with serving(desk):
        client = asyncio.create_task(desk.call())
        for _ in range(steps):
            await asyncio.sleep(0)
        client.cancel()
        await asyncio.wait([client])
        assert await desk.said(LOOK) == ["budget"]


async def test_a_session_is_judged_again_by_the_grant_that_was_recorded() -> None:
    # law 5: nothing of it is executed again
    desk = Desk(TWICE)
    async with serving(desk):
        await desk.said(LOOK)
        await desk.sessions.close(desk.by().key)
        assert await desk.said(LOOK, LOOK, PAY) == [OK, "budget", "not_granted"]
    reader, run_id = desk.scene.store.reader, desk.newest
    recording = await Recording.load(run_id, reader)
    assert judged_again(recording) == (3, None)

    stream = desk.scene.store.streams[f"run/{run_id}"]
    first = stream[0]
    assert isinstance(first.event, RunStarted)
    forged = replace(first.event, grants=Grant().to_payload())
    stream[0] = replace(first, event=forged)
    judged, divergence = judged_again(await Recording.load(run_id, reader))
    assert (judged, str(divergence)) == (
        1,
        "event 2, $.verdict: recorded 'allowed', replayed 'not_granted'",
    )


async def test_what_another_grant_denied_is_no_divergence_of_the_recorded_one() -> None:
    desk = Desk(Grant(allow=(rule("look", calls=5),)))
    async with serving(desk):
        await desk.said(LOOK)
    desk.grant = Grant()
    desk.sessions = desk.started_again()
    async with serving(desk):
        assert await desk.said(LOOK) == ["not_granted"]
    recording = await Recording.load(desk.newest, desk.scene.store.reader)
    assert judged_again(recording) == (2, None)


async def test_order_is_carried_too() -> None:
    only_after = rule("pay", only_after=(Pattern.parse("demo/look"),))
    async with serving(Desk(Grant(allow=(rule("look"), only_after)))) as desk:
        assert await desk.said(PAY, LOOK, PAY) == ["order", OK, OK]
        await desk.sessions.close(desk.by().key)
        assert await desk.said(PAY) == [OK]


async def test_a_stream_that_an_operator_stopped_is_forgotten() -> None:
    async with serving(Desk(TWICE)) as desk:
        await desk.said(LOOK, LOOK)
        end = RunCancelled(actor={}, reason="enough")
        await desk.sessions.host.under_way.stop(desk.newest, end)
        assert await desk.said(LOOK) == [OK]


async def test_a_period_resets_the_limits() -> None:
    async with serving(Desk(TWICE, Session(reset="day"))) as desk:
        assert await desk.said(LOOK, LOOK, LOOK) == [OK, OK, "budget"]
        desk.scene.clock.time += DAY
        assert await desk.said(LOOK) == [OK]
    ends = [type(events[-1]).__name__ for events in desk.streams()]
    assert ends == ["RunCompleted", "RunSuspended"]


async def test_a_period_that_ends_while_no_host_is_up_resets_them_too() -> None:
    desk = Desk(TWICE, Session(reset="day"))
    async with serving(desk):
        assert await desk.said(LOOK, LOOK) == [OK, OK]
    desk.scene.clock.time += DAY
    desk.sessions = desk.started_again()
    async with serving(desk):
        assert await desk.said(LOOK) == [OK]


async def test_a_stream_goes_on_when_its_host_was_restarted() -> None:
    desk = Desk(TWICE)
    async with serving(desk):
        await desk.said(LOOK)
    desk.sessions = desk.started_again()
    async with serving(desk):
        assert await desk.said(LOOK, LOOK) == [OK, "budget"]
    (events,) = desk.streams()
    assert [type(event).__name__ for event in events][3:5] == [
        "RunSuspended",
        "RunResumed",
    ]


async def test_a_call_that_was_under_way_is_not_sent_again() -> None:  # law 2
    tools = SlowTools(ANSWERS)
    desk = Desk(TWICE, tools=tools)
    async with serving(desk):
        under_way = asyncio.create_task(desk.call())
        while not tools.reached:  # noqa: ASYNC110 -- or the test times out
            await asyncio.sleep(0)
    with pytest.raises(BusyError, match="stopped while this call was under way"):
        await under_way
    tools.let.set()
    desk.sessions = desk.started_again()
    async with serving(desk):
        assert await desk.said(LOOK, LOOK) == [OK, "budget"]
    assert tools.reached == 2
    (events,) = desk.streams()
    assert "ToolFailed" in types(events)


async def test_an_idle_session_ends() -> None:
    async with serving(Desk(TWICE, Session(idle=0.01))) as desk:
        await desk.said(LOOK)
        async with asyncio.timeout(10):
            while type(desk.streams()[0][-1]).__name__ != "RunCompleted":  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        assert await desk.said(LOOK, LOOK) == [OK, "budget"]
    assert len(desk.streams()) == 2


async def test_a_stream_that_is_full_is_followed_by_another() -> None:
    limits = session_limits(total_calls=3)
    async with serving(Desk(Grant(allow=(rule("look"),)), limits=limits)) as desk:
        many = await asyncio.gather(*(desk.call() for _ in range(10)))
    assert set(map(_name, many)) == {OK}
    calls = [types(events).count("ToolInvoked") for events in desk.streams()]
    assert calls == [3, 3, 3, 1]


async def test_a_call_waits_for_an_approval_and_others_do_not() -> None:  # law 8
    async with serving(Desk(ASKED)) as desk:
        asked = await desk.call(PAY, amount=1)
        assert isinstance(asked, Asked)
        assert await desk.said(LOOK) == [OK]
        assert await desk.call(PAY, amount=1) == asked
        other = await desk.call(PAY, amount=2)
        assert isinstance(other, Asked)
        assert other.seq != asked.seq

        await decided(desk, asked, "approve")
        assert _name(await desk.call(PAY, amount=1)) == OK
        await decided(desk, other, "deny")
        assert _name(await desk.call(PAY, amount=2)) == "approval"
        assert isinstance(await desk.call(PAY, amount=1), Asked)
    assert [request.tool for request in desk.tools.asked] == ["look", "pay"]


async def test_calls_go_on_behind_one_that_waited_for_an_approval() -> None:
    async with serving(Desk(ASKED)) as desk:
        asked = await desk.call(PAY)
        assert isinstance(asked, Asked)
        assert await desk.said(LOOK) == [OK]
        await decided(desk, asked, "approve")
        assert await desk.said(PAY, LOOK) == [OK, OK]
        assert isinstance(await desk.call(PAY), Asked)
    (events,) = desk.streams()
    calls = [e.call for e in events if isinstance(e, ToolInvoked)]
    assert calls == [2, 1, 3]


async def test_what_people_are_asked_outlives_a_client_that_leaves_at_once() -> None:
    # law 8
    async with serving(Desk(ASKED)) as desk:
        asked = await desk.call(PAY)
        assert isinstance(asked, Asked)
        await desk.sessions.close(desk.by().key)
        await decided(desk, asked, "approve")
        assert await desk.said(LOOK) == [OK]
        await desk.sessions.close(desk.by().key)
        assert await desk.said(PAY) == [OK]
        await desk.sessions.close(desk.by().key)
    (events,) = desk.streams()
    assert types(events)[-1] == "RunCompleted"


async def test_no_client_is_left_waiting_when_the_host_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(Desk(TWICE)) as desk:
        await desk.said(LOOK)

        def broken(*_: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(Journal, "recall", broken)
        async with asyncio.timeout(10):
            with pytest.raises(BusyError):
                await desk.call()


async def decided(desk: Desk, asked: Asked, verdict: str) -> None:
    word = Word(verdict=verdict, actor={"id": "bob"}, reason="so")  # type: ignore[arg-type]
    now = desk.scene.clock.now()
    async with asyncio.timeout(10):
        # People decide when no host drives it.
        while desk.scene.store.rows[asked.run_id].state != "suspended":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await say(desk.scene.store, asked.run_id, asked.seq, word, now=now)


async def test_equal_calls_at_once_are_two_questions() -> None:
    async with serving(Desk(ASKED)) as desk:
        both = await asyncio.gather(desk.call(PAY), desk.call(PAY), desk.call(LOOK))
    one, other, look = both
    assert isinstance(one, Asked)
    assert isinstance(other, Asked)
    assert one.run_id == other.run_id
    assert _name(look) == OK


async def test_a_call_that_its_client_gives_up_is_closed_in_the_log() -> None:
    tools = SlowTools(ANSWERS)
    async with serving(Desk(TWICE, tools=tools)) as desk:
        given_up = asyncio.create_task(desk.call())
        while not tools.reached:  # noqa: ASYNC110 -- or the test times out
            await asyncio.sleep(0)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        tools.let.set()
        assert await desk.said(LOOK) == [OK]
        kinds = [e.kind for e in desk.streams()[0] if type(e).__name__ == "ToolFailed"]  # type: ignore[attr-defined]
    assert kinds == ["cancelled"]


async def test_a_call_that_is_given_up_while_it_is_recorded_is_not_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    admit, clients = Gateway.admit, list[asyncio.Task[object]]()

    async def hangs_up(self: Gateway, calls: Sequence[PendingCall]) -> None:
        await admit(self, calls)
        for client in clients:
            client.cancel()

    monkeypatch.setattr(Gateway, "admit", hangs_up)
    async with serving(Desk(TWICE)) as desk:
        clients += [asyncio.create_task(desk.call(tool)) for tool in (LOOK, PAY)]
        await asyncio.wait(clients)
        await asyncio.sleep(0)
        (failed,) = [e for e in desk.streams()[0] if isinstance(e, ToolFailed)]
    assert all(client.cancelled() for client in clients)
    assert (failed.kind, failed.sent) == ("cancelled", "no")
    assert desk.tools.asked == []


async def test_a_call_that_is_given_up_before_it_is_taken_leaves_nothing() -> None:
    async with serving(Desk(TWICE)) as desk:
        await desk.sessions.started(desk.by())
        given_up = asyncio.create_task(desk.call())
        await asyncio.sleep(0)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        assert await desk.said(LOOK, LOOK) in ([OK, OK], [OK, "budget"])


def frozen(kind: str, name: str) -> Freezes:
    """Return what stops calls: of the event, nothing is read but its place."""
    return Freezes({(kind, name): cast("Recorded", None)})


async def test_a_frozen_server_stops_its_calls_alone() -> None:
    async with serving(Desk(TWICE)) as desk:
        await desk.said(LOOK)
        desk.sessions.host.freezes.now = frozen("server", "demo")
        with pytest.raises(Suspend, match="server demo is frozen"):
            await desk.call()
        desk.sessions.host.freezes.now = Freezes()
        assert await desk.said(LOOK) == [OK]
    assert types(desk.streams()[0]).count("RunSuspended") == 1


async def test_a_frozen_session_is_suspended_until_it_is_thawed() -> None:
    async with serving(Desk(TWICE)) as desk:
        await desk.said(LOOK)
        desk.sessions.host.freezes.now = frozen("agent", "dev")
        for _ in range(2):
            with pytest.raises(Suspend, match="agent dev is frozen"):
                await desk.call()
        desk.sessions.host.freezes.now = Freezes()
        assert await desk.said(LOOK, LOOK) == [OK, "budget"]


async def test_the_client_sees_the_definitions_of_its_tools() -> None:
    async with serving(Desk(TWICE)) as desk:
        (tool,) = await desk.sessions.tools(desk.by())
        assert (tool["name"], "inputSchema" in tool) == (LOOK, True)

        desk.grant = Grant(allow=(rule("look", calls=2), rule("pay")))
        names = [tool["name"] for tool in await desk.sessions.tools(desk.by())]
    assert names == [LOOK, PAY]
    assert len(desk.streams()) == 2


async def test_an_unknown_session_says_how_to_configure_one() -> None:
    desk = Desk(TWICE)
    with pytest.raises(NotFoundError) as caught:
        await desk.sessions.started(replace(desk.by(), session="nobody"))
    assert caught.value.fix == "add [sessions.nobody] to caxton.toml"


class Noting(FakeTools):
    """Tools that note the access tokens that are kept while they are called."""

    def __init__(self) -> None:
        super().__init__(ANSWERS)
        self.callers = Callers()
        self.kept: list[tuple[str, str]] = []

    async def call_tool(self, request: ToolRequest) -> Completed:
        self.kept.append((self.callers.token("oauth/ann"), self.callers.token(ANN.key)))
        return await super().call_tool(request)


async def test_an_access_token_is_kept_for_each_call_of_its_principal_only() -> None:
    tools = Noting()
    async with serving(Desk(TWICE, tools=tools)) as desk:
        tools.callers = desk.scene.host.callers
        for token in ("an older token", "a newer token"):
            them = replace(ANN, kind="oauth", token=token)
            assert await desk.said(LOOK, who=them) == [OK]
        assert await desk.said(LOOK) == [OK]  # By a token of this host.
    assert tools.kept == [("an older token", ""), ("a newer token", ""), ("", "")]
    recorded = repr(desk.scene.store.streams)
    assert "older token" not in recorded  # law 8
    assert tools.callers.token("oauth/ann") == ""
