"""What grants say of a call, for people and as a document."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.decisions import Allowed, Refusal
from ..core.judging import Explanation
from ..core.toml_text import value_text
from .screen import plain, say
from .tools import check_known

if TYPE_CHECKING:
    from ..config import Agent, Config

__all__ = [
    "agent_of",
    "tell_asked",
    "tell_remedy",
    "tell_rules",
]


def agent_of(config: Config, name: str) -> Agent:
    """
    Return the agent called *name*.

    Raises:
        NotFoundError: The configuration has none.
    """
    otherwise = f"no agent {name!r} in the configuration"
    check_known(name, config.agents, otherwise, "caxton agent list")
    return config.agents[name]


def tell_asked(explained: Explanation) -> None:
    """Print whose word is wanted, if any."""
    if isinstance(explained.verdict, Allowed):
        for rule, approve in explained.verdict.approves:
            say(f"asks      {plain(' or '.join(approve.by)) or 'anybody'}, for {rule}")


def tell_rules(explained: Explanation) -> None:
    """Print what each rule says."""
    for one in explained.considered:
        rule = one.rule
        patterns = ", ".join(pattern.text for pattern in rule.tools)
        sign = "fits" if one.speaks else "does not fit"
        if one.refusal:
            does = "refuses" if one.kind == "allow" else "does not apply"
            sign = f"fits, and {does} ({one.refusal.code}): {_why(one.refusal)}"
        source = f"  ({rule.source})" if rule.source else ""
        say(f"  {rule.id}  {one.kind} {patterns}: {sign}{source}")


def _why(refusal: Refusal) -> str:
    failure = refusal.failure
    if failure is None or failure.wanted is None:
        return refusal.message
    return f"{refusal.message}: {failure.kind} = {value_text(failure.wanted)}"


def tell_remedy(text: str | None) -> None:
    """Print what would allow the call, if anything would."""
    if text:
        say("what would allow it:")
        say(text)
