"""Budgets: what a rule lets its calls take, and what one of them takes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.calls import JSON, Denied, Route
from caxton_host.core.grants.budgets import (
    PERIODS,
    Budget,
    CallCount,
    Concurrency,
    Cost,
    Pace,
    Period,
    Sum,
    Use,
    budget_from_payload,
    budget_to_payload,
    cannot_bear,
    costs,
    exact,
    period_of,
    standing,
)
from caxton_host.core.grants.decisions import Allowed, Attempt, Refusal, Tally, decide
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.text.globs import Pattern
from caxton_host.errors import UsageError
from tests.scene import JSON_VALUES

HOUR = 3_600_000_000
DAY = 24 * HOUR
PAY = Route(server="bank", tool="pay")
DAILY = Sum(of="amount", limit=100_000_000, per="day")
ALL: tuple[Budget, ...] = (
    CallCount(limit=20, per="day"),
    DAILY,
    Pace(limit=30, every=60_000_000, wait=5_000_000),
    Concurrency(limit=2),
)


def paying(
    *budgets: Budget, calls: int | None = None, name: str = "", number: int = 1
) -> Rule:
    return Rule(
        id=f"allow[{number}]",
        tools=(Pattern.parse("bank/*"),),
        calls=calls,
        name=name,
        budgets=budgets,
    )


def verdict(rule: Rule, tally: Tally | None = None, **params: JSON) -> str:
    attempt = Attempt(route=PAY, params=params)
    found = decide(Grant(allow=(rule,)), attempt, tally or Tally())
    return "" if isinstance(found, Allowed) else f"{found.code}: {found.message}"


# -- amounts -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "millionths"),
    [
        (0, 0),
        (-0.0, 0),
        (3, 3_000_000),
        (2**64 - 1, (2**64 - 1) * 1_000_000),
        (0.1, 100_000),
        (19.99, 19_990_000),
        (1e-6, 1),
        (1e-7, None),
        (0.1 + 0.2, None),
        (-1, None),
        (-0.5, None),
        (float("nan"), None),
        (float("inf"), None),
        (True, None),
        ("3", None),
        (None, None),
        ([3], None),
    ],
)
def test_amount_is_exact_or_none(value: JSON, millionths: int | None) -> None:
    assert exact(value) == millionths


@given(st.lists(st.decimals(0, 10**6, places=2), max_size=50))
def test_sum_of_decimals_never_drifts(amounts: list[Decimal]) -> None:
    counted = [exact(float(amount)) for amount in amounts]

    assert sum(n or 0 for n in counted) == sum(amounts) * 1_000_000


@given(JSON_VALUES, st.text(max_size=8))
def test_no_value_makes_a_decision_raise(value: JSON, of: str) -> None:  # law 4
    rule = paying(Sum(of=of, limit=5, per="run"), DAILY)

    assert isinstance(
        decide(
            Grant(allow=(rule,)), Attempt(route=PAY, params={"amount": value}), Tally()
        ),
        (Allowed, Denied),
    )


def test_amount_inside_another_parameter_is_named_with_dots() -> None:
    budget = Sum(of="a.b", limit=9, per="day")

    (cost,) = costs([budget], "x", {"a": {"b": 2}, "a.b": 7})
    assert cost.amount == 2_000_000
    (cost,) = costs([budget], "x", {"a": 7, "a.b": 7})
    assert cost.amount is None


@pytest.mark.parametrize("params", [{}, {"amount": "7"}, {"amount": -7}])
def test_call_without_a_countable_amount_is_denied(params: dict[str, JSON]) -> None:
    text = "budget: the parameter 'amount' is no amount that can be counted"

    assert verdict(paying(DAILY), None, **params) == text  # law 4


def test_amount_above_the_whole_sum_is_denied_without_asking_the_store() -> None:
    assert verdict(paying(DAILY), amount=100) == ""
    assert verdict(paying(DAILY), amount=100.01) == (
        "budget: that grant has no room for so much of 'amount' per day"
    )


# -- budgets of a run ----------------------------------------------------------


def test_sum_of_a_run_counts_what_the_run_has_spent() -> None:
    rule = paying(Sum(of="amount", limit=100_000_000, per="run"), name="pay")
    tally = Tally(spent=Counter({"pay/sum/run/amount": 60_000_000}))

    assert verdict(rule, tally, amount=40) == ""
    assert verdict(rule, tally, amount=40.01).startswith("budget")


def test_sum_of_a_day_is_not_judged_by_one_run() -> None:
    spent = Tally(spent=Counter({"pay/sum/day/amount": 60_000_000}))

    assert verdict(paying(DAILY, name="pay"), spent, amount=100) == ""
    assert (
        cannot_bear(Cost(CallCount(limit=1, per="day"), "pay/calls/day", 1), {}) == ""
    )


def test_rule_that_the_store_refuses_leaves_the_call_to_the_next_one() -> None:
    grant = Grant(allow=(paying(ALL[0]), paying(ALL[0], number=2)))
    busy, rate = Refusal("busy", "all are under way"), Refusal("rate", "too often")

    def judged(**refused: Refusal) -> str:
        given = {f"allow[{name[-1]}]": value for name, value in refused.items()}
        found = decide(grant, Attempt(route=PAY, refused=given), Tally())
        return found.rule.id if isinstance(found, Allowed) else found.code

    assert judged() == "allow[1]"
    assert judged(rule1=busy) == "allow[2]"
    assert judged(rule1=busy, rule2=rate) == "busy"  # the one that came furthest


# -- what they are called ------------------------------------------------------


def test_account_is_the_name_or_what_the_rule_speaks_of() -> None:
    one, more = paying(ALL[0], calls=1), paying(CallCount(limit=90, per="day"), calls=7)
    other = Rule(id="allow[1]", tools=(Pattern.parse("bank/pay"),), budgets=(ALL[0],))

    assert one.account == more.account  # who raises a limit keeps what is spent
    assert one.account != other.account
    assert paying(name="payments").account == "payments"


def test_budgets_of_a_rule_have_keys_of_their_own() -> None:
    rule = paying(*ALL, Sum(of="amount", limit=1, per="run"), name="pay")

    assert [cost.key for cost in rule.costs({"amount": 3})] == [
        "pay/calls/day",
        "pay/sum/day/amount",
        "pay/rate/30/60000000",
        "pay/open",
        "pay/sum/run/amount",
    ]


# -- as they are recorded ------------------------------------------------------


def test_grant_with_budgets_is_read_as_it_was_recorded() -> None:
    grant = Grant(allow=(paying(*ALL, name="pay", calls=5),))

    assert Grant.from_payload(grant.to_payload()) == grant


def test_rule_without_budgets_is_recorded_as_before() -> None:
    assert paying(calls=5).to_payload() == {
        "id": "allow[1]",
        "tools": ["bank/*"],
        "calls": 5,
    }


@pytest.mark.parametrize(
    "payload",
    [
        {"kind": "hope", "limit": 1},
        {"limit": 1},
        {"kind": "calls", "limit": 1, "per": "day", "except": "Sunday"},
    ],
)
def test_recorded_budget_of_an_unknown_kind_is_refused(
    payload: dict[str, JSON],
) -> None:  # law 4
    with pytest.raises(UsageError, match="unknown kind") as refused:
        budget_from_payload(payload)
    assert "newer" in refused.value.fix


@pytest.mark.parametrize("budget", ALL)
def test_budget_is_read_as_it_was_recorded(budget: Budget) -> None:
    assert budget_from_payload(budget_to_payload(budget)) == budget


# -- as they stand ------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "use", "spent", "until"),
    [
        (ALL[0], (3, 0), 3, DAY),
        (ALL[0], (3, -DAY), 0, DAY),  # of the day before
        (ALL[0], (3, DAY), 3, 2 * DAY),  # the clock went back
        (DAILY, (7, 0), 7, DAY),
        (replace(DAILY, per="run"), (7, 0), 0, None),
        (ALL[2], (0, 0), 0, None),
        (ALL[2], (0, HOUR + 3_000_000), 2, HOUR + 3_000_000),
        (ALL[2], (0, 2 * HOUR), 30, 2 * HOUR),
        (ALL[3], (0, 0), 0, None),
    ],
)
def test_budget_tells_what_is_spent_and_until_when(
    budget: Budget, use: tuple[int, int], spent: int, until: int | None
) -> None:
    assert standing(budget, Use(*use), HOUR) == (spent, until)


# -- periods -------------------------------------------------------------------


def micros(*at: int) -> int:
    return int(datetime(*at, tzinfo=UTC).timestamp()) * 1_000_000  # type: ignore[misc, arg-type]


@pytest.mark.parametrize(
    ("period", "start", "end"),
    [
        ("hour", (2026, 12, 31, 23), (2027, 1, 1, 0)),
        ("day", (2026, 12, 31), (2027, 1, 1)),
        ("week", (2026, 12, 28), (2027, 1, 4)),  # a Monday
        ("month", (2026, 12, 1), (2027, 1, 1)),
    ],
)
def test_periods_are_those_of_the_calendar_in_utc(
    period: Period, start: tuple[int, ...], end: tuple[int, ...]
) -> None:
    now = micros(2026, 12, 31, 23, 59, 59) + 999_999

    assert period_of(period, now) == (micros(*start), micros(*end))


@given(st.sampled_from(PERIODS), st.integers(0, 4 * 10**15))
def test_every_moment_is_in_one_period(period: Period, now: int) -> None:
    start, end = period_of(period, now)

    assert start <= now < end
    assert period_of(period, start) == period_of(period, end - 1) == (start, end)
    assert period_of(period, end)[0] == end
