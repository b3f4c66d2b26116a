"""
Whether a call may be made. Pure: no clock, no database, no exceptions.

Deny by default; a deny rule wins; a rule that refuses allows nothing. Among the rules
that speak of the tool the first that does not refuse allows the call; if all refuse,
what is told is the refusal of the one that came furthest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from .budgets import Sum, cannot_bear
from .calls import JSON, Denied, Route
from .grants import Grant, Rule

__all__ = [
    "Allowed",
    "Attempt",
    "Considered",
    "Refusal",
    "Tally",
    "considered",
    "decide",
    "may_ever",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """
    A call, as it is judged.

    Attributes:
        route: Where the agent's name leads; ``None`` if it leads nowhere. Such a
            call is denied like one without a grant: an agent cannot find out which
            tools exist.

        params: What would be sent.

        size: How many bytes the agent used to say so.

        now: The time, in microseconds since 1970.

        refused: Rules whose budgets the store has no room in, by id, and why.
    """

    route: Route | None
    params: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    size: int = 0
    now: int = 0
    refused: Mapping[str, Refusal] = field(default_factory=dict[str, "Refusal"])


@dataclass(slots=True)
class Tally:
    """
    What a run did so far, as its rules count it.

    Attributes:
        used: How many calls each rule allowed.

        called: Each ``(server, tool)`` that was allowed, whatever came of it.

        done: Those of them that answered, and did not say that they failed.

        spent: What it took of each budget, by its key.
    """

    used: Counter[str] = field(default_factory=Counter[str])
    called: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    done: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    spent: Counter[str] = field(default_factory=Counter[str])

    def copy(self) -> Tally:
        """Return what it says now."""
        return Tally(
            self.used.copy(), self.called.copy(), self.done.copy(), self.spent.copy()
        )


Stage: TypeAlias = Literal["expired", "order", "too_large", "budget", "rate", "busy"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """
    Why a rule that speaks of a tool does not allow a call.

    Attributes:
        code: What of the rule refused. A rule asks in the order of `Stage`.

        message: The same for the agent. It names nothing that it does not know.
    """

    code: Stage
    message: str


@dataclass(frozen=True, slots=True)
class Allowed:
    """The call may be made, by this rule."""

    rule: Rule


@dataclass(frozen=True, slots=True)
class Considered:
    """
    What one rule has to say of a call.

    Attributes:
        kind: ``deny`` or ``allow``.

        speaks: Whether the rule speaks of the tool at all.

        refusal: Why it does not allow the call, if it is an allow rule that speaks.
    """

    rule: Rule
    kind: Literal["deny", "allow"]
    speaks: bool
    refusal: Refusal | None = None


_NOTHING = Denied(
    code="not_granted", rule=None, message="this agent has no grant for that tool"
)


def decide(grant: Grant, attempt: Attempt, tally: Tally) -> Allowed | Denied:
    """
    Return whether *grant* allows a call, and by which rule.

    >>> from .patterns import Pattern
    >>> rule = Rule(id="allow[1]", tools=(Pattern.parse("demo/echo"),), calls=1)
    >>> grant = Grant(allow=(rule,))
    >>> echo = Attempt(route=Route(server="demo", tool="echo"))
    >>> decide(grant, echo, Tally()) == Allowed(rule)
    True
    >>> decide(grant, echo, Tally(Counter({"allow[1]": 1}))).code
    'budget'
    """
    route = attempt.route
    if route is None:
        return _NOTHING
    for rule in grant.deny:
        if rule.matches(route.server, route.tool):
            return Denied(
                code="denied", rule=rule.id, message="a rule forbids that tool"
            )
    furthest, found = -1, _NOTHING
    for rule in grant.allow:
        if not rule.matches(route.server, route.tool):
            continue
        refusal = _refusal(rule, attempt, tally)
        if refusal is None:
            return Allowed(rule)
        if _STAGES[refusal.code] > furthest:
            furthest = _STAGES[refusal.code]
            found = Denied(code=refusal.code, rule=rule.id, message=refusal.message)
    return found


def considered(grant: Grant, attempt: Attempt, tally: Tally) -> Iterator[Considered]:
    """Yield what each rule has to say of a call, in the order in which it is asked."""
    route = attempt.route
    for rule in grant.deny:
        speaks = route is not None and rule.matches(route.server, route.tool)
        yield Considered(rule, "deny", speaks)
    for rule in grant.allow:
        speaks = route is not None and rule.matches(route.server, route.tool)
        refusal = _refusal(rule, attempt, tally) if speaks else None
        yield Considered(rule, "allow", speaks, refusal)


def may_ever(grant: Grant, route: Route) -> bool:
    """Return whether some call of *route* could be allowed, with other parameters."""
    target = route.server, route.tool
    if any(rule.matches(*target) for rule in grant.deny):
        return False
    return any(rule.calls != 0 and rule.matches(*target) for rule in grant.allow)


def _refusal(rule: Rule, attempt: Attempt, tally: Tally) -> Refusal | None:
    """Return why *rule*, which speaks of the tool, does not allow the call."""
    for code, check in _CHECKS.items():
        if message := check(rule, attempt, tally):
            return Refusal(code, message)
    return attempt.refused.get(rule.id)


def _expired(rule: Rule, attempt: Attempt, _: Tally) -> str:
    if rule.expires is None or attempt.now < rule.expires:
        return ""
    return "the grant for that tool has expired"


def _order(rule: Rule, _: Attempt, tally: Tally) -> str:
    for pattern in rule.only_after:
        if not any(pattern.matches(*tool) for tool in tally.done):
            return "another tool has to be called first"
    for pattern in rule.unless_after:
        if any(pattern.matches(*tool) for tool in tally.called):
            return "that tool is closed, after what this run has called"
    return ""


def _too_large(rule: Rule, attempt: Attempt, _: Tally) -> str:
    if rule.max_params is None or attempt.size <= rule.max_params:
        return ""
    return f"the parameters have {attempt.size} bytes, of {rule.max_params} allowed"


def _budget(rule: Rule, attempt: Attempt, tally: Tally) -> str:
    if rule.calls is not None and tally.used[rule.id] >= rule.calls:
        return f"all {rule.calls} calls of that grant are spent"
    if not any(isinstance(budget, Sum) for budget in rule.budgets):
        return ""  # The others only the store can judge.
    for cost in rule.costs(attempt.params):
        if message := cannot_bear(cost, tally.spent):
            return message
    return ""


_CHECKS: Mapping[Stage, Callable[[Rule, Attempt, Tally], str]] = {
    "expired": _expired,
    "order": _order,
    "too_large": _too_large,
    "budget": _budget,
}
#: The last ones only the store can tell: see `Attempt.refused`.
_STAGES = {code: number for number, code in enumerate((*_CHECKS, "rate", "busy"))}
