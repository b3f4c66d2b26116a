"""
Conditions of a rule on the parameters of a call.

An allow rule requires all its conditions to hold. A deny rule applies unless all its
conditions can be judged and one fails.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, cast

from ...errors import ConditionError
from ..calls import JSON
from ..names import nearest
from ..provenance import Sources, Wanted, trusting
from .constraints import (
    CONSTRAINTS,
    FROM,
    MAX_ITEMS,
    MENTION,
    NOT_FROM,
    URLS,
    Condition,
    Facts,
    Failure,
    Holds,
    Matcher,
    contradiction,
    source_checks,
    spoken_of,
)

_MAX_NAMES = 100
_MAX_DEPTH = 16
_FOUND: Mapping[type, str] = {
    str: "a text",
    bool: "true or false",
    int: "a number",
    float: "a number",
    list: "a list",
}

#: Keys of a condition that lead to further conditions.
_BELOW = frozenset({"each", "some", "keys", "has"})
#: All keys of a condition.
CONDITION_KEYS = (
    CONSTRAINTS.keys() | _BELOW | {"optional", FROM, NOT_FROM, MENTION, URLS}
)
_KEYS = frozenset({"names", "values", "max"})
_MAP, _TEXT = frozenset({"object"}), frozenset({"string"})
_DOT = re.compile(r"(?<!\\)\.")

_Keys: TypeAlias = tuple[str, ...]
#: Its path from here, its place in the file, and its value.
_Named: TypeAlias = tuple[_Keys, _Keys, JSON]


def no_engine(_: str, __: str) -> None:
    """Judge no text: `lib.json_schema` has an engine, and this package is pure."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """
    Conditions on the parameters of a call, by their names.

    >>> wanted = Conditions.parse({"days": {"type": "integer", "max": 7}})
    >>> wanted.failure({"days": 3})
    >>> wanted.failure({"days": 8}).message
    '$.days is larger than the grant allows'
    >>> wanted.failure({"days": True}).message
    '$.days has another type than the grant wants'

    Attributes:
        text: The conditions as JSON. Two are equal if their texts are.

        root: The condition on the map of all parameters.
    """

    text: str
    root: Condition = field(compare=False, repr=False)

    @classmethod
    def parse(cls, spec: Mapping[str, JSON], *, deny: bool = False) -> Conditions:
        """
        Parse a table of conditions.

        Args:
            spec: Names of parameters, with the constraints on each. A dot leads into
                a map: ``user.email``; a dot of a name is written with a backslash.

            deny: They belong to a deny rule.

        Raises:
            ConditionError: They are invalid, or have no effect.
        """
        if not 0 < len(spec) <= _MAX_NAMES:
            raise ConditionError(
                (), f"names {len(spec)} parameters", fix=f"name 1 to {_MAX_NAMES}"
            )
        fields = _Reader(deny=deny).fields(_named(spec, ()), 0)
        root = Condition(spec={}, kinds=_MAP, fields=fields)
        return cls(json.dumps(spec, ensure_ascii=False), root)

    def to_payload(self) -> dict[str, JSON]:
        """Return what `parse` takes."""
        return cast("dict[str, JSON]", json.loads(self.text))

    @classmethod
    def from_payload(cls, payload: JSON, *, deny: bool = False) -> Conditions:
        """
        Parse conditions from a log.

        Raises:
            ConditionError: This version does not understand them.
        """
        if not isinstance(payload, dict):
            raise ConditionError((), "is not a table", fix="write { NAME = {...} }")
        return cls.parse(payload, deny=deny)

    def failure(
        self,
        params: Mapping[str, JSON],
        matches: Matcher = no_engine,
        *,
        sources: Sources | None = None,
        others: bool = False,
    ) -> Failure | None:
        """
        Return why *params* fail the conditions, or ``None``. Never raises.

        Args:
            params: The decoded parameters of a call.

            matches: Returns whether a text matches a regular expression.

            sources: What the run knows about the sources of values.

            others: Parameters without a condition are accepted.
        """
        try:
            facts = Facts(matches, sources)
            return next(self._failures(params, facts, others=others), None)
        except Exception:  # noqa: BLE001 -- law 4: an error while deciding is a denial
            return Failure((), "error")

    def _failures(
        self, params: Mapping[str, JSON], facts: Facts, *, others: bool
    ) -> Iterator[Failure]:
        known = params if isinstance(params, dict) else dict(params)
        return self.root.failures(known, facts, others=others)

    def spared(
        self,
        params: Mapping[str, JSON],
        matches: Matcher = no_engine,
        sources: Sources | None = None,
    ) -> Failure | None:
        """
        Return why a deny rule does not apply, or ``None`` if it does. Never raises.

        It does apply unless all conditions can be judged and one fails.
        """
        try:
            found = list(self._failures(params, Facts(matches, sources), others=True))
        except Exception:  # noqa: BLE001 -- law 4: what cannot be judged is denied
            return None
        return found[0] if found and all(one.judged for one in found) else None

    def trusting(self, trusted: Sequence[str], *, deny: bool) -> Conditions:
        """Return the same with the sources that ``trusted`` stands for."""
        spec = trusting(self.to_payload(), trusted)
        return Conditions.parse(cast("dict[str, JSON]", spec), deny=deny)

    @property
    def wanted(self) -> Iterator[Wanted]:
        """The sources that the conditions ask for."""
        return (wanted for part in self.root.parts for wanted in part.wanted)

    def patterns(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield each regular expression and its place, for the engine to check."""
        yield from _patterns(self.root, ())


def _patterns(condition: Condition, at: _Keys) -> Iterator[tuple[str, _Keys]]:
    if "pattern" in condition.spec:
        yield str(condition.spec["pattern"]), (*at, "pattern")
    below: dict[_Keys, Condition | None] = {
        ("each",): condition.each,
        ("some",): condition.some,
        ("keys", "names"): condition.names,
        ("keys", "values"): condition.values,
        **{(name,): part for name, part in condition.fields.items()},
    }
    for keys, part in below.items():
        if part:
            yield from _patterns(part, (*at, *keys))


@dataclass(frozen=True, slots=True)
class _Reader:
    """Parses conditions of an allow rule or a deny rule."""

    deny: bool

    def fields(self, named: list[_Named], depth: int) -> dict[str, Condition]:
        """Parse the conditions on a map, grouped by the first name of their path."""
        fields: dict[str, Condition] = {}
        for first in dict.fromkeys(names[0] for names, _, _ in named):
            here = [item for item in named if item[0][0] == first]
            own = [item for item in here if len(item[0]) == 1]
            deeper = [(names[1:], at, c) for names, at, c in here if len(names) > 1]
            below = self.fields(deeper, depth + 1) if deeper else {}
            if own:
                _, at, constraints = own[0]
                condition = self.condition(constraints, at, depth)
                if below and condition.kinds != _MAP:
                    raise ConditionError(
                        at, "has names below it, and is no map", fix='type = "object"'
                    )
                if len(own) > 1 or condition.fields.keys() & below.keys():
                    raise ConditionError(at, "is named twice", fix="name it once")
                below = {**condition.fields, **below}
            else:
                optional = all(part.optional for part in below.values())
                condition = Condition(spec={}, kinds=_MAP, optional=optional)
            fields[first] = replace(condition, fields=below)
        return fields

    def condition(self, value: JSON, at: _Keys, depth: int) -> Condition:
        """Parse the condition on a value."""
        if not isinstance(value, dict):
            found = _FOUND.get(type(value), "another value")
            raise ConditionError(
                at,
                f"must be a table of constraints, found {found}",
                fix='write { type = "string" }, or { type = "any" }',
            )
        if not value.keys() - {"optional"}:
            raise ConditionError(
                at,
                "has no constraint on the value",
                fix='write { type = "string" }, or { type = "any" }',
            )
        if depth > _MAX_DEPTH:
            raise ConditionError(at, "is nested too deeply", fix="flatten it")
        self._refuse(value, at)
        made = {
            name: self._check(name, value[name], (*at, name))
            for name in value
            if name in CONSTRAINTS
        }
        sourced = [*source_checks(value, at)]
        made |= {name: holds for name, holds, _ in sourced}
        # Condition.kinds has it.
        checks = tuple(item for item in made.items() if item[0] != "type")
        if problem := contradiction(value):
            raise ConditionError(at, *problem[:1], fix=problem[1])
        return replace(
            self._below(value, at, depth),
            kinds=spoken_of(value, at),
            checks=checks,
            optional=value.get("optional") is True,
            wanted=tuple(wanted for _, _, wanted in sourced),
        )

    def _check(self, name: str, said: JSON, at: _Keys) -> Holds:
        constraint = CONSTRAINTS[name]
        make = (self.deny and constraint.denied) or constraint.make
        return make(said, at)

    def _refuse(self, value: dict[str, JSON], at: _Keys) -> None:
        for name in value:
            if name not in CONDITION_KEYS:
                known = sorted(CONDITION_KEYS)
                meant = nearest(name, known)
                below = f'a name in a map is written params."{at[-1]}.{name}"'
                raise ConditionError(
                    (*at, name),
                    "is not a known constraint",
                    fix=f"write {meant}; {below}"
                    if meant
                    else f"{below}; constraints are {', '.join(known)}",
                )
            if self.deny and name in NOT_IN_DENY:
                raise ConditionError(
                    (*at, name), "is not allowed in a deny rule", fix=NOT_IN_DENY[name]
                )
        for name in () if self.deny else NOT_IN_ALLOW.keys() & value.keys():
            raise ConditionError(
                (*at, name), "is allowed in deny rules only", fix=NOT_IN_ALLOW[name]
            )
        if MENTION in value and not {FROM, NOT_FROM} & value.keys():
            raise ConditionError(
                (*at, MENTION), "has no effect without from", fix="remove it"
            )
        self._refuse_negated(value.get(URLS), (*at, URLS))
        if not isinstance(value.get("optional", True), bool):
            raise ConditionError(
                (*at, "optional"), "is not true or false", fix="write true"
            )
        if self.deny and value.keys() == {"type"}:
            raise ConditionError(
                at,
                "always applies: a value of another type cannot be judged",
                fix="say what of the value is forbidden, or leave params out",
            )

    def _refuse_negated(self, urls: JSON, at: _Keys) -> None:
        wrong, right = (FROM, NOT_FROM) if self.deny else (NOT_FROM, FROM)
        if isinstance(urls, dict) and wrong in urls:
            kind = "a deny rule" if self.deny else "an allow rule"
            raise ConditionError(
                (*at, wrong), f"is not allowed in {kind}", fix=f"write {right}"
            )

    def _below(self, value: dict[str, JSON], at: _Keys, depth: int) -> Condition:
        """Parse the part of a condition on items, entries and fields."""
        keys = _table(value.get("keys"), (*at, "keys"), _KEYS)
        most = keys.get("max", value.get("max_items", MAX_ITEMS))
        if type(most) is not int or most < 1:
            raise ConditionError(
                (*at, "keys" if "max" in keys else "max_items"),
                "allows no entries",
                fix="write a number of at least 1",
            )

        def part(table: dict[str, JSON], name: str, *where: str) -> Condition | None:
            if name not in table:
                return None
            return self.condition(table[name], (*at, *where, name), depth + 1)

        names = part(keys, "names", "keys")
        if names and names.kinds != _TEXT:
            raise ConditionError(
                (*at, "keys", "names"), "names are texts", fix="write a pattern"
            )
        has = _table(value.get("has"), (*at, "has"))
        each, some = part(value, "each"), part(value, "some")
        return Condition(
            spec=value,
            kinds=_MAP,
            each=each,
            some=some,
            names=names,
            values=part(keys, "values", "keys"),
            fields=self.fields(_named(has, (*at, "has")), depth + 1),
            most=most if keys or each or some else None,
        )


NOT_IN_DENY = {
    "optional": "remove it: what is missing cannot be judged, and is denied",
    "each": "write some: the rule applies if one item is so",
    "keys": "name the entries that it is about",
    FROM: "write not_from: the rule applies if the value comes from elsewhere",
}
NOT_IN_ALLOW = {"some": "write each", NOT_FROM: "write from"}


def _named(spec: Mapping[str, JSON], at: _Keys) -> list[_Named]:
    named: list[_Named] = []
    for name, constraints in spec.items():
        names = tuple(part.replace("\\.", ".") for part in _DOT.split(name))
        if not all(names) or len(names) > _MAX_DEPTH:
            raise ConditionError(
                (*at, name),
                f"has an empty name in it, or more than {_MAX_DEPTH}",
                fix="remove a dot",
            )
        named.append((names, (*at, name), constraints))
    return named


def _table(
    value: JSON, at: _Keys, known: frozenset[str] | None = None
) -> dict[str, JSON]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not value or (known and value.keys() - known):
        named = ", ".join(sorted(known)) if known else "NAME"
        raise ConditionError(
            at, "is not a table of known keys", fix=f"known keys: {named}"
        )
    return value
