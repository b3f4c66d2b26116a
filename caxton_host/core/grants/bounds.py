"""
The grants that bind one run, and what they say together.

A call needs the permission of each: of the recorded grant of its agent; of a narrowing;
of the agents that called it; and of the grant of today. Each counts and spends on its
own. The first that does not allow the call decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from ...errors import UsageError
from ..calls import JSON, Denied
from ..text.globs import Pattern
from .approvals import Approve
from .decisions import Attempt, Refusal, Tally, decide
from .grants import Grant, Rule, may_mean

#: Names of the grants that may bind a run beside its recorded one.
NARROW, PARENT, TODAY = _NAMES = "narrow", "parent", "today"

_SAYS = {NARROW: "as the run was narrowed", TODAY: "in the grants of today"}
_OF_CALLER = "in the grants of the agent that called this one"
_MOST = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """
    A grant that binds a run.

    Attributes:
        name: How events name its rules: ``narrow``, ``parent``, ``parent.narrow``,
            ``today``; ``""``: the recorded grant of the agent, whose rules have no
            name before them.

        owner: The agent whose budgets its rules spend; ``""``: the agent of the run.

        before: ``SERVER/TOOL`` of what the caller whose grant it is had called before
            the run began, if its rules ask.
    """

    name: str = ""
    grant: Grant
    owner: str = ""
    before: tuple[JSON, ...] = ()

    @property
    def narrows(self) -> bool:
        """Whether it is a narrowing, whose rules the caller of a run wrote."""
        return self.name.rpartition(".")[2] == NARROW

    @property
    def tally(self) -> Tally:
        """What it counts before the first call of the run."""
        return Tally(called=targets(self.before))

    def rule(self, rule: str) -> str:
        """
        Return how events name a rule.

        >>> Bound(name="narrow", grant=Grant()).rule("allow[1]")
        'narrow.allow[1]'
        """
        return f"{self.name}.{rule}" if self.name else rule

    def key(self, key: str) -> str:
        """Return how events name a budget of its rules."""
        return f"@{self.owner}/{key}" if self.owner else key

    def run(self, runs: Sequence[str]) -> str:
        """
        Return the run whose grant it is, or ``""`` if that is not known.

        Args:
            runs: The callers of the run that it binds, the top one first, and that.

        >>> Bound(name="parent.narrow", grant=Grant()).run(["top", "child"])
        'top'
        """
        above = self.name.split(".").count(PARENT)
        return runs[-1 - above] if above < len(runs) else ""

    def share(self, spends: Mapping[str, int]) -> dict[str, int]:
        """Return those of recorded *spends* that are its owner's, without the mark."""
        if not self.owner:
            return {key: n for key, n in spends.items() if key[0] not in "@#"}
        mark = self.key("")
        own = (item for item in spends.items() if item[0].startswith(mark))
        return {key.removeprefix(mark): amount for key, amount in own}

    def denied(self, denied: Denied) -> Denied:
        """
        Return a denial by this grant, with its name.

        If no rule decided, the name of the grant stands for the rule.
        """
        if not self.name:
            return denied
        last = self.name.rpartition(".")[2]
        return replace(
            denied,
            rule=self.rule(denied.rule) if denied.rule else self.name,
            message=f"{denied.message}, {_SAYS.get(last, _OF_CALLER)}",
        )

    def to_payload(self) -> dict[str, JSON]:
        """Return it as ``RunStarted.bounds`` holds it."""
        payload: dict[str, JSON] = {
            "name": self.name,
            "grants": self.grant.to_payload(),
            "owner": self.owner,
        }
        if self.before:
            payload["before"] = [*self.before]
        return payload

    @classmethod
    def from_payload(cls, payload: JSON) -> Self:
        """
        Parse what a ``RunStarted`` holds.

        Raises:
            UsageError: It has a key that this version does not know.
        """
        assert isinstance(payload, dict)  # noqa: S101 -- read from our own log
        # law 4: a condition that is not understood must not widen the grant
        if payload.keys() - {"before"} != {"name", "grants", "owner"}:
            raise UsageError(
                "the recorded run is bound by a grant of an unknown form",
                fix="use the version that recorded it, or a newer one",
            )
        grants, before = payload["grants"], payload.get("before", [])
        assert isinstance(grants, dict)  # noqa: S101 -- as above
        assert isinstance(before, list)  # noqa: S101 -- as above
        return cls(
            name=str(payload["name"]),
            grant=Grant.from_payload(grants),
            owner=str(payload["owner"]),
            before=tuple(before),
        )


def bounds_of(payloads: Iterable[JSON]) -> tuple[Bound, ...]:
    """
    Return the grants of ``RunStarted.bounds``.

    Raises:
        UsageError: See `Bound.from_payload`.
    """
    return tuple(map(Bound.from_payload, payloads))


def grant_of(rule: str | None) -> str:
    """
    Return the name of the grant whose rule events name; ``""``: the recorded one.

    >>> [grant_of(rule) for rule in ("allow[1]", "narrow", "parent.narrow.deny[2]")]
    ['', 'narrow', 'parent.narrow']
    """
    name, _, last = (rule or "").rpartition(".")
    if last in _NAMES:
        return rule or ""
    return name if name.partition(".")[0] in _NAMES else ""


def reached(grants: Iterable[Grant], known: Iterable[str]) -> list[str]:
    """
    Return those of the *known* servers of which all grants may allow a tool.

    >>> def granted(tools: str) -> Grant:
    ...     return Grant(allow=(Rule(id="allow[1]", tools=(Pattern.parse(tools),)),))
    >>> reached([granted("*m/get_*"), granted("crm/*")], ["crm", "rom", "files"])
    ['crm']
    """
    patterns = [[p for rule in one.allow for p in rule.tools] for one in grants]
    return [name for name in known if _reaches(patterns, name)]


def _reaches(patterns: Iterable[Iterable[Pattern]], server: str) -> bool:
    first, *others = ([p for p in all_ if may_mean(p, server)] for all_ in patterns)
    return any(all(any(map(p.meets, other)) for other in others) for p in first)


def targets(names: Iterable[JSON]) -> set[tuple[str, str]]:
    """Return the tools that are named ``SERVER/TOOL``."""
    parts = (str(name).partition("/") for name in names)
    return {(server, tool) for server, _, tool in parts}


def names_of(called: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return ``SERVER/TOOL`` of each tool, in order."""
    return tuple(sorted(f"{server}/{tool}" for server, tool in called))


def beside(known: Sequence[Bound], more: Iterable[Bound]) -> tuple[Bound, ...]:
    """
    Return narrowings with names that none of the *known* grants has.

    Their budgets are apart from those of the known ones too.

    >>> once = Bound(name="narrow", grant=Grant())
    >>> [one.name for one in beside([once], [once])]
    ['narrow.narrow']

    Raises:
        UsageError: There are too many.
    """
    found = [*known]
    for bound in more:
        while bound.name in {one.name for one in found}:
            bound = _below(bound)  # noqa: PLW2901 -- until its name is free
        found.append(bound)
    if sum(one.narrows for one in found) > _MOST:
        raise UsageError(
            f"a run has at most {_MOST} narrowings", fix="write one of them with less"
        )
    return tuple(found[len(known) :])


def _below(bound: Bound) -> Bound:
    rules = tuple(
        replace(rule, name=f"{NARROW}.{rule.name}") if rule.budgets else rule
        for rule in bound.grant.allow
    )
    name, grant = f"{NARROW}.{bound.name}", replace(bound.grant, allow=rules)
    return replace(bound, name=name, grant=grant)


def handed(
    bounds: Iterable[Bound], agent: str, tally: Callable[[str], Tally]
) -> tuple[Bound, ...]:
    """
    Return the grants that bind the runs that a run calls.

    Args:
        bounds: Those that bind the run itself.

        agent: Its agent.

        tally: Returns what the run did so far, as the grant of that name counts it.

    >>> own = Bound(grant=Grant())
    >>> [one.name for one in handed([own], "planner", lambda _: Tally())]
    ['parent']
    """
    return tuple(
        replace(
            bound,
            name=f"{PARENT}.{bound.name}" if bound.name else PARENT,
            owner=bound.owner or agent,
            before=names_of(tally(bound.name).called)
            if any(rule.unless_after for rule in bound.grant.allow)
            else (),
        )
        for bound in bounds
    )


@dataclass(frozen=True, slots=True)
class Permitted:
    """
    The call is allowed by all grants.

    Attributes:
        by: Each grant with its rule that allows the call; the recorded one first.

        approves: The approvals that it needs first, by the name of the rule.
    """

    by: tuple[tuple[Bound, Rule], ...]
    approves: tuple[tuple[str, Approve], ...] = ()

    @property
    def rule(self) -> Rule:
        """The rule of the recorded grant."""
        return self.by[0][1]

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All rules that allow it."""
        return tuple(rule for _, rule in self.by)


def decide_all(
    bounds: Sequence[Bound],
    attempt: Attempt,
    tally: Callable[[str], Tally],
    refused: Callable[[str], Mapping[str, Refusal]],
) -> Permitted | Denied:
    """
    Return whether all grants allow a call, and by which rules.

    Args:
        bounds: The recorded grant, and those that bind the run beside it.

        attempt: The call.

        tally: Returns what the run did so far, as the grant of that name counts it.

        refused: Returns the refusals of the store, for the grant of that name.
    """
    by: list[tuple[Bound, Rule]] = []
    approves: list[tuple[str, Approve]] = []
    for bound in bounds:
        stored = refused(bound.name)
        asked = replace(attempt, refused=stored) if stored else attempt
        verdict = decide(bound.grant, asked, tally(bound.name))
        if isinstance(verdict, Denied):
            return bound.denied(verdict)
        by.append((bound, verdict.rule))
        approves += ((bound.rule(rule), one) for rule, one in verdict.approves)
    return Permitted(tuple(by), tuple(approves))
