"""Tables that say what agents are and may do: ``[agents.NAME]``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields as fields_of
from pathlib import Path

from ..core.grants import Grant, Rule
from ..core.limits import Limits
from ..core.names import is_server_name
from ..core.patterns import Pattern
from ..errors import UsageError
from . import budgets
from . import fields as f
from .model import Agent
from .servers import exposed_name
from .source import At

__all__ = ["agent", "agent_name"]

_LATER = frozenset(
    {
        "approve",
        "args",
        "delegate",
        "hours",
        "other_args",
        "params",
        "redact_result",
    }
)
_SIZES = frozenset(
    {
        "module",
        "compile_memory",
        "memory",
        "params",
        "input",
        "result",
        "output",
        "log",
        "recorded",
    }
)
_TIMES = frozenset({"compile_cpu", "compute", "wall"})


def agent_name(name: str, at: At) -> None:
    """Refuse a name that no agent may have."""
    if not is_server_name(name):
        raise at.error(
            "is no name for an agent",
            fix="use letters, digits, '-', '.' and single '_'; at most 64",
        )


def agent(values: object, at: At) -> Agent:
    """
    Return the agent that a table describes.

    Raises:
        ConfigError: It says what cannot be.
    """
    found = f.read(values, _AGENT, at)
    allow, deny = (_rules(kind, found.pop(kind, ()), at) for kind in ("allow", "deny"))
    return Agent(name=at.name, grant=Grant(allow=allow, deny=deny), **found)


def _rules(kind: str, tables: Sequence[object], at: At) -> tuple[Rule, ...]:
    lines = at.source.array_lines.get((*at.keys, kind), ())
    # An inline list has no lines of its own; better none than a wrong one.
    suffix = [f":{line}" for line in lines] if len(lines) == len(tables) else None
    rules: list[Rule] = []
    for number, table in enumerate(tables, 1):
        here = at.key(f"{kind}[{number}]")
        _refuse_later(table, here)
        found = f.read(table, _ALLOW if kind == "allow" else _DENY, here)
        if not found.get("tools"):
            raise here.error("names no tool", fix='write tools = ["SERVER/TOOL"]')
        source = Path(at.source.shown).name + (suffix[number - 1] if suffix else "")
        spending = budgets.of_rule(found, here)
        rules.append(Rule(id=f"{kind}[{number}]", source=source, **found, **spending))
    budgets.check_accounts(rules, at)
    return tuple(rules)


def _refuse_later(table: object, at: At) -> None:
    # A rule without its condition would allow more than was meant (law 4).
    for key in f.table(table, at):
        if key in _LATER:
            raise at.key(key).error(
                "this version does not know it yet, and will not guess",
                fix="remove it, or remove the rule",
            )


def _pattern(value: object, at: At) -> Pattern:
    try:
        return Pattern.parse(f.text(value, at))
    except UsageError as exc:
        raise at.error(str(exc), exc.fix) from None


def _target(value: object, at: At) -> tuple[str, str]:
    literal = _pattern(value, at).literal
    if literal is None:
        raise at.error("has a star", fix="name one tool, as SERVER/TOOL")
    return literal


def _names(value: object, at: At) -> dict[str, tuple[str, str]]:
    names: dict[str, tuple[str, str]] = f.mapped(_target, exposed_name)(value, at)
    if len(set(names.values())) < len(names):
        raise at.error("names one tool twice", fix="keep one name for each tool")
    return names


def _tables(value: object, at: At) -> tuple[object, ...]:
    found: tuple[object, ...] = f.listed(lambda item, _: item)(value, at)
    return found


def _limit(name: str) -> f.Reader:
    if name in _SIZES:
        return f.size
    return f.duration if name in _TIMES else f.number


_LIMITS: f.Fields = {
    field.name: (field.name, _limit(field.name)) for field in fields_of(Limits)
}

_PATTERNS = f.listed(_pattern)
_DENY: f.Fields = {"tools": ("tools", _PATTERNS)}
_ALLOW: f.Fields = {
    **_DENY,
    **budgets.FIELDS,
    "expires": ("expires", f.moment),
    "max_params": ("max_params", f.size),
    "only_after": ("only_after", _PATTERNS),
    "unless_after": ("unless_after", _PATTERNS),
}

_AGENT: f.Fields = {
    "module": ("module", f.path),
    "wasm": ("module", f.path),
    "entry": ("entry", f.text),
    "description": ("description", f.text),
    "prompt": ("prompt", f.text),
    "limits": ("limits", f.tables(_LIMITS, Limits)),
    "names": ("names", _names),
    "allow": ("allow", _tables),
    "deny": ("deny", _tables),
}
