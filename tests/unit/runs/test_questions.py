"""Questions of tool servers that wait, and the answers of people from elsewhere."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from caxton_host.core.calls import JSON, Completed
from caxton_host.core.log.events import (
    Event,
    QuestionAnswered,
    QuestionAsked,
    RunCompleted,
    RunResumed,
    ToolInvoked,
    settled,
)
from caxton_host.core.log.requests import Request
from caxton_host.core.questions import Said
from caxton_host.core.text.redact import Redactor
from caxton_host.errors import UsageError
from caxton_host.runs.desk import OVER, Desk, no_client
from caxton_host.runs.questions import answer, meant, questions_in
from caxton_host.runs.recording import Recording
from caxton_host.store.memory import MemoryStore
from caxton_host.testing import FakeClock, FakeEntropy
from tests.unit.store.fakes import run_started

ANN: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}
FORM: dict[str, JSON] = {
    "type": "object",
    "properties": {"sure": {"type": "boolean"}},
    "required": ["sure"],
}
LATER = 10**12
ASKED = QuestionAsked(
    call=1,
    question=1,
    name="it",
    server="demo",
    tool="order",
    message="Sure?",
    form=FORM,
    to="people",
    by=(),
    until=LATER,
)
CALLED = ToolInvoked(
    call=1,
    name="order",
    server="demo",
    tool="order",
    params={},
    params_sha256="",
    effect="unsafe",
    rule="allow[1]",
    idempotency_key="k",
    fuel=0,
)
ANSWERED = QuestionAnswered(
    call=1, question=1, action="decline", content=None, actor=ANN, reason=""
)
RESUMED = RunResumed(actor=ANN, host=None, epoch=2, reason="", grants_sha256="")
ENDED = RunCompleted(output=None, output_sha256="", fuel=0)


async def recorded(*events: Event) -> Recording:
    store = MemoryStore(clock=FakeClock(), entropy=FakeEntropy())
    await store.create("run/0193").append(run_started(), CALLED, *events)
    return await Recording.load("0193", store.reader)


@pytest.mark.parametrize(
    ("events", "waits"),
    [
        ((ASKED,), True),
        ((ASKED, ANSWERED), False),
        ((ASKED, settled(1, Completed())), False),
        ((ASKED, RESUMED), False),
        ((ASKED, RESUMED, ASKED), True),
        ((ASKED, settled(1, Completed()), ENDED), False),
        ((replace(ASKED, to="client"),), False),
        ((replace(ASKED, form=None),), False),
        ((replace(ASKED, until=1),), False),
        ((), False),
    ],
)
async def test_a_question_waits_until_it_its_call_or_its_host_has_ended(
    events: tuple[Event, ...], *, waits: bool
) -> None:
    found = questions_in(await recorded(*events), LATER - 1)
    assert [one.asked for one in found] == [ASKED] * waits
    document = found[0].to_document() if found else {"form": FORM}
    assert document["form"] == FORM


async def test_one_of_several_questions_has_to_be_named() -> None:
    both = await recorded(ASKED, replace(ASKED, question=2))
    with pytest.raises(UsageError, match="are the events: 3, 4"):
        meant(both, None, 0)
    assert meant(both, 4, 0).asked.question == 2
    with pytest.raises(UsageError, match="are the events: none"):
        meant(await recorded(), None, 0)


def request(content: str = '{"sure": true}', **more: Any) -> Request:  # noqa: ANN401
    subject = f'{{"call": 1, "question": 1, "content": {content}, "role": "ops"}}'
    return Request(
        id=1,
        run_id="r",
        kind="answer",
        actor=ANN,
        reason="why",
        subject=subject,
        **more,
    )


async def test_the_first_answer_counts_and_later_ones_are_refused() -> None:
    desk = Desk()
    assert desk.answer("r", request()) == OVER
    asking = asyncio.create_task(desk.ask(no_client, "r", ASKED, 60))
    await asyncio.sleep(0)
    assert desk.answer("other", request()) == OVER
    assert desk.answer("r", request()) == "answered"
    assert desk.answer("r", request("null")) == OVER
    said = await asking
    assert said == Said(
        action="accept", content={"sure": True}, actor=ANN, reason="why", role="ops"
    )
    assert desk.answer("r", request()) == OVER


async def test_no_answer_in_time_is_a_cancellation() -> None:
    said = await Desk().ask(no_client, "r", ASKED, 0.0)
    assert (said.action, said.actor) == ("cancel", None)


async def test_a_client_that_cannot_ask_declines() -> None:
    said = await Desk().ask(no_client, "r", replace(ASKED, to="client"), 60)
    assert (said.action, said.reason) == ("decline", "the client cannot ask its user")


@pytest.mark.parametrize(
    "content",
    [{}, {"sure": 1}, {"sure": True, "x": 1}, {"sure": "x" * 20_000}],
)
async def test_an_answer_that_does_not_fit_is_declined(
    content: dict[str, JSON],
) -> None:  # law 9
    async def client(_: str, __: QuestionAsked) -> Said:
        return Said(action="accept", content=content, actor=ANN)

    said = await Desk().ask(client, "r", replace(ASKED, to="client"), 60)
    assert (said.action, said.content, said.actor) == ("decline", None, ANN)


@pytest.mark.parametrize(
    ("content", "role", "why"),
    [
        ({"sure": 7}, "ops", "is not what was asked"),
        ({"sure": True}, "lead", "is to be answered by others: ops"),
        ({"sure": True, "x": "hush-hush-1"}, "ops", "a secret of the host"),
    ],
)
async def test_what_a_host_would_decline_is_refused_at_once(
    content: dict[str, JSON], role: str, why: str
) -> None:  # laws 4 and 8
    store = MemoryStore(clock=FakeClock(), entropy=FakeEntropy())
    question = meant(await recorded(replace(ASKED, by=("ops",))), None, 0)
    said = Said(action="accept", content=content, actor=ANN, role=role)
    with pytest.raises(UsageError, match=why) as refused:
        await answer(store, question, said, Redactor(["hush-hush-1"]))
    assert "hush" not in str(refused.value)
