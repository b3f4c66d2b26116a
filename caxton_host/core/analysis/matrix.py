"""Which agent may call which tool, at a glance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from ..grants.grants import Grant, Rule
from .checking import conditional


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """
    One agent and one tool.

    Attributes:
        tool: ``server/tool``.

        word: ``yes``: whenever it wants; ``if``: if conditions hold; ``deny``: a rule
            forbids it; ``-``: no rule allows it.

        rule: The first rule that says so.
    """

    agent: str
    tool: str
    word: Literal["yes", "if", "deny", "-"]
    rule: str | None = None


def matrix(
    grants: Mapping[str, Grant], tools: Iterable[tuple[str, str]]
) -> dict[str, list[Cell]]:
    """
    Return a row of cells for each tool, by its name and in that order.

    Args:
        grants: By the name of the agent.

        tools: What servers offer. What grants name in full is added.
    """
    targets = {*tools, *(t for grant in grants.values() for t in grant.literals())}
    return {
        f"{server}/{tool}": [
            _cell(agent, grant, server, tool) for agent, grant in grants.items()
        ]
        for server, tool in sorted(targets)
    }


def _cell(agent: str, grant: Grant, server: str, tool: str) -> Cell:
    name = f"{server}/{tool}"

    def speaking(rules: Iterable[Rule]) -> list[Rule]:
        return [rule for rule in rules if rule.matches(server, tool)]

    denying, allowing = speaking(grant.deny), speaking(grant.allow)
    for rule in denying:
        if not conditional(rule):
            return Cell(agent=agent, tool=name, word="deny", rule=rule.id)
    if not allowing:
        return Cell(agent=agent, tool=name, word="-")
    free = [rule for rule in allowing if not conditional(rule)]
    if free and not denying:
        return Cell(agent=agent, tool=name, word="yes", rule=free[0].id)
    return Cell(agent=agent, tool=name, word="if", rule=allowing[0].id)
