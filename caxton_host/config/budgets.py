"""Keys of a rule that bound what its calls spend: ``calls``, ``rate``, ``sum``, ..."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any, cast

from ..core.grants.budgets import (
    PERIODS,
    UNIT,
    Budget,
    CallCount,
    Concurrency,
    Pace,
    Period,
    Sum,
    exact,
)
from ..core.grants.grants import Rule
from ..core.names import is_server_name
from . import fields as f
from .schema import INTEGER, STRING, array, either, object_, one_of, shaped
from .source import At

_CALLS = re.compile(r"([0-9]{1,9}) ?/ ?([a-z]+)")
_EXAMPLE = 'calls = "5/run", or calls = ["5/run", "20/day"]'
_PERS = ("run", *PERIODS)
#: Of what is counted in 64 bits, a good deal less.
_MOST = 9 * 10**12


def of_rule(found: dict[str, Any], at: At) -> dict[str, Any]:
    """
    Take out of *found* what bounds spending, and return it as a rule has it.

    Raises:
        ConfigError: It says what cannot be.
    """
    calls, *periods = found.pop("calls", (None,))
    budgets: list[Budget] = [*periods, *found.pop("sum", ())]
    rate, wait = found.pop("rate", None), found.pop("wait", None)
    if rate is not None:
        every, patience = int(rate.seconds * 1e6), int((wait or 0) * 1e6)
        budgets.append(Pace(limit=rate.number, every=every, wait=patience))
    elif wait is not None:
        raise at.key("wait").error("is for a rate", fix='add rate = "30/min"')
    if concurrency := found.pop("concurrency", None):
        budgets.append(Concurrency(limit=concurrency))
    return {"calls": calls, "budgets": tuple(budgets)}


def check_accounts(rules: Sequence[Rule], at: At) -> None:
    """
    Refuse two rules of an agent that would spend the same budgets.

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
                f"is the name of {first} too", fix="give each rule a name of its own"
            )
        raise here.error(
            f"has budgets for what {first} has budgets for",
            fix='give both a name, like: name = "payments"',
        )


@shaped(either(INTEGER, STRING, array(STRING)))
def _calls(value: object, at: At) -> tuple[int | None, *tuple[CallCount, ...]]:
    """Read how many calls: those of a run, and then those of periods."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (f.number(value, at),)
    texts = cast("list[object]", value) if isinstance(value, list) else [value]
    counts: dict[str, int] = {}
    for text in texts:
        found = _CALLS.fullmatch(text) if isinstance(text, str) else None
        if not found or found[2] not in _PERS:
            raise at.error(
                f"is no number of calls; periods are {', '.join(_PERS)}",
                fix=f"write it like: {_EXAMPLE}",
            )
        if found[2] in counts:
            raise at.error(f"says twice how many per {found[2]}", fix="keep one")
        counts[found[2]] = int(found[1])
    if not counts:
        raise at.error("is empty", fix=f"write it like: {_EXAMPLE}")
    run = counts.pop("run", None)
    if 0 in counts.values():
        raise at.error("allows no call at all", fix="remove the rule")
    return run, *(CallCount(limit=counts[p], per=p) for p in PERIODS if p in counts)


def _sums(value: object, at: At) -> tuple[Sum, ...]:
    """Read one sum, or several."""
    sums: tuple[Sum, ...] = (
        f.listed(_sum)(value, at) if isinstance(value, list) else (_sum(value, at),)
    )
    keys = [budget.key for budget in sums]
    if len(set(keys)) < len(keys):
        raise at.error("says the same sum twice", fix="keep one")
    return sums


def _sum(value: object, at: At) -> Sum:
    found = f.read(value, _SUM, at)
    for key in _SUM:
        if key not in found:
            raise at.error(
                f"does not say {key}",
                fix='write it like: { of = "amount", max = 200000, per = "day" }',
            )
    return Sum(of=found["of"], limit=found["max"], per=found["per"])


@shaped(STRING)
def _parameter(value: object, at: At) -> str:
    name = f.text(value, at)
    if not all(name.split(".")):
        raise at.error("is no name of a parameter", fix='write it like: of = "amount"')
    return name


@shaped(either(STRING, {"type": "number"}))
def _most(value: object, at: At) -> int:
    """Read the largest sum, in millionths."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,13}(\.[0-9]{1,6})?", value):
        amount: int | None = int(Decimal(value) * UNIT)
    else:
        amount = exact(cast("Any", value))
    if not amount or amount > _MOST * UNIT:
        raise at.error(
            f"is no sum: a number above 0, up to {_MOST}, with at most six decimals",
            fix='write it like: max = 200000, or max = "199.95"',
        )
    return amount


@shaped(STRING)
def _name(value: object, at: At) -> str:
    name = f.text(value, at)
    if not is_server_name(name):
        raise at.error(
            "is no name for a rule",
            fix="use letters, digits, '-', '.' and single '_'; at most 64",
        )
    return name


@shaped({"type": "integer", "minimum": 1})
def _concurrency(value: object, at: At) -> int:
    number = f.number(value, at)
    if not number:
        raise at.error("allows no call at all", fix="remove the rule")
    return number


@shaped(one_of(_PERS))
def _per(value: object, at: At) -> Period:
    return cast("Period", f.choice(*_PERS)(value, at))


_SUM: f.Fields = {
    "of": ("of", _parameter),
    "max": ("max", _most),
    "per": ("per", _per),
}

_SUM_SHAPE = object_(_SUM, *_SUM)
shaped(either(_SUM_SHAPE, array(_SUM_SHAPE)))(_sums)

#: The keys of an ``allow`` table.
FIELDS: f.Fields = {
    "name": ("name", _name),
    "calls": ("calls", _calls),
    "rate": ("rate", f.rate),
    "wait": ("wait", f.duration),
    "sum": ("sum", _sums),
    "concurrency": ("concurrency", _concurrency),
}
