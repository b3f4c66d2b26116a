"""The grammar of sources."""

from __future__ import annotations

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.grants.conditions import Conditions
from caxton_host.core.grants.grants import Grant
from caxton_host.core.provenance import Origin, Wanted
from caxton_host.errors import ConditionError, UsageError


@pytest.mark.parametrize(
    "text",
    [
        "input",
        "input$.to[*]",
        "context.user",
        "context.user.name",
        "context.user$.id",
        "crm/find$.people[*]['e-mail']",
        "own:files/create$..id",
        "trusted",
    ],
)
def test_source_is_read_and_written(text: str) -> None:
    assert Origin.parse(text).text == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "inputs",
        "context",
        "context.",
        "crm",
        "crm/find",
        "crm/find$",
        "crm/find$..*",
        "crm/find$..a..b",
        "crm/*$.id",
        "own:crm/find",
        "own:input",
        "trusted$.a",
        "program",
        "crm/find$.[",
    ],
)
def test_source_that_names_too_much_or_nothing_is_refused(text: str) -> None:  # law 4
    with pytest.raises(UsageError):
        Origin.parse(text)


@pytest.mark.parametrize(
    ("condition", "keys"),
    [
        ({"from": []}, ("a", "from")),
        ({"from": "input"}, ("a", "from")),
        ({"from": ["input", "input"]}, ("a", "from")),
        ({"from": ["input"] * 33}, ("a", "from")),
        ({"from": ["input", "crm"]}, ("a", "from", "2")),
        ({"from": ["input"], "mention": {"tool": "a/b"}}, ("a", "mention")),
        (
            {"from": ["input"], "mention": {"tool": "a/*", "param": "x"}},
            ("a", "mention", "tool"),
        ),
        (
            {"from": ["input"], "mention": {"tool": "a/b", "param": ""}},
            ("a", "mention", "param"),
        ),
        *(
            (
                {"from": ["input"], "mention": {"tool": "a/b", "param": "x"} | more},
                ("a", "mention", "path"),
            )
            for more in (
                {"path": 1},
                {"path": "a"},
                {"path": "$"},
                {"path": "$..*"},
                {"path": "$..a..b"},
            )
        ),
        ({"mention": {"tool": "a/b", "param": "x"}}, ("a", "mention")),
        ({"not_from": ["input"]}, ("a", "not_from")),
        ({"urls": ["input"]}, ("a", "urls")),
        ({"urls": {}}, ("a", "urls")),
        ({"urls": {"not_from": ["input"]}}, ("a", "urls", "not_from")),
        ({"from": ["input"], "has": {"x": {"min": 1}}}, ("a", "has")),
    ],
)
def test_condition_that_cannot_be_judged_is_refused_where_it_is_wrong(
    condition: JSON, keys: tuple[str, ...]
) -> None:
    with pytest.raises(ConditionError) as refused:
        Conditions.parse({"a": condition})

    assert refused.value.keys == keys
    assert refused.value.fix


def test_deny_rule_has_the_negation() -> None:
    with pytest.raises(ConditionError) as refused:
        Conditions.parse({"a": {"from": ["input"]}}, deny=True)

    assert "not_from" in refused.value.fix
    assert [*Conditions.parse({"a": {"not_from": ["input"]}}, deny=True).wanted]


def test_without_sources_nothing_comes_from_them() -> None:  # law 4
    allowing = Conditions.parse({"a": {"from": ["input"]}})
    denying = Conditions.parse({"a": {"not_from": ["input"]}}, deny=True)

    assert allowing.failure({"a": "bob"})
    assert denying.spared({"a": "bob"}) is None


def test_trusted_stands_for_the_sources_of_the_agent() -> None:
    spec: JSON = {"from": ["trusted"], "mention": {"tool": "a/b", "param": "x"}}
    rule: dict[str, JSON] = {
        "id": "allow[1]",
        "tools": ["bank/pay"],
        "params": {"to": {"has": {"iban": spec}}},
        "approve": {"when": {"to": {"not_from": ["trusted"]}}},
    }
    grant = Grant.from_payload({"allow": [rule]}).trusting(["input", "a/c$.d"])

    found = [[one.text for one in wanted.origins] for wanted in grant.wanted]
    assert found == [["input", "a/c$.d"], ["input", "a/c$.d"]]
    assert Grant.from_payload(grant.to_payload()).to_payload() == grant.to_payload()


def test_wanted_tools_are_those_whose_answers_are_trusted() -> None:
    mention: JSON = {"tool": "files/read", "param": "path", "from": ["a/b$.c"]}
    wanted = Wanted.parse(["input", "own:x/y$.id", "crm/find$.id"], mention, ("from",))

    assert {*wanted.tools} == {("crm", "find"), ("files", "read"), ("a", "b")}
