"""How long ended runs are kept: the first rule that names agent and state decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, TypeAlias

Action: TypeAlias = Literal["archive", "erase", "keep"]
ACTIONS: tuple[Action, ...] = ("archive", "erase", "keep")

#: The states of a run that has ended.
ENDED = ("completed", "failed", "cancelled")

_SECOND = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """
    What happens to the runs of some agents.

    Attributes:
        name: Its place in the configuration.

        agents: Patterns of names.

        states: Those in which the runs ended.

        after: Seconds since their end; of ``keep``, 0.
    """

    name: str
    action: Action
    agents: Sequence[str] = ("*",)
    states: Sequence[str] = ENDED
    after: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """
    How long runs are kept.

    Attributes:
        rules: The first one that fits a run decides; without one, it is kept.

        archive: The folder of the bundles; a rule that archives needs it.

        every: Seconds between two looks of a host that serves.
    """

    rules: Sequence[Rule] = ()
    archive: Path | None = None
    every: float = 3600.0

    def due(self, agent: str, state: str, ended_at: int, now: int) -> Rule | None:
        """
        Return the rule by which a run has to go, or ``None``.

        Args:
            agent: Its agent.

            state: The state in which it ended.

            ended_at: Microseconds since 1970.

            now: The same.

        >>> keep = Rule(name="rule 1", action="keep", agents=["payer"])
        >>> rules = Retention(rules=[keep, Rule(name="rule 2", action="erase")])
        >>> rules.due("payer", "failed", 0, 1), rules.due("x", "failed", 0, 1).name
        (None, 'rule 2')
        """
        for rule in self.rules:
            if state in rule.states and any(fnmatchcase(agent, p) for p in rule.agents):
                is_old = ended_at + rule.after * _SECOND <= now
                return rule if is_old and rule.action != "keep" else None
        return None

    def before(self, state: str, now: int) -> int | None:
        """Return when a run in that state ended at the latest that may have to go."""
        ages = [
            rule.after
            for rule in self.rules
            if state in rule.states and rule.action != "keep"
        ]
        return now - int(min(ages) * _SECOND) if ages else None
