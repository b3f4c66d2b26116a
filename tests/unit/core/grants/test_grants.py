"""What an agent may do: law 4, sentence by sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.calls import JSON, Denied, Route
from caxton_host.core.grants.decisions import (
    Allowed,
    Attempt,
    Tally,
    considered,
    decide,
    may_ever,
)
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.text.globs import Pattern
from caxton_host.core.text.jsonpath import JsonPath
from caxton_host.errors import UsageError

ECHO = Route(server="demo", tool="echo")


def allow(*tools: str, calls: int | None = None, name: str = "allow[1]") -> Rule:
    return Rule(id=name, tools=tuple(map(Pattern.parse, tools)), calls=calls)


def patterns(*texts: str) -> tuple[Pattern, ...]:
    return tuple(map(Pattern.parse, texts))


def judged(
    grant: Grant, route: Route | None, used: Mapping[str, int] | None = None
) -> str | Denied:
    """Return the rule that allows the call, or how it is denied."""
    verdict = decide(grant, Attempt(route=route), Tally(used=Counter(used)))
    return verdict.rule.id if isinstance(verdict, Allowed) else verdict


def code(grant: Grant, **used: int) -> str:
    verdict = judged(grant, ECHO, used)
    return verdict.code if isinstance(verdict, Denied) else "allowed"


# -- decide --------------------------------------------------------------------


def test_no_grant_no_call() -> None:  # law 4
    assert code(Grant()) == "not_granted"


def test_name_that_leads_nowhere_is_denied_like_one_without_a_grant() -> None:
    grant = Grant(allow=(allow("other/x"),))

    assert judged(grant, None) == judged(grant, ECHO)


def test_grant_allows_by_the_first_rule_that_fits() -> None:
    grant = Grant(allow=(allow("demo/x"), allow("demo/echo", name="allow[2]")))

    assert judged(grant, ECHO) == "allow[2]"


def test_deny_rule_wins() -> None:  # law 4
    grant = Grant(allow=(allow("demo/echo"),), deny=(allow("demo/*", name="deny[1]"),))

    verdict = judged(grant, ECHO)

    assert isinstance(verdict, Denied)
    assert (verdict.code, verdict.rule) == ("denied", "deny[1]")


def test_deny_rule_for_another_tool_does_not_matter() -> None:
    grant = Grant(allow=(allow("demo/*"),), deny=(allow("demo/rm", name="deny[1]"),))

    assert code(grant) == "allowed"


def test_spent_rule_allows_nothing() -> None:
    grant = Grant(allow=(allow("demo/echo", calls=2),))

    assert judged(grant, ECHO, {"allow[1]": 1}) == "allow[1]"
    assert judged(grant, ECHO, {"allow[1]": 2}) == Denied(
        code="budget", rule="allow[1]", message="all 2 calls of that grant are spent"
    )


def test_later_rule_takes_over_from_a_spent_one() -> None:
    grant = Grant(
        allow=(allow("demo/echo", calls=1), allow("demo/*", name="allow[2]", calls=1))
    )

    assert judged(grant, ECHO, {"allow[1]": 1}) == "allow[2]"
    assert code(grant, **{"allow[1]": 1, "allow[2]": 1}) == "budget"


def test_denial_tells_the_agent_no_tool_and_no_rule() -> None:
    grant = Grant(deny=(allow("demo/echo", name="deny[1]"),))

    verdict = judged(grant, ECHO)

    assert isinstance(verdict, Denied)
    assert "echo" not in verdict.message
    assert "deny[1]" not in verdict.message


def test_rule_without_calls_to_give_never_allows() -> None:
    grant = Grant(allow=(allow("demo/echo", calls=0),))

    assert not may_ever(grant, ECHO)
    assert may_ever(Grant(allow=(allow("demo/echo"),)), ECHO)


# -- patterns ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "server", "tool", "fits"),
    [
        ("demo/echo", "demo", "echo", True),
        ("demo/echo", "demo", "echo2", False),
        ("demo/echo", "Demo", "echo", False),
        ("demo/echo", "demo", "ECHO", False),
        ("demo/*", "demo", "echo", True),
        ("demo/*", "demo2", "echo", False),
        ("demo*/x", "demo2", "x", True),
        ("de*/echo", "demo/echo", "x", False),
        ("d*/x", "d", "y/x", False),
        ("demo/get_*", "demo", "get_", True),
        ("demo/*_get", "demo", "a_get", True),
        ("demo/a*b*c", "demo", "a1b2c", True),
        ("demo/a*b*c", "demo", "a1c2b", False),
        ("demo/aa*aa", "demo", "aaa", False),
        ("demo/a**b", "demo", "ab", True),
        ("demo/a.c", "demo", "abc", False),
        ("demo/[ab]", "demo", "a", False),
        ("demo/a?", "demo", "ab", False),
    ],
)
def test_pattern(pattern: str, server: str, tool: str, fits: bool) -> None:  # noqa: FBT001
    # attacks 24 and 25
    assert Pattern.parse(pattern).matches(server, tool) is fits


@pytest.mark.parametrize("text", ["", "demo", "/echo", "demo/", "*/echo", "**/x"])
def test_pattern_names_a_server_and_a_tool(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Pattern.parse(text)
    assert caught.value.fix


def test_pattern_has_at_most_three_stars() -> None:
    # attack 25
    assert Pattern.parse("a*/b*c*").matches("a", "bc")
    with pytest.raises(UsageError, match="more than 3 stars"):
        Pattern.parse("a*/b*c*d*")


def test_pattern_without_a_star_names_one_tool() -> None:
    grant = Grant(
        allow=(allow("a/b", "c/*"), allow("d*/e", "f/g", name="allow[2]")),
        deny=(allow("x/y", name="deny[1]"),),
    )

    assert grant.literals() == [("a", "b"), ("f", "g")]


def test_servers_of_a_grant_are_those_an_allow_rule_speaks_of() -> None:
    grant = Grant(allow=(allow("crm*/get"),), deny=(allow("shell/*", name="deny[1]"),))

    assert grant.servers(["crm2", "shell", "crm", "a"]) == ["crm2", "crm"]


def slow_match(pattern: str, text: str) -> bool:
    """Match by trying everything."""

    @cache
    def fits(i: int, j: int) -> bool:
        if i == len(pattern):
            return j == len(text)
        if pattern[i] == "*":
            return fits(i + 1, j) or (j < len(text) and fits(i, j + 1))
        return j < len(text) and pattern[i] == text[j] and fits(i + 1, j + 1)

    return fits(0, 0)


GLOBS = st.text("ab*", min_size=1, max_size=10).filter(lambda t: t.count("*") <= 3)


@given(pattern=GLOBS, text=st.text("ab", max_size=12))
def test_glob_agrees_with_a_matcher_that_tries_everything(
    pattern: str, text: str
) -> None:
    assert Pattern.parse(f"s/{pattern}").matches("s", text) is slow_match(pattern, text)


def test_glob_made_to_be_slow_is_not() -> None:
    # attack 25
    pattern = Pattern.parse("s/a*aab*aab*b")
    hostile = "a" * 1_000_000

    assert not pattern.matches("s", hostile)  # a backtracking one takes days


# -- as recorded ---------------------------------------------------------------

RULES = st.builds(
    Rule,
    id=st.text(min_size=1),
    tools=st.lists(
        st.sampled_from(["demo/echo", "demo/*", "a*/b*"]).map(Pattern.parse),
        max_size=3,
    ).map(tuple),
    calls=st.none() | st.integers(0, 1000),
    source=st.sampled_from(["", "caxton.toml:3"]),
)


@given(
    st.builds(
        Grant,
        allow=st.lists(RULES, max_size=3).map(tuple),
        deny=st.lists(RULES, max_size=3).map(tuple),
    )
)
def test_recorded_grant_is_the_grant(grant: Grant) -> None:
    assert Grant.from_payload(grant.to_payload()) == grant


def test_grant_recorded_empty_is_empty() -> None:
    assert Grant.from_payload({}) == Grant()


@pytest.mark.parametrize(
    "payload",
    [
        {"allow": [{"id": "allow[1]", "tools": ["demo/*"], "params": {"a": 1}}]},
        {"deny": [], "until": 5},
    ],
)
def test_unknown_key_in_a_recorded_grant_is_an_error(
    payload: dict[str, object],
) -> None:
    # law 4: a condition that this version does not know must not widen the grant.
    with pytest.raises(UsageError, match=r"params|until"):
        Grant.from_payload(payload)  # type: ignore[arg-type]


# -- order, time, size ---------------------------------------------------------


def refused(rule: Rule, attempt: Attempt, tally: Tally | None = None) -> str:
    """Return the code of the denial by a grant of that one rule, or nothing."""
    verdict = decide(Grant(allow=(rule,)), attempt, tally or Tally())
    return verdict.code if isinstance(verdict, Denied) else ""


def test_rule_allows_nothing_from_its_expiry_on() -> None:
    rule = replace(allow("demo/echo"), expires=1000)

    assert refused(rule, Attempt(route=ECHO, now=999)) == ""
    assert refused(rule, Attempt(route=ECHO, now=1000)) == "expired"


def test_a_tool_is_open_only_after_others_have_answered() -> None:
    rule = replace(allow("demo/echo"), only_after=patterns("db/read", "acl/*"))
    done = {("db", "read"), ("acl", "check")}

    assert refused(rule, Attempt(route=ECHO)) == "order"
    assert refused(rule, Attempt(route=ECHO), Tally(done={("db", "read")})) == "order"
    assert refused(rule, Attempt(route=ECHO), Tally(called=done)) == "order"
    assert refused(rule, Attempt(route=ECHO), Tally(done=done)) == ""


def test_a_tool_is_closed_once_another_was_called_whatever_came_of_it() -> None:
    rule = replace(allow("demo/echo"), unless_after=patterns("web/*"))

    assert refused(rule, Attempt(route=ECHO), Tally(called={("webx", "a")})) == ""
    assert refused(rule, Attempt(route=ECHO), Tally(called={("web", "a")})) == "order"


def test_parameters_have_a_largest_size() -> None:
    rule = replace(allow("demo/echo"), max_params=10)

    assert refused(rule, Attempt(route=ECHO, size=10)) == ""
    assert refused(rule, Attempt(route=ECHO, size=11)) == "too_large"


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"expires": 0}, "the grant for that tool has expired"),
        ({"only_after": patterns("web/*")}, "another tool has to be called first"),
        (
            {"unless_after": patterns("db/*")},
            "that tool is closed, after what this run has called",
        ),
    ],
)
def test_denial_says_what_an_agent_can_act_on(
    terms: Mapping[str, Any], message: str
) -> None:
    grant = Grant(allow=(replace(allow("demo/echo"), **terms),))

    verdict = decide(grant, Attempt(route=ECHO), Tally(called={("db", "a")}))

    assert isinstance(verdict, Denied)
    assert verdict.message == message


def test_of_many_refusals_the_one_that_came_furthest_is_told() -> None:
    near = replace(allow("demo/echo", name="allow[1]"), max_params=0)
    far = replace(allow("demo/echo", name="allow[2]"), calls=0)
    early = replace(allow("demo/echo", name="allow[3]"), expires=0)
    grant = Grant(allow=(near, far, early))

    verdict = decide(grant, Attempt(route=ECHO, size=1), Tally())

    assert isinstance(verdict, Denied)
    assert (verdict.code, verdict.rule) == ("budget", "allow[2]")


def test_of_refusals_that_came_equally_far_the_first_is_told() -> None:
    spent = [allow("demo/echo", name=f"allow[{n}]", calls=0) for n in (1, 2)]

    verdict = judged(Grant(allow=(*spent,)), ECHO)

    assert isinstance(verdict, Denied)
    assert verdict.rule == "allow[1]"


def test_next_session_counts_on_from_all_that_one_has_counted() -> None:
    tally = Tally(Counter({"allow[1]": 2}), spent=Counter({"pay/sum": 5}))
    tally.called |= {("crm", "find"), ("crm", "send")}
    tally.done.add(("crm", "find"))

    after = Tally()
    after.carry(tally.carried)

    assert after == tally


def test_every_rule_can_say_why_it_does_not_allow_a_call() -> None:
    late = replace(allow("demo/*"), expires=0)
    other = allow("shell/*", name="allow[2]")
    grant = Grant(allow=(late, other), deny=(allow("demo/rm", name="deny[1]"),))

    said = list(considered(grant, Attempt(route=ECHO), Tally()))

    assert [(one.rule.id, one.speaks) for one in said] == [
        ("deny[1]", False),
        ("allow[1]", True),
        ("allow[2]", False),
    ]
    assert said[1].refusal
    assert said[1].refusal.code == "expired"
    assert said[0].refusal is said[2].refusal is None


def test_conditions_are_in_the_log_and_come_back_from_it() -> None:
    grant = Grant(
        allow=(
            replace(
                allow("demo/echo", calls=3),
                only_after=patterns("db/read"),
                unless_after=patterns("web/*"),
                expires=5,
                max_params=10,
                timeout=1.5,
                max_result=20,
                redact_result=(JsonPath.parse("$.user['e mail']"),),
                source="caxton.toml:3",
            ),
        )
    )

    assert Grant.from_payload(grant.to_payload()) == grant
    by_hand: JSON = {"id": "allow[1]", "tools": ["demo/echo"], "timeout": 30}
    assert Grant.from_payload({"allow": [by_hand]}).allow == (
        replace(allow("demo/echo"), timeout=30),
    )
    assert allow("demo/echo").to_payload() == {"id": "allow[1]", "tools": ["demo/echo"]}
