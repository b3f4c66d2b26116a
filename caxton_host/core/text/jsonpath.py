"""
JSONPath (RFC 9535), a subset, to mask, select or find parts: ``$.items[*].secret``.

The subset has names, indices, ``*`` and ``..``, one in each pair of brackets. It has no
slices and no filters: a path selects by the shape of a value, not by its content. For
masking, all paths are followed in one pass that visits each part of the value once.
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

#: A concrete place in a value: names of members, and indices of items.
Keys: TypeAlias = tuple[str | int, ...]
_MAX_SHOWN = 64


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


def written(keys: Keys) -> str:
    """
    Return a concrete place as a JSON path.

    >>> written(("labels", 2, "a b"))
    '$.labels[2]["a b"]'
    """
    return "$" + "".join(map(_written, keys))


def _written(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if len(step) > _MAX_SHOWN:
        # Not a part of it: redaction would not find a part of a secret.
        return f"[a name of {len(step)} characters]"
    return f".{step}" if step.isidentifier() else f"[{json.dumps(step)}]"


def selected(value: JSON, path: JsonPath) -> Iterator[tuple[Keys, JSON]]:
    """
    Yield the places of *path* in *value*, with what stands there.

    A path with ``..`` twice may yield a place twice.

    >>> list(selected({"a": [{"b": 1}, {"b": 2}]}, JsonPath.parse("$.a[*].b")))
    [(('a', 0, 'b'), 1), (('a', 1, 'b'), 2)]
    """
    places: Iterator[tuple[Keys, JSON]] = iter([((), value)])
    for step in path.steps:
        places = _followed(places, step)
    return places


def parts(value: JSON, keys: Keys = ()) -> Iterator[tuple[Keys, JSON]]:
    """Yield *value* and every part of it, each with its place below *keys*."""
    stack: list[tuple[Keys, JSON]] = [(keys, value)]
    while stack:
        at, item = stack.pop()
        yield at, item
        stack += [((*at, key), part) for key, part in reversed(_members(item))]


def _followed(
    places: Iterator[tuple[Keys, JSON]], step: _Step
) -> Iterator[tuple[Keys, JSON]]:
    for above, item in places:
        for keys, part in parts(item, above) if step.deep else ((above, item),):
            yield from _picked(keys, part, step.selector)


def _picked(keys: Keys, item: JSON, selector: _Selector) -> Iterator[tuple[Keys, JSON]]:
    if selector is None:
        for key, part in _members(item):
            yield (*keys, key), part
    elif isinstance(selector, str):
        if isinstance(item, dict) and selector in item:
            yield (*keys, selector), item[selector]
    elif isinstance(item, list) and -len(item) <= selector < len(item):
        yield (*keys, selector % len(item)), item[selector]


def _members(item: JSON) -> list[tuple[str | int, JSON]]:
    if isinstance(item, dict):
        return [*item.items()]
    return [*enumerate(item)] if isinstance(item, list) else []


def is_everything(path: JsonPath) -> bool:
    """Return whether a path selects values wherever they stand: ``$..*``."""
    return any(step.deep and step.selector is None for step in path.steps)


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
    return masking.walk(value, frozenset(first)), len(masking.found)


def found(value: JSON, path: JsonPath) -> list[JSON]:
    """
    Return the values at the places of a path.

    >>> found([{"n": 1}, {"n": 2}], JsonPath.parse("$[*].n"))
    [1, 2]
    """
    masking = _Masking([*path.steps, None])
    masking.walk(value, frozenset({0}))
    return masking.found


#: Indices of the next steps in the program.
_Here: TypeAlias = frozenset[int]


class _Masking:
    """
    Follows all paths in one pass.

    Args:
        program: The steps of all paths; ``None`` ends each path.

    Attributes:
        found: What was masked.
    """

    def __init__(self, program: list[_Step | None]) -> None:
        self.found: list[JSON] = []
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
            self.found.append(value)
            return MASK
        before = len(self.found)
        if isinstance(value, dict):
            members = {
                key: self.walk(item, self._behind(here, key))
                for key, item in value.items()
            }
            return members if len(self.found) > before else value
        if isinstance(value, list):
            size = len(value)
            items = [
                self.walk(item, self._behind(here, n, n - size))
                for n, item in enumerate(value)
            ]
            return items if len(self.found) > before else value
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
