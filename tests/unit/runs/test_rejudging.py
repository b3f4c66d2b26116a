"""Budgets that runs share, in the times of a log."""

from __future__ import annotations

from functools import partial

from caxton_host.core.calls import Completed
from caxton_host.core.grants.budgets import Budget, CallCount, Concurrency, Pace, Sum
from caxton_host.core.grants.decisions import Allowed
from caxton_host.core.grants.grants import Rule
from caxton_host.core.log.events import RunCompleted, ToolInvoked, settled
from caxton_host.core.text.globs import Pattern
from caxton_host.runs.rejudging import Spending

SECOND = 1_000_000
DAY = 86_400 * SECOND
ENDED = RunCompleted(output=None, output_sha256="", fuel=None)


def allowed(*budgets: Budget) -> Allowed:
    tools = (Pattern.parse("demo/echo"),)
    return Allowed(Rule(id="allow[1]", tools=tools, budgets=budgets))


def invoked(number: int) -> ToolInvoked:
    return ToolInvoked(
        call=number,
        name="mcp__demo__echo",
        server="demo",
        tool="echo",
        params={},
        params_sha256="",
        effect="read",
        rule="allow[1]",
        idempotency_key="",
        fuel=0,
    )


def codes(budget: Budget, *calls: tuple[str, int, int]) -> list[str]:
    """Return how calls are refused: of a run, by number, at a time."""
    spending, rule = Spending(), allowed(budget)
    found = [
        spending.reserve("weather", run, rule, invoked(number), at)
        for run, number, at in calls
    ]
    return [refusal.code if refusal else "" for refusal in found]


def test_calls_of_a_day_are_counted_over_runs_and_come_back_with_the_next() -> None:
    calls = [("run/1", 1, DAY), ("run/2", 1, DAY + 1), ("run/2", 2, 2 * DAY)]

    assert codes(CallCount(limit=1, per="day"), *calls) == ["", "budget", ""]


def test_calls_follow_one_another_as_fast_as_a_rate_lets_them() -> None:
    calls = [("run/1", 1, DAY), ("run/1", 2, DAY), ("run/1", 3, DAY + SECOND)]

    assert codes(Pace(limit=1, every=SECOND), *calls) == ["", "rate", ""]


def test_call_that_would_have_waited_for_its_turn_is_allowed() -> None:
    calls = [("run/1", 1, DAY), ("run/1", 2, DAY), ("run/1", 3, DAY)]
    pace = Pace(limit=1, every=SECOND, wait=SECOND)

    assert codes(pace, *calls) == ["", "", "rate"]


def test_places_are_free_when_calls_and_runs_have_ended() -> None:
    spending, rule = Spending(), allowed(Concurrency(limit=1))
    reserve = partial(spending.reserve, "weather")

    assert reserve("run/1", rule, invoked(1), DAY) is None
    refusal = reserve("run/2", rule, invoked(1), DAY)
    assert refusal
    assert refusal.code == "busy"
    spending.settle("run/1", settled(1, Completed()))
    assert reserve("run/2", rule, invoked(1), DAY) is None
    spending.settle("run/1", ENDED)
    assert reserve("run/1", rule, invoked(2), DAY)
    spending.settle("run/2", ENDED)
    assert reserve("run/1", rule, invoked(2), DAY) is None


def test_rule_without_budgets_spends_nothing() -> None:
    spending = Spending()

    assert spending.reserve("weather", "run/1", allowed(), invoked(1), DAY) is None
    assert spending.use("weather") == (0, 0)


def test_shared_budgets_are_corrected_by_answers_in_the_times_of_the_log() -> None:
    per_day = Sum(of="result$.n", limit=10, per="day", estimate=8)
    rule = allowed(per_day)
    key = f"{rule.rule.account}/{per_day.key}"
    spending = Spending()
    reserve = partial(spending.reserve, "weather")
    correct = partial(spending.correct, "weather", {key: 8})

    assert reserve("run/1", rule, invoked(1), DAY) is None
    assert reserve("run/2", rule, invoked(1), DAY + 1)
    correct({key: 1}, DAY + 2, 2)
    assert reserve("run/2", rule, invoked(2), DAY + 3) is None
    correct({key: 99}, 2 * DAY + 1, DAY)  # known on the next day
    assert reserve("run/3", rule, invoked(1), 2 * DAY + 2)
    assert reserve("run/3", rule, invoked(2), 3 * DAY) is None
