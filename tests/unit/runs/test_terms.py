"""What a rule says of answers holds for every call that it allows, however it goes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from caxton_host.core.calls import JSON, Completed
from caxton_host.core.grants.grants import Grant
from caxton_host.core.log.events import (
    Event,
    ToolCompleted,
    ToolFailed,
    ToolProgress,
    to_payload,
)
from caxton_host.core.log.requests import GiveResult
from caxton_host.core.text.jsonpath import JsonPath
from caxton_host.core.text.redact import MASK
from caxton_host.errors import FailureKind, ToolError
from caxton_host.lib import codec
from caxton_host.ports import Door, Ending, Guest, Progress, ToolRequest
from caxton_host.runs.run_request import ForkRequest
from caxton_host.testing import FakeTools, Script
from tests.scene import ANSWERS, DEMO, Scene, Watched, calling, ended, rule

from .test_resume import ANN, crashed, resumed

WEATHER = "mcp__demo__get_weather"
TOOL = ("demo", "get_weather")
ADA = "ada@example.org"
ANSWER = Completed(
    message=ADA,
    data={"mail": ADA, "sky": "clear"},
    bytes=100,
    told=lambda data: f"sky: {data['sky']}, by {data['mail']}",
)
CLEAN: JSON = {"mail": MASK, "sky": "clear"}
MAIL = rule("demo/get_*")
HIDDEN = Grant(
    allow=(
        replace(MAIL, redact_result=(JsonPath.parse("$.mail"),)),
        rule("demo/*", name="allow[2]"),
    )
)


def under(
    script: Script, answer: Completed | ToolError = ANSWER, grant: Grant = HIDDEN
) -> tuple[Scene, Watched]:
    watched = Watched(script)
    scene = Scene(watched, tools=FakeTools({**ANSWERS, TOOL: answer}))
    scene.request = replace(scene.request, grant=grant)
    return scene, watched


def told(events: list[Event]) -> str:
    return repr([to_payload(event) for event in events])


def reply(watched: Watched, number: int = 0) -> dict[str, JSON]:
    found: dict[str, JSON] = codec.decode_trusted(watched.answers[number].reply)
    return found


def asked(scene: Scene) -> list[ToolRequest]:
    assert isinstance(scene.tools, FakeTools)
    return scene.tools.asked


def end_of(events: list[Event], number: int = 1) -> ToolCompleted | ToolFailed:
    [end] = [
        event
        for event in events
        if isinstance(event, ToolCompleted | ToolFailed) and event.call == number
    ]
    return end


async def test_neither_agent_nor_log_gets_what_a_rule_hides() -> None:  # laws 5 and 8
    scene, watched = under(calling(WEATHER))
    events = await scene.run()

    assert reply(watched)["data"] == CLEAN
    assert reply(watched)["message"] == f"sky: clear, by {MASK}"
    assert ADA not in told(events)
    assert (await scene.replay()).verdict == "identical"


async def test_what_another_rule_allows_is_not_touched() -> None:
    scene, watched = under(calling("mcp__demo__echo"))
    await scene.run()

    assert reply(watched)["data"] == "echoed"


async def test_each_call_of_a_batch_is_under_its_own_rule() -> None:
    async def script(door: Door, guest: Guest) -> Ending:
        del guest
        batch = codec.encode([[WEATHER, {}], ["mcp__demo__echo", {}]])
        await door.call_many(batch, 1)
        return ended()

    scene, watched = under(script)
    events = await scene.run()

    first, second = codec.decode_trusted(watched.answers[0].reply)
    assert (first["data"], second["data"]) == (CLEAN, "echoed")
    assert ADA not in told(events)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("protocol", "the server refused the call"),
        ("invalid_result", "the answer is not what the tool promises"),
        ("timeout", "no answer of ada@example.org"),
    ],
)
async def test_words_of_a_tool_that_may_be_its_answer_reach_nobody(
    kind: FailureKind, message: str
) -> None:
    error = ToolError(kind, "yes", f"no answer of {ADA}", code=7)
    scene, _ = under(calling(WEATHER), error)
    failed = end_of(await scene.run())

    assert isinstance(failed, ToolFailed)
    assert (failed.message, failed.code) == (message, 7 if kind == "timeout" else None)


@dataclass(slots=True)
class Telling(FakeTools):
    """Tools that tell how far they are."""

    async def call_tool(self, request: ToolRequest) -> Completed:
        request.on_progress(Progress(progress=1, message=f"found {ADA}"))
        return await super(Telling, self).call_tool(request)


async def test_what_a_tool_tells_meanwhile_has_no_words() -> None:
    watched = Watched(calling(WEATHER))
    scene = Scene(watched, tools=Telling({**ANSWERS, TOOL: ANSWER}))
    scene.request = replace(scene.request, grant=HIDDEN)
    events = await scene.run()

    [progress] = [event for event in events if isinstance(event, ToolProgress)]
    assert (progress.progress, progress.message) == (1, "")


# -- sizes and times ----------------------------------------------------------------


@pytest.mark.parametrize(("limit", "fits"), [(99, False), (100, True), (9999, True)])
async def test_answer_has_a_largest_size_by_its_rule(limit: int, *, fits: bool) -> None:
    grant = Grant(allow=(replace(MAIL, max_result=limit),))
    scene, _ = under(calling(WEATHER), grant=grant)
    end = end_of(await scene.run())

    assert isinstance(end, ToolCompleted) is fits
    if isinstance(end, ToolFailed):
        assert (end.kind, end.sent) == ("too_large", "yes")
        assert end.message == "the answer has 100 bytes, of 99 allowed"


async def test_rule_does_not_widen_the_limit_of_the_run() -> None:
    grant = Grant(allow=(replace(MAIL, max_result=9999),))
    scene, _ = under(calling(WEATHER), grant=grant)
    scene.limit(result=50)

    assert isinstance(end_of(await scene.run()), ToolFailed)


async def test_patience_of_the_rule_goes_with_each_send() -> None:
    grant = Grant(allow=(replace(MAIL, timeout=1.5), rule("demo/*", name="allow[2]")))
    scene, _ = under(calling(WEATHER, "mcp__demo__echo"), grant=grant)
    await scene.run()

    assert [request.timeout for request in asked(scene)] == [1.5, None]


# -- after a crash ------------------------------------------------------------------


async def left(grant: Grant, after: int = 2) -> Scene:
    """Return a host that finds a call in doubt, which may be sent again."""
    scene = await crashed(calling(WEATHER, WEATHER), after, "read", grant)
    assert isinstance(scene.tools, FakeTools)
    scene.tools.answers = {**ANSWERS, TOOL: ANSWER}
    return scene


async def test_call_in_doubt_is_sent_again_under_the_rule_that_allowed_it() -> None:
    scene = await left(HIDDEN)
    events = await resumed(scene)

    assert ADA not in told(events)
    assert isinstance(end_of(events), ToolCompleted)


async def test_stricter_of_recorded_and_todays_rule_holds() -> None:  # law 4
    recorded = Grant(allow=(replace(MAIL, timeout=2.0, max_result=500),))
    today = Grant(
        allow=(
            replace(
                MAIL,
                timeout=3.0,
                max_result=400,
                redact_result=HIDDEN.allow[0].redact_result,
            ),
        )
    )
    scene = await left(recorded)
    events = await resumed(scene, today)

    assert ADA not in told(events)  # the call in doubt, and the one after it
    assert [request.timeout for request in asked(scene)] == [2.0, 2.0]
    assert [request.call for request in asked(scene)] == [1, 2]


async def test_call_after_a_resume_is_under_the_one_rule_of_today_that_allows_it() -> (
    None
):
    spent = replace(HIDDEN.allow[0], calls=1)
    today = Grant(allow=(spent, rule("demo/*", name="allow[2]")))
    scene = await left(DEMO)
    events = await resumed(scene, today)

    first, second = end_of(events, 1), end_of(events, 2)
    assert isinstance(first, ToolCompleted)
    assert isinstance(second, ToolCompleted)
    assert (first.data, second.data) == (CLEAN, ANSWER.data)


async def test_answer_that_a_person_gives_is_cleaned_like_that_of_the_tool() -> None:
    scene = await left(HIDDEN)
    await scene.host.resolve(
        scene.run_id, 2, GiveResult(ANSWER), actor=ANN, reason="I looked"
    )

    assert ADA not in told(await scene.events())


@pytest.mark.parametrize("before", [HIDDEN, DEMO])
@pytest.mark.parametrize("now", [HIDDEN, DEMO])
async def test_answer_that_a_fork_is_given_is_cleaned_by_either_grant(
    before: Grant, now: Grant
) -> None:
    scene, _ = under(calling(WEATHER), Completed(message="rain"), grant=before)
    await scene.run()
    run_id = await scene.host.fork(
        ForkRequest(run_id=scene.run_id, seq=3, actor=ANN, grant=now, edited=ANSWER)
    )
    scene.run_id = run_id

    clean = HIDDEN in (before, now)
    assert (ADA not in told(await scene.events())) is clean
