"""
Budgets of a call: what is reserved in the store, and what its refusals mean.

The recorded grants of a run and today's grants each have rules with budgets. If both
have the same budget, the stricter limit counts, and the budget is spent once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never, cast

from ..core.calls import JSON, Denied
from ..core.grants.budgets import CallCount, Concurrency, Cost, Pace, Period, Sum
from ..core.grants.call_terms import Terms
from ..core.grants.decisions import Allowed, Refusal
from ..core.grants.grants import Rule
from ..core.log.events import ApprovalRequested, ToolInvoked
from ..ports import Refused, Reservation

#: The shortest wait for a budget. Timers are not precise enough for less.
_SHORTEST_WAIT_S = 0.01


@dataclass(frozen=True, slots=True)
class Want:
    """
    What a call takes of one budget.

    Attributes:
        cost: The cost that the rule states.

        amount: How much.

        rule: The rule that has the budget.

        today: Whether the rule is one of today's grants, and not a recorded one.
    """

    cost: Cost
    amount: int
    rule: Rule
    today: bool

    def reservation(self, agent: str, call: int) -> Reservation:
        """Return the reservation for call number *call* of a run."""
        budget = self.cost.budget
        reservation = Reservation(
            key=f"{agent}/{self.cost.key}",
            amount=self.amount,
            limit=budget.limit,
            rule=f"today.{self.rule.id}" if self.today else self.rule.id,
        )
        match budget:
            case Pace():
                return replace(reservation, every=budget.every)
            case Concurrency():
                return replace(reservation, call=call)
            case CallCount() | Sum():
                return replace(reservation, per=cast("Period", budget.per))
            case _:
                assert_never(budget)

    def refusal(self, refused: Refused) -> Refusal:
        """Return why the rule does not allow the call if the store refused it."""
        budget, later = self.cost.budget, _later(refused.retry_after)
        if isinstance(budget, Pace):
            return Refusal("rate", f"that grant is called too often{later}")
        if isinstance(budget, Concurrency):
            text = f"all {budget.limit} calls of that grant are under way"
            return Refusal("busy", text)
        if isinstance(budget, Sum):
            text = f"that grant has no room for so much of {budget.of!r}"
        else:
            text = f"all {budget.limit} calls per {budget.per} of that grant are spent"
        return Refusal("budget", f"{text}{later}")


@dataclass(frozen=True, slots=True)
class Judged:
    """
    The decision about a new call.

    Attributes:
        intent: The event that records the call.

        denied: The denial, if the call is denied.

        asks: The approval that it needs first, if any.

        terms: How it is carried out.

        wants: What it takes of budgets that the store keeps.

        reserve: The reservations for these, in the same order.
    """

    intent: ToolInvoked
    denied: Denied | None = None
    asks: ApprovalRequested | None = None
    terms: Terms = field(default_factory=Terms)
    wants: Sequence[Want] = ()
    reserve: Sequence[Reservation] = ()

    @property
    def unspent(self) -> ToolInvoked:
        """The intent of a call that is stopped before it spends budgets."""
        return replace(self.intent, spends=None)


@dataclass(slots=True)
class Out:
    """
    What the store has refused of one call so far.

    Attributes:
        recorded: Rules of the recorded grants that cannot allow it, by id.

        today: Rules of today's grants that cannot allow it, by id.

        waited_s: Seconds for which it has waited for room in a budget.
    """

    recorded: dict[str, Refusal] = field(default_factory=dict[str, Refusal])
    today: dict[str, Refusal] = field(default_factory=dict[str, Refusal])
    waited_s: float = 0.0

    def take(self, want: Want, refused: Refused) -> float:
        """
        Return how many seconds to wait before the budget is reserved again.

        Zero means that there is no point in waiting: another rule may allow the call.
        """
        budget, after = want.cost.budget, refused.retry_after
        if isinstance(budget, Pace) and after is not None:
            pause = max(after, _SHORTEST_WAIT_S)
            if self.waited_s + pause <= budget.wait / 1e6:
                self.waited_s += pause
                return pause
        self.refuse(want, refused)
        return 0.0

    def refuse(self, want: Want, refused: Refused) -> None:
        """Note that the rule of *want* cannot allow the call."""
        rules = self.today if want.today else self.recorded
        rules[want.rule.id] = want.refusal(refused)


def wants(
    allowed: Allowed | None, params: Mapping[str, JSON]
) -> tuple[list[Want], dict[str, int]]:
    """
    Return what a call takes of the store's budgets, and of all budgets by key.

    Args:
        allowed: The rules that allow the call; ``None`` if it is denied.

        params: The parameters of the call.
    """
    found: dict[str, Want] = {}
    spends: dict[str, int] = {}
    for number, one in enumerate(allowed.rules if allowed else ()):
        for cost in one.costs(params):
            assert cost.amount is not None  # noqa: S101 -- or it was not allowed
            want = Want(cost, cost.amount, one, today=number > 0)
            spends[cost.key] = cost.amount
            other = found.setdefault(cost.key, want)
            if cost.budget.limit < other.cost.budget.limit:
                found[cost.key] = want
    return [want for want in found.values() if not want.cost.is_of_run], spends


def _later(seconds: float | None) -> str:
    return "" if seconds is None else f"; try again in {math.ceil(seconds)} s"
