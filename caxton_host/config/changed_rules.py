"""
Rules of an agent as text, and its grant with one of them changed.

The text is that of the file: what was tried can be pasted there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from ..core.calls import JSON
from ..core.grants.grants import Grant, Rule
from ..core.text.toml_text import key_text, value_text
from ..errors import NotFoundError
from . import fields as f
from .files import parse_toml
from .key_lines import Lines
from .model import Agent
from .narrowing import FIELDS, KINDS, numbered, place, plain_json, trusting
from .rules import check_accounts, check_plain

_SHOWN = "the rule"


def rule_texts(table: str, values: Mapping[str, Any]) -> dict[str, str]:
    """
    Return the rules of an agent as TOML, by id.

    Args:
        table: The table that describes the agent.

        values: What the file says there; its rules have been read.

    >>> told = {"tools": ["crm/*"], "params": {"id": {"min": 1}}, "calls": "5/run"}
    >>> print(rule_texts("agents.a", {"allow": [told]})["allow[1]"])
    [[agents.a.allow]]
    tools = ["crm/*"]
    params.id = { min = 1 }
    calls = "5/run"
    """
    return {
        f"{kind}[{number}]": "\n".join([f"[[{table}.{kind}]]", *_lines(rule)])
        for kind in KINDS
        for number, rule in enumerate(values.get(kind, ()), 1)
    }


def _lines(rule: Mapping[str, object]) -> Iterator[str]:
    for key, value in cast("dict[str, JSON]", plain_json(rule)).items():
        if key == "params" and isinstance(value, dict):
            for name, condition in value.items():
                yield f"params.{key_text(name)} = {value_text(condition)}"
        else:
            yield f"{key_text(key)} = {value_text(value)}"


def changed_grant(agent: Agent, text: str, replaced: str | None) -> Grant:
    """
    Return the grant of an agent with the rules of a text.

    Args:
        agent: The agent.

        text: Tables of its rules, as in the file. A caller may write it, so a variable
            is an error.

        replaced: The id of the rule that they replace; ``None``: they are added.

    Raises:
        ConfigError: They are invalid.

        NotFoundError: There is no such rule.
    """
    before = agent.grant
    known = [rule.id for rule in (*before.allow, *before.deny)]
    if replaced is not None and replaced not in known:
        raise NotFoundError(
            f"{agent.table} has no rule {replaced}",
            fix=f"its rules are: {', '.join(known) or 'none'}",
        )
    tree: object = parse_toml(text.encode(), place(_SHOWN))
    at = place(_SHOWN, Lines(text))
    for key in (agent.table.partition(".")[0], agent.name) if tree else ():
        table = f.table(tree, at)
        if [*table] != [key]:
            raise at.error(
                f"holds more than rules of {agent.table}",
                fix=f"begin each rule with [[{agent.table}.allow]] "
                f"or [[{agent.table}.deny]]",
            )
        tree, at = table[key], at.key(key)
    check_plain(cast("JSON", tree), at)
    new = trusting(Grant(**f.read(tree, FIELDS, at)), agent.trusted, at)
    allow = numbered("allow", _placed(before.allow, new.allow, replaced))
    check_accounts(allow, at)
    return Grant(
        allow=allow, deny=numbered("deny", _placed(before.deny, new.deny, replaced))
    )


def _placed(
    before: tuple[Rule, ...], new: tuple[Rule, ...], replaced: str | None
) -> tuple[Rule, ...]:
    ids = [rule.id for rule in before]
    at = ids.index(replaced) if replaced in ids else len(ids)
    return (*before[:at], *new, *before[at + 1 :])
