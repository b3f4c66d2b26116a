"""
Who asks over the network, and what they may ask for.

A scope says what somebody may do; the agents of a principal say with which of them.
What a principal may not see does not exist for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from ..calls import JSON
from ..log.events import Recorded

Scope: TypeAlias = Literal["run", "read", "decide", "admin"]

#: Each scope, and what it is for.
SCOPES: Mapping[Scope, str] = {
    "run": "start agents; see, cancel, resume and fork the runs that it started",
    "read": "see the runs of everybody, and their events",
    "decide": "approve and deny calls, and resolve those in doubt",
    "admin": "all of it; servers, tools, checkpoints and the configuration too",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """
    Who asks.

    Attributes:
        kind: ``local``, ``token`` or ``oauth``.

        id: Names it within its kind: of a user, of a token, of a subject.

        authenticated: Something vouches for that.

        scopes: What it may do.

        agents: With which agents: names, with ``*`` for any characters.

        roles: In which it may approve calls.

    >>> ann = Principal(kind="token", id="t1", scopes=frozenset({"run"}))
    >>> ann.may("run", "weather"), ann.may("read", "weather")
    (True, False)
    >>> ann.key
    'token/t1'
    """

    kind: str
    id: str
    authenticated: bool = True
    scopes: frozenset[Scope]
    agents: tuple[str, ...] = ("*",)
    roles: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """What is counted and kept for it goes by this."""
        return f"{self.kind}/{self.id}"

    @property
    def actor(self) -> dict[str, JSON]:
        """What events say of it."""
        return {
            "kind": self.kind,
            "id": self.id,
            "authenticated": self.authenticated,
        }

    def may(self, scope: Scope, agent: str | None = None) -> bool:
        """Return whether it has a scope, and for that agent if one is named."""
        if not self.scopes & {scope, "admin"}:
            return False
        return agent is None or self.reaches(agent)

    def reaches(self, agent: str) -> bool:
        """Return whether an agent is one of its own."""
        return any(fnmatchcase(agent, pattern) for pattern in self.agents)

    @property
    def reads_all(self) -> bool:
        """Whether it sees the runs of every agent."""
        return self.may("admin") or (self.may("read") and "*" in self.agents)

    def sees(self, agent: str, actor: Mapping[str, JSON]) -> bool:
        """Return whether it may look at a run of *agent* that *actor* started."""
        return self.may("read", agent) or self.may("decide", agent) or self.owns(actor)

    def shown(self, recorded: Recorded) -> Recorded:
        """Return an event as it may see it: a position counts the events of others."""
        return recorded if self.may("admin") else replace(recorded, position=0)

    def owns(self, actor: Mapping[str, JSON]) -> bool:
        """Return whether a run that *actor* started is its own."""
        return (
            self.may("run")
            and actor.get("kind") == self.kind
            and (actor.get("id") == self.id)
        )
