"""What is odd about a grant, rule by rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.analysis.checking import Finding, Known, findings, matrix
from caxton_host.core.calls import JSON
from caxton_host.core.grants.approvals import Approve
from caxton_host.core.grants.conditions import Conditions
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.names import READ
from caxton_host.core.text.globs import Pattern

KNOWN: Known = {
    "demo": {"echo": {}, "get_weather": {}},
    "crm": {
        "find": {"properties": {"phone": {}, "limit": {}}, "required": ["phone"]},
        "list": {"properties": {"limit": {}}},
        "any": True,
        "far": {"properties": {"a": {}}, "$ref": "#/$defs/a"},
    },
    "mail": {"send": {}},
    "late": None,
}
NOW = 1_000


def rule(*tools: str, name: str = "allow[1]", calls: int | None = None) -> Rule:
    return Rule(
        id=name, tools=tuple(map(Pattern.parse, tools)), calls=calls, source="c.toml:3"
    )


def patterns(*texts: str) -> tuple[Pattern, ...]:
    return tuple(map(Pattern.parse, texts))


def found(
    *allow: Rule,
    deny: Iterable[Rule] = (),
    names: Mapping[str, tuple[str, str]] | None = None,
) -> list[Finding]:
    grant = Grant(allow=allow, deny=tuple(deny))
    return list(
        findings("weather", grant, names or {}, KNOWN, NOW, table="agents.weather")
    )


def said(
    *allow: Rule, names: Mapping[str, tuple[str, str]] | None = None
) -> list[tuple[str, str]]:
    return [(one.place, one.code) for one in found(*allow, names=names)]


def test_grant_that_says_what_it_means_has_no_findings() -> None:
    assert not found(
        rule("demo/echo", calls=2),
        rule("demo/get_*", "late/anything", name="allow[2]"),
        deny=[rule("demo/delete_*", name="deny[1]")],
        names={"look": ("demo", "get_weather")},
    )


def test_rule_that_has_expired() -> None:
    (one,) = found(replace(rule("demo/echo"), expires=NOW))

    assert (one.agent, one.place, one.source) == ("weather", "allow[1]", "c.toml:3")
    assert one.code == "expired"
    assert one.problem == "it allows nothing since 1970-01-01T00:00:00Z"
    assert not found(replace(rule("demo/echo"), expires=NOW + 1))


def test_rule_that_allows_no_call() -> None:
    assert said(rule("demo/echo", calls=0)) == [("allow[1]", "spent")]


def test_pattern_that_a_deny_rule_covers() -> None:
    (one,) = found(rule("demo/echo", "mail/*"), deny=[rule("ma*/*", name="deny[1]")])

    assert one.code == "forbidden"
    assert one.problem == "mail/* is never allowed: deny[1] (c.toml:3) forbids it"


def test_pattern_that_an_earlier_rule_covers() -> None:
    wide = rule("demo/*")
    late = rule("demo/get_*", name="allow[2]", calls=3)

    assert said(wide, late) == [("allow[2]", "shadowed")]
    assert not found(late, wide)
    assert not found(replace(wide, max_params=5), late)  # it may refuse


def test_rule_that_waits_for_what_nothing_allows() -> None:
    waits = replace(rule("mail/send"), only_after=patterns("demo/get_*"))

    assert said(waits) == [("allow[1]", "order")]
    assert not found(waits, rule("demo/*_weather", name="allow[2]"))


@pytest.mark.parametrize(
    "waits",
    [
        replace(rule("mail/send"), only_after=patterns("demo/rm")),
        replace(rule("mail/send"), unless_after=patterns("demo/rm")),
    ],
)
def test_rule_that_waits_for_what_is_not_there(waits: Rule) -> None:
    assert said(waits) == [("allow[1]", "no_tool")]


def test_tool_that_no_server_offers() -> None:
    (one,) = found(rule("demo/get_wether"))

    assert one.problem == "it allows demo/get_wether, and no server offers such a tool"
    assert one.fix == "write demo/get_weather"
    (two,) = found(rule("demo/zzz*"))
    assert two.fix == "caxton tool list --server demo"


def test_method_is_no_tool_and_no_star_decides_about_it() -> None:
    assert not found(rule("demo/*"), rule("demo/resources/read", name="allow[2]"))
    ((one,),) = matrix({"a": Grant(allow=(rule("demo/*"),))}, [("demo", READ)]).values()
    assert one.may == "-"


def test_server_that_is_not_there() -> None:
    assert [one.fix for one in found(rule("demos/echo", "q/x"))] == [
        "write demo",
        "caxton server list shows the servers",
    ]


def test_deny_rule_may_be_for_what_is_not_there_yet_unless_it_names_it() -> None:
    denies = rule("demo/delete_*", "demo/remove", name="deny[1]")

    (one,) = found(deny=[denies])

    assert one.problem == "it forbids demo/remove, and no server offers such a tool"


def test_name_that_leads_nowhere() -> None:
    names = {"a": ("demo", "rm"), "b": ("mail", "send"), "c": ("nope", "x")}

    assert said(rule("demo/echo"), names=names) == [
        ("names.a", "no_tool"),
        ("names.b", "not_granted"),
        ("names.c", "no_server"),
    ]


def about(*tools: str, **params: JSON) -> Rule:
    return replace(rule(*tools), params=Conditions.parse(params))


LIMIT: JSON = {"max": 3}


def test_parameter_that_no_tool_has() -> None:
    (one,) = found(about("crm/find", phone=ANY, limits=LIMIT))

    assert one.code == "no_param"
    assert one.fix == "write limit"
    (two,) = found(deny=[replace(about("crm/list", zzz=LIMIT), id="deny[1]")])
    assert (two.place, two.fix) == ("deny[1]", "known: limit")


def test_parameter_that_a_tool_needs_and_the_rule_does_not_take() -> None:
    (one,) = found(about("crm/*d", limit=LIMIT))

    assert one.code == "required"
    assert one.problem == "crm/find needs phone, and the rule does not take it"
    assert one.fix == 'add params.phone = { ... }, or other_params = "allow"'
    assert not found(replace(about("crm/find", limit=LIMIT), other_params=True))


@pytest.mark.parametrize("tool", ["demo/echo", "crm/any", "crm/far", "late/x", "crm/*"])
def test_tool_that_does_not_say_what_it_takes_may_take_anything(tool: str) -> None:
    assert not found(about(tool, zzz=ANY))


ANY: JSON = {"type": "any"}


# -- patterns --------------------------------------------------------------------

GLOBS = (
    st.text("ab*", min_size=1, max_size=8)
    .filter(lambda text: text.count("*") <= 3)
    .map(lambda text: Pattern.parse(f"s/{text}"))
)
TEXTS = st.text("abc", max_size=6)


@given(wide=GLOBS, narrow=GLOBS, text=TEXTS)
def test_pattern_that_covers_another_matches_all_that_the_other_does(
    wide: Pattern, narrow: Pattern, text: str
) -> None:
    if wide.covers(narrow) and narrow.matches("s", text):
        assert wide.matches("s", text)


@given(one=GLOBS, two=GLOBS, text=TEXTS)
def test_patterns_that_match_the_same_tool_meet(
    one: Pattern, two: Pattern, text: str
) -> None:
    if one.matches("s", text) and two.matches("s", text):
        assert one.meets(two)
        assert two.meets(one)


def test_patterns_of_other_servers_never_meet() -> None:
    (one, two) = patterns("a/*", "b/*")

    assert not one.meets(two)
    assert not one.covers(two)


# -- matrix ----------------------------------------------------------------------


def test_matrix_says_for_each_agent_what_it_may() -> None:
    free = Grant(allow=(rule("demo/*"),), deny=(rule("demo/rm", name="deny[1]"),))
    bound = Grant(allow=(rule("demo/echo", calls=1), rule("mail/send")))

    rows = matrix({"free": free, "bound": bound}, [("demo", "rm"), ("demo", "echo")])

    ask = replace(rule("demo/*"), approve=Approve())
    asks = [
        matrix({"a": Grant(allow=rules)}, [("demo", "rm")])["demo/rm"][0].asks
        for rules in ((ask,), (ask, rule("demo/rm", calls=1)))
    ]
    assert asks == [True, False]
    part = replace(about("demo/echo", text=ANY), id="deny[1]")
    (row,) = matrix({"part": replace(free, deny=(part,))}, [("demo", "echo")]).values()
    assert (row[0].may, row[0].rule) == ("if", "allow[1]")
    assert {
        tool: [(cell.agent, cell.may, cell.rule) for cell in row]
        for tool, row in rows.items()
    } == {
        "demo/echo": [("free", "yes", "allow[1]"), ("bound", "if", "allow[1]")],
        "demo/rm": [("free", "deny", "deny[1]"), ("bound", "-", None)],
        "mail/send": [("free", "-", None), ("bound", "yes", "allow[1]")],
    }
