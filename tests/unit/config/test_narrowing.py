"""A narrowing has the grammar of an agent's rules, as TOML and as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from caxton_host.config.narrowing import narrowings, typed
from caxton_host.core.calls import JSON
from caxton_host.core.grants.bounds import Bound
from caxton_host.core.grants.grants import Grant
from caxton_host.errors import ConfigError

FILE = """\
[[allow]]
tools = ["bank/pay"]
calls = "2/run"
expires = 2030-01-01T00:00:00Z

[[deny]]
tools = ["bank/pay"]
params.to = { const = "eve" }
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("less.toml").write_text(FILE, "utf-8")
    return "less.toml"


def refused(*values: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        typed(values)
    assert caught.value.fix
    return caught.value


def allowed(*tools: str) -> dict[str, JSON]:
    return {"allow": [{"tools": [*tools]}]}


def test_values_are_rules_of_one_narrowing_in_their_order(file: str) -> None:
    inline = '{tools = ["bank/read"], calls = 2, params.n = {max = 9}}'

    found = typed(["crm/find_*", inline, file])

    assert found.bound.name == "narrow"
    assert [
        (rule.id, rule.tools[0].text, rule.calls, rule.source)
        for rule in found.bound.grant.allow
    ] == [
        ("allow[1]", "crm/find_*", None, "--narrow"),
        ("allow[2]", "bank/read", 2, "--narrow"),
        ("allow[3]", "bank/pay", 2, "less.toml:1"),
    ]
    assert [rule.source for rule in found.bound.grant.deny] == ["less.toml:6"]


def test_another_host_reads_the_same_from_the_json(file: str) -> None:
    here = typed(["crm/find_*", file])

    (there,) = narrowings(here.tree)

    assert _unplaced(there) == _unplaced(here.bound)


def _unplaced(bound: Bound) -> Any:  # noqa: ANN401 -- compared only
    payload = bound.grant.to_payload()
    for rules in payload.values():
        assert isinstance(rules, list)
        for rule in rules:
            assert isinstance(rule, dict)
            del rule["source"]
    return payload


def test_narrowing_is_read_back_from_the_log_as_it_was_read(file: str) -> None:
    bound = typed([file]).bound

    assert Bound.from_payload(bound.to_payload()) == bound


def test_budgets_of_a_narrowing_are_no_budgets_of_the_agent() -> None:
    tables: JSON = [
        {"tools": ["mail/read"], "name": "pay", "calls": "9/day"},
        {"tools": ["mail/send"], "calls": "9/day"},
        {"tools": ["mail/list"]},
    ]

    (bound,) = narrowings({"allow": tables})

    named, digested, free = bound.grant.allow
    assert named.account == "narrow:pay"
    assert digested.account.startswith("narrow:~")
    assert free.name == ""


def test_no_value_is_no_narrowing_and_no_tool_is_one() -> None:
    assert narrowings(None, None) == ()
    assert narrowings({"allow": []})[0].grant == Grant()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("crm", "--narrow: allow[1].tools.1: 'crm' is not a tool pattern"),
        ("{tools = [}", "--narrow: broken TOML at line 1"),
        ('{tools = ["a/b"], cals = 3}', "--narrow: allow[1].cals: unknown key"),
        ("none.toml", "none.toml: cannot be read: No such file or directory"),
    ],
)
def test_error_names_the_place(value: str, message: str) -> None:
    assert str(refused(value)).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FILE.replace("calls =", "cals ="), "less.toml:3: allow[1].cals: unknown key"),
        (FILE.replace("[[allow]]", "[[alow]]"), "less.toml:1: alow: unknown key"),
        (FILE[FILE.index("[[deny]]") :], "less.toml: allows nothing"),
        ("\n\n[", "less.toml:3: broken TOML at line 3"),
        (" " * (1024 * 1024 + 1), "less.toml: has more than 1 MiB"),
    ],
)
def test_error_in_a_file_names_the_line(file: str, text: str, message: str) -> None:
    Path(file).write_text(text, "utf-8")

    assert str(refused(file)).startswith(message)


def test_two_rules_may_not_share_a_budget() -> None:
    twice = '{tools = ["a/b"], calls = "2/day"}'

    assert "has budgets for the same tools as allow[1]" in str(refused(twice, twice))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "narrow: wanted a table, found a list"),
        ({}, "narrow: allows nothing"),
        (allowed("${env:HOME}/x"), "narrow: allow.1.tools.1: contains a variable"),
        (allowed("${file:/etc/hosts}/x"), "narrow: allow.1.tools.1: contains a var"),
        (
            allowed(*(f"s{n}/{'t' * 90}" for n in range(900))),
            "narrow: has more than 64",
        ),
        ({"allow": [{"tools": ["a/b"], "calls": -1}]}, "narrow: allow[1].calls: is"),
    ],
)
def test_what_a_caller_passes_is_refused_with_its_place(  # law 8
    value: JSON, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        narrowings(value)

    assert str(caught.value).startswith(message)
    assert caught.value.fix


def test_two_places_may_not_both_narrow_a_run() -> None:
    with pytest.raises(ConfigError, match="given twice"):
        narrowings(typed(["a/b"]), allowed("a/b"))


def test_trusted_in_a_narrowing_is_what_the_agent_trusts() -> None:
    params: JSON = {"to": {"from": ["trusted"]}}
    rule: JSON = {"tools": ["bank/pay"], "params": params}
    typed_here = typed(['{tools=["bank/pay"], params.to={from=["trusted"]}}'])

    asked: dict[str, JSON] = {"allow": [rule]}
    for given in (asked, typed_here):
        (bound,) = narrowings(given, trusted=["input", "crm/find$.ids[*]"])
        (wanted,) = bound.grant.wanted
        assert [one.text for one in wanted.origins] == ["input", "crm/find$.ids[*]"]
        with pytest.raises(ConfigError, match="names the source trusted"):
            narrowings(given)
