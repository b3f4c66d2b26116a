"""One test per sentence about what a tool asks people during a call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from caxton_host.core.calls import JSON, Completed
from caxton_host.core.grants.approvals import NOBODY
from caxton_host.core.log.events import (
    ApprovalDecided,
    ApprovalRequested,
    QuestionAnswered,
    QuestionAsked,
    ToolProgress,
)
from caxton_host.core.questions import QUESTIONS, Said, To
from caxton_host.errors import LeaseLost, StoreError
from caxton_host.ports.tools import ToolRequest
from caxton_host.store.memory import MemoryStore
from caxton_host.testing import FakeClock, FakeEntropy, FakeTools
from tests.unit.gateway.logs import Failing

from .test_gateway import SUNNY, WEATHER, Scene

ANN: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}
FORM: JSON = {
    "message": "Which city?",
    "requestedSchema": {"properties": {"city": {"type": "string"}}},
}
YES = Said(action="accept", content={"city": "Oslo"}, actor=ANN, reason="it is")


@dataclass
class Asking(FakeTools):
    """A tool that asks before it answers."""

    questions: int = 1
    params: JSON = field(default_factory=lambda: FORM)
    to: To = "people"
    answers_given: list[dict[str, JSON]] = field(default_factory=list)

    async def call_tool(self, request: ToolRequest) -> Completed:
        for _ in range(self.questions):
            said = await request.on_question("city", self.params, self.to, 9.0)
            self.answers_given.append(said)
        return await FakeTools.call_tool(self, request)


@dataclass
class People:
    """Who is asked, and says the same each time."""

    said: Said = YES
    before: Callable[[], object] = lambda: None
    asked: list[QuestionAsked] = field(default_factory=list)
    seconds: float = 0.0

    async def __call__(self, asked: QuestionAsked, seconds: float) -> Said:
        self.asked.append(asked)
        self.seconds = seconds
        self.before()
        return self.said


def scene(people: People | None = None, **how: Any) -> tuple[Scene, Asking]:  # noqa: ANN401
    tools = Asking({("demo", "get_weather"): SUNNY}, **how)
    found = Scene(tools=tools, secrets=["hush-hush-1"])
    if people:
        found.gate = replace(found.gate, desk=people)
    return found, tools


def questions(scene: Scene) -> list[QuestionAsked | QuestionAnswered]:
    kinds = QuestionAsked | QuestionAnswered
    return [event for event in scene.log.events if isinstance(event, kinds)]


async def test_a_question_is_durable_before_anybody_sees_it() -> None:  # law 3
    people = People()
    it, tools = scene(people)
    people.before = lambda: durable.extend(it.log.events)
    durable: list[object] = []

    await it.gate.call(WEATHER)

    (asked, answered) = questions(it)
    assert durable[-1] == asked == people.asked[0]
    assert people.seconds == 9.0
    assert tools.answers_given == [{"action": "accept", "content": {"city": "Oslo"}}]
    assert answered == QuestionAnswered(
        call=1,
        question=1,
        action="accept",
        content={"city": "Oslo"},
        actor=ANN,
        reason="it is",
    )


async def test_an_answer_is_durable_before_the_tool_gets_it() -> None:  # law 3
    people = People()
    it, tools = scene(people)
    store = MemoryStore(clock=FakeClock(), entropy=FakeEntropy())
    full = Failing(store, store.create("run/0193")._drafter, 0)
    people.before = lambda: setattr(it.gate.recorder, "log", full)

    with pytest.raises(StoreError):
        await it.gate.call(WEATHER)
    assert tools.answers_given == []


async def test_no_answer_is_sent_once_the_lease_is_lost() -> None:
    people = People()
    it, tools = scene(people)
    people.before = lambda: setattr(it.log, "holds", lambda: False)

    with pytest.raises(LeaseLost):
        await it.gate.call(WEATHER)
    assert tools.answers_given == []


async def test_without_people_a_question_is_declined_and_recorded() -> None:
    it, tools = scene()
    await it.gate.call(WEATHER)
    assert tools.answers_given == [{"action": "decline"}]
    (_, answered) = questions(it)
    assert isinstance(answered, QuestionAnswered)
    assert (answered.actor, answered.reason) == (NOBODY, "there is nobody to ask")


async def test_a_question_beyond_the_bound_is_declined_unseen() -> None:  # law 9
    people = People()
    it, tools = scene(people, questions=QUESTIONS + 2)
    await it.gate.call(WEATHER)
    assert len(people.asked) == QUESTIONS
    assert len(questions(it)) == 2 * QUESTIONS
    assert tools.answers_given[-1] == {"action": "decline"}


async def test_what_cannot_be_shown_is_declined_without_asking() -> None:  # law 9
    people = People()
    it, tools = scene(people, params={"mode": "url", "message": "x", "url": "y"})
    await it.gate.call(WEATHER)
    assert people.asked == []
    assert tools.answers_given == [{"action": "decline"}]


async def test_a_secret_is_no_answer_and_is_not_recorded() -> None:  # law 8
    said = replace(YES, content={"city": "hush-hush-1"}, reason="hush-hush-1")
    it, tools = scene(People(said))
    await it.gate.call(WEATHER)
    assert tools.answers_given == [{"action": "decline"}]
    assert "hush" not in str(it.log.events)


async def test_words_that_the_log_does_not_keep_are_not_asked() -> None:  # law 8
    people = People()
    it, tools = scene(people)
    routes = it.gate.judge.routes
    hashed = {**routes, "weather": replace(routes["weather"], record="hash")}
    it.gate = replace(it.gate, judge=replace(it.gate.judge, routes=hashed))
    await it.gate.call(WEATHER)
    (asked, _) = questions(it)
    assert isinstance(asked, QuestionAsked)
    assert (asked.message, asked.form, people.asked) == ("", None, [])
    assert tools.answers_given == [{"action": "decline"}]


async def test_who_had_to_approve_the_call_answers_its_questions() -> None:  # law 4
    people = People()
    it, _ = scene(people)
    request = ApprovalRequested(
        call=1,
        name="weather",
        server="demo",
        tool="get_weather",
        params=WEATHER.params or {},
        params_sha256=WEATHER.digest,
        rule="allow[1]",
        fuel=WEATHER.fuel,
        by=("ops",),
        until=None,
    )
    yes = ApprovalDecided(call=1, verdict="approve", actor=ANN, reason="", role="ops")
    it.gate.recorder.journal.apply(request, 7, 2)
    it.gate.recorder.journal.apply(yes, 7, 3)
    await it.gate.call(WEATHER)
    assert people.asked[0].by == ("ops",)


async def test_who_waits_for_the_call_is_told_that_people_are_asked() -> None:
    told: list[ToolProgress] = []
    for to in ("people", "client"):
        it, _ = scene(People(), to=to)
        it.gate = replace(it.gate, watch=told.append)
        await it.gate.call(WEATHER)
    (only,) = told
    assert only.message == "waits for an answer, see caxton approval list: Which city?"


async def test_the_agent_gets_what_it_would_get_without_a_question() -> None:  # law 5
    asking, _ = scene(People())
    plain = Scene()
    assert (await asking.gate.call(WEATHER)).outcome == (
        await plain.gate.call(WEATHER)
    ).outcome
    again = Scene(history=asking.log.events)
    assert (await again.gate.call(WEATHER)).outcome == (
        await plain.gate.call(WEATHER)
    ).outcome
    assert again.tools.asked == []  # law 6
