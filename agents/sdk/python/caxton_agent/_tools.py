"""
The granted tools as functions that are made from their schemas.

An exposed name ``mcp__SERVER__TOOL`` is ``tools.SERVER.TOOL``; any other is
``tools.NAME``. Names become identifiers: other characters become ``_``.
"""

from __future__ import annotations

import difflib
import inspect
import keyword
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Generic, NoReturn, TypeAlias, TypeVar

from ._bridge import Host, host
from ._calls import JSON, Reply, Tool, list_tools, mcp_call

__all__ = ["AsyncTools", "Function", "Server", "Tools"]

R = TypeVar("R")
Call: TypeAlias = Callable[[str, Mapping[str, JSON]], R]

_OTHER = re.compile(r"\W", re.ASCII)
_WORD = re.compile(r"[a-z0-9]+")
_FOUND = 10
_TYPES: Mapping[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": None,
}


def _identifier(name: str) -> str:
    text = _OTHER.sub("_", name)
    if text[:1].isdigit() or not text:
        text = f"_{text}"
    return f"{text}_" if keyword.iskeyword(text) else text


def _meant(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, [*known], n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _annotation(schema: JSON) -> Any:  # noqa: ANN401 -- a type, or a union of some
    """Return the Python type of a value that *schema* describes."""
    if not isinstance(schema, dict):
        return Any
    kinds: Any = schema.get("type")
    if kinds is None and isinstance(schema.get("anyOf"), list):
        kinds = [part.get("type") for part in schema["anyOf"] if isinstance(part, dict)]
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if not kinds or not all(isinstance(kind, str) and kind in _TYPES for kind in kinds):
        return Any
    result = _TYPES[kinds[0]]
    for kind in kinds[1:]:
        result = _TYPES[kind] if result is None else result | _TYPES[kind]
    return result


class Function(Generic[R]):
    """
    A tool as a function with keyword arguments.

    Attributes:
        tool: Its exposed name, description and schema.
    """

    def __init__(self, path: str, tool: Tool, call: Call[R]) -> None:
        self.tool = tool
        self.__name__ = self.__qualname__ = path
        self._call = call
        schema = tool.input_schema
        properties = schema.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        required = schema.get("required")
        self._required = [*required] if isinstance(required, list) else []
        self._open = "properties" not in schema or any(
            schema.get(key) for key in ("additionalProperties", "patternProperties")
        )
        self._keys: dict[str, str] = {}
        for key in properties:  # Of two with one identifier, the first has it.
            self._keys.setdefault(_identifier(key), key)
        self._properties = properties
        self.__signature__ = _signature(self._keys, properties, self._required)
        self.__doc__ = _doc(tool, self._keys, properties)

    def __call__(self, *args: object, **kwargs: JSON) -> R:
        """Call the tool with its arguments by name."""
        if args:
            names = ", ".join(self._keys) or "none"
            self._wrong(f"takes its arguments by name only: {names}")
        params: dict[str, JSON] = {}
        for name, value in kwargs.items():
            key = self._keys.get(name, name)
            if key not in self._properties and not self._open:
                self._wrong(f"has no argument {name!r}{_meant(name, self._keys)}")
            params[key] = value
        for key in self._required:
            if key not in params:
                self._wrong(f"needs the argument {_identifier(key)!r}")
        return self._call(self.tool.name, params)

    def _wrong(self, what: str) -> NoReturn:
        raise TypeError(f"{self.__name__}() {what}")

    def __repr__(self) -> str:
        return f"<tool {self.__name__}{self.__signature__}>"


def _signature(
    keys: Mapping[str, str], properties: Mapping[str, JSON], required: list[str]
) -> inspect.Signature:
    def parameter(name: str, key: str) -> inspect.Parameter:
        schema = properties[key] if isinstance(properties[key], dict) else {}
        default = schema.get("default", ...)
        return inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if key in required else default,
            annotation=_annotation(schema),
        )

    parameters = [parameter(name, key) for name, key in keys.items()]
    # Required ones first, as people expect to read them.
    parameters.sort(key=lambda one: one.default is not inspect.Parameter.empty)
    return inspect.Signature(parameters)


def _doc(tool: Tool, keys: Mapping[str, str], properties: Mapping[str, JSON]) -> str:
    lines = [
        f"    {name}: {schema['description']}"
        for name, key in keys.items()
        if isinstance(schema := properties[key], dict) and schema.get("description")
    ]
    parts = [tool.description.strip(), "\n".join(["Args:", *lines]) if lines else ""]
    return "\n\n".join(part for part in parts if part)


class Server(Generic[R]):
    """The granted tools of one server, as attributes."""

    def __init__(self, name: str, functions: dict[str, Function[R]]) -> None:
        self._name = name
        self._functions = functions

    def __getattr__(self, name: str) -> Function[R]:
        if name.startswith("__"):
            raise AttributeError(name)
        if found := self._functions.get(name):
            return found
        known = ", ".join(sorted(self._functions))
        raise AttributeError(
            f"{self._name} has no granted tool {name!r}"
            f"{_meant(name, self._functions)} (granted: {known})",
            name=name,  # Otherwise a traceback adds a second suggestion.
        )

    def __dir__(self) -> list[str]:
        return sorted(self._functions)

    def __repr__(self) -> str:
        return f"<tools of {self._name}: {', '.join(dir(self))}>"


class _Catalogue(Generic[R]):
    """
    The granted tools.

    Attributes:
        of: The host that granted them.

        names: What attributes of `Tools` may be.

        exact: Each function by the exposed name of its tool.
    """

    def __init__(self, of: Host, call: Call[R]) -> None:
        self.of = of
        self.exact: dict[str, Function[R]] = {}
        self.names: dict[str, Function[R] | Server[R]] = {}
        paths: dict[tuple[str, ...], list[Tool]] = {}
        for tool in list_tools():
            paths.setdefault(_path(tool.name), []).append(tool)
        servers: dict[str, dict[str, Function[R]]] = {}
        for path, found in paths.items():
            for tool in found:
                shown = f"tools.{'.'.join(path)}"
                shown = shown if len(found) == 1 else f"tools[{tool.name!r}]"
                self.exact[tool.name] = Function(shown, tool, call)
            if len(found) > 1:
                continue  # Neither is meant: each has its exact name only.
            function = self.exact[found[0].name]
            if len(path) == 1:
                self.names[path[0]] = function
            else:
                servers.setdefault(path[0], {})[path[1]] = function
        for name, functions in servers.items():
            self.names.setdefault(name, Server(f"tools.{name}", functions))


def _path(name: str) -> tuple[str, ...]:
    match name.split("__", 2):
        case ["mcp", server, tool] if server and tool:
            return _identifier(server), _identifier(tool)
        case _:
            return (_identifier(name),)


class _Tools(Generic[R]):
    """The granted tools: attributes are their servers, or tools with names."""

    def __init__(self, call: Callable[[str, Mapping[str, JSON]], Any]) -> None:
        self._call = call
        self._last: _Catalogue[R] | None = None

    def __call__(self) -> list[Tool]:
        """Return the granted tools."""
        return list_tools()

    def __getitem__(self, name: str) -> Function[R]:
        """Return the tool with that exposed name."""
        exact = self._catalogue().exact
        if name in exact:
            return exact[name]
        raise KeyError(f"no granted tool has the name {name!r}{_meant(name, exact)}")

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 -- a server, or a tool of any signature
        if name.startswith("__"):
            raise AttributeError(name)
        names = self._catalogue().names
        if name in names:
            return names[name]
        if name == "search":
            return self._search
        known = ", ".join(sorted(names)) or "none"
        raise AttributeError(
            f"no granted server or tool has the name {name!r}"
            f"{_meant(name, names)} (granted: {known})",
            name=name,
        )

    def __dir__(self) -> list[str]:
        return sorted({*self._catalogue().names, "search"})

    def _search(self, text: str, limit: int = _FOUND) -> list[Function[R]]:
        """
        Return the tools whose names or descriptions have the words of *text*.

        Args:
            text: Words, in any order. Those that match most words come first.

            limit: At most so many.
        """
        words = _WORD.findall(text.lower())

        def score(function: Function[R]) -> int:
            name = function.tool.name.lower()
            rest = f"{function.tool.description} {function.__signature__}".lower()
            return sum(3 * (word in name) + (word in rest) for word in words)

        found = [(score(one), one) for one in self._catalogue().exact.values()]
        best = sorted((pair for pair in found if pair[0]), key=lambda pair: -pair[0])
        return [function for _, function in best[:limit]]

    def _catalogue(self) -> _Catalogue[R]:
        if self._last is None or self._last.of is not host():
            self._last = _Catalogue(host(), self._call)
        return self._last


def _value(reply: Reply) -> JSON:
    value = reply.structured
    if value is None:
        return reply.message
    if isinstance(value, dict) and value.keys() == {"result"}:
        return value["result"]
    return value


class Tools(_Tools[JSON]):
    """The granted tools; a call returns the structured content, or else the text."""

    def __init__(self) -> None:
        super().__init__(lambda name, params: _value(mcp_call(name, params)))


class AsyncTools(_Tools[Awaitable[JSON]]):
    """The same as coroutines."""

    def __init__(
        self, call: Callable[[str, Mapping[str, JSON]], Awaitable[Reply]]
    ) -> None:
        async def called(name: str, params: Mapping[str, JSON]) -> JSON:
            return _value(await call(name, params))

        super().__init__(called)
