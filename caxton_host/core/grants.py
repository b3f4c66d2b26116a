"""
What an agent may do, as it is written down, and as its log keeps it.

A grant is a list of rules. What they mean for a call is said in `decisions`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256

from ..errors import UsageError
from .budgets import Budget, Cost, budget_from_payload, budget_to_payload, costs
from .calls import JSON
from .patterns import Pattern

__all__ = ["Grant", "Rule"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """
    One ``allow`` or ``deny`` table of a configuration.

    Attributes:
        id: How events and messages name it: ``allow[1]``.

        tools: What it speaks of.

        calls: How many calls of a run it allows, or ``None`` for any number.

        only_after: What the run must have called, each with success.

        unless_after: What the run must not have called, whatever came of it.

        expires: From when on it allows nothing: microseconds since 1970.

        max_params: Bytes of the largest parameters that it allows.

        name: What its budgets are called, or ``""``. See `account`.

        budgets: What its calls take of, besides *calls*.

        source: The file and line it stands in, or ``""``.
    """

    id: str
    tools: tuple[Pattern, ...]
    calls: int | None = None
    only_after: tuple[Pattern, ...] = ()
    unless_after: tuple[Pattern, ...] = ()
    expires: int | None = None
    max_params: int | None = None
    name: str = ""
    budgets: tuple[Budget, ...] = ()
    source: str = ""

    @property
    def account(self) -> str:
        """
        What its budgets are kept under: its name, or what it speaks of.

        So who raises a limit gives back nothing of what was spent.
        """
        if self.name:
            return self.name
        payload = self.to_payload()
        about = {key: payload[key] for key in _ABOUT if key in payload}
        text = json.dumps(about, sort_keys=True, separators=(",", ":"))
        return f"~{sha256(text.encode()).hexdigest()[:16]}"

    def costs(self, params: Mapping[str, JSON]) -> Iterator[Cost]:
        """Yield what a call that it allows takes of each of its budgets."""
        return costs(self.budgets, self.account, params) if self.budgets else iter(())

    def matches(self, server: str, tool: str) -> bool:
        """Return whether the rule speaks of this tool."""
        return any(pattern.matches(server, tool) for pattern in self.tools)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The tools one agent may call, and how. An empty grant allows nothing."""

    allow: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()

    def to_payload(self) -> dict[str, JSON]:
        """Return the grant as ``RunStarted.grants`` holds it."""
        return {
            "allow": [rule.to_payload() for rule in self.allow],
            "deny": [rule.to_payload() for rule in self.deny],
        }

    @classmethod
    def from_payload(cls, payload: Mapping[str, JSON]) -> Grant:
        """
        Return the grant that a ``RunStarted`` holds.

        Raises:
            UsageError: It has a key that this version does not know.
        """
        _known(payload, {"allow", "deny"})
        return cls(
            allow=tuple(map(_rule, _list(payload.get("allow")))),
            deny=tuple(map(_rule, _list(payload.get("deny")))),
        )

    def servers(self, known: Iterable[str]) -> list[str]:
        """Return those of the *known* servers that an allow rule speaks of."""
        return [
            name
            for name in known
            if any(p.covers_server(name) for rule in self.allow for p in rule.tools)
        ]

    def literals(self) -> list[tuple[str, str]]:
        """Return every ``(server, tool)`` that an allow rule names in full."""
        named = (p.literal for rule in self.allow for p in rule.tools)
        return [literal for literal in named if literal]


def _rule(payload: JSON) -> Rule:
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
        name=str(payload.get("name", "")),
        budgets=tuple(map(_budget, _list(payload.get("budgets")))),
        source=str(payload.get("source", "")),
    )


_KEYS = frozenset(Rule.__dataclass_fields__)
#: What of a rule says what it speaks of.
_ABOUT = ("tools", "params", "other_params")


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


def _list(value: JSON) -> list[JSON]:
    return value if isinstance(value, list) else []
