"""What a rule wants of people, as data, and whose yes is enough: law 4."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.calls import JSON, Route, ToolCall
from caxton_host.core.grants.approvals import Approve, unmet
from caxton_host.core.grants.conditions import Conditions
from caxton_host.core.grants.decisions import Allowed, Attempt, Tally, decide
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.grants.journal import Fresh, Journal
from caxton_host.core.log.asked import Asked
from caxton_host.core.log.events import (
    ApprovalDecided,
    ApprovalRequested,
    Event,
    ToolInvoked,
    to_payload,
)
from caxton_host.core.text.globs import Pattern
from caxton_host.errors import LogBrokenError, NondeterminismError, UsageError

OPS = Approve(by=("ops", "board"), within=900.0)
LARGE = Approve(when=Conditions.parse({"amount": {"min": 10000}}, deny=True))

FRESH = Approve(fresh=300.0)
BOTH = Approve(by=("ops", "board"), count=2, not_requester=True)
ANN: dict[str, JSON] = {"kind": "token", "id": "ann", "authenticated": True}


def rule(approve: Approve | None, name: str = "allow[1]") -> Rule:
    return Rule(id=name, tools=(Pattern.parse("demo/*"),), approve=approve)


def asked(call: int = 1) -> ApprovalRequested:
    return ApprovalRequested(
        call=call,
        name="x",
        server="demo",
        tool="x",
        params={},
        params_sha256="",
        rule="allow[1]",
        fuel=7,
        by=(),
        until=None,
    )


def decided(verdict: str, role: str = "", by: str = "ann") -> ApprovalDecided:
    actor: dict[str, JSON] = {"kind": "token", "id": by, "authenticated": True}
    return ApprovalDecided(call=1, verdict=verdict, actor=actor, reason="", role=role)


INTENT = ToolInvoked(
    call=1,
    name="x",
    server="demo",
    tool="x",
    params={},
    params_sha256="",
    effect="read",
    rule="allow[1]",
    idempotency_key="",
    fuel=7,
)


def called(fuel: int = 7) -> ToolCall:
    return ToolCall(number=1, name="x", params={}, digest="", fuel=fuel)


@pytest.mark.parametrize("approve", [None, Approve(), OPS, LARGE, BOTH, FRESH])
def test_grant_comes_back_from_the_log_with_its_people(approve: Approve | None) -> None:
    grant = Grant(allow=(rule(approve),))
    assert Grant.from_payload(grant.to_payload()) == grant
    assert ("approve" in rule(approve).to_payload()) == (approve is not None)


@pytest.mark.parametrize("approve", [{"twice": True}, {"when": {"n": {"odd": True}}}])
def test_condition_of_a_later_version_is_refused(approve: dict[str, JSON]) -> None:
    payload: dict[str, JSON] = {"id": "a", "tools": ["a/b"], "approve": approve}
    with pytest.raises(UsageError):  # law 4
        Grant.from_payload({"allow": [payload]})


@pytest.mark.parametrize(
    ("params", "wanted"),
    [
        ({"amount": 9999}, False),
        ({"amount": 10000}, True),
        ({"amount": "9999"}, True),
        ({"amount": True}, True),
        ({}, True),
        ({"amount": 1, "more": 10**6}, False),
    ],
)
def test_what_cannot_be_judged_has_to_be_approved(
    params: dict[str, JSON], *, wanted: bool
) -> None:  # law 4
    attempt = Attempt(route=Route(server="demo", tool="x"), params=params)
    verdict = decide(Grant(allow=(rule(LARGE),)), attempt, Tally())
    assert isinstance(verdict, Allowed)
    assert bool(verdict.approves) is wanted


def test_first_rule_that_allows_a_call_says_who_has_to_approve_it() -> None:
    grant = Grant(allow=(rule(OPS), rule(None, "allow[2]")))
    attempt = Attempt(route=Route(server="demo", tool="x"))
    verdict = decide(grant, attempt, Tally())
    assert verdict == Allowed(rule(OPS), (("allow[1]", OPS),))


@pytest.mark.parametrize(
    ("approve", "roles", "met"),
    [
        (Approve(), (), False),
        (Approve(), ("",), True),
        (Approve(), ("ops",), True),
        (OPS, ("",), False),
        (OPS, ("sales",), False),
        (OPS, ("sales", "board"), True),
    ],
)
def test_yes_of_one_of_those_is_enough(
    approve: Approve, roles: tuple[str, ...], *, met: bool
) -> None:
    assert approve.met_by([decided("approve", role) for role in roles], {}) is met


@pytest.mark.parametrize(
    ("seconds", "counts"),
    [(None, False), (0.0, True), (300.0, True), (300.1, False), (-1.0, False)],
)
def test_yes_of_who_did_not_sign_in_lately_counts_for_other_rules_only(
    seconds: float | None, *, counts: bool
) -> None:  # law 4
    yes = replace(decided("approve"), signed_in_for=seconds)
    one = Asked(asked()).after(yes)
    assert unmet(INTENT, [("allow[1]", Approve())], one, 0, {}) is None

    wanted = unmet(INTENT, [("allow[1]", Approve()), ("allow[2]", FRESH)], one, 0, {})

    assert (wanted is None) is counts
    if isinstance(wanted, ApprovalRequested):
        assert (wanted.rule, wanted.fresh) == ("allow[2]", 300.0)
        again = one.again(wanted, 7).after(yes)
        assert (again.waits, dict(again.counted)) == (True, {})
        now = again.after(replace(yes, signed_in_for=1.0))
        assert not now.waits


def test_decisions_are_recorded_as_before_where_no_sign_in_is_known() -> None:
    # law 1
    payloads = to_payload(asked()), to_payload(decided("approve"))
    assert not {"fresh", "signed_in_for"} & {key for one in payloads for key in one}


#: Who decides, and how: the requester is ann.
DECISIONS = st.lists(
    st.builds(
        decided,
        st.sampled_from(["approve", "approve", "approve", "deny"]),
        st.sampled_from(["ops", "board", "sales"]),
        st.sampled_from(["ann", "bob", "eve", "kim"]),
    ),
    max_size=6,
).flatmap(lambda made: st.tuples(st.just(made), st.permutations(made)))


@given(DECISIONS, st.integers(1, 3), st.booleans())
def test_order_of_approvals_does_not_matter_and_a_denial_ends_it(
    orders: tuple[list[ApprovalDecided], list[ApprovalDecided]],
    count: int,
    not_requester: bool,  # noqa: FBT001
) -> None:  # law 4
    approve = Approve(by=("ops", "board"), count=count, not_requester=not_requester)

    def end(of: list[ApprovalDecided]) -> str:
        barred = approve.not_by(ANN)
        one = Asked(replace(asked(), by=approve.by, count=count, not_by=barred))
        for decision in of:
            one = one.after(decision)
        verdict = unmet(INTENT, [("allow[1]", approve)], one, 0, ANN)
        return "yes" if verdict is None else type(verdict).__name__

    decisions, shuffled = orders
    people = {
        one.actor["id"]
        for one in decisions
        if one.role != "sales" and not (not_requester and one.actor == ANN)
    }
    if any(one.verdict == "deny" for one in decisions):
        expected = "Denied"
    else:
        expected = "yes" if len(people) >= count else "ApprovalRequested"
    assert end(decisions) == end(shuffled) == expected


def told(*events: Event) -> Journal:
    journal = Journal(compare_fuel=True)
    for seq, event in enumerate(events, 2):
        journal.apply(event, 100, seq)
    return journal


def test_yes_of_several_roles_adds_up_and_a_question_opens_again() -> None:
    journal = told(
        *(asked(), decided("approve", "ops")), *(asked(), decided("approve", "board"))
    )
    question = journal.question(1)
    assert question is not None
    assert [one.role for one in question.given] == ["ops", "board"]
    assert not question.waits
    assert journal.waiting == []
    journal.apply(asked(), 100, 6)
    assert [one.seq for one in journal.waiting] == [6]


def test_call_that_was_asked_about_is_fresh_if_it_is_the_same() -> None:
    journal = told(asked())
    assert journal.recall(called()) == Fresh()
    with pytest.raises(NondeterminismError, match=r"\$\.fuel"):
        journal.recall(called(fuel=8))
    assert journal.reached == 1
    assert journal.calls == 0


def test_question_behind_the_end_of_the_agent_is_a_difference() -> None:
    found = told(asked(3)).unmade(1, 0)
    assert found is not None
    assert (found.seq, found.recorded) == (2, "x")
    assert told(asked(3)).unmade(3, 0) is None


def test_word_without_a_question_is_a_broken_log() -> None:
    with pytest.raises(LogBrokenError, match="no question before"):
        told(decided("approve"))
