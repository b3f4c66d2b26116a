"""
What an agent may do. Pure: no clock, no database, no exceptions.

Deny by default; a deny rule wins; a rule whose budget is spent allows nothing.
Patterns name ``server/tool``: case-sensitive, whole segments, ``*`` never
crosses the slash.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..errors import UsageError
from .calls import JSON, Denied, Route

__all__ = ["Allowed", "Grant", "Pattern", "Rule", "decide"]

_MAX_STARS = 3


@dataclass(frozen=True, slots=True)
class Pattern:
    """
    A ``server/tool`` glob.

    >>> pattern = Pattern.parse("github/get_*")
    >>> pattern.matches("github", "get_issue"), pattern.matches("githubx", "get_a")
    (True, False)
    """

    text: str
    server: tuple[str, ...]
    tool: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """
        Return the pattern that *text* spells.

        Raises:
            UsageError: It has no slash or an empty side, names every server, or
                has more than three stars.
        """
        server, slash, tool = text.partition("/")
        if not slash or not server or not tool:
            raise UsageError(
                f"{text!r} is not a tool pattern",
                fix="write it as SERVER/TOOL, for example demo/get_weather",
            )
        if not server.strip("*"):
            raise UsageError(
                f"{text!r} names every server", fix="name the server before the slash"
            )
        if text.count("*") > _MAX_STARS:
            raise UsageError(
                f"{text!r} has more than {_MAX_STARS} stars",
                fix="write several narrower patterns",
            )
        return cls(text, tuple(server.split("*")), tuple(tool.split("*")))

    def matches(self, server: str, tool: str) -> bool:
        """Return whether the pattern covers this tool of this server."""
        return _glob(self.server, server) and _glob(self.tool, tool)

    def covers_server(self, server: str) -> bool:
        """Return whether the pattern speaks of this server at all."""
        return _glob(self.server, server)

    @property
    def literal(self) -> tuple[str, str] | None:
        """The one ``(server, tool)`` it names, or ``None`` if it has a star."""
        if len(self.server) == len(self.tool) == 1:
            return self.server[0], self.tool[0]
        return None


def _glob(parts: tuple[str, ...], text: str) -> bool:
    """Match in one pass: between stars, the leftmost fit is as good as any."""
    if len(parts) == 1:
        return text == parts[0]
    first, *middle, last = parts
    at, end = len(first), len(text) - len(last)
    if at > end or not text.startswith(first) or not text.endswith(last):
        return False
    for part in middle:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """
    One ``allow`` or ``deny`` table of a configuration.

    Attributes:
        id: How events and messages name it: ``allow[1]``.

        tools: What it speaks of.

        calls: How many calls of a run it allows, or ``None`` for any number.

        source: The file and line it stands in, or ``""``.
    """

    id: str
    tools: tuple[Pattern, ...]
    calls: int | None = None
    source: str = ""

    def matches(self, server: str, tool: str) -> bool:
        """Return whether the rule speaks of this tool."""
        return any(pattern.matches(server, tool) for pattern in self.tools)

    def to_payload(self) -> dict[str, JSON]:
        """Return the rule as ``RunStarted.grants`` holds it."""
        payload: dict[str, JSON] = {
            "id": self.id,
            "tools": [pattern.text for pattern in self.tools],
        }
        if self.calls is not None:
            payload["calls"] = self.calls
        if self.source:
            payload["source"] = self.source
        return payload


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """
    The tools one agent may call, and how often. An empty grant allows nothing.

    >>> rule = Rule(id="allow[1]", tools=(Pattern.parse("demo/echo"),), calls=1)
    >>> grant = Grant(allow=(rule,))
    >>> decide(grant, Route(server="demo", tool="echo"), used={})
    Allowed(rule='allow[1]')
    >>> decide(grant, Route(server="demo", tool="echo"), used={"allow[1]": 1}).code
    'budget'
    """

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

    def may_ever(self, route: Route) -> bool:
        """Return whether some call of *route* could be allowed."""
        return isinstance(decide(self, route, used={}), Allowed)


def _rule(payload: JSON) -> Rule:
    assert isinstance(payload, dict)  # noqa: S101 -- read from our own log
    _known(payload, {"id", "tools", "calls", "source"})
    calls = payload.get("calls")
    return Rule(
        id=str(payload["id"]),
        tools=tuple(Pattern.parse(str(t)) for t in _list(payload["tools"])),
        calls=calls if isinstance(calls, int) else None,
        source=str(payload.get("source", "")),
    )


def _known(payload: Mapping[str, JSON], keys: set[str]) -> None:
    # law 4: a condition that is not understood must not widen the grant
    if unknown := sorted(payload.keys() - keys):
        raise UsageError(
            f"the recorded grant has the unknown key {unknown[0]!r}",
            fix="use the version that recorded it, or a newer one",
        )


def _list(value: JSON) -> list[JSON]:
    return value if isinstance(value, list) else []


@dataclass(frozen=True, slots=True)
class Allowed:
    """The call may be made, by this rule."""

    rule: str


def decide(
    grant: Grant, route: Route | None, *, used: Mapping[str, int]
) -> Allowed | Denied:
    """
    Return whether *grant* allows a call of *route*, and by which rule.

    Args:
        grant: The rules of the run.

        route: Where the agent's name leads; ``None`` if it leads nowhere. Such a
            call is denied like one without a grant: an agent cannot find out
            which tools exist.

        used: How many calls each rule has allowed in this run so far.
    """
    nothing = Denied(
        code="not_granted", rule=None, message="this agent has no grant for that tool"
    )
    if route is None:
        return nothing
    for rule in grant.deny:
        if rule.matches(route.server, route.tool):
            return Denied(
                code="denied", rule=rule.id, message="a rule forbids that tool"
            )
    verdict: Denied = nothing
    for rule in grant.allow:
        if not rule.matches(route.server, route.tool):
            continue
        if rule.calls is None or used.get(rule.id, 0) < rule.calls:
            return Allowed(rule.id)
        verdict = Denied(
            code="budget",
            rule=rule.id,
            message=f"all {rule.calls} calls of that grant are spent",
        )
    return verdict
