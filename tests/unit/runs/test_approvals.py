"""A call that needs a person's word waits in the log, and is made once: laws 3 to 7."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.grants.approvals import NOBODY, Approve, Verdict
from caxton_host.core.grants.budgets import CallCount
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.log.events import (
    ApprovalDecided,
    ApprovalRequested,
    Event,
    RunCompleted,
    RunFailed,
    RunSuspended,
    ToolDenied,
    ToolInvoked,
)
from caxton_host.errors import StaleSignInError, Suspend, UsageError
from caxton_host.lib import codec
from caxton_host.ports.log import Refused, Reservation, Trace
from caxton_host.ports.sandbox import Door, Ending, Guest
from caxton_host.remote.documents import waiting
from caxton_host.runs.approvals import Word, open_questions, say, waiting_in
from caxton_host.runs.cancellation import cancel_idle
from caxton_host.runs.recording import Recording
from caxton_host.runs.run_request import ForkRequest
from caxton_host.store.memory import MemoryLog, MemoryStore
from caxton_host.testing import FakeSandbox, FakeTools, Script
from tests.scene import Scene, calling, ended, pack, rule, types

ANN: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}
WEATHER, ECHO = "mcp__demo__get_weather", "mcp__demo__echo"
MINUTE = 60_000_000
OPS = Approve(by=("ops",), within=900.0)
ANYBODY = Approve()
WAITS = ["ApprovalRequested", "RunSuspended"]


def wanting(approve: Approve | None, *tools: str, name: str = "allow[1]") -> Rule:
    return replace(rule(*(tools or ("demo/*",)), name=name), approve=approve)


def granted(*rules: Rule) -> Grant:
    return Grant(allow=rules)


async def suspended(script: Script, *rules: Rule) -> Scene:
    """Return a scene whose run waits for a word."""
    scene = Scene(script)
    scene.request = replace(scene.request, grant=granted(*(rules or (wanting(OPS),))))
    await scene.run()
    assert isinstance((await scene.events())[-1], RunSuspended)
    return scene


async def said(
    scene: Scene,
    verdict: Verdict = "approve",
    seq: int | None = None,
    role: str = "ops",
    by: str = "ann",
) -> ApprovalRequested:
    actor: dict[str, JSON] = {**ANN, "id": by}
    word = Word(verdict=verdict, actor=actor, reason="I looked", role=role)
    now = scene.clock.now()
    return await say(scene.store, scene.run_id, seq, word, now=now)


async def approved(scene: Scene, signed_in: int | None) -> None:
    """Approve a call as who signed in so many microseconds ago."""
    now = scene.clock.now()
    at = None if signed_in is None else now - signed_in
    word = Word(verdict="approve", actor=ANN, reason="", role="ops", signed_in_at=at)
    await say(scene.store, scene.run_id, None, word, now=now)


async def resumed(scene: Scene, *rules: Rule) -> list[Event]:
    """Resume the run, and return the events that came by that."""
    before = len(await scene.events())
    grant = granted(*rules) if rules else scene.request.grant
    await scene.host.resume(scene.run_id, actor=ANN, grant=grant)
    return (await scene.events())[before:]


def sent(scene: Scene) -> list[tuple[str, int]]:
    assert isinstance(scene.tools, FakeTools)
    return [(item.tool, item.call) for item in scene.tools.asked]


def batching(*names: str) -> Script:
    async def script(door: Door, guest: Guest) -> Ending:
        del guest
        items: list[JSON] = [[name, {"city": "Oslo"}] for name in names]
        answer = await door.call_many(codec.encode(items), 1)
        return ended(codec.decode(answer.reply, limit=1 << 20))

    return script


# -- asking --------------------------------------------------------------------


async def test_call_that_needs_a_word_is_not_sent_and_the_run_is_suspended() -> None:
    scene = await suspended(calling(WEATHER))  # law 3
    started, asked, end = await scene.events()
    assert sent(scene) == []
    assert end == RunSuspended(reason="approval", call=1)
    assert asked == ApprovalRequested(
        call=1,
        name=WEATHER,
        server="demo",
        tool="get_weather",
        params={"city": "Oslo"},
        params_sha256=codec.sha256(pack(city="Oslo")),
        rule="allow[1]",
        fuel=1,
        by=("ops",),
        until=scene.clock.now() + 15 * MINUTE,
    )
    assert types([started]) == ["RunStarted"]


class Noting(MemoryStore):
    """A store that knows what was appended together."""

    appended: ClassVar[list[list[str]]] = []

    def create(self, stream: str, trace: Trace | None = None) -> MemoryLog:
        log, appended = MemoryStore.create(self, stream, trace), self.appended
        appended.clear()

        class Log(MemoryLog):
            async def append(
                self,
                *events: Event,
                blobs: Mapping[str, bytes] | None = None,
                reserve: Sequence[Reservation] = (),
            ) -> Refused | None:
                appended.append(types([*events]))
                return await super().append(*events, blobs=blobs, reserve=reserve)

        return Log(self, log._drafter, 0)


async def test_questions_and_suspension_are_one_transaction() -> None:
    scene = Scene(batching(WEATHER, ECHO))
    scene.request = replace(scene.request, grant=granted(wanting(OPS)))
    store = Noting(clock=scene.clock, entropy=scene.entropy)
    await replace(scene.host, store=store).start(scene.request)
    assert store.appended == [["RunStarted"], ["ApprovalRequested", *WAITS]]


async def test_yes_lets_the_call_be_sent_once() -> None:
    scene = await suspended(
        calling(WEATHER, ECHO),
        wanting(OPS, "demo/get_weather"),
        wanting(None, name="allow[2]"),
    )
    await said(scene)
    events = await resumed(scene)
    assert types(events) == [
        "RunResumed",
        *("ToolInvoked", "ToolCompleted"),
        *("ToolInvoked", "ToolCompleted"),
        "RunCompleted",
    ]
    assert sent(scene) == [("get_weather", 1), ("echo", 2)]  # law 7
    decided = (await scene.events())[3]
    assert decided == ApprovalDecided(
        call=1, verdict="approve", actor=ANN, reason="I looked", role="ops"
    )
    assert (await scene.replay()).verdict == "identical"


async def test_no_is_told_to_the_agent_which_goes_on() -> None:
    scene = await suspended(calling(WEATHER))
    await said(scene, "deny")
    _, invoked, denied, end = await resumed(scene)
    assert isinstance(invoked, ToolInvoked)  # law 2
    assert denied == ToolDenied(
        call=1,
        code="approval",
        rule="allow[1]",
        message="that call was not approved",
    )
    assert isinstance(end, RunCompleted)
    assert sent(scene) == []


async def test_no_word_in_time_is_a_no() -> None:
    scene = await suspended(calling(WEATHER))
    scene.clock.time += 15 * MINUTE - 1
    with pytest.raises(Suspend, match="waits for an approval"):
        await resumed(scene)
    scene.clock.time += 1
    with pytest.raises(UsageError, match="time to decide"):
        await said(scene)
    lapsed, *events = await resumed(scene)
    assert lapsed == ApprovalDecided(
        call=1, verdict="deny", actor=NOBODY, reason="nobody decided in time"
    )
    assert types(events) == ["RunResumed", "ToolInvoked", "ToolDenied", "RunCompleted"]
    assert isinstance(denied := events[2], ToolDenied)
    assert denied.message == "that call was not approved in time"
    assert sent(scene) == []
    assert (await scene.replay()).verdict == "identical"


async def test_question_without_a_time_waits_for_ever() -> None:
    scene = await suspended(calling(WEATHER), wanting(ANYBODY))
    scene.clock.time += 10**6 * MINUTE
    await said(scene, role="")
    assert types(await resumed(scene))[-1] == "RunCompleted"


async def test_suspended_run_does_not_age() -> None:
    scene = await suspended(calling(WEATHER), wanting(ANYBODY))
    scene.clock.time += 60 * MINUTE
    await said(scene)
    scene.clock.time += 60 * MINUTE
    assert types(await resumed(scene))[-1] == "RunCompleted"
    recording = await Recording.load(scene.run_id, scene.store.reader)
    assert recording.driven == 0


# -- what a word is for --------------------------------------------------------


async def test_word_is_for_those_bytes_and_no_others() -> None:
    scene = await suspended(calling(WEATHER))
    await said(scene)

    async def other(door: Door, guest: Guest) -> Ending:
        del guest
        await door.call(WEATHER.encode(), pack(city="Rome"), 1)
        raise AssertionError

    scene.host = replace(scene.host, sandbox=FakeSandbox(other))
    *_, end = await resumed(scene)
    assert isinstance(end, RunFailed)
    assert (end.kind, "$.params.city" in end.message) == ("diverged", True)
    assert sent(scene) == []


async def test_word_is_for_that_tool_and_no_other() -> None:
    scene = await suspended(calling(WEATHER))
    await said(scene)
    scene.host = replace(scene.host, sandbox=FakeSandbox(calling(ECHO)))
    *_, end = await resumed(scene)
    assert isinstance(end, RunFailed)
    assert end.kind == "diverged"
    assert sent(scene) == []


@pytest.mark.parametrize(
    ("today", "code"),
    [
        (Grant(), "not_granted"),
        (
            Grant(allow=(wanting(OPS),), deny=(rule("demo/*", name="deny[1]"),)),
            "denied",
        ),
        (granted(replace(wanting(OPS), calls=0)), "budget"),
        (granted(replace(wanting(OPS), expires=1)), "expired"),
    ],
)
async def test_grants_are_asked_again_after_the_word(today: Grant, code: str) -> None:
    scene = await suspended(calling(WEATHER))  # law 4
    await said(scene)
    await scene.host.resume(scene.run_id, actor=ANN, grant=today)
    [denied] = [e for e in await scene.events() if isinstance(e, ToolDenied)]
    assert denied.code == code
    assert sent(scene) == []


async def test_recorded_grants_are_asked_again_after_the_word() -> None:
    first = replace(wanting(OPS), expires=1_700_000_000_000_000 + MINUTE)
    scene = await suspended(calling(WEATHER), first)
    scene.clock.time += MINUTE
    await said(scene)
    await resumed(scene)
    [denied] = [e for e in await scene.events() if isinstance(e, ToolDenied)]
    assert denied.code == "expired"


async def test_no_holds_where_another_rule_would_allow_the_call_by_now() -> None:
    first = replace(wanting(OPS), expires=1_700_000_000_000_000 + MINUTE)
    scene = await suspended(calling(WEATHER), first, wanting(None, name="allow[2]"))
    scene.clock.time += MINUTE
    await said(scene, "deny")
    await resumed(scene)
    [denied] = [e for e in await scene.events() if isinstance(e, ToolDenied)]
    assert denied.code == "approval"
    assert sent(scene) == []


async def test_rule_of_today_can_want_a_word_that_the_recorded_one_does_not() -> None:
    first = wanting(OPS, "demo/get_weather")
    scene = await suspended(
        calling(WEATHER, ECHO), first, wanting(None, name="allow[2]")
    )
    await said(scene)
    events = await resumed(scene, wanting(OPS))
    assert types(events)[-2:] == WAITS
    asked = events[-2]
    assert isinstance(asked, ApprovalRequested)
    assert (asked.call, asked.rule) == (2, "today.allow[1]")
    await said(scene)
    assert types(await resumed(scene, wanting(OPS)))[-1] == "RunCompleted"


async def test_each_rule_gets_the_word_of_its_own_people() -> None:
    scene = await suspended(calling(WEATHER))
    await said(scene)
    finance = wanting(Approve(by=("finance", "board")))
    events = await resumed(scene, finance)
    assert types(events) == ["RunResumed", *WAITS]
    assert isinstance(asked := events[1], ApprovalRequested)
    assert asked.by == ("finance", "board")
    await said(scene, role="board")
    assert types(await resumed(scene, finance))[-1] == "RunCompleted"
    assert sent(scene) == [("get_weather", 1)]


# -- who may say it ------------------------------------------------------------


@pytest.mark.parametrize(
    ("seq", "role", "problem"),
    [(None, "", "by others: ops"), (2, "sales", "by others"), (3, "ops", "event 3")],
)
async def test_word_of_others_or_of_another_event_is_refused(
    seq: int | None, role: str, problem: str
) -> None:
    scene = await suspended(calling(WEATHER))
    before = await scene.events()
    with pytest.raises(UsageError, match=problem):
        await said(scene, seq=seq, role=role)
    assert await scene.events() == before


async def test_second_word_is_refused() -> None:
    scene = await suspended(calling(WEATHER))
    await said(scene, "deny")
    with pytest.raises(UsageError, match="are: none"):
        await said(scene)
    await resumed(scene)
    with pytest.raises(UsageError, match="has completed"):
        await said(scene)


async def test_call_waits_for_as_many_people_as_its_rule_says() -> None:
    two = wanting(replace(OPS, count=2))
    scene = await suspended(calling(WEATHER), two)
    await said(scene)
    with pytest.raises(Suspend, match="waits for an approval"):
        await resumed(scene)
    before = await scene.events()
    with pytest.raises(UsageError, match=r"ann has approved it.*1 of 2 approved"):
        await said(scene)
    assert await scene.events() == before
    await said(scene, by="bob")
    assert types(await resumed(scene))[-1] == "RunCompleted"
    assert sent(scene) == [("get_weather", 1)]
    assert (await scene.replay()).verdict == "identical"


async def test_first_denial_ends_the_question_of_several_people() -> None:
    scene = await suspended(calling(WEATHER), wanting(replace(OPS, count=2)))
    await said(scene)
    await said(scene, "deny", by="bob")
    with pytest.raises(UsageError, match="are: none"):
        await said(scene, by="eve")
    assert "ToolDenied" in types(await resumed(scene))
    assert sent(scene) == []


async def test_too_few_approvals_in_time_are_a_denial() -> None:
    scene = await suspended(calling(WEATHER), wanting(replace(OPS, count=2)))
    await said(scene)
    scene.clock.time += 15 * MINUTE
    assert "ToolDenied" in types(await resumed(scene))
    assert sent(scene) == []


async def test_person_who_started_the_run_may_deny_but_not_approve() -> None:
    rules = wanting(replace(OPS, not_requester=True))
    scene = await suspended(calling(WEATHER), rules)
    with pytest.raises(UsageError, match="ann started the run"):
        await said(scene)
    await said(scene, by="bob")
    assert types(await resumed(scene))[-1] == "RunCompleted"
    scene = await suspended(calling(WEATHER), rules)
    await said(scene, "deny")
    assert "ToolDenied" in types(await resumed(scene))


async def test_waiting_call_says_how_many_approved_and_who() -> None:
    scene = await suspended(
        calling(WEATHER), wanting(replace(OPS, count=2, not_requester=True))
    )
    await said(scene, by="bob")
    recording = await Recording.load(scene.run_id, scene.store.reader)
    [found] = waiting_in(recording, scene.clock.time)
    told = found.to_document()
    assert (told["count"], told["not_by"]) == (2, ANN)
    assert told["given"] == [
        {"actor": {**ANN, "id": "bob"}, "role": "ops", "signed_in_for": None}
    ]
    again = waiting(told)
    assert again.to_document() == told


@pytest.mark.parametrize(
    ("signed_in", "why"),
    [(None, "a token alone is no sign-in"), (6 * MINUTE, "yours was 360 s ago")],
)
async def test_yes_without_a_fresh_sign_in_is_refused_and_not_recorded(
    signed_in: int | None, why: str
) -> None:
    # law 4
    scene = await suspended(calling(WEATHER), wanting(replace(OPS, fresh=300.0)))
    before = await scene.events()
    with pytest.raises(StaleSignInError, match=f"within 300 s, and {why}") as refused:
        await approved(scene, signed_in)
    assert "sign in to the console again" in refused.value.fix
    assert await scene.events() == before

    await approved(scene, MINUTE)

    decided = (await scene.events())[-1]
    assert isinstance(decided, ApprovalDecided)
    assert decided.signed_in_for == 60.0
    assert types(await resumed(scene))[-1] == "RunCompleted"
    assert (await scene.replay()).verdict == "identical"


async def test_no_needs_no_fresh_sign_in() -> None:
    scene = await suspended(calling(WEATHER), wanting(replace(OPS, fresh=300.0)))
    await said(scene, "deny")
    assert "ToolDenied" in types(await resumed(scene))


async def test_who_approved_for_another_rule_may_sign_in_and_approve_again() -> None:
    # law 4
    scene = await suspended(calling(WEATHER))
    await said(scene)
    today = wanting(replace(OPS, fresh=300.0))
    assert types(await resumed(scene, today))[-2:] == WAITS
    await approved(scene, 0)
    assert types(await resumed(scene, today))[-1] == "RunCompleted"


# -- batches -------------------------------------------------------------------


async def test_batch_waits_once_for_all_its_questions_and_sends_nothing() -> None:
    free = wanting(None, "demo/echo", name="allow[2]")
    scene = await suspended(
        batching(WEATHER, ECHO, WEATHER), wanting(OPS, "demo/get_weather"), free
    )
    assert types(await scene.events())[1:] == [
        *("ApprovalRequested", "ApprovalRequested"),
        "RunSuspended",
    ]
    assert sent(scene) == []
    with pytest.raises(UsageError, match="are: 2, 3"):
        await said(scene)
    await said(scene, seq=3)
    with pytest.raises(Suspend, match="event 2"):
        await resumed(scene)
    await said(scene, "deny", seq=2)
    events = await resumed(scene)
    assert types(events)[:5] == [
        "RunResumed",
        *("ToolInvoked", "ToolDenied", "ToolInvoked", "ToolInvoked"),
    ]
    assert sorted(sent(scene)) == [("echo", 2), ("get_weather", 3)]
    assert (await scene.replay()).verdict == "identical"


async def test_batch_whose_time_is_over_for_one_waits_for_the_other() -> None:
    scene = await suspended(
        batching(WEATHER, ECHO),
        wanting(OPS, "demo/get_weather"),
        wanting(ANYBODY, "demo/echo", name="allow[2]"),
    )
    recording = await Recording.load(scene.run_id, scene.store.reader)
    now = scene.clock.time
    assert [one.seq for one in open_questions(recording, now)] == [2, 3]
    now = scene.clock.time = now + 15 * MINUTE
    assert [one.seq for one in open_questions(recording, now)] == [3]
    with pytest.raises(Suspend, match="event 3: call 2"):
        await resumed(scene)
    await said(scene, seq=3)
    events = await resumed(scene)
    assert types(events)[:2] == ["ApprovalDecided", "RunResumed"]
    assert sent(scene) == [("echo", 2)]
    assert not open_questions(
        await Recording.load(scene.run_id, scene.store.reader), now
    )


async def test_budget_is_spent_in_order_by_calls_that_wait_too() -> None:
    scene = await suspended(batching(WEATHER, WEATHER), replace(wanting(OPS), calls=1))
    assert types(await scene.events())[1:] == WAITS
    await said(scene)
    events = await resumed(scene)
    assert types(events)[1:4] == ["ToolInvoked", "ToolInvoked", "ToolDenied"]
    assert sent(scene) == [("get_weather", 1)]


async def test_batch_over_the_limit_asks_nobody() -> None:
    scene = Scene(batching(WEATHER, WEATHER))
    scene.limit(total_calls=1)
    scene.request = replace(scene.request, grant=granted(wanting(OPS)))
    events = await scene.run()
    assert "ApprovalRequested" not in types(events)
    assert isinstance(events[-1], RunFailed)


# -- crashes, replays, forks, ends ---------------------------------------------


async def cut(scene: Scene, after: int) -> Scene:
    """Return a host whose log holds the first *after* events of the run."""
    again = Scene(scene.script)
    again.run_id, again.request = scene.run_id, scene.request
    again.clock.time = scene.clock.time
    log = again.store.create(f"run/{scene.run_id}")
    await log.append(*(await scene.events())[:after], blobs=scene.store.blobs)
    return again


@pytest.mark.parametrize("events", [2, 3])
async def test_question_that_the_log_holds_is_not_asked_again(events: int) -> None:
    scene = await cut(await suspended(calling(WEATHER)), events)
    if events == 2:  # as if the host had died in between
        assert types(await resumed(scene)) == ["RunResumed", "RunSuspended"]
    with pytest.raises(Suspend):
        await resumed(scene)
    await said(scene)
    assert types(await resumed(scene))[-1] == "RunCompleted"
    asked = [e for e in await scene.events() if isinstance(e, ApprovalRequested)]
    assert len(asked) == 1


async def test_crash_after_the_word_keeps_it() -> None:
    whole = await suspended(calling(WEATHER))
    await said(whole)
    await resumed(whole)
    scene = await cut(whole, 5)
    assert types(await scene.events())[3:] == ["ApprovalDecided", "RunResumed"]
    assert (await scene.replay()).verdict == "identical"
    assert types(await resumed(scene))[-1] == "RunCompleted"
    assert sent(scene) == [("get_weather", 1)]


@pytest.mark.parametrize("names", [(WEATHER,), (ECHO, WEATHER)])
async def test_replay_follows_a_suspended_run_to_its_question(
    names: Sequence[str],
) -> None:
    free = wanting(None, "demo/echo", name="allow[2]")
    scene = await suspended(calling(*names), wanting(OPS, "demo/get_weather"), free)
    assert (await scene.replay()).verdict == "identical"  # law 6
    before = len(sent(scene))
    await said(scene)
    assert (await scene.replay()).verdict == "identical"
    assert len(sent(scene)) == before


@pytest.mark.parametrize("words", [0, 1])
async def test_replay_of_a_suspended_batch_is_identical(words: int) -> None:
    free = wanting(None, "demo/echo", name="allow[2]")
    scene = await suspended(
        batching(ECHO, WEATHER), wanting(OPS, "demo/get_weather"), free
    )
    for _ in range(words):
        await said(scene)
    assert (await scene.replay()).verdict == "identical"


async def test_replay_sees_that_another_thing_is_asked() -> None:
    scene = await suspended(calling(WEATHER))

    async def other(door: Door, guest: Guest) -> Ending:
        del guest
        await door.call(WEATHER.encode(), pack(city="Rome"), 1)
        raise AssertionError

    for script, path in ((other, "$.params.city"), (calling(), "$.name")):
        found = (await scene.replay(script)).divergence
        assert found is not None
        assert (found.seq, found.path) == (2, path)


async def test_fork_asks_anew_and_inherits_no_word() -> None:
    scene = await suspended(calling(WEATHER))
    parent = scene.run_id
    await said(scene)
    request = ForkRequest(run_id=parent, seq=4, actor=ANN, grant=granted(wanting(OPS)))
    scene.run_id = await scene.host.fork(request)
    assert types(await scene.events())[1:] == WAITS
    assert sent(scene) == []
    await said(scene, "deny")
    assert types(await resumed(scene))[-1] == "RunCompleted"
    assert (await scene.replay()).verdict == "identical"


async def test_suspended_run_can_be_cancelled_and_replays() -> None:
    scene = await suspended(calling(WEATHER))
    await cancel_idle(scene.store, scene.run_id, ANN, "no need")
    assert types(await scene.events())[-1] == "RunCancelled"
    assert (await scene.replay()).verdict == "identical"
    with pytest.raises(UsageError, match="cancelled"):
        await said(scene)


async def test_call_in_doubt_needs_no_second_word() -> None:
    whole = await suspended(calling(WEATHER))
    await said(whole)
    await resumed(whole)
    scene = await cut(whole, 6)
    assert types(await resumed(scene)) == ["RunResumed", "RunSuspended"]
    last = (await scene.events())[-1]
    assert last == RunSuspended(reason="in_doubt", call=1)


# -- what a word costs ---------------------------------------------------------


async def test_call_that_was_not_approved_spends_nothing() -> None:
    scene = await suspended(calling(WEATHER, ECHO), replace(wanting(OPS), calls=1))
    await said(scene, "deny")
    assert types(await resumed(scene))[-2:] == WAITS
    await said(scene)
    await resumed(scene)
    assert sent(scene) == [("echo", 2)]


async def test_budget_that_others_spend_meanwhile_denies_an_approved_call() -> None:
    once = CallCount(limit=1, per="day")
    scene = await suspended(
        calling(WEATHER), replace(wanting(OPS), name="one", budgets=(once,))
    )
    first = scene.run_id
    free = replace(wanting(None), name="one", budgets=(once,))
    scene.request = replace(scene.request, grant=granted(free))
    await scene.run()
    assert sent(scene) == [("get_weather", 1)]
    scene.run_id = first
    await said(scene)
    await resumed(scene, wanting(OPS))
    [denied] = [e for e in await scene.events() if isinstance(e, ToolDenied)]
    assert denied.code == "budget"
    assert len(sent(scene)) == 1
