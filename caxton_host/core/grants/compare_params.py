"""
How a value is compared with a condition, part by part.

A part holds, it does not hold, or it cannot be judged: it is missing, of another type,
or larger than what is looked at. Which of the two it was matters to deny rules.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType, NoneType
from typing import TypeAlias

from ..calls import JSON

#: Says whether a text, as a whole, fits a regular expression, which comes first; or
#: ``None`` if that cannot be judged.
Matcher: TypeAlias = Callable[[str, str], "bool | None"]

#: Whether a value holds, or ``None`` if it cannot be judged.
Holds: TypeAlias = "Callable[[JSON, Matcher], bool | None]"

#: What JSON calls a value, by its type here. A whole number is a number as well.
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

#: Items of a list, and entries of a map, where each of them is looked at.
MAX_ITEMS = 500
_MAX_SHOWN = 64


@dataclass(frozen=True, slots=True)
class Failure:
    """
    A part of the parameters that a condition does not take.

    Attributes:
        at: Where it is: names, and numbers of items.

        kind: The constraint; or ``missing``, ``other`` (no condition names it) or
            ``error``.

        wanted: What the constraint says. Not for the agent.

        judged: Whether it does not hold; or else it could not be judged.
    """

    at: tuple[str | int, ...]
    kind: str
    wanted: JSON = None
    judged: bool = False

    @property
    def path(self) -> str:
        """
        The same as a JSON path.

        >>> Failure(("labels", 2), "one_of").path
        '$.labels[2]'
        """
        return "$" + "".join(map(_step, self.at))

    @property
    def message(self) -> str:
        """What the agent may know of it."""
        return f"{self.path} {_SAYS[self.kind]}"

    def under(self, step: str | int) -> Failure:
        """Return the same, seen from the list or the map around it."""
        return Failure((step, *self.at), self.kind, self.wanted, self.judged)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """
    What one value has to be.

    Attributes:
        spec: As it was written.

        kinds: Kinds of values that it speaks of.

        checks: Constraints on the value itself, by name.

        optional: The value may be missing.

        each: What each item of a list has to be.

        some: What at least one item has to be.

        names: What each name of a map has to be.

        values: What each value of a map has to be.

        fields: What named values of a map have to be. If there are any, others are
            not taken, unless the rule says so.

        most: How many items or entries are looked at.
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

    def failures(
        self, value: JSON, matches: Matcher, *, others: bool
    ) -> Iterator[Failure]:
        """Yield what of *value* does not hold, or cannot be judged."""
        if KINDS.get(type(value), "") not in self.kinds:
            yield Failure((), "type", [*sorted(self.kinds)])
            return
        for name, holds in self.checks:
            found = holds(value, matches)
            if not found:
                yield Failure((), name, self.spec[name], found is not None)
        if isinstance(value, (list, dict)):
            if self.most is not None and len(value) > self.most:
                yield Failure((), "most", self.most)
            elif isinstance(value, list):
                yield from self._of_items(value, matches, others=others)
            else:
                if self.names or self.values:
                    yield from self._of_entries(value, matches, others=others)
                if self.fields:
                    yield from self._of_fields(value, matches, others=others)

    def plainly(self, value: JSON, matches: Matcher) -> bool:
        """Return whether *value* holds and has no parts, as most items do."""
        if isinstance(value, (list, dict)) or KINDS.get(type(value)) not in self.kinds:
            return False
        for _, holds in self.checks:  # noqa: SIM110 -- 500 generators take as long
            if not holds(value, matches):
                return False
        return True

    def _of_items(
        self, items: list[JSON], matches: Matcher, *, others: bool
    ) -> Iterator[Failure]:
        if self.each:
            for number, item in enumerate(items):
                if self.each.plainly(item, matches):
                    continue
                for failure in self.each.failures(item, matches, others=others):
                    yield failure.under(number)
        if self.some:
            judged = True
            for item in items:
                found = list(self.some.failures(item, matches, others=others))
                if not found:
                    return
                judged = judged and all(failure.judged for failure in found)
            yield Failure((), "some", dict(self.some.spec), judged)

    def _of_entries(
        self, entries: dict[str, JSON], matches: Matcher, *, others: bool
    ) -> Iterator[Failure]:
        if self.names:
            for name in entries:
                for failure in self.names.failures(name, matches, others=others):
                    yield Failure((name,), "keys", failure.wanted, failure.judged)
        if self.values:
            for name, value in entries.items():
                for failure in self.values.failures(value, matches, others=others):
                    yield failure.under(name)

    def _of_fields(
        self, entries: dict[str, JSON], matches: Matcher, *, others: bool
    ) -> Iterator[Failure]:
        present = 0
        for name, below in self.fields.items():
            if name in entries:
                present += 1
                for failure in below.failures(entries[name], matches, others=others):
                    yield failure.under(name)
            elif not below.optional:
                yield Failure((name,), "missing", dict(below.spec))
        if not others and present < len(entries):
            other = next(name for name in entries if name not in self.fields)
            yield Failure((other,), "other", [*self.fields])


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if len(step) > _MAX_SHOWN:
        # Not a part of it: of half a secret nobody would know that it is one.
        return f"[a name of {len(step)} characters]"
    return f".{step}" if step.isidentifier() else f"[{json.dumps(step)}]"


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
    "keys": "is not a name that the grant allows there",
    "most": "has more entries than a grant looks at",
    "some": "has no item that the grant wants",
    "missing": "is missing",
    "other": "is not among the parameters that the grant names",
    "error": "could not be judged",
}
