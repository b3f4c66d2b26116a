"""A narrowed run has its agent's grant and the narrowing, and never more."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

import pytest

from caxton_host.config import Agent
from caxton_host.config.narrowing import narrowings
from caxton_host.core.analysis.rejudge import Rejudger
from caxton_host.core.calls import JSON, Completed
from caxton_host.core.grants.bounds import bounds_of
from caxton_host.core.grants.grants import Grant
from caxton_host.core.grants.tool_catalog import Offered
from caxton_host.core.log.events import (
    ApprovalRequested,
    Event,
    RunStarted,
    ToolCompleted,
    ToolDenied,
    ToolInvoked,
)
from caxton_host.core.log.projection import summarise
from caxton_host.core.log.requests import GiveResult
from caxton_host.errors import UsageError
from caxton_host.lib import codec
from caxton_host.runs.explain import explained_call, explanation
from caxton_host.runs.recording import Recording
from caxton_host.runs.run_request import ForkRequest
from caxton_host.testing import FakeTools, Script
from tests.scene import ANSWERS, DEMO, Scene, Watched, calling, rule
from tests.unit.runs.test_resume import ANN

ECHO, WEATHER = "mcp__demo__echo", "mcp__demo__get_weather"
ANY = "demo/*"
WIDE = Grant(allow=(rule("demo/*", "shell/*"),))


def narrowed(
    *tools: str,
    script: Script | None = None,
    grant: Grant = DEMO,
    terms: dict[str, JSON] | None = None,
) -> Scene:
    """Return a run that is narrowed by one rule."""
    scene = Scene(script or calling(ECHO, ECHO, WEATHER))
    bounds = narrowings({"allow": [{"tools": [*tools], **(terms or {})}]})
    scene.request = replace(scene.request, bounds=bounds, grant=grant, names={})
    return scene


def denials(events: list[Event]) -> list[tuple[int, str | None, str]]:
    found = (event for event in events if isinstance(event, ToolDenied))
    return [(event.call, event.rule, event.code) for event in found]


async def resumed(before: Scene, after: int, grant: Grant = DEMO) -> Scene:
    """Resume a run, whose first *after* events are in the log, on another host."""
    scene = Scene(before.script)
    scene.run_id = before.run_id
    log = scene.store.create(f"run/{before.run_id}")
    await log.append(*(await before.events())[:after], blobs=before.store.blobs)
    await scene.host.resume(scene.run_id, actor=ANN, grant=grant)
    return scene


async def test_a_denial_names_the_narrowing() -> None:  # law 4
    scene = narrowed("demo/echo")

    events = await scene.run()

    started = events[0]
    assert isinstance(started, RunStarted)
    assert bounds_of(started.bounds) == scene.request.bounds
    assert denials(events) == [(3, "narrow", "not_granted")]
    assert summarise(scene.run_id, await scene.recorded()).bounds == [*started.bounds]


async def test_what_the_agent_may_not_do_a_narrowing_does_not_give() -> None:  # law 4
    scene = narrowed("shell/*", script=calling("mcp__shell__exec"))

    events = await scene.run()

    assert denials(events) == [(1, None, "not_granted")]


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ({"calls": 1}, [(2, "narrow.allow[1]", "budget")]),
        ({"calls": "1/day"}, [(2, "narrow.allow[1]", "budget")]),
        (
            {"expires": "2001-01-01T00:00:00Z"},
            [(n, "narrow.allow[1]", "expired") for n in (1, 2, 3)],
        ),
        (
            {"params": {"city": {"const": "Bergen"}}},
            [(n, "narrow.allow[1]", "params") for n in (1, 2, 3)],
        ),
        ({"unless_after": ["demo/echo"]}, [(2, "narrow.allow[1]", "order")]),
    ],
)
async def test_rules_of_a_narrowing_mean_what_they_mean_anywhere(
    terms: dict[str, JSON], expected: list[tuple[int, str, str]]
) -> None:
    scene = narrowed(
        "demo/*", script=calling(*[ECHO] * max(2, len(expected))), terms=terms
    )

    events = await scene.run()

    assert denials(events) == expected


async def test_a_narrowing_can_ask_people() -> None:
    scene = narrowed("demo/*", script=calling(ECHO), terms={"approve": {"by": ["ops"]}})

    events = await scene.run()

    (asked,) = (event for event in events if isinstance(event, ApprovalRequested))
    assert (asked.rule, asked.by) == ("narrow.allow[1]", ("ops",))


@dataclass(slots=True)
class Listed(FakeTools):
    """Tools that keep which servers were asked."""

    servers: list[Collection[str]] = field(default_factory=list[Collection[str]])

    async def offered(self, servers: Collection[str]) -> Offered:
        self.servers.append(servers)
        return await FakeTools.offered(self, servers)


@pytest.mark.parametrize(
    ("tools", "asked", "visible"),
    [
        (("demo/echo",), ["demo"], ["mcp__demo__echo"]),
        (("shell/e*",), ["shell"], ["mcp__shell__exec"]),
        (("shell/other",), ["shell"], []),
        (("none/*",), [], []),
    ],
)
async def test_what_a_narrowing_can_never_allow_is_not_visible_and_not_started(
    tools: tuple[str, ...], asked: list[str], visible: list[str]
) -> None:
    watched, source = Watched(calling()), Listed(ANSWERS)
    scene = narrowed(*tools, script=watched, grant=WIDE)
    scene.host = replace(scene.host, tools=source)
    names = {"weather": ("demo", "get_weather")}
    scene.request = replace(scene.request, names=names)

    await scene.run()

    assert source.servers == [asked]
    listed = codec.decode(watched.guests[0].tools, limit=9999)
    assert isinstance(listed, list)
    assert [one["name"] for one in listed if isinstance(one, dict)] == visible


async def test_a_resumed_run_stays_narrowed_and_starts_no_other_server() -> None:
    literal = Grant(allow=(rule("demo/echo", "demo/get_weather", "shell/exec"),))
    before = narrowed("demo/echo", grant=literal, terms={"calls": 2})
    await before.run()
    source = Listed(ANSWERS)
    scene = Scene(before.script, source)
    scene.run_id = before.run_id
    log = scene.store.create(f"run/{before.run_id}")
    await log.append(*(await before.events())[:5], blobs=before.store.blobs)

    await scene.host.resume(scene.run_id, actor=ANN, grant=literal)

    assert source.servers == [["demo"]]
    assert denials(await scene.events()) == [(3, "narrow", "not_granted")]


async def test_a_fork_stays_narrowed() -> None:
    scene = narrowed("demo/echo")
    await scene.run()
    request = ForkRequest(run_id=scene.run_id, seq=3, actor=ANN, grant=WIDE)

    scene.run_id = await scene.host.fork(request)

    events = await scene.events()
    assert isinstance(events[0], RunStarted)
    assert bounds_of(events[0].bounds) == scene.request.bounds
    assert denials(events) == [(3, "narrow", "not_granted")]


async def forked(scene: Scene, seq: int, grant: Grant = DEMO, **narrow: JSON) -> Scene:
    """Fork a run with rules of its own, and go on with the fork."""
    bounds = narrowings(narrow) if narrow else ()
    request = ForkRequest(
        run_id=scene.run_id, seq=seq, actor=ANN, grant=grant, bounds=bounds
    )
    scene.run_id = await scene.host.fork(request)
    return scene


async def test_a_fork_is_narrowed_and_what_it_inherits_is_not_judged_again() -> None:
    # laws 3, 4, 5: 1 start, 2-3 call 1, 4-5 call 2
    scene = Scene(calling(ECHO, ECHO, WEATHER, ECHO))
    scene.request = replace(scene.request, names={})
    await scene.run()

    await forked(scene, 5, allow=[{"tools": ["demo/get_*"]}])

    assert denials(await scene.events()) == [(4, "narrow", "not_granted")]
    recording = await Recording.load(scene.run_id, scene.store.reader)
    last = [e.seq for e in recording.own if isinstance(e.event, ToolInvoked)][-1]
    assert explanation(recording, {}, last)["rule"] == "narrow"
    assert (await scene.replay()).verdict == "identical"


@pytest.mark.parametrize(
    ("terms", "code"), [({"calls": 2}, "budget"), ({"unless_after": [ANY]}, "order")]
)
@pytest.mark.parametrize("grant", [DEMO, Grant(allow=(rule("demo/echo"),))])
async def test_what_a_fork_inherits_counts_for_its_narrowing(
    terms: dict[str, JSON], code: str, grant: Grant
) -> None:
    """As in a resumed run: also what the grant of today would not allow."""
    scene = Scene(calling(WEATHER, WEATHER, ECHO))
    scene.request = replace(scene.request, names={})
    await scene.run()

    await forked(scene, 5, grant, allow=[{"tools": ["demo/*"], **terms}])

    assert denials(await scene.events()) == [(3, "narrow.allow[1]", code)]


async def test_a_fork_of_a_narrowed_run_is_bound_by_both_narrowings() -> None:
    # law 4
    scene = narrowed("demo/*", terms={"calls": "6/day"}, script=calling(*[ECHO] * 4))
    await scene.run()

    await forked(scene, 3, allow=[{"tools": ["demo/*"], "calls": "1/day"}])

    events = await scene.events()
    assert isinstance(events[0], RunStarted)
    first, second = bounds_of(events[0].bounds)
    assert (first,) == scene.request.bounds
    assert second.name == "narrow.narrow"
    # Equal rules of two narrowings spend two budgets.
    accounts = [one.grant.allow[0].account for one in (first, second)]
    assert accounts[1] == f"narrow.{accounts[0]}"
    third, fourth = ((n, "narrow.narrow.allow[1]", "budget") for n in (3, 4))
    assert denials(events) == [third, fourth]
    assert (await scene.replay()).verdict == "identical"


async def test_a_fork_is_not_narrowed_without_end() -> None:
    scene = narrowed("demo/*")
    await scene.run()
    for _ in range(7):
        await forked(scene, 1, allow=[{"tools": ["demo/*"]}])

    with pytest.raises(UsageError, match="at most 8 narrowings"):
        await forked(scene, 1, allow=[{"tools": ["demo/*"]}])
    await forked(scene, 1)

    assert denials(await scene.events()) == []


async def test_a_fork_asks_no_server_that_its_narrowing_never_allows() -> None:
    scene = Scene(calling(ECHO))
    scene.request = replace(scene.request, names={}, grant=WIDE)
    await scene.run()
    source = Listed(ANSWERS)
    scene.host = replace(scene.host, tools=source)

    await forked(scene, 1, WIDE, allow=[{"tools": ["shell/*"]}])

    assert source.servers == [["shell"]]


async def test_a_narrowed_run_replays() -> None:  # law 5
    scene = narrowed("demo/*", terms={"calls": 1})
    await scene.run()

    assert (await scene.replay()).verdict == "identical"


async def test_parts_that_a_narrowing_masks_are_masked_in_what_a_person_answers() -> (
    None
):
    before = narrowed(
        "demo/*", script=calling(WEATHER), terms={"redact_result": ["$.sky"]}
    )
    await before.run()
    scene = Scene(before.script)
    scene.run_id = before.run_id
    log = scene.store.create(f"run/{before.run_id}")
    await log.append(*(await before.events())[:2], blobs=before.store.blobs)

    answer = GiveResult(Completed(data={"sky": "grey"}))
    await scene.host.resolve(scene.run_id, 2, answer, actor=ANN, reason="seen")

    (done,) = (e for e in await scene.events() if isinstance(e, ToolCompleted))
    assert done.data == {"sky": "[redacted]"}


async def test_an_explanation_has_the_rules_of_the_grant_that_denied() -> None:
    scene = narrowed("demo/echo", terms={"calls": 1})
    await scene.run()
    recording = await Recording.load(scene.run_id, scene.store.reader)
    calls = [e.seq for e in recording.own if isinstance(e.event, ToolInvoked)]

    first, second, third = (explanation(recording, {}, seq) for seq in calls)

    rules = ["allow[1]", "narrow.allow[1]"]
    for told in (first, second, third):
        assert isinstance(told["considered"], list)
        assert [r["id"] for r in told["considered"] if isinstance(r, dict)] == rules
    assert (second["verdict"], second["rule"]) == ("budget", "narrow.allow[1]")
    assert str(second["remedy"]).startswith('# in allow[1] (narrow):\ncalls = "2/run"')
    assert (third["verdict"], third["rule"]) == ("not_granted", "narrow")
    assert third["remedy"] == "# no rule of narrow allows demo/get_weather"


@pytest.mark.parametrize("known", [True, False])
async def test_the_grant_of_today_is_explained_as_far_as_it_is_known(
    *, known: bool
) -> None:
    before = Scene(calling(ECHO, ECHO))
    before.request = replace(before.request, names={})
    await before.run()
    once = Grant(allow=(rule("demo/*", calls=1),))
    scene = await resumed(before, 3, once)
    recording = await Recording.load(scene.run_id, scene.store.reader)
    last = next(e for e in reversed(recording.own) if isinstance(e.event, ToolInvoked))
    agent = Agent(name="weather", grant=once if known else DEMO)

    found = explained_call(recording, {}, last.seq, agent)

    assert (found.verdict, found.rule) == ("budget", "today.allow[1]")
    assert found.explained.code == ("budget" if known else "allowed")


async def test_a_what_if_of_the_grant_changes_nothing_that_a_narrowing_denied() -> None:
    scene = narrowed("demo/echo")
    await scene.run()
    judge = Rejudger(grant=WIDE)

    taken = [judge.take(e.event, 0, e.seq) for e in await scene.recorded() if e.event]

    assert [one.changed for one in taken if one] == [False, False, False]
