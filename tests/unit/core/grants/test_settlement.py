"""What an answered call has spent in truth, and what leaves the estimate."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.calls import JSON, Completed
from caxton_host.core.grants.bounds import TODAY, Bound
from caxton_host.core.grants.budgets import (
    MOST,
    PRICE_UNIT,
    UNIT,
    Sum,
    budget_from_payload,
    budget_to_payload,
    costs,
)
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.grants.journal import Journal
from caxton_host.core.grants.settlement import corrections, settled
from caxton_host.core.log.events import ToolCompleted, ToolInvoked
from caxton_host.core.text.globs import Pattern
from caxton_host.errors import UsageError
from tests.scene import JSON_VALUES

CHAT = ("chat", "complete")
TOKENS = "result$.usage.total_tokens"
MICRO = PRICE_UNIT // UNIT
SMALL, LARGE = {"model": "m-small"}, {"model": "m-large"}


def tokens(per: Any = "run", of: str = TOKENS, **more: Any) -> Sum:  # noqa: ANN401 -- fields of all kinds
    return Sum(of=of, per=per, limit=50_000 * UNIT, estimate=2000 * UNIT, **more)


PRICED = tokens("day", by="model", prices={"m-small": MICRO, "m-large": 20 * MICRO})


def chatting(*budgets: Sum) -> Grant:
    tools = (Pattern.parse("chat/*"),)
    rule = Rule(id="allow[1]", tools=tools, name="model", budgets=budgets)
    return Grant(allow=(rule,))


def usage(number: JSON) -> JSON:
    return {"usage": {"total_tokens": number}}


def answer(structured: JSON = None, *texts: str) -> Completed:
    blocks: list[JSON] = [{"type": "text", "text": text} for text in texts]
    data: dict[str, JSON] = {"content": blocks}
    if structured is not None:
        data["structuredContent"] = structured
    return Completed(data=data)


def truth(
    done: Completed, budget: Sum | None = None, params: Mapping[str, JSON] = SMALL
) -> int | None:
    budget = budget or tokens()
    key = f"model/{budget.key}"
    found = settled(chatting(budget), CHAT, params, done, {key})
    assert found.keys() <= {key}
    return found.get(key)


# -- the number of an answer ---------------------------------------------------


@pytest.mark.parametrize(
    ("done", "expected"),
    [
        (answer(usage(900)), 900),
        (answer(usage(0)), 0),
        (answer(usage(900.0)), 900),
        (Completed(data=usage(900)), 900),  # as a webhook answers
        (answer(None, json.dumps(usage(900))), 900),
        (answer(None, "hello", json.dumps(usage(900)), "[1"), 900),
        (answer(usage(900), json.dumps(usage(7))), 900),  # both say it: it counts once
        (answer({"text": "hello"}, json.dumps(usage(900))), 900),
        (answer(None, json.dumps(usage(900)), json.dumps(usage(7))), 907),
    ],
)
def test_number_is_found_where_answers_have_it(done: Completed, expected: int) -> None:
    assert truth(done) == expected * UNIT


@pytest.mark.parametrize(
    "number",
    [-1, -0.5, "900", True, None, [900], {"n": 900}, float("nan"), float("inf")],
)
def test_what_is_no_number_leaves_the_estimate(number: JSON) -> None:  # law 4
    assert truth(answer(usage(number))) is None
    # Not even if another part of the answer has one.
    assert truth(answer(usage(number), json.dumps(usage(1)))) is None


@pytest.mark.parametrize(
    "done",
    [
        Completed(),
        Completed(data="900"),
        answer(),
        answer({"usage": 900}),
        answer(None, "900 tokens"),
        answer(None, '{"usage": {"total_tokens": NaN}}'),
        answer(None, '{"usage": {"total_tokens": 1, "total_tokens": 0}}'),
        answer(None, "[" * 100_000),
        Completed(data={"$cut": {"sha256": "", "bytes": 1}}),
    ],
)
def test_answer_without_the_number_leaves_the_estimate(done: Completed) -> None:
    assert truth(done) is None


def test_all_numbers_that_the_path_finds_are_added() -> None:
    steps: JSON = {"steps": [{"n": 3}, {"n": 4.5}, {"m": 9}]}

    assert truth(answer(steps), tokens(of="result$.steps[*].n")) == 7_500_000
    assert truth(answer({"steps": [{"n": 3}, {"n": -4}]}), tokens(of="result$..n")) is (
        None
    )


@pytest.mark.parametrize("number", [10**30, 1e300, 10**4000])
def test_huge_number_counts_as_the_largest_that_there_is(number: JSON) -> None:
    assert truth(answer(usage(number))) == MOST  # law 9


def test_finer_number_than_is_counted_is_rounded_up() -> None:
    assert (
        truth(answer({"cost": 0.00014580000000000002}), tokens(of="result$.cost"))
        == 146
    )


def test_cached_answer_has_spent_nothing() -> None:
    assert truth(Completed(data=usage(900), cached=True)) == 0


def test_error_of_the_tool_has_spent_what_it_says() -> None:
    assert truth(Completed(data=usage(900), is_error=True)) == 900 * UNIT


@given(JSON_VALUES, st.sampled_from([TOKENS, "result$..*", "result$"]))
def test_no_answer_makes_it_raise(value: JSON, of: str) -> None:  # law 9
    for done in (Completed(data=value), answer(value, json.dumps(value))):
        found = truth(done, tokens(of=of))
        assert found is None or 0 <= found <= MOST


# -- prices --------------------------------------------------------------------


def test_price_is_that_of_a_parameter() -> None:
    assert truth(answer(usage(1500)), PRICED, SMALL) == 1500
    assert truth(answer(usage(1500)), PRICED, LARGE) == 30_000
    assert truth(answer(usage(1500)), tokens("day", price=MICRO), {}) == 1500


def test_price_of_a_fraction_of_a_millionth_is_rounded_up_once_a_call() -> None:
    assert truth(answer(usage(10)), tokens("day", price=MICRO * 15 // 100)) == 2


@pytest.mark.parametrize("params", [{}, {"model": "m-new"}, {"model": 7}])
def test_estimate_without_a_price_cannot_be_counted(params: dict[str, JSON]) -> None:
    default = tokens("day", by="model", prices={"m-small": MICRO}, price=3 * MICRO)

    assert [cost.amount for cost in costs([PRICED], "model", params)] == [None]
    assert [cost.amount for cost in costs([default], "model", params)] == [6000]


def test_money_and_numbers_are_two_budgets() -> None:
    assert tokens("day").key == f"sum/day/{TOKENS}"
    assert PRICED.key == f"cost/day/{TOKENS}"


def test_recorded_grant_has_estimate_and_prices() -> None:
    for budget in (tokens(), PRICED, tokens(price=5)):
        payload = budget_to_payload(budget)
        assert budget_from_payload(json.loads(json.dumps(payload))) == budget
    assert budget_to_payload(Sum(of="a", limit=1, per="day")) == {
        "kind": "sum",
        "of": "a",
        "limit": 1,
        "per": "day",
    }
    with pytest.raises(UsageError, match="unknown kind"):  # law 4
        budget_from_payload({**budget_to_payload(PRICED), "per_model": 1})


# -- corrections of the store --------------------------------------------------


def test_store_corrects_by_the_difference_and_runs_by_themselves() -> None:
    day, run = f"model/sum/day/{TOKENS}", f"model/sum/run/{TOKENS}"
    spends = {day: 2000, run: 2000, f"@lead/{day}": 2000, "model/open": 1}
    settles = {day: 900, run: 900, f"@lead/{day}": 2500, f"other/sum/day/{TOKENS}": 3}

    found = [*corrections("writer", spends, settles, 7)]

    assert [(one.key, one.amount, one.per, one.age) for one in found] == [
        (f"writer/{day}", -1100, "day", 7),
        (f"lead/{day}", 500, "day", 7),
    ]
    assert [*corrections("writer", spends, {day: 2000}, 7)] == []


# -- the journal ---------------------------------------------------------------


def intent(call: int = 1, **spends: int) -> ToolInvoked:
    return ToolInvoked(
        call=call,
        name="ask",
        server="chat",
        tool="complete",
        params={**SMALL},
        params_sha256="",
        effect="unsafe",
        rule="allow[1]",
        idempotency_key="",
        fuel=0,
        spends={**spends} or None,
    )


def completed(settles: dict[str, JSON] | None = None, call: int = 1) -> ToolCompleted:
    data: JSON = usage(900)
    return ToolCompleted(
        call=call, is_error=False, message="", data=data, settles=settles
    )


KEY = f"model/{tokens().key}"


def test_journal_counts_what_was_spent_in_truth() -> None:  # law 5
    journal = Journal(bounds=[Bound(name="narrow", grant=chatting(tokens()))])

    journal.apply(intent(**{KEY: 2000}), 1)
    assert [tally.spent[KEY] for tally in journal.tallies.each()] == [2000, 2000]
    journal.apply(completed({KEY: 900}), 2)

    assert [tally.spent[KEY] for tally in journal.tallies.each()] == [900, 900]


def test_answer_that_settles_nothing_leaves_the_estimate_in_the_journal() -> None:
    journal = Journal()
    journal.apply(intent(**{KEY: 2000}), 1)

    journal.apply(completed({"another": 900}), 2)

    assert journal.tallies.recorded.spent == {KEY: 2000}


@pytest.mark.parametrize("live", [True, False])
def test_grant_that_binds_later_counts_what_earlier_answers_say(live: bool) -> None:  # noqa: FBT001
    today = Bound(name=TODAY, grant=chatting(tokens()))
    journal = Journal(bounds=[] if live else [today])
    journal.apply(intent(), 1)
    journal.apply(completed(), 2)
    journal.apply(intent(2), 3)

    if live:
        journal.bind(today)

    # The second call has no answer yet.
    assert journal.tallies.of(TODAY).spent == {KEY: 900 * UNIT + 2000 * UNIT}


def test_grant_that_binds_later_counts_by_the_price_of_each_call() -> None:
    priced = tokens(by="model", prices={"m-small": MICRO, "m-large": 20 * MICRO})
    journal = Journal()
    journal.apply(intent(), 1)
    journal.apply(completed(), 2)

    journal.bind(Bound(name=TODAY, grant=chatting(priced)))

    assert journal.tallies.of(TODAY).spent == {f"model/{priced.key}": 900}


def test_error_of_a_tool_is_no_success_for_a_grant_that_binds_later() -> None:
    journal = Journal()
    journal.apply(intent(), 1)
    journal.apply(replace(completed(), is_error=True), 2)

    journal.bind(Bound(name=TODAY, grant=chatting(tokens())))

    assert journal.tallies.of(TODAY).done == set()


def test_answer_that_cannot_be_searched_leaves_the_estimate(  # law 4
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> list[JSON]:
        raise RecursionError

    monkeypatch.setattr("caxton_host.core.grants.settlement._values", broken)

    assert truth(answer(usage(900))) is None
