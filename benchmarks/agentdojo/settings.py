"""
The grants of a suite, and weaker ones that are derived from them.

A set of grants is a folder with one configuration a suite. The weaker settings show
what each kind of source contributes; all of them ask about what they do not allow.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["FROM_SET", "SETS", "SETTINGS", "SUITES", "acts", "configured", "written"]

SUITES = ("banking", "slack", "travel", "workspace")
SETS = ("frozen", "improved")
AGENT = "guest"

Rule = dict[str, Any]


def grants_of(kind: str, suite: str) -> dict[str, Any]:
    """Return the configuration of a suite in one of the `SETS`."""
    path = Path(__file__).with_name(kind) / f"{suite}.toml"
    return tomllib.loads(path.read_text("utf-8"))


def configured(
    kind: str, suite: str, setting: str, *, asking: bool = True
) -> dict[str, Any]:
    """
    Return the configuration of a suite in one of the `SETTINGS`.

    Without *asking*, what a person would be asked about is denied.
    """
    config = grants_of(kind, suite)
    agent = config["agents"][AGENT]
    if not asking:
        agent["allow"] = [rule for rule in agent["allow"] if "approve" not in rule]
    agent["allow"] = SETTINGS[setting](agent["allow"], config)
    if setting in _WITHOUT_SOURCES:
        for tool in config["servers"][suite]["tools"].values():
            tool.pop("source", None)
            tool.pop("shared_writes", None)
        agent.pop("trusted", None)
    return config


def _open(rules: list[Rule], config: Mapping[str, Any]) -> list[Rule]:
    del rules
    return [{"tools": [f"{suite}/*" for suite in config["servers"]]}]


_BARE = frozenset({"name", "tools", "approve"})


def _ordered(rules: list[Rule], config: Mapping[str, Any]) -> list[Rule]:
    """Return the rules without conditions on parameters: nothing acts after a read."""
    (suite,) = config["servers"]
    known = config["servers"][suite]["tools"]
    readers = [
        f"{suite}/{name}"
        for name, tool in known.items()
        if tool["effect"] != "unsafe" and name not in _KEPT[suite]
    ]
    found: list[Rule] = []
    for rule in rules:
        bare = {key: value for key, value in rule.items() if key in _BARE}
        if checked(rule):
            bare["unless_after"] = readers
        found.append(bare)
    return found


#: Readers whose answers no stranger writes: they do not stop what follows.
_KEPT: Mapping[str, frozenset[str]] = {
    "banking": frozenset({"get_iban", "get_balance", "get_user_info"}),
    "slack": frozenset({"get_channels", "get_users_in_channel"}),
    "travel": frozenset({"get_user_information"}),
    "workspace": frozenset(
        {"get_current_day", "search_contacts_by_name", "search_contacts_by_email"}
    ),
}


def _narrowed(
    keep: Callable[[str], bool], *, mention: bool
) -> Callable[..., list[Rule]]:
    def narrowed(spec: Any) -> Any:  # noqa: ANN401 -- TOML
        if isinstance(spec, list):
            return [narrowed(one) for one in spec]
        if not isinstance(spec, dict):
            return spec
        return {
            key: [one for one in value if keep(one)]
            if key in {"from", "not_from"}
            else narrowed(value)
            for key, value in spec.items()
            if mention or key != "mention"
        }

    return lambda rules, _: [narrowed(rule) for rule in rules]


#: The rules of a setting, of the rules and the configuration of a suite.
SETTINGS: Mapping[str, Callable[..., list[Rule]]] = {
    "open": _open,
    "order": _ordered,
    "input": _narrowed(lambda one: one.startswith("context."), mention=False),
    "paths": _narrowed(lambda _: True, mention=False),
    "full": lambda rules, _: rules,
}
#: The settings that differ from set to set.
FROM_SET = frozenset({"input", "paths", "full"})
_WITHOUT_SOURCES = frozenset({"open", "order", "input"})


def checked(rule: Rule) -> frozenset[str]:
    """Return the parameters whose sources a rule asks for."""
    return frozenset(
        name for name, spec in rule.get("params", {}).items() if _asks(spec)
    )


def _asks(spec: Any) -> bool:  # noqa: ANN401 -- TOML
    if isinstance(spec, list):
        return any(map(_asks, spec))
    return isinstance(spec, dict) and ("from" in spec or any(map(_asks, spec.values())))


def acts(config: Mapping[str, Any], calls: list[tuple[str, dict[str, Any]]]) -> bool:
    """Return whether one of the calls has a parameter whose sources are checked."""
    (suite,) = config["servers"]
    looked: dict[str, set[str]] = {}
    for rule in config["agents"][AGENT]["allow"]:
        for tool in rule["tools"]:
            looked.setdefault(tool, set()).update(checked(rule))
    return any(looked.get(f"{suite}/{tool}", set()) & {*given} for tool, given in calls)


def written(config: Mapping[str, Any]) -> str:
    r"""
    Return a configuration as TOML.

    >>> written({"version": 1, "agents": {"a b": {"allow": [{"tools": ["x/*"]}]}}})
    'version = 1\nagents = {"a b" = {"allow" = [{"tools" = ["x/*"]}]}}\n'
    """
    return "".join(f"{key} = {_value(value)}\n" for key, value in config.items())


def _value(value: Any) -> str:  # noqa: ANN401 -- TOML
    match value:
        case dict():
            pairs = [f"{json.dumps(k)} = {_value(v)}" for k, v in value.items()]
            return "{" + ", ".join(pairs) + "}"
        case list():
            return "[" + ", ".join(map(_value, value)) + "]"
        case _:
            return json.dumps(value)
