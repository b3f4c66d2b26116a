"""A grant with one of its rules changed, as a caller types it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from caxton_host.config import Agent
from caxton_host.config.changed_rules import changed_grant
from caxton_host.config.load import load_bytes
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.errors import UsageError

FILE = """
[agents."a.b"]
module = "a.wasm"
trusted = ["input"]
[[agents."a.b".allow]]
tools = ["crm/find"]
calls = "5/day"
params.id = { from = ["trusted"] }
[[agents."a.b".allow]]
tools = ["crm/list"]
expires = 2030-01-01T00:00:00Z
[[agents."a.b".deny]]
tools = ["crm/delete"]
"""


def agent(text: str = FILE) -> Agent:
    config = load_bytes(text.encode(), Path("c.toml"), environ={}, cwd=Path("/"))
    return config.agents["a.b"]


def shape(one: Agent, text: str, replaced: str | None) -> list[str]:
    grant = changed_grant(one, text, replaced)
    return [f"{rule.id} {rule.tools[0].text}" for rule in (*grant.allow, *grant.deny)]


def test_the_text_of_each_rule_is_read_as_the_same_rule() -> None:
    one = agent()

    assert [*one.rule_texts] == ["allow[1]", "allow[2]", "deny[1]"]
    for id_, text in one.rule_texts.items():
        assert plain(changed_grant(one, text, id_)) == plain(one.grant)


def plain(grant: Grant) -> list[Rule]:
    """Return the rules of a grant, wherever they were written."""
    return [replace(rule, source="") for rule in (*grant.allow, *grant.deny)]


SAME = 'params.id = { from = ["trusted"] }\n'
NEW = '[[agents."a.b".allow]]\ntools = ["mail/send"]\n'


@pytest.mark.parametrize(
    ("text", "replaced", "found"),
    [
        ("", None, ["allow[1] crm/find", "allow[2] crm/list", "deny[1] crm/delete"]),
        ("", "allow[1]", ["allow[1] crm/list", "deny[1] crm/delete"]),
        ("", "deny[1]", ["allow[1] crm/find", "allow[2] crm/list"]),
        (
            NEW,
            "allow[1]",
            ["allow[1] mail/send", "allow[2] crm/list", "deny[1] crm/delete"],
        ),
        (
            NEW + NEW.replace("send", "list"),
            "deny[1]",
            [
                *("allow[1] crm/find", "allow[2] crm/list"),
                *("allow[3] mail/send", "allow[4] mail/list"),
            ],
        ),
    ],
)
def test_rules_take_the_place_of_one_or_come_last(
    text: str, replaced: str | None, found: list[str]
) -> None:
    assert shape(agent(), text, replaced) == found


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (NEW + 'params.to = { from = ["trusted"] }\n', "no such list"),
        (
            NEW.replace("mail/send", "crm/find") + 'calls = "9/day"\n' + SAME,
            "has budgets for the same tools as allow",
        ),
        (NEW.replace('"a.b"', "a"), 'rules of agents."a.b"'),
    ],
)
def test_what_the_file_would_refuse_is_refused_here(text: str, problem: str) -> None:
    one = agent()
    if "list" in problem:
        one = replace(one, trusted=())
    with pytest.raises(UsageError, match=problem) as refused:
        changed_grant(one, text, None)
    assert refused.value.fix
