"""
Typed tools as files for editors: a Python stub, or TypeScript declarations.

Names, descriptions and schemas come from servers. Each is cut, and escaped for its
place, so that the result parses for any input.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from .shapes import ANY, Field, Fields, MapOf, parameters_of, result_of
from .typed import (
    PYTHON,
    TYPESCRIPT,
    Printer,
    TypedTool,
    arguments,
    clean,
    default_of,
    javascript_name,
    key,
    places,
    python_name,
)

#: Most characters of a description, and of a parameter's.
_DESCRIPTION, _PARAMETER = 2_000, 300
#: Longer parameters are on lines of their own.
_LINE = 60

# -- Python ------------------------------------------------------------------------

_HOMES = {
    **dict.fromkeys(("Any", "Literal"), "typing"),
    **dict.fromkeys(("bool", "dict", "float", "int", "list", "str"), "builtins"),
}
_PYTHON_HEAD = '''\
"""Typed tools, made by caxton tool stubs."""

import builtins
import typing
from collections.abc import Callable
from typing import Any, Literal, NotRequired, TypedDict, overload
'''
_OF_TOOLS = '''\
    def __call__(self) -> builtins.list[typing.Any]:
        """Return the granted tools."""
'''
_SEARCH = '''\
    def search(
        self, text: builtins.str, limit: builtins.int = 10
    ) -> builtins.list[Callable[..., typing.Any]]:
        """Return the tools whose names or descriptions have these words."""
'''


def python_stub(tools: Sequence[TypedTool]) -> str:
    """Return the Python stub of *tools*, with the object ``tools``."""
    found = places((tool.exposed for tool in tools), python_name)
    types = _PythonTypes.beside({part for place in found.values() for part in place})
    groups: dict[str, list[str]] = {}
    own: list[str] = []
    exact: list[str] = []
    for tool in tools:
        place = found[tool.exposed]
        method = _method(place[-1] if place else "__call__", tool, types)
        if len(place) > 1:
            groups.setdefault(place[0], []).append(method)
        elif place:
            own.append(method)
        else:
            exact.append(tool.exposed)
            types.classes.append(f"class _Exact{len(exact)}:\n{method}")
    attributes = [f"    {name}: _{name}_tools\n" for name in groups]
    search = [] if ("search",) in {place[:1] for place in found.values()} else [_SEARCH]
    whole = [*attributes, _OF_TOOLS, *search, *own, *_by_name(exact)]
    classes = [*types.classes]
    classes += [f"class _{one}_tools:\n{''.join(groups[one])}" for one in groups]
    classes.append(f"class Tools:\n{''.join(whole)}")
    return "\n".join([_PYTHON_HEAD, *classes, "tools: Tools\n"])


@dataclass(frozen=True, slots=True, kw_only=True)
class _PythonTypes(Printer):
    """
    Types in Python.

    Attributes:
        classes: Declarations of the types of objects, since none can be inline.

        objects: Their names, by their properties.
    """

    classes: list[str] = field(default_factory=list[str])
    objects: dict[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def beside(cls, hidden: Container[str]) -> _PythonTypes:
        """
        Return the types for a stub.

        Args:
            hidden: Names of attributes. In the rest of its class, an attribute hides
                the type of the same name.
        """
        home = {
            name: f"{module}.{name}" if name in hidden else name
            for name, module in _HOMES.items()
        }
        return cls(
            words={word: home.get(name, name) for word, name in PYTHON.words.items()},
            literal=lambda value: f"{home['Literal']}[{value!r}]",
            listed=home["list"] + "[{}]",
            mapped=f"{home['dict']}[{home['str']}, {{}}]",
        )

    def object(self, shape: Fields, level: int) -> str:
        """Declare the type of an object, and return its name."""
        if not shape.fields:
            return self.mapped.format(self.words["any"])
        types = [self.type(one.shape, level) for one in shape.fields]
        lines = [
            f"    {one.name!r}: {kind if one.required else f'NotRequired[{kind}]'},\n"
            for one, kind in zip(shape.fields, types, strict=True)
        ]
        body = "".join(lines)
        if body not in self.objects:
            name = self.objects[body] = f"_Object{len(self.objects) + 1}"
            self.classes.append(f'{name} = TypedDict("{name}", {{\n{body}}})\n')
        return self.objects[body]


def _method(name: str, tool: TypedTool, types: _PythonTypes) -> str:
    parameters = parameters_of(tool.input_schema)
    named, others = arguments(parameters.fields)
    words = [
        f"{name}: {types.type(one.shape)}{default_of(one)}"
        for name, one in named.items()
    ]
    if parameters.more or others:
        words.append(f"**{_free('more', named)}: {types.words['any']}")
    words = [_free("self", named), *(["*"] if named else []), *words]
    inside = ", ".join(words)
    if len(inside) > _LINE:
        inside = "".join(f"\n        {word}," for word in words) + "\n    "
    result = types.type(result_of(tool.output_schema))
    doc = _docstring(tool.description, named)
    return f"    def {name}({inside}) -> {result}:\n{doc}"


def _free(name: str, taken: Container[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _docstring(description: str, named: Mapping[str, Field]) -> str:
    lines = _paragraphs(description)
    about = [(name, clean(one.description, _PARAMETER)) for name, one in named.items()]
    if said := [f"    {name}: {text}" for name, text in about if text]:
        lines += ["", "Args:", *said]
    if not lines:
        return "        ...\n"
    text = "\n".join(f"        {line}".rstrip() for line in lines).strip()
    text = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    closing = "\n        " if len(lines) > 1 or text.endswith('"') else ""
    return f'        """{text}{closing}"""\n'


def _paragraphs(text: str) -> list[str]:
    """Return the lines of a description, cleaned and cut."""
    lines = text[:_DESCRIPTION].strip().splitlines()
    return [clean(line, _DESCRIPTION) for line in lines]


def _by_name(exact: Sequence[str]) -> list[str]:
    """Return the methods for tools that are only reachable by their exact names."""
    overload = "    @overload\n" if exact else ""
    return [
        f"{overload}    def __getitem__(self, name: {name}) -> {kind}: ...\n"
        for name, kind in (
            *(
                (f"typing.Literal[{one!r}]", f"_Exact{at}")
                for at, one in enumerate(exact, 1)
            ),
            ("builtins.str", "Callable[..., typing.Any]"),
        )
    ]


# -- TypeScript --------------------------------------------------------------------


def typescript_stub(tools: Sequence[TypedTool]) -> str:
    """Return the TypeScript declarations of *tools*, which extend ``caxton``."""
    found = places((tool.exposed for tool in tools), javascript_name, {"search"})
    groups: dict[str, list[str]] = {}
    own: list[str] = []
    for tool in tools:
        place = found[tool.exposed]
        if len(place) > 1:
            groups.setdefault(place[0], []).append(_member(place[1], tool, "      "))
        else:
            own.append(_member(place[0] if place else tool.exposed, tool, "    "))
    members = [f"    {one}: {{\n{''.join(groups[one])}    }};\n" for one in groups]
    return (
        "// Typed tools, made by caxton tool stubs.\nexport {};\n\n"
        'declare module "caxton" {\n  interface Tools {\n'
        f"{''.join((*members, *own))}  }}\n}}\n"
    )


def _member(name: str, tool: TypedTool, indent: str) -> str:
    parameters = parameters_of(tool.input_schema)
    kind = TYPESCRIPT.type(parameters)
    if parameters.more:
        rest = TYPESCRIPT.type(MapOf(ANY))
        kind = f"{kind} & {rest}" if parameters.fields else rest
    optional = "" if any(one.required for one in parameters.fields) else "?"
    taken = "" if parameters == Fields(()) else f"parameters{optional}: {kind}"
    result = TYPESCRIPT.type(result_of(tool.output_schema))
    lines = _paragraphs(tool.description)
    lines += [
        f"@param parameters.{clean(one.name, _PARAMETER)} {text}"
        for one in parameters.fields
        if (text := clean(one.description, _PARAMETER))
    ]
    said = "".join(f"{indent} * {line}".rstrip() + "\n" for line in lines)
    said = said.replace("*/", "* /")
    comment = f"{indent}/**\n{said}{indent} */\n"
    return (
        f"{comment if lines else ''}{indent}{key(name)}({taken}): Promise<{result}>;\n"
    )
