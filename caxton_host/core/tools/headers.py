"""The typed header: the tools of a grant, as a model is shown them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from .shapes import Fields, parameters_of, result_of
from .typed import (
    PYTHON,
    TYPESCRIPT,
    TypedTool,
    arguments,
    clean,
    default_of,
    javascript_name,
    places,
    python_name,
)

Language: TypeAlias = Literal["python", "javascript"]

#: Most characters of a description; the first that fit are used.
_DESCRIPTIONS = (200, 60, 0)
#: Levels of objects in a signature; the first that fit are used.
_LEVELS = (3, 1, 0)
_SIGNATURE = 400
_HINT = 'tools.search("words") finds tools by name and description'
_MORE = "{}; tools not listed: {:,}"


def header(tools: Sequence[TypedTool], language: Language, limit: int) -> str:
    """
    Return signatures of *tools*, a line each, of at most *limit* characters.

    Descriptions are cut first, then left out. If that does not do, the lines have only
    names, and the last one says how many others there are.

    >>> tool = TypedTool(exposed="mcp__time__get_time", description="Get the time.")
    >>> print(header([tool], "python", 100))
    tools.time.get_time(**more: Any)  # Get the time.

    Args:
        tools: In the order of their lines.

        language: Of the signatures.

        limit: At least 100.
    """
    names = [*_calls(tools, language)]
    signatures = [
        name + _signature(tool, language)
        for name, tool in zip(names, tools, strict=True)
    ]
    sign = "#" if language == "python" else "//"
    for most in _DESCRIPTIONS:
        said = [clean(tool.description, most) if most else "" for tool in tools]
        text = "\n".join(
            f"{signature}  {sign} {about}" if about else signature
            for signature, about in zip(signatures, said, strict=True)
        )
        if len(text) <= limit:
            return text
    return _names(names, limit)


def _names(names: Sequence[str], limit: int) -> str:
    hint = _HINT
    left = limit - len(_MORE.format(hint, len(names))) - 1
    shown: list[str] = []
    for name in names:
        left -= len(name) + 1
        if left < 0:
            hint = _MORE.format(hint, len(names) - len(shown))
            break
        shown.append(name)
    return "\n".join([*shown, hint])


def _calls(tools: Sequence[TypedTool], language: Language) -> Iterator[str]:
    """Yield the expression for each tool."""
    exposed = [tool.exposed for tool in tools]
    if language == "python":
        found = places(exposed, python_name)
    else:
        found = places(exposed, javascript_name, {"search"})
    for tool in tools:
        place = found[tool.exposed]
        yield (
            ".".join(("tools", *place))
            if place
            else f"tools[{json.dumps(tool.exposed)}]"
        )


def _signature(tool: TypedTool, language: Language) -> str:
    """Return the parameters of a tool and its result."""
    write = _python if language == "python" else _javascript
    return next(
        (text for levels in _LEVELS if len(text := write(tool, levels)) <= _SIGNATURE),
        "(...)",
    )


def _python(tool: TypedTool, levels: int) -> str:
    types = replace(PYTHON, levels=levels)
    parameters = parameters_of(tool.input_schema)
    named, others = arguments(parameters.fields)
    words = [
        f"{name}: {types.type(one.shape)}{default_of(one)}"
        for name, one in named.items()
    ]
    if others:
        words.append(f"**{types.type(Fields(tuple(others)))}")
    if parameters.more:
        words.append("**more: Any")
    result = types.type(result_of(tool.output_schema))
    return f"({', '.join(words)})" + (f" -> {result}" if result != "Any" else "")


def _javascript(tool: TypedTool, levels: int) -> str:
    types = replace(TYPESCRIPT, levels=levels + 1)
    parameters = parameters_of(tool.input_schema)
    words = [types.type(parameters)] if parameters.fields else []
    if parameters.more:
        words.append("...more")
    result = types.type(result_of(tool.output_schema))
    return f"({', '.join(words)})" + (f": {result}" if result != "any" else "")
