"""How often each rule of a grant decided, and what is spent of its budgets."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

from ..calls import JSON
from ..grants.budgets import (
    UNIT,
    Budget,
    CallCount,
    Concurrency,
    Pace,
    Sum,
    Use,
    standing,
)
from ..grants.grants import Grant
from ..log.events import (
    ApprovalRequested,
    Recorded,
    RunStarted,
    ToolDenied,
    ToolInvoked,
)
from ..names import run_of

#: Of calls that no rule allowed, and of rules that the grant does not have.
_NONE, _OTHERS = "none", "others"
_VERDICTS = ("allowed", "denied", "asked")


@dataclass(slots=True)
class RuleUses:
    """
    Counts how often each rule of a grant allowed, denied and asked people.

    Events name rules by their places at the time of the run. So a recorded rule counts
    for the rule of the grant that says the same, wherever it is now.
    """

    grant: Grant
    _counted: Counter[tuple[str, str]] = field(
        default_factory=Counter[tuple[str, str]], init=False
    )
    #: By stream: recorded rules to those of the grant.
    _runs: dict[str, dict[str, str]] = field(
        default_factory=dict[str, dict[str, str]], init=False
    )

    def take(self, recorded: Recorded) -> None:
        """Take the next event of a run, which is any."""
        event = recorded.event
        if isinstance(event, RunStarted):
            now = {text: id_ for id_, text in _rules(self.grant.to_payload())}
            self._runs[recorded.stream] = {
                id_: now.get(text, _OTHERS) for id_, text in _rules(event.grants)
            }
        elif isinstance(event, ToolInvoked) and event.rule is not None:
            self._count(recorded.stream, event.rule, "allowed")
        elif isinstance(event, ToolDenied):
            self._count(recorded.stream, event.rule, "denied")
        elif isinstance(event, ApprovalRequested):
            self._count(recorded.stream, event.rule, "asked")

    def _count(self, stream: str, rule: str | None, verdict: str) -> None:
        known = self._runs.get(stream, {})
        name = _NONE if rule is None else known.get(rule, _OTHERS)
        self._counted[name, verdict] += 1

    def document(self) -> dict[str, JSON]:
        """Return ``{allowed, denied, asked}`` by rule, for ``none`` and ``others``."""
        rules = (*self.grant.allow, *self.grant.deny)
        return {
            name: {verdict: self._counted[name, verdict] for verdict in _VERDICTS}
            for name in (*(rule.id for rule in rules), _NONE, _OTHERS)
        }


def _rules(grants: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the id of each rule of a grant, and what it says."""
    for kind in ("deny", "allow"):
        for rule in grants.get(kind, ()):
            says = {k: v for k, v in rule.items() if k not in {"id", "source"}}
            yield str(rule["id"]), f"{kind} {json.dumps(says, sort_keys=True)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """
    The budgets of an agent at one moment.

    Attributes:
        now: The moment, by the clock of the store.

        uses: By key, without the agent.

        places: The calls that hold a place, by the same: stream and number.
    """

    now: int
    uses: Mapping[str, Use]
    places: Mapping[str, Sequence[tuple[str, int]]]


def budget_documents(agent: str, grant: Grant, spent: Spent) -> list[dict[str, JSON]]:
    """Return a document for each budget that the runs of an agent share."""
    found: list[dict[str, JSON]] = []
    for rule in grant.allow:
        for cost in rule.costs({}):
            if cost.is_of_run:
                continue
            budget = cost.budget
            holders = spent.places.get(cost.key, [])
            use = spent.uses.get(cost.key, Use())
            number, until = standing(budget, use, spent.now)
            if isinstance(budget, Concurrency):
                number = len(holders)
            calls: list[JSON] = [
                {"run": run_of(stream), "call": call} for stream, call in holders
            ]
            found.append(
                {
                    "agent": agent,
                    "rule": rule.id,
                    "source": rule.source,
                    "account": rule.account,
                    "budget": _named(budget),
                    "spent": _amount(budget, number),
                    "limit": _amount(budget, budget.limit),
                    "until": until,
                    "calls": calls,
                }
            )
    return found


def _amount(budget: Budget, number: int) -> str:
    """Return a number of a budget as a decimal: sums are counted in millionths."""
    if not isinstance(budget, Sum):
        return str(number)
    whole, rest = divmod(number, UNIT)
    return f"{whole}.{rest:06}".rstrip("0").rstrip(".") if rest else str(whole)


def _named(budget: Budget) -> str:
    match budget:
        case CallCount():
            return f"calls per {budget.per}"
        case Sum():
            kind, _, _ = budget.key.partition("/")
            return f"{kind} of {budget.of} per {budget.per}"
        case Pace():
            return f"rate in {budget.every / 1e6:g} s"
        case Concurrency():
            return "calls under way"
        case _:
            assert_never(budget)
