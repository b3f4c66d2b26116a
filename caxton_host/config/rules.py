"""Rules of agents: ``[[agents.NAME.allow]]`` and ``[[agents.NAME.deny]]``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from ..core.calls import JSON
from ..core.grants.approvals import Approve
from ..core.grants.budgets import (
    ANSWER,
    MOST,
    PERIODS,
    PRICE_UNIT,
    UNIT,
    Budget,
    CallCount,
    Concurrency,
    Pace,
    Period,
    Sum,
    exact,
)
from ..core.grants.conditions import (
    CONDITION_KEYS,
    NOT_IN_ALLOW,
    NOT_IN_DENY,
    Conditions,
)
from ..core.grants.constraints import FROM, MENTION, NOT_FROM, URLS
from ..core.grants.grants import Rule
from ..core.names import is_server_name
from ..core.text.globs import Pattern
from ..core.text.jsonpath import JsonPath
from ..errors import BadBytes, ConditionError, UsageError
from ..lib.json_schema import check_pattern
from . import fields as f
from .fields import (
    INTEGER,
    STRING,
    Shape,
    array,
    either,
    mapping,
    object_,
    one_of,
    shaped,
)
from .source import At, ErrorCollector

_PARAMS = "params"


def _approve(params: f.Reader) -> f.Reader:
    """
    Return the reader of the ``approve`` table of a rule.

    Args:
        params: Reads conditions on parameters, as those of a deny rule: what cannot
            be judged has to be approved.
    """

    @shaped({"type": "object"})
    def when(value: object, at: At) -> object:
        named: dict[str, object] = {}
        for key, item in f.table(value, at, "{ params.NAME = { ... } }").items():
            first, _, name = key.partition(".")
            if first != _PARAMS:
                raise at.key(key).error(
                    "is not a parameter",
                    fix="write when = { params.NAME = { min = 10 } }",
                )
            named.update({name: item} if name else f.table(item, at.key(key)))
        return params(named, at)

    fields: f.Fields = {
        "by": ("by", _roles),
        "within": ("within", f.duration),
        # Silence is never a yes, so there is nothing else to say.
        "otherwise": ("", f.choice("deny")),
        "when": ("when", when),
        "count": ("count", f.some),
        "not_requester": ("not_requester", f.flag),
        "fresh": ("fresh", f.duration),
    }
    return f.tables(fields, Approve)


@shaped(STRING)
def _role(value: object, at: At) -> str:
    name = f.text(value, at)
    if not is_server_name(name):
        raise at.error(
            "is not a valid role name",
            fix="use letters, digits, '-', '.' and single '_'; at most 64",
        )
    return name


@shaped(array(STRING))
def _roles(value: object, at: At) -> tuple[str, ...]:
    roles: tuple[str, ...] = f.listed(_role)(value, at)
    if not roles:
        raise at.error(
            "names no role",
            fix='write by = ["ops"], or leave it out to allow any approver',
        )
    return roles


_CALLS = re.compile(r"([0-9]{1,9}) ?/ ?([a-z]+)")
_EXAMPLE = 'calls = "5/run", or calls = ["5/run", "20/day"]'
_PERS = ("run", *PERIODS)
_OF_PARAMETER = ("of", "max", "per")
_OF_ANSWER = ("estimate", "price", "prices")
#: By whether the sum is one of answers.
_SUMS = {
    False: '{ of = "amount", max = 200000, per = "day" }',
    True: '{ of = "result$.usage.total_tokens", max = 50000, per = "run", '
    "estimate = 2000 }",
}
_PRICE = re.compile(r"[0-9]{1,7}(\.[0-9]{1,17})?(e-[0-9]{1,2})?")
_HIGHEST = 10**6


def _budgets(found: dict[str, Any], at: At) -> dict[str, Any]:
    """
    Take the keys of budgets out of *found*, and return attributes of a rule.

    Raises:
        ConfigError: It is invalid.
    """
    calls, *periods = found.pop("calls", (None,))
    budgets: list[Budget] = [*periods, *found.pop("sum", ())]
    rate, wait = found.pop("rate", None), found.pop("wait", None)
    if rate is not None:
        every, patience = int(rate.seconds * 1e6), int((wait or 0) * 1e6)
        budgets.append(Pace(limit=rate.number, every=every, wait=patience))
    elif wait is not None:
        raise at.key("wait").error("is only valid with rate", fix='add rate = "30/min"')
    if concurrency := found.pop("concurrency", None):
        budgets.append(Concurrency(limit=concurrency))
    return {"calls": calls, "budgets": tuple(budgets)}


def check_accounts(rules: Sequence[Rule], at: At) -> None:
    """
    Check that no two rules of an agent share a budget account.

    Raises:
        ConfigError: There are such.
    """
    spending = sorted(
        (rule for rule in rules if rule.budgets or rule.name), key=lambda r: r.account
    )
    for one, other in pairwise(spending):
        if one.account != other.account:
            continue
        here = at.key(max(one.id, other.id))
        first = min(one.id, other.id)
        if one.name:
            raise here.key("name").error(
                f"is also the name of {first}", fix="give each rule a name of its own"
            )
        raise here.error(
            f"has budgets for the same tools as {first}",
            fix='give both a name, like: name = "payments"',
        )


@shaped(either(INTEGER, STRING, array(STRING)))
def _calls(value: object, at: At) -> tuple[int | None, *tuple[CallCount, ...]]:
    """Read the limit of calls: per run, then per period."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (f.number(value, at),)
    texts = cast("list[object]", value) if isinstance(value, list) else [value]
    counts: dict[str, int] = {}
    for text in texts:
        found = _CALLS.fullmatch(text) if isinstance(text, str) else None
        if not found or found[2] not in _PERS:
            raise at.error(
                f"is not a number of calls; periods are {', '.join(_PERS)}",
                fix=f"write it like: {_EXAMPLE}",
            )
        if found[2] in counts:
            raise at.error(f"sets the calls twice per {found[2]}", fix="keep one")
        counts[found[2]] = int(found[1])
    if not counts:
        raise at.error("is empty", fix=f"write it like: {_EXAMPLE}")
    run = counts.pop("run", None)
    if 0 in counts.values():
        raise at.error("allows no calls", fix="remove the rule")
    return run, *(CallCount(limit=counts[p], per=p) for p in PERIODS if p in counts)


def _sums(value: object, at: At) -> tuple[Sum, ...]:
    """Read one sum, or several."""
    sums: tuple[Sum, ...] = (
        f.listed(_sum)(value, at) if isinstance(value, list) else (_sum(value, at),)
    )
    keys = [budget.key for budget in sums]
    if len(set(keys)) < len(keys):
        raise at.error("has the same sum twice", fix="keep one")
    return sums


def _sum(value: object, at: At) -> Sum:
    found = f.read(value, _SUM, at)
    is_of_answer = str(found.get("of")).startswith(f"{ANSWER}$")
    for key in (*_OF_PARAMETER, "estimate") if is_of_answer else _OF_PARAMETER:
        if key not in found:
            raise at.error(f"has no {key}", fix=f"write it like: {_SUMS[is_of_answer]}")
    if odd := [key for key in _OF_ANSWER if key in found and not is_of_answer]:
        raise at.key(odd[0]).error(
            "is only valid for a number of the answer",
            fix=f"write it like: {_SUMS[True]}",
        )
    if {"price", "prices"} <= found.keys():
        raise at.error("has a price and prices", fix="keep one, as default of prices")
    prices = found.pop("prices", {})
    return Sum(limit=found.pop("max"), **found, **prices)


@shaped(STRING)
def _source(value: object, at: At) -> str:
    """Read the source of a sum: a parameter, or a path of the answer."""
    if not isinstance(value, str) or not value.startswith(f"{ANSWER}$"):
        return _parameter(value, at)
    _path(value.removeprefix(ANSWER), at)
    return value


@shaped(STRING)
def _parameter(value: object, at: At) -> str:
    name = f.text(value, at)
    if not all(name.split(".")):
        raise at.error(
            "is not a valid parameter name", fix='write it like: of = "amount"'
        )
    return name


@shaped(either(STRING, {"type": "number"}))
def _most(value: object, at: At) -> int:
    """Read the largest sum, in millionths."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,13}(\.[0-9]{1,6})?", value):
        amount: int | None = int(Decimal(value) * UNIT)
    else:
        amount = exact(cast("Any", value))
    if not amount or amount > MOST:
        raise at.error(
            f"is not a number above 0, up to {MOST // UNIT}, with at most six decimals",
            fix=f'write it like: {at.name} = 200000, or {at.name} = "199.95"',
        )
    return amount


@shaped(either(STRING, {"type": "number"}))
def _price(value: object, at: At) -> int:
    """Read the price of one, in `PRICE_UNIT`."""
    text = repr(value) if type(value) in {int, float} else value
    if isinstance(text, str) and _PRICE.fullmatch(text):
        price = Decimal(text) * PRICE_UNIT
        if price == int(price) and price <= _HIGHEST * PRICE_UNIT:
            return int(price)
    raise at.error(
        f"is not a price from 0 to {_HIGHEST}, with at most twelve decimals",
        fix='write it like: price = 0.000002, or price = "0.000002"',
    )


@shaped(mapping(either(STRING, {"type": "number"})))
def _table(value: object, at: At) -> dict[str, int]:
    found = f.table(value, at, '{ "m-small" = 0.000001 }')
    return {key: _price(price, at.key(key)) for key, price in found.items()}


_PRICES: f.Fields = {
    "by": ("by", _parameter),
    "table": ("prices", _table),
    "default": ("price", _price),
}


@shaped(object_(_PRICES, "by", "table"))
def _prices(value: object, at: At) -> dict[str, Any]:
    found = f.read(value, _PRICES, at)
    if not found.get("by") or not found.get("prices"):
        raise at.error(
            "has no by, or no prices in its table",
            fix='write it like: { by = "model", table = { "m-small" = 0.000001 } }',
        )
    return found


@shaped(STRING)
def _name(value: object, at: At) -> str:
    name = f.text(value, at)
    if not is_server_name(name):
        raise at.error(
            "is not a valid rule name",
            fix="use letters, digits, '-', '.' and single '_'; at most 64",
        )
    return name


@shaped({"type": "integer", "minimum": 1})
def _concurrency(value: object, at: At) -> int:
    number = f.number(value, at)
    if not number:
        raise at.error("allows no calls", fix="remove the rule")
    return number


@shaped(one_of(_PERS))
def _per(value: object, at: At) -> Period:
    return cast("Period", f.choice(*_PERS)(value, at))


_SUM: f.Fields = {
    "of": ("of", _source),
    "max": ("max", _most),
    "per": ("per", _per),
    "estimate": ("estimate", _most),
    "price": ("price", _price),
    "prices": ("prices", _prices),
}

_SUM_SHAPE = object_(_SUM, *_OF_PARAMETER)
shaped(either(_SUM_SHAPE, array(_SUM_SHAPE)))(_sums)

#: The keys of an ``allow`` table.
_BUDGETS: f.Fields = {
    "name": ("name", _name),
    "calls": ("calls", _calls),
    "rate": ("rate", f.rate),
    "wait": ("wait", f.duration),
    "sum": ("sum", _sums),
    "concurrency": ("concurrency", _concurrency),
}


_REFERENCE = re.compile(r"\$\{(?:env|file):")
_MOST_PATHS = 32
#: By whether a rule denies.
_DEFS = {False: "condition", True: "denied"}
#: What a rule cannot say: why, and what comes nearest.
_NEVER = {
    "args": ("has another name here", "write params"),
    "other_args": ("has another name here", "write other_params"),
    "delegate": (
        "is not supported: an agent cannot pass on its grants",
        "remove it, and give the other agent rules of its own",
    ),
    "hours": (
        "is not supported: rules cannot depend on the time of day",
        "remove the rule, or remove hours and let the rule end: expires",
    ),
}


def rules(kind: str) -> f.Reader:
    """Return the reader of the rules ``allow`` or ``deny`` of an agent."""
    fields = _ALLOW if kind == "allow" else _DENY

    @shaped(array(object_(fields, "tools")))
    def all_of(value: object, at: At) -> tuple[Rule, ...]:
        rules: list[Rule] = []
        several = ErrorCollector()
        above = replace(at, keys=at.keys[:-1])
        for number, table in enumerate(f.items(value, at), 1):
            with several:
                rules.append(_rule(fields, table, above.key(f"{kind}[{number}]")))
        several.settle()
        check_accounts(rules, above)
        return tuple(rules)

    return all_of


def _rule(fields: f.Fields, table: object, at: At) -> Rule:
    several = ErrorCollector()
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
                "has no effect without params", fix="remove it"
            )
    several.settle()
    spending = _budgets(found, at)
    line = f":{at.line}" if at.line else ""
    source = Path(at.source.shown).name + line
    return Rule(id=at.name, source=source, **found, **spending)


@shaped(STRING)
def pattern(value: object, at: At) -> Pattern:
    """Read a pattern of tools."""
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
        check_plain(spec, at)
        try:
            found = Conditions.parse(spec, deny=deny)
        except ConditionError as exc:
            # Each parameter by itself, or else what is wrong with all together.
            several = ErrorCollector()
            for name, said in spec.items():
                with several:
                    _parsed({name: said}, at, deny=deny)
            several.settle()
            raise at.below(exc.keys).error(str(exc), exc.fix) from None
        several = ErrorCollector()
        for regex, keys in found.patterns():
            with several:
                _check_pattern(regex, at.below(keys))
        several.settle()
        return found

    return reader


def _parsed(spec: dict[str, JSON], at: At, *, deny: bool) -> None:
    try:
        Conditions.parse(spec, deny=deny)
    except ConditionError as exc:
        raise at.below(exc.keys).error(str(exc), exc.fix) from None


def _check_pattern(regex: str, at: At) -> None:
    try:
        check_pattern(regex)
    except BadBytes as exc:
        raise at.error(
            str(exc), fix="write it without look-around and {n} of large classes"
        ) from None


_SOURCES = array(STRING)
_MENTION: Shape = {
    "type": "object",
    "properties": {
        "tool": STRING,
        "param": STRING,
        FROM: _SOURCES,
        "path": STRING,
    },
    "required": ["tool", "param"],
    "additionalProperties": False,
}
_URLS: Shape = {
    "type": "object",
    "properties": {FROM: _SOURCES, NOT_FROM: _SOURCES, MENTION: _MENTION},
    "additionalProperties": False,
}


def _condition(name: str, said: Iterable[str]) -> Shape:
    same: Shape = {"$ref": f"#/$defs/{name}"}
    of_keys: Shape = {"names": same, "values": same, "max": INTEGER}
    below: Shape = {
        "each": same,
        "some": same,
        FROM: _SOURCES,
        NOT_FROM: _SOURCES,
        MENTION: _MENTION,
        URLS: _URLS,
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


def check_plain(value: JSON, at: At) -> None:
    """
    Check that a value has no variable.

    It is recorded, and visible to every reader of the log.

    Raises:
        ConfigError: It has one.
    """
    if isinstance(value, str) and _REFERENCE.search(value):
        raise at.error(
            "contains a variable, which is not supported here",
            fix="write its value",
        )
    if isinstance(value, (dict, list)):
        parts = value.items() if isinstance(value, dict) else enumerate(value, 1)
        for key, part in parts:
            check_plain(part, at.key(key))


@shaped(one_of(("allow", "deny")))
def _others(value: object, at: At) -> bool:
    return bool(f.choice("allow", "deny")(value, at) == "allow")


_PATTERNS = f.listed(pattern)
_TOOLS: f.Fields = {"tools": ("tools", _PATTERNS)}
_DENY: f.Fields = {**_TOOLS, "params": ("params", _params(deny=True))}
_ALLOW: f.Fields = {
    **_TOOLS,
    **_BUDGETS,
    "approve": ("approve", _approve(_params(deny=True))),
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

#: What conditions can say, for an allow rule and for a deny rule.
DEFS: dict[str, Shape] = {
    name: _condition(name, said)
    for name, said in (
        ("condition", CONDITION_KEYS - NOT_IN_ALLOW.keys()),
        ("denied", CONDITION_KEYS - NOT_IN_DENY.keys()),
    )
}
