"""The structure of a configuration file without what stands in it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache

from ..core.calls import JSON
from .sections import json_schema

_TEXT = "<text>"
_HIDDEN = "<removed>"
#: Under these keys even a number may be a secret, or a person's.
_PRIVATE = frozenset({"args", "context", "env", "headers", "params", "resource_vars"})
#: What these hold are names that the log has too.
_NAMES = frozenset({"agents", "tools"})
_SHOWN = re.compile(
    # A reference to a secret, a duration, a size, a rate.
    r"\$\{env:[A-Za-z_][A-Za-z0-9_]*\}|\d{1,6}(\.\d{1,3})?(ms|[smhd]|[kKMG]?i?B)"
    r"|\d{1,9}/(s|sec|min|hour|day|run)"
)


def outline(value: JSON, key: str = "", *, private: bool = False) -> JSON:
    """
    Return a parsed ``caxton.toml`` without texts that may be secret.

    Keys, numbers and the words of the schema stay, and so do references to variables,
    durations and sizes.

    >>> outline({"env": {"PIN": 1}, "timeout": "5s", "url": "https://me:x@y"})
    {'env': {'PIN': '<removed>'}, 'timeout': '5s', 'url': '<text>'}
    """
    private = private or key in _PRIVATE
    if isinstance(value, Mapping):
        return {k: outline(v, k, private=private) for k, v in value.items()}
    if isinstance(value, list):
        return [outline(one, key, private=private) for one in value]
    if isinstance(value, str):
        if _SHOWN.fullmatch(value):
            return value
        if private:
            return _HIDDEN
        return value if key in _NAMES or value in _words() else _TEXT
    return _HIDDEN if private else value


@cache
def _words() -> frozenset[str]:
    return frozenset(_enumerated(json_schema()))


def _enumerated(schema: JSON) -> Iterator[str]:
    if isinstance(schema, Mapping):
        listed = schema.get("enum")
        for word in listed if isinstance(listed, list) else [schema.get("const")]:
            if isinstance(word, str):
                yield word
        schema = [*schema.values()]
    if isinstance(schema, list):
        for one in schema:
            yield from _enumerated(one)
