"""Conditions on one value, where the page of decisions has no room for it."""

from __future__ import annotations

import math
from typing import NoReturn

import pytest

from caxton_host.core.calls import JSON, Route
from caxton_host.core.grants.conditions import Conditions
from caxton_host.core.grants.decisions import (
    Attempt,
    Tally,
    considered,
    may_again,
    may_ever,
)
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.text.globs import Glob, Pattern
from caxton_host.errors import ConditionError, UsageError

TOOLS = (Pattern.parse("demo/echo"),)
ECHO = Route(server="demo", tool="echo")


def holds(spec: JSON, value: JSON) -> bool:
    return Conditions.parse({"a": spec}).failure({"a": value}) is None


def test_path_that_no_system_takes_is_not_judged() -> None:  # law 9
    spec: JSON = {"path": {"inside": ["/a"]}}

    assert holds(spec, "/a/" + "b" * 4093)
    assert not holds(spec, "/a/" + "b" * 4094)


def test_path_of_no_text_is_not_judged() -> None:
    assert not holds({"path": {"inside": ["/a"]}}, "file:///a/%ff")


def test_all_there_is_may_be_inside() -> None:
    assert holds({"path": {"inside": ["/"]}}, "/a/b")
    assert not holds({"path": {"inside": ["/"]}}, "/a/../b")


def test_address_that_is_too_long_is_not_judged() -> None:  # law 9
    assert holds({"url": {}}, "https://a.org/" + "b" * 4082)
    assert not holds({"url": {}}, "https://a.org/" + "b" * 4083)


def test_address_of_numbers_fits_no_name() -> None:
    assert not holds({"url": {"host": "*.org"}}, "https://[2606:4700::1111]/")


def test_listed_address_fits_however_it_is_written() -> None:
    assert holds({"url": {"host": "2001:DB8::1".lower()}}, "https://[2001:0db8::0001]/")


@pytest.mark.parametrize(
    ("glob", "text", "fits"),
    [
        ("a*b*c", "aXbYc", True),
        ("a*b*c", "aXYc", False),
        ("a*b*c", "ac", False),
        ("**", "a/b", True),
        ("**/x", "x", True),
        ("a/**", "a", False),
        ("a/**/b/c", "a/b/c", True),
        ("a/**/b/c", "a/c", False),
        ("**/b/c", "c", False),
    ],
)
def test_glob_fits_segment_by_segment(glob: str, text: str, *, fits: bool) -> None:
    assert Glob.parse(glob).matches(text) is fits


def test_list_that_is_longer_than_what_is_looked_at_fails() -> None:  # law 9
    spec: dict[str, JSON] = {"each": {"type": "integer"}}

    assert holds(spec, [1] * 500)
    assert not holds(spec, [1] * 501)
    assert holds({**spec, "max_items": 2000}, [1] * 501)


def test_empty_list_has_no_item_that_is_wrong() -> None:
    assert holds({"each": {"type": "integer"}}, [])


def test_map_without_names_that_are_wanted_is_missing_them_deep_down() -> None:
    wanted = Conditions.parse(
        {"a.b.c": {"max": 1}, "a.d": {"max": 1, "optional": True}}
    )

    failure = wanted.failure({"a": {"d": 1}})

    assert failure is not None
    assert (failure.path, failure.kind) == ("$.a.b", "missing")


def test_names_below_a_map_that_all_may_miss_need_no_map() -> None:
    wanted = Conditions.parse({"a.b": {"max": 1, "optional": True}})

    assert wanted.failure({}) is None
    assert wanted.failure({"a": {}}) is None


def test_map_may_be_named_beside_what_is_in_it() -> None:
    wanted = Conditions.parse(
        {"a": {"type": "object", "optional": True}, "a.b": {"max": 1}}
    )

    assert wanted.failure({}) is None
    assert wanted.failure({"a": {}}) is not None
    assert wanted.failure({"a": {"b": 1}}) is None


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("b", "$.b"),
        ("b.c", '$["b.c"]'),
        ("\x1b[2J", '$["\\u001b[2J"]'),
        ("b" * 65, "$[a name of 65 characters]"),
    ],
)
def test_name_is_shown_whole_and_escaped_or_not_at_all(name: str, shown: str) -> None:
    failure = Conditions.parse({"a": {"max": 1}}).failure({"a": 1, name: 1})  # law 9

    assert failure is not None
    assert failure.path == shown


def test_failure_tells_the_operator_what_was_wanted_and_the_agent_not() -> None:
    failure = Conditions.parse({"a": {"one_of": ["x", "y"]}}).failure({"a": "z"})

    assert failure is not None
    assert failure.wanted == ["x", "y"]
    assert "x" not in failure.message


@pytest.mark.parametrize("bound", [math.nan, math.inf])
def test_bound_that_is_no_number_is_refused(bound: float) -> None:
    with pytest.raises(ConditionError, match="is not a number"):
        Conditions.parse({"a": {"max": bound}})


def test_recorded_conditions_that_are_no_table_are_refused() -> None:  # law 4
    payload: dict[str, JSON] = {
        "allow": [{"id": "allow[1]", "tools": ["demo/*"], "params": [1]}]
    }

    with pytest.raises(UsageError, match="the recorded grant has params, which is no"):
        Grant.from_payload(payload)


def test_recorded_deny_rule_is_read_as_one() -> None:  # law 4
    rule = Rule(
        id="deny[1]",
        tools=TOOLS,
        params=Conditions.parse({"a": {"some": {"max": 1}}}, deny=True),
    )
    grant = Grant(deny=(rule,))

    assert Grant.from_payload(grant.to_payload()) == grant


def test_tool_that_a_deny_rule_forbids_at_times_may_be_called_at_others() -> None:
    some = Conditions.parse({"a": {"min": 5}}, deny=True)
    every = Grant(allow=(Rule(id="allow[1]", tools=TOOLS),))
    at_times = Rule(id="deny[1]", tools=TOOLS, params=some)
    always = Rule(id="deny[1]", tools=TOOLS)

    assert may_ever(Grant(allow=every.allow, deny=(at_times,)), ECHO)
    assert not may_ever(Grant(allow=every.allow, deny=(always,)), ECHO)


def test_call_that_led_nowhere_is_not_sent_again() -> None:
    grant = Grant(allow=(Rule(id="allow[1]", tools=TOOLS),))

    assert may_again(grant, Attempt(route=ECHO))
    assert not may_again(grant, Attempt(route=None))


def broken(*_: object) -> NoReturn:
    raise RuntimeError


def test_deny_rule_applies_when_its_engine_fails() -> None:  # law 4
    deny = Conditions.parse({"a": {"pattern": "x"}}, deny=True)

    assert deny.spared({"a": "y"}, broken) is None


def test_call_is_refused_when_the_check_of_its_schema_fails() -> None:  # law 4
    grant = Grant(allow=(Rule(id="allow[1]", tools=TOOLS),))

    [said] = considered(grant, Attempt(route=ECHO, schema=broken), Tally())

    assert said.refusal
    assert said.refusal.code == "schema"


def test_each_rule_says_what_it_made_of_the_parameters() -> None:
    deny = Conditions.parse({"a": {"min": 5}}, deny=True)
    allow = Conditions.parse({"a": {"max": 1}})
    grant = Grant(
        allow=(Rule(id="allow[1]", tools=TOOLS, params=allow),),
        deny=(Rule(id="deny[1]", tools=TOOLS, params=deny),),
    )

    said = considered(grant, Attempt(route=ECHO, params={"a": 3}), Tally())

    found = [(one.rule.id, one.refusal and one.refusal.message) for one in said]
    assert found == [
        ("deny[1]", "$.a is smaller than the grant allows"),
        ("allow[1]", "$.a is larger than the grant allows"),
    ]


def test_grant_that_is_asked_about_many_tools_forgets_some() -> None:  # law 9
    grant = Grant(allow=(Rule(id="allow[1]", tools=(Pattern.parse("demo/*"),)),))

    for number in range(1500):
        assert grant.speaking("demo", f"t{number}") == ((), grant.allow)
