"""Verdicts of grants on calls, printed for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..core.calls import JSON
from ..core.text.toml_text import value_text
from .context import check_known
from .output import plain, say

if TYPE_CHECKING:
    from ..config import Agent, Config


def agent_of(config: Config, name: str) -> Agent:
    """
    Return the agent *name* of the configuration.

    Raises:
        NotFoundError: It does not exist.
    """
    otherwise = f"no agent {name!r} in the configuration"
    check_known(name, config.agents, otherwise, "caxton agent list")
    return config.agents[name]


def tell_verdict(told: Mapping[str, Any]) -> None:
    """Print the verdict of a document: its rule, its approvers, and each rule."""
    say(f"verdict   {plain(told['verdict'])}, rule {plain(told['rule']) or 'none'}")
    for one in told["asks"]:
        who = plain(" or ".join(one["by"])) or "anybody"
        count = one.get("count", 1)  # Hosts of older versions do not send it.
        many = f"{count} of " if count > 1 else ""
        say(f"asks      {many}{who}, for {plain(one['rule'])}")
    for one in told["considered"]:
        say(_considered(one))


def _considered(rule: Mapping[str, Any]) -> str:
    sign = "matches" if rule["fits"] else "does not match"
    if refusal := rule["refusal"]:
        does = "rejects the call" if rule["kind"] == "allow" else "does not apply"
        sign = f"matches, but {does} ({refusal['code']}): {_why(refusal)}"
    source = f"  ({rule['source']})" if rule.get("source") else ""
    patterns = ", ".join(rule["tools"])
    return f"  {rule['id']}  {rule['kind']} {patterns}: {sign}{source}"


def _why(refusal: Mapping[str, Any]) -> str:
    message: str = refusal["message"]
    constraint: Mapping[str, JSON] = refusal["wanted"] or {}
    for kind, wanted in constraint.items():
        if wanted is not None:
            return f"{message}: {kind} = {value_text(wanted)}"
    return message


def tell_remedy(text: str | None) -> None:
    """Print the change that would allow the call, if there is one."""
    if text:
        say("what would allow it:")
        say(text)
