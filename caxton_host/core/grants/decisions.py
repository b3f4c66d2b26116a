"""
Decisions about calls. Pure: no clock, no database, no exceptions.

Calls are denied by default, and a deny rule takes precedence. The first allow rule of
the tool that does not refuse the call allows it. If all refuse, the denial has the
refusal of the rule that passed the most checks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, cast

from ..calls import JSON, Denied, Route
from ..provenance import Sources
from ..tools.schemas import Mismatch
from .approvals import Approve
from .budgets import Sum, cannot_bear
from .conditions import no_engine
from .constraints import Failure, Matcher
from .grants import Grant, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """
    A call to decide about.

    Attributes:
        route: Where the exposed name leads; ``None``: to no tool. Such a call is denied
            like one without a grant, so that an agent cannot find out which tools
            exist.

        params: The parameters that would be sent.

        size: The size of the agent's own bytes.

        now: The time, in microseconds since 1970.

        matches: Returns whether a text matches a regular expression. Without one, no
            rule with a pattern allows a call.

        sources: What the run knows about the sources of values. Without it, no rule
            that asks for them allows a call.

        schema: Compares parameters with the schema of the tool, if it is known.

        refused: Refusals of the store, whose budgets are spent, by the id of the rule.
    """

    route: Route | None
    params: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    size: int = 0
    now: int = 0
    matches: Matcher = no_engine
    sources: Sources | None = None
    schema: Callable[[JSON], Mismatch | None] | None = None
    refused: Mapping[str, Refusal] = field(default_factory=dict[str, "Refusal"])


@dataclass(slots=True)
class Tally:
    """
    What a run has done so far, as its rules count it.

    Attributes:
        used: The number of calls that each rule allowed.

        called: Each ``(server, tool)`` that was allowed, whatever the outcome.

        done: Those of them that answered without an error.

        spent: The amount taken of each budget, by its key.

        agents: The number of calls of agents that were allowed.
    """

    used: Counter[str] = field(default_factory=Counter[str])
    called: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    done: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    spent: Counter[str] = field(default_factory=Counter[str])
    agents: int = 0

    def settle(self, taken: Mapping[str, int], settles: Mapping[str, int]) -> None:
        """
        Correct what a call has taken of budgets.

        Args:
            taken: What was counted, by key.

            settles: What it has spent in truth.
        """
        for key in taken.keys() & settles.keys():
            self.spent[key] += settles[key] - taken[key]

    @property
    def carried(self) -> dict[str, JSON]:
        """What the next session counts on from; see `carry`."""
        return {
            "used": {**self.used},
            "spent": {**self.spent},
            "called": [*map("/".join, sorted(self.called))],
            "done": [*map("/".join, sorted(self.done))],
        }

    def carry(self, carried: Mapping[str, JSON]) -> None:
        """
        Count on from what the session before has counted.

        >>> tally = Tally(Counter({"allow[1]": 2}), {("crm", "find")})
        >>> after = Tally()
        >>> after.carry(tally.carried)
        >>> after == tally
        True
        """
        self.used.update(cast("dict[str, int]", carried["used"]))
        self.spent.update(cast("dict[str, int]", carried["spent"]))
        for key, found in (("called", self.called), ("done", self.done)):
            for name in cast("list[str]", carried[key]):
                server, _, tool = name.partition("/")
                found.add((server, tool))

    def copy(self) -> Tally:
        """Return a copy."""
        return Tally(
            self.used.copy(),
            self.called.copy(),
            self.done.copy(),
            self.spent.copy(),
            self.agents,
        )


Stage: TypeAlias = Literal[
    "expired", "order", "too_large", "params", "schema", "budget", "rate", "busy"
]


@dataclass(frozen=True, slots=True)
class Refusal:
    """
    Why a rule of the tool does not decide about the call.

    Attributes:
        code: The check that refused. Checks run in the order of `Stage`.

        message: The message for the agent. It contains nothing that the agent cannot
            know.

        path: The part of the parameters, as a JSON path.

        failure: The failure with the wanted value, for the operator only.
    """

    code: Stage
    message: str
    path: str = ""
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Allowed:
    """
    The call is allowed by this rule.

    Attributes:
        approves: The approvals that it needs first, by the id of the rule.
    """

    rule: Rule
    approves: tuple[tuple[str, Approve], ...] = ()


@dataclass(frozen=True, slots=True)
class Considered:
    """
    The result of one rule for a call.

    Attributes:
        kind: ``deny`` or ``allow``.

        speaks: Whether the rule covers the tool.

        refusal: Why an allow rule that covers the tool does not allow the call, or why
            a deny rule does not apply. The first rule without one decides.
    """

    rule: Rule
    kind: Literal["deny", "allow"]
    speaks: bool
    refusal: Refusal | None = None


_Why: TypeAlias = str | Failure | Mismatch

_NOTHING = Denied(
    code="not_granted", rule=None, message="this agent has no grant for that tool"
)


def decide(grant: Grant, attempt: Attempt, tally: Tally) -> Allowed | Denied:
    """
    Return whether *grant* allows a call, and by which rule.

    >>> from caxton_host.core.text.globs import Pattern
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
    deny, allow = grant.speaking(route.server, route.tool)
    for rule in deny:
        if _spared(rule, attempt) is None:
            what = "call" if rule.params else "tool"
            return Denied(
                code="denied", rule=rule.id, message=f"a rule forbids that {what}"
            )
    furthest, found = -1, None
    for rule in allow:
        refused = _refused(rule, attempt, tally)
        if refused is None:
            return Allowed(rule, _approves(rule, attempt))
        if _STAGES[refused[0]] > furthest:
            furthest, found = _STAGES[refused[0]], (rule, *refused)
    if found is None:
        return _NOTHING
    rule, code, why = found
    return Denied(code=code, rule=rule.id, message=_told(code, why).message)


def _approves(rule: Rule, attempt: Attempt) -> tuple[tuple[str, Approve], ...]:
    wanted = rule.approve
    if wanted is None or not wanted.concerns(
        attempt.params, attempt.matches, attempt.sources
    ):
        return ()
    return ((rule.id, wanted),)


def considered(grant: Grant, attempt: Attempt, tally: Tally) -> Iterator[Considered]:
    """Yield the result of each rule, in the order in which they are checked."""
    route = attempt.route
    for rule in grant.deny:
        speaks = route is not None and rule.matches(route.server, route.tool)
        spared = _spared(rule, attempt) if speaks else None
        yield Considered(rule, "deny", speaks, spared)
    for rule in grant.allow:
        speaks = route is not None and rule.allows(route.server, route.tool)
        refused = _refused(rule, attempt, tally) if speaks else None
        yield Considered(rule, "allow", speaks, refused and _told(*refused))


def may_ever(grant: Grant, route: Route) -> bool:
    """Return whether some call of *route* could be allowed, with other parameters."""
    target = route.server, route.tool
    deny, allow = grant.speaking(*target)
    if any(rule.params is None for rule in deny):
        return False
    return any(rule.calls != 0 for rule in allow)


def may_again(grant: Grant, attempt: Attempt) -> bool:
    """
    Return whether a call that was sent before a crash may be sent again.

    Budgets and order are not checked again.
    """
    route = attempt.route
    if route is None:
        return False
    deny, allow = grant.speaking(route.server, route.tool)
    return all(_spared(rule, attempt) for rule in deny) and any(
        not _expired(rule, attempt, _NONE) and not _params(rule, attempt, _NONE)
        for rule in allow
        if rule.calls != 0
    )


def _refused(rule: Rule, attempt: Attempt, tally: Tally) -> tuple[Stage, _Why] | None:
    """Return why *rule*, which covers the tool, does not allow the call."""
    for code, check in _CHECKS.items():
        if found := check(rule, attempt, tally):
            return code, found
    stored = attempt.refused.get(rule.id)
    return (stored.code, stored.message) if stored else None


def _spared(rule: Rule, attempt: Attempt) -> Refusal | None:
    """Return why a deny rule, which covers the tool, does not apply."""
    if rule.params is None:
        return None
    found = rule.params.spared(attempt.params, attempt.matches, attempt.sources)
    return _told("params", found) if found else None


def _told(code: Stage, found: _Why) -> Refusal:
    if isinstance(found, Failure):
        return Refusal(code, found.message, found.path, found)
    if isinstance(found, Mismatch):
        return Refusal(code, f"does not match the tool's schema: {found}", found.path)
    return Refusal(code, found)


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


def _params(rule: Rule, attempt: Attempt, _: Tally) -> Failure | None:
    if rule.params is None:
        return None
    return rule.params.failure(
        attempt.params,
        attempt.matches,
        sources=attempt.sources,
        others=rule.other_params,
    )


def _schema(_: Rule, attempt: Attempt, __: Tally) -> Mismatch | None:
    if attempt.schema is None:
        return None
    try:
        return attempt.schema({**attempt.params})
    except Exception:  # noqa: BLE001 -- law 4: a validator that fails denies
        return Mismatch("$", "could not be judged")


def _budget(rule: Rule, attempt: Attempt, tally: Tally) -> str:
    if rule.calls is not None and tally.used[rule.id] >= rule.calls:
        return f"all {rule.calls} calls of that grant are spent"
    if not any(isinstance(budget, Sum) for budget in rule.budgets):
        return ""  # Only the store can judge the others.
    for cost in rule.costs(attempt.params):
        if message := cannot_bear(cost, tally.spent):
            return message
    return ""


_NONE = Tally()
_CHECKS: Mapping[Stage, Callable[[Rule, Attempt, Tally], _Why | None]] = {
    "expired": _expired,
    "order": _order,
    "too_large": _too_large,
    "params": _params,
    "schema": _schema,
    "budget": _budget,
}
#: Only the store refuses by the last two: see `Attempt.refused`.
_STAGES = {code: number for number, code in enumerate((*_CHECKS, "rate", "busy"))}
