"""Budgets, as a configuration says them. What could be misread is refused (law 4)."""

from __future__ import annotations

import pytest

from caxton_host.core.grants.budgets import Budget, CallCount, Concurrency, Pace, Sum

from .conftest import Folder

RULE = "[[agents.a.allow]]\ntools = ['bank/*']\n"
ONE = "{ of = 'a', max = 1, per = 'run' }"
ALLOW = "agents.a.allow[1]"


@pytest.mark.parametrize(
    ("text", "calls", "budgets"),
    [
        ("calls = 5", 5, []),
        ("calls = '5/run'", 5, []),
        ("calls = ['5/run']", 5, []),
        ("calls = '20/day'", None, [CallCount(limit=20, per="day")]),
        (
            "calls = ['20/day', '5/run', '9 / hour']",
            5,
            [CallCount(limit=9, per="hour"), CallCount(limit=20, per="day")],
        ),
        ("rate = '30/min'", None, [Pace(limit=30, every=60_000_000)]),
        (
            "rate = '2/s'\nwait = '500ms'",
            None,
            [Pace(limit=2, every=1_000_000, wait=500_000)],
        ),
        ("concurrency = 2", None, [Concurrency(limit=2)]),
        (
            "sum = { of = 'amount', max = 200000, per = 'day' }",
            None,
            [Sum(of="amount", limit=200_000_000_000, per="day")],
        ),
        (
            """sum = [
                { of = 'to.amount', max = "199.95", per = 'run' },
                { of = 'to.amount', max = 0.1, per = 'month' },
            ]""",
            None,
            [
                Sum(of="to.amount", limit=199_950_000, per="run"),
                Sum(of="to.amount", limit=100_000, per="month"),
            ],
        ),
    ],
)
def test_budgets_are_read(
    folder: Folder, text: str, calls: int | None, budgets: list[Budget]
) -> None:
    (rule,) = folder.load(RULE + text).agents["a"].grant.allow

    assert (rule.calls, list(rule.budgets)) == (calls, budgets)


def test_rule_has_the_name_that_it_is_given(folder: Folder) -> None:
    (rule,) = folder.load(f"{RULE}name = 'payments'").agents["a"].grant.allow

    assert rule.account == "payments"


@pytest.mark.parametrize(
    ("text", "place", "problem", "fix"),
    [
        ("calls = '5/year'", "calls", "periods are run, hour, day", "20/day"),
        ("calls = [5]", "calls", "no number of calls", "5/run"),
        ("calls = true", "calls", "no number of calls", "5/run"),
        ("calls = []", "calls", "empty", "5/run"),
        ("calls = ['5/day', '6/day']", "calls", "says twice how many per day", "one"),
        ("calls = '0/day'", "calls", "no call at all", "remove the rule"),
        ("rate = '30'", "rate", "not a rate", "60/min"),
        ("wait = '5s'", "wait", "is for a rate", "30/min"),
        ("concurrency = 0", "concurrency", "no call at all", "remove the rule"),
        ("concurrency = '2'", "concurrency", "wanted a whole number", "20"),
        ("sum = 5", "sum", "wanted a table", "key"),
        ("sum = { of = 'a', max = 5 }", "sum", "does not say per", "amount"),
        ("sum = { of = 'a', max = 5, per = 'year' }", "sum.per", "none of", "day"),
        ("sum = { of = 'a..b', max = 5, per = 'run' }", "sum.of", "no name", "amount"),
        ("sum = { of = 'a', max = 0, per = 'run' }", "sum.max", "no sum", "199.95"),
        ("sum = { of = 'a', max = 1e-7, per = 'run' }", "sum.max", "no sum", "199.95"),
        ("sum = { of = 'a', max = 1e13, per = 'run' }", "sum.max", "no sum", "199.95"),
        ("sum = { of = 'a', max = '1e3', per = 'run' }", "sum.max", "no sum", "199"),
        ("sum = { of = 'a', max = true, per = 'run' }", "sum.max", "no sum", "199.95"),
        (
            f"sum = [{ONE}, {ONE}]",
            "sum",
            "same sum twice",
            "keep one",
        ),
        ("name = 'a/b'", "name", "no name for a rule", "letters"),
    ],
)
def test_complaint_names_the_key_and_what_to_do(
    folder: Folder, text: str, place: str, problem: str, fix: str
) -> None:
    error = folder.refusal(RULE + text)

    assert f"{ALLOW}.{place}" in str(error)
    assert problem in str(error)
    assert fix in error.fix


def test_two_rules_never_spend_one_budget(folder: Folder) -> None:
    error = folder.refusal(f"{RULE}calls = '5/day'\n{RULE}concurrency = 2")
    assert "agents.a.allow[2]" in str(error)
    assert "has budgets for what allow[1] has budgets for" in str(error)
    assert "name" in error.fix

    error = folder.refusal(f"{RULE}name = 'x'\n{RULE}name = 'x'")
    assert "agents.a.allow[2].name" in str(error)
    assert "is the name of allow[1] too" in str(error)

    folder.load(f"{RULE}calls = '5/day'\nname = 'x'\n{RULE}concurrency = 2")
    folder.load(f"{RULE}calls = 5\n{RULE}calls = 7")  # these are each rule's own
