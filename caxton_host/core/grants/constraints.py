"""Constraints on one value: a name, what it may say, and which values hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from ...errors import ConditionError, UsageError
from ..calls import JSON
from ..text.globs import Glob
from ..text.paths import Roots
from ..text.urls import Addresses
from .compare_params import KINDS, Holds, Matcher

_Keys: TypeAlias = tuple[str, ...]

_MAX_PATTERN = 1000
_MAX_VALUES = 1000
_NUMBERS = frozenset({"integer", "number"})
_TEXT = frozenset({"string"})
_ALL = frozenset(KINDS.values())
_TYPES: Mapping[str, frozenset[str]] = {
    **{kind: frozenset({kind}) for kind in _ALL},
    "number": _NUMBERS,
    "any": _ALL,
}


@dataclass(frozen=True, slots=True)
class Constraint:
    """
    One key of a condition.

    Attributes:
        make: Returns what holds, given what is written and where.

        kinds: Which values it speaks of, or ``None`` if that hangs on what is written.

        denied: The same as *make* for a deny rule, where that is another.
    """

    make: Callable[[JSON, _Keys], Holds]
    kinds: frozenset[str] | None
    denied: Callable[[JSON, _Keys], Holds] | None = None


def spoken_of(value: Mapping[str, JSON], at: _Keys) -> frozenset[str]:
    """
    Return which kinds of values a condition speaks of.

    Raises:
        ConditionError: Of none: two constraints contradict each other.
    """
    kinds = _ALL
    for name, said in value.items():
        kinds &= _kinds(name, said)
        if not kinds:
            raise ConditionError(
                (*at, name),
                "speaks of another type than the rest, so that nothing can hold",
                fix="remove one of the two",
            )
    return kinds


def _kinds(name: str, said: JSON) -> frozenset[str]:
    if name == "type":
        return _TYPES[str(said)]
    if name == "const":
        return frozenset({KINDS[type(said)]})
    if name == "one_of" and isinstance(said, list):
        return frozenset(KINDS[type(item)] for item in said)
    return _SPEAKS.get(name, _ALL)


def contradiction(value: Mapping[str, JSON]) -> tuple[str, str] | None:
    """Return what no value, or what every value holds, and what to do about it."""
    for name in ("const", "one_of"):
        rest = sorted(value.keys() - {name, "type", "optional"})
        if rest and name in value:
            return f"{name} says it all, {rest[0]} nothing more", "keep one of them"
    if value.get("type") == "any" and value.keys() - {"type", "optional"}:
        return 'type = "any" contradicts the rest', "remove it"
    for least, most in (
        ("min", "max"),
        ("min_length", "max_length"),
        ("min_items", "max_items"),
    ):
        low, high = value.get(least, 0), value.get(most, math.inf)
        if least in value and low > high:  # type: ignore[operator]
            return f"{least} is more than {most}", "correct one of them"
    return None


def _same(one: JSON, other: JSON) -> bool:
    """Return whether two values are the same: ``1`` is neither ``1.0`` nor ``true``."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            _same(one[name], other[name]) for name in one
        )
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other


def _type(said: JSON, at: _Keys) -> Holds:
    if not isinstance(said, str) or said not in _TYPES:
        raise ConditionError(
            at, "is no type", fix=f"write one of {', '.join(sorted(_TYPES))}"
        )
    return lambda value, _: KINDS.get(type(value)) in _TYPES[said]


def _const(said: JSON, at: _Keys) -> Holds:
    del at
    return lambda value, _: _same(said, value)


def _one_of(said: JSON, at: _Keys) -> Holds:
    if not isinstance(said, list) or not 0 < len(said) <= _MAX_VALUES:
        raise ConditionError(
            at, "is no list of values", fix=f"write 1 to {_MAX_VALUES} values"
        )
    if any(_same(a, b) for n, a in enumerate(said) for b in said[:n]):
        raise ConditionError(at, "has a value twice", fix="remove one")
    plain = {(type(item), item) for item in said if not isinstance(item, (list, dict))}
    built = [item for item in said if isinstance(item, (list, dict))]

    def holds(value: JSON, _: Matcher) -> bool:
        if isinstance(value, (list, dict)):
            return any(_same(item, value) for item in built)
        return (type(value), value) in plain

    return holds


def _number(said: JSON, at: _Keys) -> int | float:
    if isinstance(said, bool) or not isinstance(said, (int, float)):
        raise ConditionError(at, "is no number", fix="write one, like 10")
    if not math.isfinite(said):
        raise ConditionError(at, "is no number", fix="write a finite one")
    return said


def _min(said: JSON, at: _Keys) -> Holds:
    least = _number(said, at)
    return lambda value, _: value >= least  # type: ignore[operator]


def _max(said: JSON, at: _Keys) -> Holds:
    most = _number(said, at)
    return lambda value, _: value <= most  # type: ignore[operator]


def _count(said: JSON, at: _Keys, least: int) -> int:
    if type(said) is not int or said < least:
        raise ConditionError(
            at, "is no number that says something", fix=f"write {least} or more"
        )
    return said


def _at_least(said: JSON, at: _Keys) -> Holds:
    least = _count(said, at, 1)
    return lambda value, _: len(value) >= least  # type: ignore[arg-type]


def _at_most(said: JSON, at: _Keys) -> Holds:
    most = _count(said, at, 0)
    return lambda value, _: len(value) <= most  # type: ignore[arg-type]


def _pattern(said: JSON, at: _Keys) -> Holds:
    if not isinstance(said, str) or not 0 < len(said) <= _MAX_PATTERN:
        raise ConditionError(
            at, "is no pattern", fix=f"write 1 to {_MAX_PATTERN} characters"
        )
    return lambda value, matches: matches(said, value)  # type: ignore[arg-type]


def _glob(said: JSON, at: _Keys) -> Holds:
    if not isinstance(said, str):
        raise ConditionError(at, "is no text", fix='write it like: "acme/*"')
    try:
        glob = Glob.parse(said)
    except UsageError as exc:
        raise ConditionError(at, str(exc), fix=exc.fix) from None
    return lambda value, _: glob.holds(value)  # type: ignore[arg-type]


def _path(said: JSON, at: _Keys) -> Holds:
    roots = Roots.parse(said, at)
    return lambda value, _: roots.hold(value)  # type: ignore[arg-type]


def _url(said: JSON, at: _Keys, *, deny: bool = False) -> Holds:
    addresses = Addresses.parse(said, at, deny=deny)
    return lambda value, _: addresses.hold(value)  # type: ignore[arg-type]


#: In the order in which they are listed for people.
CONSTRAINTS: Mapping[str, Constraint] = {
    "type": Constraint(_type, None),
    "const": Constraint(_const, None),
    "one_of": Constraint(_one_of, None),
    "min": Constraint(_min, _NUMBERS),
    "max": Constraint(_max, _NUMBERS),
    "min_length": Constraint(_at_least, _TEXT),
    "max_length": Constraint(_at_most, _TEXT),
    "min_items": Constraint(_at_least, frozenset({"array"})),
    "max_items": Constraint(_at_most, frozenset({"array"})),
    "pattern": Constraint(_pattern, _TEXT),
    "glob": Constraint(_glob, _TEXT),
    "path": Constraint(_path, _TEXT),
    "url": Constraint(_url, _TEXT, partial(_url, deny=True)),
}
_SPEAKS: Mapping[str, frozenset[str]] = {
    **{name: c.kinds for name, c in CONSTRAINTS.items() if c.kinds},
    "each": frozenset({"array"}),
    "some": frozenset({"array"}),
    "keys": frozenset({"object"}),
    "has": frozenset({"object"}),
}
