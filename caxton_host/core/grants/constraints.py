"""
Constraints on one value, and the comparison of a value with its condition.

A part of a value satisfies its condition, fails it, or cannot be judged: it is missing,
of another type, or larger than what is compared. Deny rules need the difference
between the last two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from types import MappingProxyType, NoneType
from typing import TypeAlias

from ...errors import ConditionError, UsageError
from ..calls import JSON
from ..provenance import Sources, Wanted
from ..text.globs import Glob
from ..text.jsonpath import Keys, written
from ..text.paths import Roots
from ..text.urls import Addresses

#: Returns whether a text matches a regular expression as a whole; ``None``: it cannot
#: be judged. The expression is the first argument.
Matcher: TypeAlias = Callable[[str, str], "bool | None"]

#: Returns whether a value satisfies a constraint; ``None``: it cannot be judged.
Holds: TypeAlias = "Callable[[JSON, Facts], bool | None]"


@dataclass(frozen=True, slots=True)
class Facts:
    """
    What constraints may ask besides the value.

    Attributes:
        matches: Compares a text with a regular expression.

        sources: What the run knows about the sources of values; ``None``: no rule of
            the run asks for them, or nobody knows.
    """

    matches: Matcher
    sources: Sources | None = None


#: JSON types by Python types. An integer is a number as well.
KINDS: Mapping[type, str] = MappingProxyType(
    {
        str: "string",
        bool: "boolean",
        int: "integer",
        float: "number",
        list: "array",
        dict: "object",
        NoneType: "null",
    }
)

#: Most items of a list, and entries of a map, that are compared one by one.
MAX_ITEMS = 500


@dataclass(frozen=True, slots=True)
class Failure:
    """
    A part of the parameters that fails a condition.

    Attributes:
        at: Its path: names, and indices of items.

        kind: The constraint; or ``missing``, ``other`` (it has no condition) or
            ``error``.

        wanted: The value of the constraint. Not for the agent.

        judged: It fails; otherwise it cannot be judged.
    """

    at: tuple[str | int, ...]
    kind: str
    wanted: JSON = None
    judged: bool = False

    @property
    def path(self) -> str:
        """
        The place as a JSON path.

        >>> Failure(("labels", 2), "one_of").path
        '$.labels[2]'
        """
        return written(self.at)

    @property
    def message(self) -> str:
        """The message for the agent."""
        says = _SAYS if self.judged else {**_SAYS, **_UNJUDGED}
        return f"{self.path} {says[self.kind]}"

    def under(self, step: str | int) -> Failure:
        """Return the same with its path from the enclosing list or map."""
        return Failure((step, *self.at), self.kind, self.wanted, self.judged)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """
    A condition on one value.

    Attributes:
        spec: The condition as written.

        kinds: The JSON types of values that it accepts.

        checks: Constraints on the value itself, by name.

        optional: The value may be missing.

        each: The condition on each item of a list.

        some: The condition on at least one item.

        names: The condition on each name of a map.

        values: The condition on each value of a map.

        fields: Conditions on named values of a map. With any, other names are
            refused, unless the rule accepts them.

        most: Most items or entries that are compared.

        wanted: The sources that its checks ask for.
    """

    spec: Mapping[str, JSON]
    kinds: frozenset[str]
    checks: tuple[tuple[str, Holds], ...] = ()
    optional: bool = False
    each: Condition | None = None
    some: Condition | None = None
    names: Condition | None = None
    values: Condition | None = None
    fields: Mapping[str, Condition] = field(default_factory=dict[str, "Condition"])
    most: int | None = None
    wanted: tuple[Wanted, ...] = ()

    def failures(self, value: JSON, facts: Facts, *, others: bool) -> Iterator[Failure]:
        """Yield the parts of *value* that fail or cannot be judged."""
        if KINDS.get(type(value), "") not in self.kinds:
            yield Failure((), "type", [*sorted(self.kinds)])
            return
        for name, holds in self.checks:
            found = holds(value, facts)
            if not found:
                yield Failure((), name, self.spec[name], found is not None)
        if isinstance(value, (list, dict)):
            if self.most is not None and len(value) > self.most:
                yield Failure((), "most", self.most)
            elif isinstance(value, list):
                yield from self._of_items(value, facts, others=others)
            else:
                if self.names or self.values:
                    yield from self._of_entries(value, facts, others=others)
                if self.fields:
                    yield from self._of_fields(value, facts, others=others)

    def plainly(self, value: JSON, facts: Facts) -> bool:
        """Return whether *value* has no parts and satisfies the condition."""
        if isinstance(value, (list, dict)) or KINDS.get(type(value)) not in self.kinds:
            return False
        for _, holds in self.checks:  # noqa: SIM110 -- 500 generators take as long
            if not holds(value, facts):
                return False
        return True

    def looked(
        self, value: JSON, keys: Keys = ()
    ) -> Iterator[tuple[Keys, JSON, Wanted]]:
        """Yield the parts of *value* whose sources it asks for, with their places."""
        for wanted in self.wanted:
            yield keys, value, wanted
        if isinstance(value, list):
            below = [part for part in (self.each, self.some) if part]
            items: Iterable[tuple[str | int, JSON]] = enumerate(value[: self.most])
        elif isinstance(value, dict):
            below = [self.values] if self.values else []
            items = islice(value.items(), self.most) if below else ()
            for name in self.fields.keys() & value.keys():
                yield from self.fields[name].looked(value[name], (*keys, name))
        else:
            return
        for key, item in items if below else ():
            for part in below:
                yield from part.looked(item, (*keys, key))

    @property
    def parts(self) -> Iterator[Condition]:
        """The condition itself, and all conditions below it."""
        yield self
        for part in (self.each, self.some, self.names, self.values):
            if part:
                yield from part.parts
        for field_ in self.fields.values():
            yield from field_.parts

    def _of_items(
        self, items: list[JSON], facts: Facts, *, others: bool
    ) -> Iterator[Failure]:
        if self.each:
            for number, item in enumerate(items):
                if self.each.plainly(item, facts):
                    continue
                for failure in self.each.failures(item, facts, others=others):
                    yield failure.under(number)
        if self.some:
            judged = True
            for item in items:
                found = list(self.some.failures(item, facts, others=others))
                if not found:
                    return
                judged = judged and all(failure.judged for failure in found)
            yield Failure((), "some", dict(self.some.spec), judged)

    def _of_entries(
        self, entries: dict[str, JSON], facts: Facts, *, others: bool
    ) -> Iterator[Failure]:
        if self.names:
            for name in entries:
                for failure in self.names.failures(name, facts, others=others):
                    yield Failure((name,), "keys", failure.wanted, failure.judged)
        if self.values:
            for name, value in entries.items():
                for failure in self.values.failures(value, facts, others=others):
                    yield failure.under(name)

    def _of_fields(
        self, entries: dict[str, JSON], facts: Facts, *, others: bool
    ) -> Iterator[Failure]:
        present = 0
        for name, below in self.fields.items():
            if name in entries:
                present += 1
                for failure in below.failures(entries[name], facts, others=others):
                    yield failure.under(name)
            elif not below.optional:
                yield Failure((name,), "missing", dict(below.spec))
        if not others and present < len(entries):
            other = next(name for name in entries if name not in self.fields)
            yield Failure((other,), "other", [*self.fields])


_SAYS: Mapping[str, str] = {
    "type": "has another type than the grant wants",
    "const": "is not the value that the grant allows",
    "one_of": "is none of the values that the grant allows",
    "min": "is smaller than the grant allows",
    "max": "is larger than the grant allows",
    "min_length": "is shorter than the grant allows",
    "max_length": "is longer than the grant allows",
    "min_items": "has fewer items than the grant allows",
    "max_items": "has more items than the grant allows",
    "pattern": "does not fit the pattern of the grant",
    "glob": "does not fit the glob of the grant",
    "path": "is not a path that the grant allows",
    "url": "is not an address that the grant allows",
    "from": "was found in no source that the grant names",
    "not_from": "was found in a source that the grant names",
    "urls": "has an address that was found in no source that the grant names",
    "keys": "is not a name that the grant allows there",
    "most": "has more entries than a grant looks at",
    "some": "has no item that the grant wants",
    "missing": "is missing",
    "other": "is not among the parameters that the grant names",
    "error": "could not be judged",
}


#: Of constraints whose values can be larger or other than what is compared.
_UNJUDGED: Mapping[str, str] = {
    "from": "cannot be compared with the sources that the grant names",
    "urls": "has addresses that cannot be compared with the sources of the grant",
}


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
        make: Returns the check of a value, from the written value and its place.

        kinds: The JSON types that it applies to; ``None``: they depend on the value.

        denied: Replaces *make* in deny rules.
    """

    make: Callable[[JSON, _Keys], Holds]
    kinds: frozenset[str] | None
    denied: Callable[[JSON, _Keys], Holds] | None = None


def spoken_of(value: Mapping[str, JSON], at: _Keys) -> frozenset[str]:
    """
    Return the JSON types of values that a condition accepts.

    Raises:
        ConditionError: There are none: two constraints contradict each other.
    """
    kinds = _ALL
    for name, said in value.items():
        kinds &= _kinds(name, said)
        if not kinds:
            raise ConditionError(
                (*at, name),
                "has another type than the other constraints, so no value can match",
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
    """Return the problem and the fix of a condition that always or never holds."""
    for name in ("const", "one_of"):
        rest = sorted(value.keys() - {name, "type", "optional"})
        if rest and name in value:
            return f"{name} makes {rest[0]} redundant", "keep one of them"
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
    """Return whether two values are equal: ``1`` is neither ``1.0`` nor ``true``."""
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
            at, "is not a type", fix=f"write one of {', '.join(sorted(_TYPES))}"
        )
    return lambda value, _: KINDS.get(type(value)) in _TYPES[said]


def _const(said: JSON, at: _Keys) -> Holds:
    del at
    return lambda value, _: _same(said, value)


def _one_of(said: JSON, at: _Keys) -> Holds:
    if not isinstance(said, list) or not 0 < len(said) <= _MAX_VALUES:
        raise ConditionError(
            at, "is not a list of values", fix=f"write 1 to {_MAX_VALUES} values"
        )
    if any(_same(a, b) for n, a in enumerate(said) for b in said[:n]):
        raise ConditionError(at, "has a value twice", fix="remove one")
    plain = {(type(item), item) for item in said if not isinstance(item, (list, dict))}
    built = [item for item in said if isinstance(item, (list, dict))]

    def holds(value: JSON, _: Facts) -> bool:
        if isinstance(value, (list, dict)):
            return any(_same(item, value) for item in built)
        return (type(value), value) in plain

    return holds


def _number(said: JSON, at: _Keys) -> int | float:
    if isinstance(said, bool) or not isinstance(said, (int, float)):
        raise ConditionError(at, "is not a number", fix="write one, like 10")
    if not math.isfinite(said):
        raise ConditionError(at, "is not a number", fix="write a finite one")
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
            at, f"is not an integer >= {least}", fix=f"write {least} or more"
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
            at, "is not a pattern", fix=f"write 1 to {_MAX_PATTERN} characters"
        )
    return lambda value, facts: facts.matches(said, value)  # type: ignore[arg-type]


def _glob(said: JSON, at: _Keys) -> Holds:
    if not isinstance(said, str):
        raise ConditionError(at, "is not a text", fix='write it like: "acme/*"')
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


def source_checks(
    value: Mapping[str, JSON], at: _Keys
) -> Iterator[tuple[str, Holds, Wanted]]:
    """
    Yield the checks of a condition that ask for sources.

    Raises:
        ConditionError: One is invalid.
    """
    for name in (FROM, NOT_FROM):
        if name in value:
            wanted = Wanted.parse(value[name], value.get(MENTION), (*at, name))
            yield name, _coming(wanted, negated=name == NOT_FROM), wanted
    if URLS in value:
        said, here = value[URLS], (*at, URLS)
        if not isinstance(said, dict) or not said.keys() <= {FROM, NOT_FROM, MENTION}:
            raise ConditionError(
                here, "is not a table of sources", fix='urls = { from = ["input"] }'
            )
        named = said.keys() - {MENTION}
        if len(named) != 1:
            raise ConditionError(
                here, "names no sources, or both kinds", fix='{ from = ["input"] }'
            )
        (name,) = named
        wanted = Wanted.parse(said[name], said.get(MENTION), (*here, name), links=True)
        yield URLS, _coming(wanted, negated=name == NOT_FROM), wanted


def _coming(wanted: Wanted, *, negated: bool) -> Holds:
    def holds(value: JSON, facts: Facts) -> bool | None:
        if facts.sources is None:
            return None
        found = facts.sources.find(value, wanted).holds
        return found if found is None else found is not negated

    return holds


FROM, NOT_FROM, MENTION, URLS = "from", "not_from", "mention", "urls"

#: In the order in which messages list them.
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
    FROM: _ALL - {"object"},
    NOT_FROM: _ALL - {"object"},
    URLS: _TEXT,
    "each": frozenset({"array"}),
    "some": frozenset({"array"}),
    "keys": frozenset({"object"}),
    "has": frozenset({"object"}),
}
