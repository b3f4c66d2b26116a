"""
JSONPath (RFC 9535), a subset, for masking: ``$.items[*].secret``.

The subset has names, indices, ``*`` and ``..``, one in each pair of brackets. It has no
slices and no filters: a path selects by the shape of a value, not by its content. All
paths are followed in one pass that visits each part of the value once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from ...errors import UsageError
from ..calls import JSON
from .redact import MASK

_MOST = 32
_LARGEST = 2**53 - 1

_NAME = re.compile(r"[A-Za-z_\u0080-\U0010ffff][0-9A-Za-z_\u0080-\U0010ffff]*")
_INDEX = re.compile(r"0|-?[1-9][0-9]{0,15}")
_QUOTED = re.compile(
    r'"(?:[^"\\\x00-\x1f]|\\[^\x00-\x1f])*"|' r"'(?:[^'\\\x00-\x1f]|\\[^\"\x00-\x1f])*'"
)
_SINGLE = re.compile(r"\\.|\"")

#: The name of a member, the index of an item, or ``None`` for every one.
_Selector: TypeAlias = str | int | None


@dataclass(frozen=True, slots=True)
class _Step:
    """
    One step of a path: from a value to some of its members.

    Attributes:
        deep: It applies to the members of members as well, and so on.
    """

    selector: _Selector
    deep: bool


@dataclass(frozen=True, slots=True)
class JsonPath:
    """
    A path that selects places in a value.

    >>> path = JsonPath.parse("$.users[*]['e-mail']")
    >>> masked({"users": [{"e-mail": "ada@example.org"}, {"n": 1}]}, [path])
    ({'users': [{'e-mail': '[redacted]'}, {'n': 1}]}, 1)
    """

    text: str
    steps: tuple[_Step, ...]

    @classmethod
    def parse(cls, text: str) -> JsonPath:
        """
        Parse a path.

        Raises:
            UsageError: It is invalid, or not in the subset.
        """
        if not text.startswith("$"):
            _refuse(text, "does not begin with '$'")
        steps: list[_Step] = []
        at = 1
        while at < len(text):
            step, at = _step(text, at)
            steps.append(step)
        if len(steps) > _MOST:
            _refuse(text, f"has more than {_MOST} steps")
        return cls(text, tuple(steps))


def masked(value: JSON, paths: Iterable[JsonPath]) -> tuple[JSON, int]:
    """
    Return *value* with the places of *paths* masked, and the number of masks.

    A value without a mask is returned as the same object.
    """
    program: list[_Step | None] = []
    first: list[int] = []
    for path in paths:
        first.append(len(program))
        program += [*path.steps, None]
    masking = _Masking(program)
    return masking.walk(value, frozenset(first)), masking.count


#: Indices of the next steps in the program.
_Here: TypeAlias = frozenset[int]


class _Masking:
    """
    Follows all paths in one pass.

    Args:
        program: The steps of all paths; ``None`` ends each path.

    Attributes:
        count: The number of places that were masked.
    """

    def __init__(self, program: list[_Step | None]) -> None:
        self.count = 0
        self._program = program
        self._ends = {at for at, step in enumerate(program) if step is None}
        self._names = {step.selector for step in program if step} - {None}
        #: Cached by name. There are few: names without a step share an entry.
        self._known: dict[tuple[_Here, tuple[str | int, ...]], _Here] = {}

    def walk(self, value: JSON, here: _Here) -> JSON:
        """Return *value* masked by the steps at *here* and those after them."""
        if not here:
            return value
        if not self._ends.isdisjoint(here):
            self.count += 1
            return MASK
        before = self.count
        if isinstance(value, dict):
            members = {
                key: self.walk(item, self._behind(here, key))
                for key, item in value.items()
            }
            return members if self.count > before else value
        if isinstance(value, list):
            size = len(value)
            items = [
                self.walk(item, self._behind(here, n, n - size))
                for n, item in enumerate(value)
            ]
            return items if self.count > before else value
        return value

    def _behind(self, here: _Here, *names: str | int) -> _Here:
        """Return the next steps in a member with one of these *names*."""
        if self._names.isdisjoint(names):
            names = ()
        known = self._known.get((here, names))
        if known is None:
            known = frozenset(self._found(here, names))
            self._known[here, names] = known
        return known

    def _found(self, here: _Here, names: tuple[str | int, ...]) -> Iterator[int]:
        for at in here:
            step = self._program[at]
            assert step is not None  # noqa: S101 -- or it was masked
            if step.selector is None or step.selector in names:
                yield at + 1
            if step.deep:
                yield at


def _step(text: str, at: int) -> tuple[_Step, int]:
    """Return the step that begins at a position of *text*, and its end."""
    deep = text.startswith("..", at)
    begin = at + 2 if deep else at
    if text.startswith("[", begin):
        selector, end = _in_brackets(text, begin + 1)
        return _Step(selector, deep), end
    if not deep:
        if not text.startswith(".", at):
            _refuse(text, f"has {text[at]!r} where a step begins")
        begin = at + 1
    if text.startswith("*", begin):
        return _Step(None, deep), begin + 1
    name = _NAME.match(text, begin)
    if not name:
        _refuse(text, f"has no name behind character {begin}")
    return _Step(name[0], deep), name.end()


def _in_brackets(text: str, at: int) -> tuple[_Selector, int]:
    selector: _Selector = None
    if text.startswith("*", at):
        end = at + 1
    elif quoted := _QUOTED.match(text, at):
        selector, end = _unquoted(text, quoted[0]), quoted.end()
    elif index := _INDEX.match(text, at):
        selector, end = int(index[0]), index.end()
        if abs(selector) > _LARGEST:
            _refuse(text, "has an index that no list has")
    else:
        end = at
    if end == at or not text.startswith("]", end):
        _refuse(text, "has brackets around no single name, index or '*'")
    return selector, end + 1


def _unquoted(text: str, quoted: str) -> str:
    if quoted.startswith("'"):
        inner = _SINGLE.sub(_as_double, quoted[1:-1])
        quoted = f'"{inner}"'
    try:
        name = str(json.loads(quoted))
        name.encode()
    except ValueError:
        _refuse(text, "has a name with an escape that is none")
    return name


def _as_double(found: re.Match[str]) -> str:
    return {"\\'": "'", '"': '\\"'}.get(found[0], found[0])


def _refuse(text: str, why: str) -> NoReturn:
    raise UsageError(
        f"{text!r} {why}",
        fix="write a path like: $.user.email, $.items[*].secret, $..password or "
        "$['first name']",
    )
