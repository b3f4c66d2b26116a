"""
Budgets of a call: what is asked of the store, and what its refusals mean.

The recorded grants of a run and those of today each have their rule's budgets. Where
both have the same one, the stricter limit counts, and it is spent once.
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

#: Seconds: clocks are not so exact that less makes sense.
_SHORTEST = 0.01


@dataclass(frozen=True, slots=True)
class Want:
    """
    What a call takes of one budget.

    Attributes:
        cost: The same, as its rule says it.

        amount: How much.

        rule: The rule.

        today: It is one of today's grants, and not a recorded one.
    """

    cost: Cost
    amount: int
    rule: Rule
    today: bool

    def reservation(self, agent: str, call: int) -> Reservation:
        """Return what is asked of the store for call number *call* of a run."""
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
        """Return why the rule does not allow the call, then."""
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
    A call that is new, and what the grants say of it.

    Attributes:
        intent: What records it.

        denied: How it ends without being sent, if it does.

        asks: What people have to be asked first, if anything.

        terms: How it is carried out.

        wants: What it takes of budgets that the store keeps.

        reserve: The same, as the store is asked for it.
    """

    intent: ToolInvoked
    denied: Denied | None = None
    asks: ApprovalRequested | None = None
    terms: Terms = field(default_factory=Terms)
    wants: Sequence[Want] = ()
    reserve: Sequence[Reservation] = ()

    @property
    def unspent(self) -> ToolInvoked:
        """The intent of a call that is stopped before it spends anything."""
        return replace(self.intent, spends=None)


@dataclass(slots=True)
class Out:
    """
    What the store has refused of one call so far.

    Attributes:
        recorded: Rules of the recorded grants that cannot allow it, by id.

        today: The same of today's.

        waited: Seconds for which it has waited for its turn.
    """

    recorded: dict[str, Refusal] = field(default_factory=dict[str, Refusal])
    today: dict[str, Refusal] = field(default_factory=dict[str, Refusal])
    waited: float = 0.0

    def take(self, want: Want, refused: Refused) -> float:
        """
        Return how many seconds to wait before it is asked for again.

        At once, if it is zero: another rule may allow the call.
        """
        budget, after = want.cost.budget, refused.retry_after
        if isinstance(budget, Pace) and after is not None:
            pause = max(after, _SHORTEST)
            if self.waited + pause <= budget.wait / 1e6:
                self.waited += pause
                return pause
        self.refuse(want, refused)
        return 0.0

    def refuse(self, want: Want, refused: Refused) -> None:
        """Have another rule allow the call, or none."""
        rules = self.today if want.today else self.recorded
        rules[want.rule.id] = want.refusal(refused)


def wants(
    allowed: Allowed | None, params: Mapping[str, JSON]
) -> tuple[list[Want], dict[str, int]]:
    """
    Return what a call takes of the store's budgets, and what of all.

    Args:
        allowed: The rules that allow it, if they do.

        params: Of the call.
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
