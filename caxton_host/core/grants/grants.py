"""
Grants and their rules, and their form in the log.

A grant is a list of rules. `decisions` applies them to calls.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TypeAlias

from ...errors import ConditionError, UsageError
from ..calls import JSON
from ..names import AGENTS, is_method
from ..provenance import Wanted
from ..text.globs import Pattern
from ..text.jsonpath import JsonPath
from .approvals import Approve
from .budgets import Budget, Cost, budget_from_payload, budget_to_payload, costs
from .conditions import Conditions


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """
    One ``allow`` or ``deny`` table of a configuration.

    Attributes:
        id: How events and messages name it: ``allow[1]``.

        tools: The tools that it covers.

        calls: Most calls of a run; ``None``: any number.

        only_after: Tools that the run must have called with success.

        unless_after: Tools that the run must not have called, whatever the outcome.

        expires: When it stops allowing calls: microseconds since 1970.

        max_params: Most bytes of parameters.

        timeout: Most seconds of one send.

        max_result: Most bytes of an answer.

        redact_result: Parts of an answer that agent and log do not get.

        params: Conditions on parameters; of a deny rule, when it applies.

        other_params: Parameters without a condition are allowed.

        approve: The approval that it requires first.

        name: The account of its budgets, or ``""``. See `account`.

        budgets: Its budgets besides *calls*.

        source: The file and line of the rule, or ``""``.
    """

    id: str
    tools: tuple[Pattern, ...]
    calls: int | None = None
    only_after: tuple[Pattern, ...] = ()
    unless_after: tuple[Pattern, ...] = ()
    expires: int | None = None
    max_params: int | None = None
    timeout: float | None = None
    max_result: int | None = None
    redact_result: tuple[JsonPath, ...] = ()
    params: Conditions | None = None
    other_params: bool = False
    approve: Approve | None = None
    name: str = ""
    budgets: tuple[Budget, ...] = ()
    source: str = ""

    @property
    def account(self) -> str:
        """
        The name of its budgets in the store: its name, or a digest of what it covers.

        A changed limit keeps the account, so spent amounts stay spent.
        """
        if self.name:
            return self.name
        payload = self.to_payload()
        about = {key: payload[key] for key in _ABOUT if key in payload}
        text = json.dumps(about, sort_keys=True, separators=(",", ":"))
        return f"~{sha256(text.encode()).hexdigest()[:16]}"

    @property
    def has_terms(self) -> bool:
        """Whether it sets terms of calls."""
        return bool(
            self.timeout is not None
            or self.max_result is not None
            or self.redact_result
        )

    @property
    def conditions(self) -> Iterator[Conditions]:
        """Its conditions on parameters, with those on the calls that need approval."""
        if self.params:
            yield self.params
        if self.approve and self.approve.when:
            yield self.approve.when

    def trusting(self, trusted: Sequence[str], *, deny: bool) -> Rule:
        """Return the same with the sources that ``trusted`` stands for."""
        approve, params = self.approve, self.params
        if approve and approve.when:
            when = approve.when.trusting(trusted, deny=True)
            approve = replace(approve, when=when)
        if params:
            params = params.trusting(trusted, deny=deny)
        return replace(self, params=params, approve=approve)

    def costs(self, params: Mapping[str, JSON]) -> Iterator[Cost]:
        """Yield what a call takes of each of its budgets."""
        return costs(self.budgets, self.account, params) if self.budgets else iter(())

    def matches(self, server: str, tool: str) -> bool:
        """Return whether the rule covers this tool."""
        return any(pattern.matches(server, tool) for pattern in self.tools)

    def allows(self, server: str, tool: str) -> bool:
        """
        Return whether the rule covers this tool, as an allow rule.

        No star stands for a method.
        """
        return any(
            may_mean(pattern, server)
            and pattern.matches(server, tool)
            and (not is_method(tool) or pattern.literal is not None)
            for pattern in self.tools
        )

    def to_payload(self) -> dict[str, JSON]:
        """Return the rule as ``RunStarted.grants`` holds it."""
        payload: dict[str, JSON] = {
            "id": self.id,
            "tools": _texts(self.tools),
            "only_after": _texts(self.only_after),
            "unless_after": _texts(self.unless_after),
            "calls": self.calls,
            "expires": self.expires,
            "max_params": self.max_params,
            "timeout": self.timeout,
            "max_result": self.max_result,
            "redact_result": [path.text for path in self.redact_result],
            "params": self.params.to_payload() if self.params else None,
            "other_params": "allow" if self.other_params else None,
            "approve": self.approve.to_payload() if self.approve else None,
            "name": self.name,
            "budgets": [budget_to_payload(budget) for budget in self.budgets],
            "source": self.source,
        }
        always = ("id", "tools")
        return {
            key: value
            for key, value in payload.items()
            if key in always or value not in (None, "", [])
        }


def may_mean(pattern: Pattern, server: str) -> bool:
    """Return whether an allow rule reaches a server. No star stands for the agents."""
    return pattern.covers_server(server) and (
        server != AGENTS or len(pattern.server) == 1
    )


_Rules: TypeAlias = tuple[Rule, ...]
_MAX_KNOWN = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The rules of one agent. An empty grant allows nothing."""

    allow: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()
    _speaking: dict[tuple[str, str], tuple[_Rules, _Rules]] = field(
        default_factory=dict[tuple[str, str], "tuple[_Rules, _Rules]"],
        init=False,
        repr=False,
        compare=False,
    )

    def speaking(self, server: str, tool: str) -> tuple[_Rules, _Rules]:
        """Return the deny rules and the allow rules that cover a tool."""
        known = self._speaking.get((server, tool))
        if known is None:
            # A run has few tools, but a judged history has those of many runs.
            if len(self._speaking) >= _MAX_KNOWN:
                self._speaking.clear()
            known = self._speaking[server, tool] = (
                tuple(rule for rule in self.deny if rule.matches(server, tool)),
                tuple(rule for rule in self.allow if rule.allows(server, tool)),
            )
        return known

    def to_payload(self) -> dict[str, JSON]:
        """Return the grant as ``RunStarted.grants`` holds it."""
        return {
            "allow": [rule.to_payload() for rule in self.allow],
            "deny": [rule.to_payload() for rule in self.deny],
        }

    @classmethod
    def from_payload(cls, payload: Mapping[str, JSON]) -> Grant:
        """
        Parse a grant that a ``RunStarted`` holds.

        Raises:
            UsageError: It has a key that this version does not know.
        """
        _known(payload, {"allow", "deny"})
        return cls(
            allow=tuple(_rule(item) for item in _list(payload.get("allow"))),
            deny=tuple(_rule(item, deny=True) for item in _list(payload.get("deny"))),
        )

    @property
    def wanted(self) -> Iterator[Wanted]:
        """The sources that its rules ask for."""
        for rule in (*self.deny, *self.allow):
            for conditions in rule.conditions:
                yield from conditions.wanted

    @property
    def names_trusted(self) -> bool:
        """Whether a rule names the source ``trusted``."""
        return any(o.kind == "trusted" for one in self.wanted for o in one.all_origins)

    def trusting(self, trusted: Sequence[str]) -> Grant:
        """Return the same with the sources that ``trusted`` stands for."""
        return replace(
            self,
            allow=tuple(rule.trusting(trusted, deny=False) for rule in self.allow),
            deny=tuple(rule.trusting(trusted, deny=True) for rule in self.deny),
        )

    def servers(self, known: Iterable[str]) -> list[str]:
        """Return those of the *known* servers that an allow rule covers."""
        return [
            name
            for name in known
            if any(may_mean(p, name) for rule in self.allow for p in rule.tools)
        ]

    def literals(self) -> list[tuple[str, str]]:
        """Return every ``(server, tool)`` that an allow rule names without a star."""
        named = (p.literal for rule in self.allow for p in rule.tools)
        return [literal for literal in named if literal]


def _rule(payload: JSON, *, deny: bool = False) -> Rule:
    assert isinstance(payload, dict)  # noqa: S101 -- read from our own log
    _known(payload, _KEYS)
    return Rule(
        id=str(payload["id"]),
        tools=_patterns(payload["tools"]),
        calls=_number(payload, "calls"),
        only_after=_patterns(payload.get("only_after")),
        unless_after=_patterns(payload.get("unless_after")),
        expires=_number(payload, "expires"),
        max_params=_number(payload, "max_params"),
        timeout=_seconds(payload, "timeout"),
        max_result=_number(payload, "max_result"),
        redact_result=tuple(
            JsonPath.parse(str(text)) for text in _list(payload.get("redact_result"))
        ),
        params=_conditions(payload.get("params"), deny=deny),
        other_params=payload.get("other_params") == "allow",
        approve=Approve.from_payload(payload["approve"])
        if "approve" in payload
        else None,
        name=str(payload.get("name", "")),
        budgets=tuple(map(_budget, _list(payload.get("budgets")))),
        source=str(payload.get("source", "")),
    )


_KEYS = frozenset(Rule.__dataclass_fields__)
#: The keys of a rule that its account depends on.
_ABOUT = ("tools", "params", "other_params")


def _conditions(payload: JSON, *, deny: bool) -> Conditions | None:
    if payload is None:
        return None
    try:
        return Conditions.from_payload(payload, deny=deny)
    except ConditionError as exc:
        where = ".".join(("params", *exc.keys))
        raise UsageError(
            f"the recorded grant has {where}, which {exc}",
            fix="use the version that recorded it, or a newer one",
        ) from None


def _known(payload: Mapping[str, JSON], keys: Iterable[str]) -> None:
    # law 4: a condition that is not understood must not widen the grant
    if unknown := sorted(payload.keys() - keys):
        raise UsageError(
            f"the recorded grant has the unknown key {unknown[0]!r}",
            fix="use the version that recorded it, or a newer one",
        )


def _budget(payload: JSON) -> Budget:
    assert isinstance(payload, dict)  # noqa: S101 -- read from our own log
    return budget_from_payload(payload)


def _texts(patterns: Iterable[Pattern]) -> list[JSON]:
    return [pattern.text for pattern in patterns]


def _patterns(value: JSON) -> tuple[Pattern, ...]:
    return tuple(Pattern.parse(str(text)) for text in _list(value))


def _number(payload: Mapping[str, JSON], key: str) -> int | None:
    value = payload.get(key)
    return value if isinstance(value, int) else None


def _seconds(payload: Mapping[str, JSON], key: str) -> float | None:
    value = payload.get(key)
    return value if isinstance(value, float) else _number(payload, key)


def _list(value: JSON) -> list[JSON]:
    return value if isinstance(value, list) else []
