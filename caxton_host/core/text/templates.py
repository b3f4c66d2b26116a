"""Texts with ``{name}`` in them, which become something else for each run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..calls import JSON

_NAME = r"[A-Za-z_][A-Za-z0-9_.-]{0,255}"
_PLACEHOLDER = re.compile(rf"\$\{{context\.({_NAME})\}}|\{{({_NAME})\}}")
_BRACE = re.compile(r"[{}]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """
    A text whose placeholders are filled in.

    Attributes:
        unknown: Placeholders that stay: nothing is known by that name.

        problem: Why the text is as it was, or ``None``.
    """

    text: str
    unknown: tuple[str, ...] = ()
    problem: str | None = None


def fill(text: str, values: Mapping[str, JSON], *, longest: int) -> Filled:
    """
    Return *text* with values in the place of ``{name}`` and ``${context.name}``.

    >>> fill("For {user.name}: {n} of {all}", {"user": {"name": "Ada"}, "n": 3},
    ...      longest=100)
    Filled(text='For Ada: 3 of {all}', unknown=('all',), problem=None)

    Args:
        text: Braces around anything but a name stay as they are. A text in which
            one has no partner stays as it is, whole.

        values: By name. A dotted one is looked up as it stands, then step by step.

        longest: Characters. A text that would be longer stays as it is.
    """
    if not _paired(text):
        return Filled(text=text, problem="a brace in it has no partner")
    parts: list[str] = []
    unknown: list[str] = []
    end = size = 0
    for found in _PLACEHOLDER.finditer(text):
        name = found[1] or found[2]
        there, value = _look_up(values, name)
        parts += text[end : found.start()], _text(value) if there else found[0]
        size += len(parts[-2]) + len(parts[-1])
        end = found.end()
        if not there:
            unknown.append(name)
        if size > longest:
            break
    parts.append(text[end:])
    if size + len(parts[-1]) > longest:
        return Filled(text=text, problem=f"it would have over {longest} characters")
    return Filled(text="".join(parts), unknown=tuple(dict.fromkeys(unknown)))


def named(text: str) -> list[str]:
    """
    Return the names of the placeholders in *text*, each once.

    >>> named("{a} ${context.b.c} {a} {1}")
    ['a', 'b.c']
    """
    names = (found[1] or found[2] for found in _PLACEHOLDER.finditer(text))
    return list(dict.fromkeys(names))


def unfilled(value: JSON, known: Mapping[str, JSON]) -> list[str]:
    """
    Return the placeholders in the texts of *value* that *known* has something for.

    An agent that passes one on was meant to pass what it stands for.

    >>> unfilled({"to": ["{phone}", "{x}"]}, {"phone": "555"})
    ['phone']
    """
    names = (name for text in texts(value) for name in named(text))
    return list(dict.fromkeys(n for n in names if _look_up(known, n)[0]))


def _paired(text: str) -> bool:
    depth = 0
    for found in _BRACE.finditer(text):
        depth += 1 if found[0] == "{" else -1
        if depth < 0:
            return False
    return not depth


def _look_up(values: Mapping[str, JSON], name: str) -> tuple[bool, JSON]:
    if name in values:
        return True, values[name]
    value: JSON = dict(values)
    for step in name.split("."):
        if not isinstance(value, dict) or step not in value:
            return False, None
        value = value[step]
    return True, value


def _text(value: JSON) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def texts(value: JSON) -> Iterator[str]:
    """Yield every text of *value*, keys aside."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)
