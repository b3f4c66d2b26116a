"""Tables that say what agents are and may do: ``[agents.NAME]``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import fields as fields_of
from dataclasses import replace
from pathlib import Path

from ..core.calls import JSON
from ..core.grants.conditions import CONDITION_KEYS, NOT_IN_DENY, Conditions
from ..core.grants.grants import Grant, Rule
from ..core.limits import Limits
from ..core.names import is_server_name
from ..core.text.globs import Pattern
from ..core.text.jsonpath import JsonPath
from ..errors import BadBytes, ConditionError, UsageError
from ..lib.json_schema import check_pattern
from . import budgets
from . import fields as f
from .approvals import approve
from .model import Agent
from .schema import INTEGER, STRING, Shape, array, mapping, object_, one_of, shaped
from .serve import expose
from .servers import exposed_name
from .source import At, Complaints

_REFERENCE = re.compile(r"\$\{(?:env|file):")
_MOST_PATHS = 32
#: By whether a rule denies.
_DEFS = {False: "condition", True: "denied"}
#: What a rule cannot say: why, and what comes nearest.
_NEVER = {
    "args": ("is called otherwise here", "write params"),
    "other_args": ("is called otherwise here", "write other_params"),
    "delegate": (
        "is nothing that a rule can say: no agent hands on what it may do",
        "remove it, and give the other agent rules of its own",
    ),
    "hours": (
        "is nothing that a rule can say: none is bound to hours of the day",
        "remove the rule, or remove hours and let the rule end: expires",
    ),
}
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
    allow, deny = found.pop("allow", ()), found.pop("deny", ())
    return Agent(name=at.name, grant=Grant(allow=allow, deny=deny), **found)


def _rules(kind: str) -> f.Reader:
    fields = _ALLOW if kind == "allow" else _DENY

    @shaped(array(object_(fields, "tools")))
    def all_of(value: object, at: At) -> tuple[Rule, ...]:
        rules: list[Rule] = []
        several = Complaints()
        above = replace(at, keys=at.keys[:-1])
        for number, table in enumerate(f.items(value, at), 1):
            with several:
                rules.append(_rule(fields, table, above.key(f"{kind}[{number}]")))
        several.settle()
        budgets.check_accounts(rules, above)
        return tuple(rules)

    return all_of


def _rule(fields: f.Fields, table: object, at: At) -> Rule:
    several = Complaints()
    sayable: dict[str, object] = {}
    for key, value in f.table(table, at).items():
        if key in _NEVER:
            several.found.append(at.key(key).error(*_NEVER[key]))
        else:
            sayable[key] = value
    found = f.collect(sayable, fields, at, several)
    # A key that is not known may be this one, misspelt.
    if not sayable.get("tools") and sayable.keys() <= fields.keys():
        fix = 'write tools = ["SERVER/TOOL"]'
        several.found.append(at.error("names no tool", fix=fix))
    with several:
        if found.get("other_params") and "params" not in sayable:
            raise at.key("other_params").error(
                "says nothing where no parameter is named", fix="remove it"
            )
    several.settle()
    spending = budgets.of_rule(found, at)
    line = f":{at.line}" if at.line else ""
    source = Path(at.source.shown).name + line
    return Rule(id=at.name, source=source, **found, **spending)


@shaped(STRING)
def _pattern(value: object, at: At) -> Pattern:
    text = f.text(value, at)
    try:
        return Pattern.parse(text)
    except UsageError as exc:
        raise at.error(str(exc), exc.fix) from None


@shaped(array(STRING))
def _paths(value: object, at: At) -> tuple[JsonPath, ...]:
    found: tuple[JsonPath, ...] = f.listed(_path)(value, at)
    if not 0 < len(found) <= _MOST_PATHS:
        raise at.error(
            f"names {len(found)} places", fix=f"name 1 to {_MOST_PATHS} of them"
        )
    return found


@shaped(STRING)
def _path(value: object, at: At) -> JsonPath:
    text = f.text(value, at)
    try:
        return JsonPath.parse(text)
    except UsageError as exc:
        raise at.error(str(exc), exc.fix) from None


def _params(*, deny: bool) -> f.Reader:
    @shaped(mapping({"$ref": f"#/$defs/{_DEFS[deny]}"}))
    def reader(value: object, at: At) -> Conditions:
        spec = f.json_value(f.table(value, at, "{ NAME = { ... } }"), at)
        assert isinstance(spec, dict)  # noqa: S101 -- a table is one
        _plain(spec, at)
        try:
            found = Conditions.parse(spec, deny=deny)
        except ConditionError as exc:
            # Each parameter by itself, or else what is wrong with all together.
            several = Complaints()
            for name, said in spec.items():
                with several:
                    _parsed({name: said}, at, deny=deny)
            several.settle()
            raise at.below(exc.keys).error(str(exc), exc.fix) from None
        several = Complaints()
        for pattern, keys in found.patterns():
            with several:
                _check_pattern(pattern, at.below(keys))
        several.settle()
        return found

    return reader


def _parsed(spec: dict[str, JSON], at: At, *, deny: bool) -> None:
    try:
        Conditions.parse(spec, deny=deny)
    except ConditionError as exc:
        raise at.below(exc.keys).error(str(exc), exc.fix) from None


def _check_pattern(pattern: str, at: At) -> None:
    try:
        check_pattern(pattern)
    except BadBytes as exc:
        raise at.error(
            str(exc), fix="write it without look-around and {n} of large classes"
        ) from None


def _condition(name: str, said: Iterable[str]) -> Shape:
    same: Shape = {"$ref": f"#/$defs/{name}"}
    of_keys: Shape = {"names": same, "values": same, "max": INTEGER}
    below: Shape = {
        "each": same,
        "some": same,
        "has": mapping(same),
        "keys": {
            "type": "object",
            "properties": of_keys,
            "additionalProperties": False,
        },
        "optional": {"type": "boolean"},
    }
    return {
        "type": "object",
        "properties": {key: below.get(key, {}) for key in sorted(said)},
        "additionalProperties": False,
    }


def _plain(value: JSON, at: At) -> None:
    # What a rule wants is recorded, and shown to whoever reads the log.
    if isinstance(value, str) and _REFERENCE.search(value):
        raise at.error(
            "holds a variable, and conditions have none", fix="write its value"
        )
    if isinstance(value, (dict, list)):
        parts = value.items() if isinstance(value, dict) else enumerate(value, 1)
        for key, part in parts:
            _plain(part, at.key(key))


@shaped(one_of(("allow", "deny")))
def _others(value: object, at: At) -> bool:
    return bool(f.choice("allow", "deny")(value, at) == "allow")


@shaped(STRING)
def _target(value: object, at: At) -> tuple[str, str]:
    literal = _pattern(value, at).literal
    if literal is None:
        raise at.error("has a star", fix="name one tool, as SERVER/TOOL")
    return literal


@shaped(mapping(STRING))
def _names(value: object, at: At) -> dict[str, tuple[str, str]]:
    names: dict[str, tuple[str, str]] = f.mapped(_target, exposed_name)(value, at)
    if len(set(names.values())) < len(names):
        raise at.error("names one tool twice", fix="keep one name for each tool")
    return names


def _limit(name: str) -> f.Reader:
    if name in _SIZES:
        return f.size
    return f.duration if name in _TIMES else f.number


_LIMITS: f.Fields = {
    field.name: (field.name, _limit(field.name)) for field in fields_of(Limits)
}

_PATTERNS = f.listed(_pattern)
_TOOLS: f.Fields = {"tools": ("tools", _PATTERNS)}
_DENY: f.Fields = {**_TOOLS, "params": ("params", _params(deny=True))}
_ALLOW: f.Fields = {
    **_TOOLS,
    **budgets.FIELDS,
    "approve": ("approve", approve(_params(deny=True))),
    "expires": ("expires", f.moment),
    "max_params": ("max_params", f.size),
    "params": ("params", _params(deny=False)),
    "other_params": ("other_params", _others),
    "only_after": ("only_after", _PATTERNS),
    "unless_after": ("unless_after", _PATTERNS),
    "timeout": ("timeout", f.duration),
    "max_result": ("max_result", f.size),
    "redact_result": ("redact_result", _paths),
}

_AGENT: f.Fields = {
    "module": ("module", f.path),
    "wasm": ("module", f.path),
    "entry": ("entry", f.text),
    "description": ("description", f.text),
    "prompt": ("prompt", f.text),
    "limits": ("limits", f.tables(_LIMITS, Limits)),
    "names": ("names", _names),
    "allow": ("allow", _rules("allow")),
    "deny": ("deny", _rules("deny")),
    "expose": ("expose", expose),
}
shaped(object_(_AGENT))(agent)

#: What conditions can say, for an allow rule and for a deny rule.
DEFS: dict[str, Shape] = {
    name: _condition(name, said)
    for name, said in (
        ("condition", CONDITION_KEYS - {"some"}),
        ("denied", CONDITION_KEYS - NOT_IN_DENY.keys()),
    )
}
