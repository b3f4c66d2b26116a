"""Reader of ``[retention]``."""

from __future__ import annotations

from dataclasses import replace

from ..core.log.retention import ACTIONS, ENDED, Retention, Rule
from . import fields as f
from .fields import object_, shaped
from .source import At

_RULE: f.Fields = {
    "agents": ("agents", f.listed(f.text)),
    "states": ("states", f.listed(f.choice(*ENDED))),
    "after": ("after", f.duration),
    "action": ("action", f.choice(*ACTIONS)),
}


@shaped(object_(_RULE, "action"))
def _rule(value: object, at: At) -> Rule:
    found = f.read(value, _RULE, at)
    f.needs(value, at, action="erase")
    keeps = found["action"] == "keep"
    if keeps is ("after" in found):
        if keeps:
            raise at.key("after").error("has no meaning here", fix="remove it")
        raise at.error("needs to say when", fix='write after = "90d"')
    for key in ("agents", "states"):
        if not found.get(key, True):
            raise at.key(key).error("is empty", fix="remove it: the rule is for all")
    return Rule(name="", **found)


_RETENTION: f.Fields = {
    "archive": ("archive", f.path),
    "every": ("every", f.duration),
    "rules": ("rules", f.listed(_rule)),
}


@shaped(object_(_RETENTION))
def retention(value: object, at: At) -> Retention:
    """
    Read ``[retention]``.

    Raises:
        ConfigError: The table is invalid.
    """
    found = Retention(**f.read(value, _RETENTION, at))
    rules: list[Rule] = []
    for number, rule in enumerate(found.rules, 1):
        if rule.action == "archive" and found.archive is None:
            raise (
                at.key("rules")
                .key(number)
                .key("action")
                .error(
                    "needs a folder for the bundles",
                    fix='write archive = "archive" in [retention]',
                )
            )
        rules.append(replace(rule, name=f"retention: rule {number}"))
    return replace(found, rules=tuple(rules))
