"""
Budgets of a call: what is reserved in the store, and what its refusals mean.

Each grant that binds a run has rules with budgets. If two of them have the same budget,
the stricter limit counts, and the budget is spent once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never, cast

from ..core.calls import JSON, Completed, Denied
from ..core.grants.bounds import Bound
from ..core.grants.budgets import CallCount, Concurrency, Cost, Pace, Sum
from ..core.grants.call_terms import Terms
from ..core.grants.decisions import Refusal
from ..core.grants.grants import Rule
from ..core.grants.settlement import settled
from ..core.log.events import ApprovalRequested, ToolInvoked
from ..ports.log import Refused, Reservation

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

        bound: The grant of that rule.

        run: The run that shares this budget with the runs below it, or ``""``.
    """

    cost: Cost
    amount: int
    rule: Rule
    bound: Bound
    run: str = ""

    @property
    def key(self) -> str:
        """How events name the budget."""
        if self.run:
            return f"#{self.run}/{self.cost.key}"
        return self.bound.key(self.cost.key)

    def reservation(self, agent: str, call: int) -> Reservation:
        """Return the reservation for call number *call* of a run."""
        budget = self.cost.budget
        key = f"{self.bound.owner or agent}/{self.cost.key}"
        reservation = Reservation(
            key=self.key if self.run else key,
            amount=self.amount,
            limit=budget.limit,
            rule=self.bound.rule(self.rule.id),
        )
        match budget:
            case Pace():
                return replace(reservation, every=budget.every)
            case Concurrency():
                return replace(reservation, call=call)
            case CallCount() | Sum() if budget.per == "run":
                return reservation
            case CallCount() | Sum():
                return replace(reservation, per=budget.per)
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
        refusals: Rules that cannot allow it, by the name of their grant and by id.

        waited_s: Seconds for which it has waited for room in a budget.
    """

    refusals: dict[str, dict[str, Refusal]] = field(
        default_factory=dict[str, "dict[str, Refusal]"]
    )
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
        rules = self.refusals.setdefault(want.bound.name, {})
        rules[want.rule.id] = want.refusal(refused)

    def of(self, name: str) -> Mapping[str, Refusal]:
        """Return the rules of the grant of that name that cannot allow it, by id."""
        return self.refusals.get(name, {})


def wants(
    by: Iterable[tuple[Bound, Rule]],
    params: Mapping[str, JSON],
    shared: Callable[[Bound], str] = lambda _: "",
    also: Iterable[Want] = (),
) -> tuple[list[Want], dict[str, int]]:
    """
    Return what a call takes of the store's budgets, and of all budgets by key.

    Args:
        by: The rules that allow the call, with their grants.

        params: The parameters of the call.

        shared: Returns the run that shares the budgets of a run by a grant with the
            runs below it, or ``""``.

        also: What it takes besides.
    """
    found: dict[str, Want] = {}
    for want in (*_wants(by, params, shared), *also):
        other = found.get(want.key, want)
        stricter = min(other, want, key=lambda one: one.cost.budget.limit)
        # Two grants may estimate the same budget differently.
        found[want.key] = replace(stricter, amount=max(want.amount, other.amount))
    kept = [want for want in found.values() if want.run or not want.cost.is_of_run]
    return kept, {key: want.amount for key, want in found.items()}


def _wants(
    by: Iterable[tuple[Bound, Rule]],
    params: Mapping[str, JSON],
    shared: Callable[[Bound], str],
) -> Iterator[Want]:
    for bound, rule in by:
        run = shared(bound)
        for cost in rule.costs(params):
            assert cost.amount is not None  # noqa: S101 -- or it was not allowed
            yield Want(cost, cost.amount, rule, bound)
            if run and cost.is_of_run:
                yield Want(cost, cost.amount, rule, bound, run)
        if run and rule.calls is not None:
            yield Want(calls_of(rule.calls, rule.account), 1, rule, bound, run)


def calls_of(limit: int, account: str) -> Cost:
    """Return what a call takes of a number of calls that runs share."""
    budget = CallCount(limit=limit, per="run")
    return Cost(budget, f"{account}/{budget.key}", 1)


def settles(
    bounds: Iterable[Bound],
    invoked: ToolInvoked,
    params: Mapping[str, JSON],
    done: Completed,
    *,
    again: bool,
) -> dict[str, int] | None:
    """
    Return what an answered call has spent in truth, by those keys that it settles.

    Args:
        bounds: The grants that bind the run.

        invoked: The intent of the call.

        params: Its parameters, as they were sent.

        done: The answer, as it came.

        again: Whether an earlier send without an answer may have reached the server:
            the estimate stands for it.
    """
    spends = cast("dict[str, int]", invoked.spends or {})
    target, found = (invoked.server or "", invoked.tool or ""), dict[str, int]()
    for bound in bounds:
        truth = settled(bound.grant, target, params, done, bound.share(spends))
        for name, amount in truth.items():
            key = bound.key(name)
            for one in (key, *(k for k in spends if _is_shared(k, name))):
                found[one] = max(amount + again * spends[key], found.get(one, 0))
    return found or None


def _is_shared(key: str, name: str) -> bool:
    """Return whether runs share that budget of their rules; see `Want.key`."""
    return key.startswith("#") and key.partition("/")[2] == name


def _later(seconds: float | None) -> str:
    return "" if seconds is None else f"; try again in {math.ceil(seconds)} s"
