"""
The names of typed tools in a language, and types as text.

`stubs` and `headers` print whole tools with these.
"""

from __future__ import annotations

import json
import keyword
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from ..calls import JSON
from .shapes import AnyOf, Exactly, Field, Fields, ListOf, MapOf, Plain, Shape, Word

_UNSAFE = re.compile(r"[^A-Za-z0-9_]")
_NEXT_WORD = re.compile(r"(?<=[A-Za-z0-9])_+([A-Za-z0-9])")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedTool:
    """
    A tool that an agent sees.

    Attributes:
        exposed: Its exposed name.

        input_schema: The schema of its parameters; untrusted, like all of it.

        output_schema: The schema of its structured content, or ``None``.
    """

    exposed: str
    description: str = ""
    input_schema: JSON = None
    output_schema: JSON = None


def python_name(part: str) -> str:
    """
    Return the name in Python of a server, of a tool, or of a parameter.

    >>> python_name("get-time"), python_name("3d"), python_name("class")
    ('get_time', '_3d', 'class_')
    """
    name = _letters(part)
    return f"{name}_" if keyword.iskeyword(name) else name


def javascript_name(part: str) -> str:
    """
    Return the name in JavaScript of a server, or of a tool.

    >>> javascript_name("get_current_time"), javascript_name("3d")
    ('getCurrentTime', '_3d')
    """
    return _NEXT_WORD.sub(lambda match: match[1].upper(), _letters(part))


def _letters(part: str) -> str:
    name = _UNSAFE.sub("_", part)
    return f"_{name}" if not name or name[0].isdigit() else name


def places(
    names: Iterable[str],
    rename: Callable[[str], str],
    taken: Collection[str] = (),
) -> dict[str, tuple[str, ...]]:
    """
    Return where each tool is found below ``tools``: server and tool, or one name.

    It is empty for a tool that is only reachable by its exact name, because the place
    is that of another tool.

    >>> places(["mcp__time__get", "mcp__a__x.y", "mcp__a__x-y", "call"], python_name)
    {'mcp__time__get': ('time', 'get'), 'mcp__a__x.y': (), 'mcp__a__x-y': (), 'call': ('call',)}

    Args:
        names: Exposed names.

        rename: The names in the language.

        taken: What ``tools`` itself has.
    """  # noqa: E501 -- one value
    found = {name: tuple(map(rename, _split(name))) for name in names}
    counts = Counter(found.values())
    own = {place[0] for place in counts if len(place) == 1 and counts[place] == 1}
    return {
        name: place
        if counts[place] == 1
        and place[0] not in taken
        and not any(part.startswith("__") for part in place)
        and (len(place) == 1 or place[0] not in own)
        else ()
        for name, place in found.items()
    }


def _split(exposed: str) -> list[str]:
    prefix, server, tool = [*exposed.split("__", 2), "", ""][:3]
    return [server, tool] if prefix == "mcp" and server and tool else [exposed]


def arguments(fields: Iterable[Field]) -> tuple[dict[str, Field], list[Field]]:
    """Return the keyword arguments in Python, and the parameters that are none."""
    named: dict[str, Field] = {}
    others: list[Field] = []
    for one in fields:
        name = python_name(one.name)
        # In a class, a name that begins with two underscores is another one.
        if name in named or name.startswith("__"):
            others.append(one)
        else:
            named[name] = one
    return named, others


def default_of(field: Field) -> str:
    """Return the default of a keyword argument in Python, as it is in a signature."""
    if field.required:
        return ""
    return " = ..." if field.default is None else f" = {field.default!r}"


# -- types as text -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Printer:
    """
    Prints types in one language; objects inline.

    Attributes:
        words: The name of each plain type.

        literal: Returns one value as text.

        listed: A list, with ``{}`` for its items.

        mapped: A map, with ``{}`` for its values.

        levels: Objects below this level are maps.
    """

    words: Mapping[Word, str]
    literal: Callable[[str | int | bool], str]
    listed: str
    mapped: str
    levels: int = 100

    def type(self, shape: Shape, level: int = 0) -> str:
        """Return a type as text."""
        match shape:
            case Plain(word):
                return self.words[word]
            case Exactly(value):
                return self.literal(value)
            case ListOf(item):
                return self.listed.format(self.type(item, level))
            case MapOf(value):
                return self.mapped.format(self.type(value, level))
            case AnyOf(ways):
                return " | ".join(self.type(way, level) for way in ways)
            case _:
                return self.object(shape, level)

    def object(self, shape: Fields, level: int) -> str:
        """Return the type of an object."""
        if not shape.fields or level >= self.levels:
            return self.mapped.format(self.words["any"])
        parts = [
            f"{key(one.name)}{'' if one.required else '?'}: "
            f"{self.type(one.shape, level + 1)}"
            for one in shape.fields
        ]
        return "{" + ", ".join(parts) + "}"


def key(name: str) -> str:
    """Return the name of a property, quoted if it is not an identifier."""
    return name if _PLAIN.fullmatch(name) else json.dumps(name)


_SCRIPT: dict[Word, str] = {
    "any": "any",
    "str": "string",
    "int": "number",
    "float": "number",
    "bool": "boolean",
    "null": "null",
}
_PYTHON: dict[Word, str] = {
    "any": "Any",
    "str": "str",
    "int": "int",
    "float": "float",
    "bool": "bool",
    "null": "None",
}
#: Objects inline, which Python itself does not have: for people and models.
PYTHON = Printer(_PYTHON, repr, "list[{}]", "dict[str, {}]")
TYPESCRIPT = Printer(_SCRIPT, json.dumps, "Array<{}>", "Record<string, {}>")


def clean(text: str, most: int) -> str:
    """Return *text* as one line, cut; what is not printable is a space."""
    line = " ".join(text[: 2 * most].split())
    line = "".join(char if char.isprintable() else " " for char in line)
    return line if len(line) <= most else f"{line[: most - 3]}..."
