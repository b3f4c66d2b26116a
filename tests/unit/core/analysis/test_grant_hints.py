"""What would allow a call that is denied, and that it would."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.analysis.grant_hints import loosened, remedy, unoffered
from caxton_host.core.analysis.rejudge import Explanation, explain
from caxton_host.core.calls import JSON, Denied, Route
from caxton_host.core.grants.budgets import CallCount, Sum
from caxton_host.core.grants.conditions import Conditions
from caxton_host.core.grants.decisions import Attempt, Considered, Refusal, Tally
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.provenance import Sources
from caxton_host.core.text.globs import Pattern
from tests.provenance.runs import started

ECHO = Attempt(route=Route(server="demo", tool="echo"), size=20, now=2_000_000)
RULE = Rule(id="allow[1]", tools=(Pattern.parse("demo/echo"),), source="caxton.toml:9")


def told(grant: Grant, attempt: Attempt = ECHO, tally: Tally | None = None) -> str:
    tally = tally or Tally()
    return remedy("agents.weather", explain(grant, attempt, tally)) or ""


def test_call_without_a_grant_is_told_the_grant() -> None:
    other = replace(RULE, tools=(Pattern.parse("demo/x"),))

    assert told(Grant(allow=(other,))) == (
        '[[agents.weather.allow]]\ntools = ["demo/echo"]'
    )


def test_nothing_would_allow_what_is_allowed_or_leads_nowhere() -> None:
    assert told(Grant(allow=(RULE,))) == ""
    assert told(Grant(), replace(ECHO, route=None)) == ""


def test_no_line_allows_what_a_rule_forbids() -> None:
    forbids = replace(RULE, id="deny[1]", source="")

    assert told(Grant(allow=(RULE,), deny=(forbids,))) == (
        "# deny[1] forbids it, whatever allows it: narrow that"
    )


def test_every_condition_that_does_not_hold_is_named() -> None:
    rule = replace(
        RULE,
        calls=3,
        expires=1_000_000,
        max_params=10,
        only_after=(Pattern.parse("db/read"), Pattern.parse("acl/*")),
        unless_after=(Pattern.parse("web/*"),),
    )
    tally = Tally(
        used=Counter({"allow[1]": 3}),
        called={("web", "get"), ("acl", "check")},
        done={("acl", "check")},
    )

    assert told(Grant(allow=(rule,)), ECHO, tally).splitlines() == [
        "# in allow[1] (caxton.toml:9):",
        "# expires = 1970-01-01T00:00:01Z is over: remove it, or write a later time",
        "# only_after: call db/read first, in the same run",
        "# unless_after: call it before web/*",
        'max_params = "20 B"',
        'calls = "4/run"',
    ]


def test_calls_of_a_run_are_told_with_those_of_other_periods() -> None:
    rule = replace(RULE, calls=0, budgets=(CallCount(limit=20, per="day"),))

    assert told(Grant(allow=(rule,))).endswith('calls = ["1/run", "20/day"]')


def test_what_runs_have_spent_together_is_told_in_words() -> None:
    spent = Refusal("budget", "all 20 calls a day of that grant are spent")
    rule = replace(RULE, calls=3, budgets=(CallCount(limit=20, per="day"),))
    attempt = replace(ECHO, refused={"allow[1]": spent})

    assert told(Grant(allow=(rule,)), attempt).endswith(f"# {spent.message}")


def test_sum_that_has_no_room_is_told_in_words() -> None:
    rule = replace(RULE, budgets=(Sum(of="n", limit=0, per="run"),))
    attempt = replace(ECHO, params={"n": 1})

    assert "no room for so much of 'n'" in told(Grant(allow=(rule,)), attempt)


def test_condition_is_told_with_room_for_the_value() -> None:
    conditions: dict[str, JSON] = {
        "city": {"max_length": 3},
        "days": {"type": "integer", "max": 7},
        "repo": {"glob": "acme/*"},
        "zone": {"const": "a"},
    }
    rule = replace(RULE, params=Conditions.parse(conditions), calls=0)
    params: dict[str, JSON] = {"city": "Oslo", "days": 9, "repo": "x", "zone": "b"}

    lines = told(Grant(allow=(rule,)), replace(ECHO, params=params)).splitlines()

    assert lines == [
        "# in allow[1] (caxton.toml:9):",
        "params.city = { max_length = 4 }",
        'params.days = { type = "integer", max = 9 }',
        '# $.repo does not fit the glob of the grant: glob = "acme/*"',
        'calls = "1/run"',
    ]


def test_condition_that_would_be_none_is_told_in_words() -> None:
    rule = replace(RULE, params=Conditions.parse({"city": {"min_length": 1}}))
    params: dict[str, JSON] = {"city": ""}

    assert told(Grant(allow=(rule,)), replace(ECHO, params=params)).endswith(
        "# $.city is shorter than the grant allows: min_length = 1"
    )


def test_value_that_fails_twice_is_told_in_words() -> None:
    wanted = Conditions.parse({"city": {"max_length": 3, "glob": "a*"}})
    rule = replace(RULE, params=wanted)
    params: dict[str, JSON] = {"city": "Oslo"}

    assert told(Grant(allow=(rule,)), replace(ECHO, params=params)).endswith(
        "# $.city is longer than the grant allows: max_length = 3"
    )


def test_value_that_could_not_be_judged_is_told_in_words() -> None:
    wanted = Conditions.parse({"city": {"pattern": "[a-z]+"}})
    params: dict[str, JSON] = {"city": "oslo"}

    def broken(_: str, __: str) -> bool:
        raise RuntimeError

    attempt = replace(ECHO, params=params, matches=broken)
    grant = Grant(allow=(replace(RULE, params=wanted),))

    assert told(grant, attempt).endswith("# $ could not be judged")


def test_value_that_has_a_source_is_no_reason() -> None:
    params = Conditions.parse({"to": {"from": ["input"]}, "amount": {"max": 5}})
    rule = Rule(id="allow[1]", tools=(Pattern.parse("demo/*"),), params=params)
    sources = Sources(params.wanted, 2**20)
    sources.apply(started("pay bob"))
    attempt = replace(ECHO, params={"to": "bob", "amount": 9}, sources=sources)

    line = told(Grant(allow=(rule,)), attempt).splitlines()[-1]

    assert line == "params.amount = { max = 9 }"


def test_remedy_is_of_the_rule_that_came_furthest() -> None:
    late = replace(RULE, expires=0)
    spent = replace(RULE, id="allow[2]", calls=0, source="")

    assert told(Grant(allow=(late, spent))) == '# in allow[2]:\ncalls = "1/run"'


def test_refusal_that_no_line_lifts_is_told_in_its_own_words() -> None:
    refusal = Refusal("other", "ask somebody")  # type: ignore[arg-type]  # a later one
    explained = Explanation(
        attempt=ECHO,
        tally=Tally(),
        verdict=Denied(code="other", rule="allow[1]", message="ask somebody"),
        considered=(Considered(RULE, "allow", True, refusal),),  # noqa: FBT003
    )

    assert remedy("agents.weather", explained) == (
        "# in allow[1] (caxton.toml:9):\n# ask somebody"
    )


def test_a_tool_that_is_granted_and_not_offered_needs_no_other_grant() -> None:
    grant = Grant(allow=(Rule(id="allow[1]", tools=(Pattern.parse("demo/*"),)),))
    hint = unoffered("mcp__demo__echo", ["demo"], grant)
    assert hint is not None
    assert "demo/echo is granted, but demo did not offer it" in hint
    assert "caxton server tools demo" in hint
    assert unoffered("mcp__demo__echo", ["demo"], Grant()) is None
    assert unoffered("echo", ["demo"], grant) is None


KNOWN: dict[str, JSON] = {
    "city": {"const": "Oslo", "optional": True},
    "zone": {"one_of": ["a", "b"]},
    "days": {"type": "integer", "min": 2, "max": 7},
    "text": {"min_length": 2, "max_length": 4},
    "tags": {"max_items": 2, "min_items": 1, "each": {"type": "string"}},
    "user.email": {"max_length": 3},
    "repo": {"glob": "acme/*"},
}
FITS: dict[str, JSON] = {
    "city": "Oslo",
    "zone": "a",
    "days": 3,
    "text": "abc",
    "tags": ["x"],
    "user": {"email": "a@b"},
    "repo": "acme/site",
}


def loosening(params: dict[str, JSON]) -> tuple[str, dict[str, JSON]] | None:
    failure = Conditions.parse(KNOWN).failure(params)
    assert failure
    return loosened(KNOWN, failure, params)


@pytest.mark.parametrize(
    ("change", "wider"),
    [
        ({"city": "Rome"}, {"one_of": ["Oslo", "Rome"], "optional": True}),
        ({"zone": "c"}, {"one_of": ["a", "b", "c"]}),
        ({"days": 9}, {"type": "integer", "min": 2, "max": 9}),
        ({"days": 1}, {"type": "integer", "min": 1, "max": 7}),
        ({"days": "3"}, {"const": "3"}),
        ({"city": 1}, {"const": 1, "optional": True}),
        ({"text": "abcde"}, {"min_length": 2, "max_length": 5}),
        ({"text": "a"}, {"min_length": 1, "max_length": 4}),
        ({"text": ""}, {"max_length": 4}),
        ({"other": [1]}, {"type": "array", "max_items": 1, "each": {"const": 1}}),
    ],
)
def test_condition_takes_the_value_that_it_failed(
    change: dict[str, JSON], wider: dict[str, JSON]
) -> None:
    (name,) = change

    assert loosening(FITS | change) == (name, wider)


def test_parameter_that_is_missing_becomes_optional() -> None:
    params = {name: value for name, value in FITS.items() if name != "zone"}

    assert loosening(params) == ("zone", {"one_of": ["a", "b"], "optional": True})


def test_name_within_a_map_is_told_whole() -> None:
    found = loosening(FITS | {"user": {"email": "abcd"}})
    assert found == ("user.email", {"max_length": 4})


@pytest.mark.parametrize(
    "change", [{"repo": "other/site"}, {"tags": [1]}, {"user": "x"}]
)
def test_what_is_not_plain_is_left_to_a_person(change: dict[str, JSON]) -> None:
    assert loosening(FITS | change) is None


VALUES = st.one_of(st.integers(), st.text(max_size=6), st.lists(st.text(), max_size=4))


@given(st.dictionaries(st.sampled_from([*FITS, "new"]), VALUES))
def test_wider_condition_takes_what_the_narrower_one_did(
    change: dict[str, JSON],
) -> None:
    params = {**FITS, **change}
    failure = Conditions.parse(KNOWN).failure(params)
    found = failure and loosened(KNOWN, failure, params)
    if failure and found:
        wider = Conditions.parse({**KNOWN, found[0]: found[1]})
        after = wider.failure(params)
        assert after is None or after.path != failure.path
