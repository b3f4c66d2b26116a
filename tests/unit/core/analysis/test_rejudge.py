"""Calls judged again, and verdicts with their reasons: law 4, after the fact."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.analysis.rejudge import RejudgedCall, Rejudger, explain
from caxton_host.core.calls import JSON, Completed, Denied, Failed, Outcome, Route
from caxton_host.core.grants.approvals import Approve
from caxton_host.core.grants.budgets import UNIT, Sum
from caxton_host.core.grants.conditions import Conditions
from caxton_host.core.grants.decisions import Allowed, Attempt, Refusal, Tally, decide
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.log.events import (
    ApprovalRequested,
    Event,
    LogWritten,
    ToolInvoked,
    settled,
)
from caxton_host.core.text.globs import Pattern
from tests.unit.store.fakes import run_started

ECHO = Route(server="demo", tool="echo")
OK = Completed()
LOST = Failed(kind="transport", sent="no", message="")


def rule(*tools: str, name: str = "allow[1]", calls: int | None = None) -> Rule:
    return Rule(id=name, tools=tuple(map(Pattern.parse, tools)), calls=calls)


def invoked(
    number: int, tool: str | None = "echo", *, by: str | None = "allow[1]"
) -> ToolInvoked:
    return ToolInvoked(
        call=number,
        name=f"mcp__demo__{tool}",
        server=tool and "demo",
        tool=tool,
        params={"n": number},
        params_sha256="",
        effect="read",
        rule=by,
        idempotency_key="",
        fuel=0,
    )


def denied(code: str, by: str | None = None) -> Denied:
    return Denied(code=code, rule=by, message="no")


def retried(trial: Rejudger, *events: Event) -> list[RejudgedCall]:
    taken = [trial.take(event, 10 * n, n) for n, event in enumerate(events, 1)]
    return [judged for judged in taken if judged]


def call(
    number: int, outcome: Outcome = OK, tool: str | None = "echo"
) -> tuple[Event, Event]:
    by = None if isinstance(outcome, Denied) else "allow[1]"
    return invoked(number, tool, by=by), settled(number, outcome)


# -- judged again ----------------------------------------------------------------


def test_same_grant_changes_nothing() -> None:
    trial = Rejudger(grant=Grant(allow=(rule("demo/echo", calls=1),)))

    first, second = retried(trial, *call(1), *call(2, denied("budget", "allow[1]")))

    assert (first.was, first.code, first.changed) == ("allowed", "allowed", False)
    assert (second.was, second.code, second.changed) == ("budget", "budget", False)
    assert (second.rule, second.seq, second.at) == ("allow[1]", 3, 30)


def test_a_session_counts_on_from_the_one_before_it() -> None:
    grant = Grant(allow=(rule("demo/echo", calls=2),))
    first, second = Rejudger(grant=grant), Rejudger(grant=grant)

    retried(first, *call(1))
    second.count_on(first)
    allowed, refused = retried(second, *call(1), *call(2))

    assert (allowed.code, allowed.attempts, allowed.made) == ("allowed", 2, 2)
    assert (refused.code, refused.changed) == ("budget", True)


def test_what_a_session_carried_is_counted_where_nothing_else_is_known() -> None:
    grant = Grant(allow=(rule("demo/echo", calls=1),))
    carried = Tally(Counter({"allow[1]": 1})).carried

    (judged,) = retried(
        Rejudger(grant=grant), replace(run_started(), carried=carried), *call(1)
    )

    assert judged.code == "budget"


def test_call_that_is_denied_now_is_a_change() -> None:
    (judged,) = retried(Rejudger(grant=Grant()), *call(1))

    assert (judged.was, judged.rule, judged.code) == (
        "allowed",
        "allow[1]",
        "not_granted",
    )
    assert judged.changed


def test_call_that_is_allowed_now_is_a_change() -> None:
    grant = Grant(allow=(rule("demo/*"),))

    (judged,) = retried(Rejudger(grant=grant), *call(1, denied("not_granted")))

    assert (judged.was, judged.code, judged.changed) == ("not_granted", "allowed", True)


def test_another_reason_for_the_same_denial_is_no_change() -> None:
    (judged,) = retried(Rejudger(grant=Grant()), *call(1, denied("budget", "allow[1]")))

    assert judged.code == "not_granted"
    assert not judged.changed


def test_a_run_spends_what_the_other_grant_gives() -> None:
    trial = Rejudger(grant=Grant(allow=(rule("demo/echo", calls=2),)))

    judged = retried(trial, *call(1), *call(2, LOST), *call(3))

    assert [one.code for one in judged] == ["allowed", "allowed", "budget"]


def test_only_what_answered_opens_what_comes_after_it() -> None:
    after = replace(rule("demo/rm"), only_after=(Pattern.parse("demo/echo"),))
    grant = Grant(allow=(rule("demo/echo", name="allow[2]"), after))

    def last(*outcomes: Outcome) -> str:
        events = [e for n, one in enumerate(outcomes, 1) for e in call(n, one)]
        end = len(outcomes) + 1
        return retried(Rejudger(grant=grant), *events, *call(end, OK, "rm"))[-1].code

    assert last(OK) == "allowed"
    assert last(Completed(is_error=True)) == "order"
    assert last(LOST) == "order"
    assert last(denied("not_granted")) == "order"  # allowed now, and never answered
    assert last() == "order"


def test_what_is_denied_now_was_not_called() -> None:
    closed = replace(rule("demo/rm"), unless_after=(Pattern.parse("demo/echo"),))

    judged = retried(
        Rejudger(grant=Grant(allow=(closed,))), *call(1), *call(2, OK, "rm")
    )

    assert [one.code for one in judged] == ["not_granted", "allowed"]


TOKENS = Sum(of="result$.n", limit=10 * UNIT, per="run", estimate=4 * UNIT)


def said(number: JSON, **more: Any) -> Completed:  # noqa: ANN401 -- fields of all kinds
    return Completed(data={"n": number}, **more)


def codes(*answers: Completed) -> list[str]:
    """Return the verdicts on calls with these answers, and on one more."""
    budgets = (TOKENS,)
    grant = Grant(allow=(replace(rule("demo/echo"), budgets=budgets, name="model"),))
    events = [e for n, one in enumerate((*answers, OK), 1) for e in call(n, one)]
    return [one.code for one in retried(Rejudger(grant=grant), *events)]


def test_a_run_spends_what_its_answers_say() -> None:
    assert codes(said(7)) == ["allowed", "budget"]
    assert codes(said(1), said(1), said(1)) == ["allowed"] * 4
    assert codes(said("x"), said("x")) == ["allowed", "allowed", "budget"]
    assert codes(said(99, cached=True)) == ["allowed", "allowed"]


def test_answer_that_the_log_lacks_has_spent_what_was_recorded() -> None:
    key = f"model/{TOKENS.key}"
    cut_ = Completed(data={"$cut": {}}, settles={key: 7 * UNIT, "another": 99})

    assert codes(cut_) == ["allowed", "budget"]
    # The price of the other grant counts, where the answer is known.
    assert codes(said(1, settles={key: 7 * UNIT})) == ["allowed", "allowed"]


def test_rules_expire_by_the_times_of_the_log() -> None:
    trial = Rejudger(grant=Grant(allow=(replace(rule("demo/echo"), expires=30),)))

    judged = retried(trial, *call(1), *call(2))

    assert [(one.at, one.code) for one in judged] == [(10, "allowed"), (30, "expired")]


def test_what_no_grant_decided_is_no_change() -> None:
    grant = Grant(allow=(rule("demo/*"),))
    bad = replace(invoked(1, by=None), params=None)

    judged = retried(
        Rejudger(grant=grant),
        bad,
        settled(1, denied("bad_request")),
        *call(2, denied("limit", "limits.total_calls")),
    )

    assert [one.was for one in judged] == ["bad_request", "limit"]
    assert not any(one.changed for one in judged)


def test_name_that_led_nowhere_leads_where_the_other_configuration_says() -> None:
    grant = Grant(allow=(rule("demo/echo"),))
    nowhere = call(1, denied("not_granted"), None)

    (same,) = retried(Rejudger(grant=grant), *nowhere)
    (other,) = retried(Rejudger(grant=grant, leads=lambda _: ECHO), *nowhere)

    assert (same.code, other.code) == ("not_granted", "allowed")


def test_parameters_are_measured_by_whoever_can() -> None:
    grant = Grant(allow=(replace(rule("demo/echo"), max_params=9),))

    (small,) = retried(Rejudger(grant=grant), *call(1))
    (large,) = retried(Rejudger(grant=grant, measure=lambda _: 10), *call(1))

    assert (small.code, large.code) == ("allowed", "too_large")


def test_other_events_say_nothing() -> None:
    line = LogWritten(n=1, level="info", text="")

    assert retried(Rejudger(grant=Grant()), line) == []


def test_call_that_was_never_closed_is_judged_if_it_was_allowed() -> None:
    trial = Rejudger(grant=Grant())

    judged = retried(trial, invoked(1), invoked(2, by=None))

    assert [one.invoked.call for one in judged] == [1]


# -- budgets ---------------------------------------------------------------------


def test_sum_of_a_run_is_spent_by_what_the_other_grant_allows() -> None:
    summed = replace(rule("demo/*"), budgets=(Sum(of="n", limit=4 * UNIT, per="run"),))

    judged = retried(
        Rejudger(grant=Grant(allow=(summed,))), *call(1), *call(3), *call(2)
    )

    assert [one.code for one in judged] == ["allowed", "allowed", "budget"]


def test_budget_that_runs_share_is_asked_for_and_another_rule_may_have_room() -> None:
    full = Refusal("rate", "too often")
    asked: list[tuple[str, int]] = []

    def reserve(allowed: Allowed, _: ToolInvoked, at: int) -> Refusal | None:
        asked.append((allowed.rule.id, at))
        return full if allowed.rule.id == "allow[1]" else None

    one, other = rule("demo/*"), rule("demo/echo", name="allow[2]")
    trial = Rejudger(grant=Grant(allow=(one, other)), reserve=reserve)

    first, second = retried(trial, *call(1), *call(2, OK, "rm"))

    assert first.now == Allowed(other)
    assert (second.code, second.changed) == ("rate", True)
    assert asked == [("allow[1]", 10), ("allow[2]", 10), ("allow[1]", 30)]
    assert trial.tally.used == {"allow[2]": 1}


# -- people ----------------------------------------------------------------------

ASKING = replace(rule("demo/echo"), approve=Approve(by=("ops",)))
ASKED = ApprovalRequested(
    call=1,
    name="mcp__demo__echo",
    server="demo",
    tool="echo",
    params={},
    params_sha256="",
    rule="allow[1]",
    fuel=0,
    by=("ops",),
    until=None,
)


def test_call_that_people_are_asked_about_now_is_a_change() -> None:
    trial = Rejudger(grant=Grant(allow=(ASKING,)))

    (judged,) = retried(trial, *call(1))

    assert (judged.was, judged.code, judged.changed) == ("allowed", "asks", True)
    assert trial.tally.called == {("demo", "echo")}


def test_call_that_people_were_asked_about_is_no_change_whatever_they_said() -> None:
    grant = Grant(allow=(ASKING,))
    said_no = Rejudger(grant=grant)

    (yes,) = retried(Rejudger(grant=grant), ASKED, *call(1))
    (no,) = retried(said_no, ASKED, *call(1, denied("approval", "allow[1]")))

    assert [(one.was, one.code) for one in (yes, no)] == [("asks", "asks")] * 2
    assert not yes.changed
    assert not no.changed
    assert said_no.tally.called == set()


def test_call_that_nobody_is_asked_about_any_more_is_a_change() -> None:
    grant = Grant(allow=(rule("demo/echo"),))

    (judged,) = retried(
        Rejudger(grant=grant), ASKED, *call(1, denied("approval", "allow[1]"))
    )

    assert (judged.was, judged.code, judged.changed) == ("asks", "allowed", True)


GRANTS = st.builds(
    Grant,
    allow=st.lists(
        st.builds(
            rule,
            st.sampled_from(["demo/echo", "demo/*", "demo/rm"]),
            name=st.sampled_from(["allow[1]", "allow[2]"]),
            calls=st.none() | st.integers(0, 3),
        ),
        max_size=3,
    ).map(tuple),
    deny=st.lists(st.just(rule("demo/rm", name="deny[1]")), max_size=1).map(tuple),
)


@given(grant=GRANTS, tools=st.lists(st.sampled_from(["echo", "rm", "x"]), max_size=8))
def test_judging_again_by_the_grant_that_judged_changes_nothing(
    grant: Grant, tools: list[str]
) -> None:
    tally, events = Tally(), list[Event]()
    for number, tool in enumerate(tools, 1):
        verdict = decide(grant, Attempt(route=Route(server="demo", tool=tool)), tally)
        if isinstance(verdict, Allowed):
            tally.used[verdict.rule.id] += 1
            tally.called.add(("demo", tool))
            events += invoked(number, tool, by=verdict.rule.id), settled(number, OK)
        else:
            events += call(number, verdict, tool)

    judged = retried(Rejudger(grant=grant), *events)

    assert len(judged) == len(tools)
    assert not any(one.changed or one.was != one.code for one in judged)


# -- explained -------------------------------------------------------------------


def test_explanation_is_the_verdict_with_what_each_rule_says() -> None:
    grant = Grant(
        allow=(rule("demo/echo", calls=0), rule("demo/*", name="allow[2]")),
        deny=(rule("demo/rm", name="deny[1]"),),
    )
    params: dict[str, JSON] = {"n": 1}

    found = explain(grant, Attempt(route=ECHO, params=params), Tally())

    assert (found.code, found.rule) == ("allowed", "allow[2]")
    assert [
        (one.rule.id, one.speaks, one.refusal and one.refusal.code)
        for one in found.considered
    ] == [
        ("deny[1]", False, None),
        ("allow[1]", True, "budget"),
        ("allow[2]", True, None),
    ]


def test_explanation_of_a_denial_names_what_denied() -> None:
    grant = Grant(deny=(rule("demo/echo", name="deny[1]"),))

    assert explain(grant, Attempt(route=ECHO), Tally()).rule == "deny[1]"
    assert explain(Grant(), Attempt(route=ECHO), Tally()).rule is None
    assert explain(Grant(), Attempt(route=ECHO), Tally()).code == "not_granted"


# -- rules about sources -------------------------------------------------------

_FROM = Conditions.parse({"to": {"from": ["office/list$.ibans[*]"]}})
_OFFICE = Completed(data={"structuredContent": {"ibans": ["DE02"]}})
_PAY = Rule(id="allow[2]", tools=(Pattern.parse("bank/pay"),), params=_FROM)


def made(
    number: int, tool: str, outcome: Outcome = OK, **params: JSON
) -> tuple[Event, Event]:
    server, _, name = tool.partition("/")
    event = replace(invoked(number), server=server, tool=name, params=params)
    return event, settled(number, outcome)


def test_an_old_run_is_judged_by_a_rule_about_sources() -> None:  # law 5
    trial = Rejudger(grant=Grant(allow=(rule("office/list"), _PAY)))

    listed, honest, injected = retried(
        trial,
        run_started(),
        *made(1, "office/list", _OFFICE),
        *made(2, "bank/pay", to="DE02"),
        *made(3, "bank/pay", to="LT60"),
    )

    assert [one.code for one in (listed, honest)] == ["allowed", "allowed"]
    assert (injected.was, injected.code, injected.changed) == (
        *("allowed", "params"),
        True,
    )


def test_an_answer_that_the_agent_had_counts_although_it_would_be_denied_now() -> None:
    trial = Rejudger(grant=Grant(allow=(_PAY,)))

    listed, paid = retried(
        trial,
        run_started(),
        *made(1, "office/list", _OFFICE),
        *made(2, "bank/pay", to="DE02"),
    )

    assert [one.code for one in (listed, paid)] == ["not_granted", "allowed"]
