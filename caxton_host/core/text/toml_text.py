"""Values formatted as TOML, each on one line whatever it contains."""

from __future__ import annotations

import json
import re
from typing import Any, cast

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def key_text(name: str) -> str:
    """
    Format a key.

    >>> key_text("a-b"), key_text("a.b")
    ('a-b', '"a.b"')
    """
    return name if _BARE.fullmatch(name) else quoted(name)


def quoted(text: str) -> str:
    r"""
    Format a text as a quoted string that is safe to print on a terminal.

    >>> quoted("höhe \x9b31m")
    '"höhe \\U0000009b31m"'
    """
    # A basic string of TOML is one of JSON, except for DEL and surrogates.
    return "".join(map(_shown, json.dumps(text, ensure_ascii=False)))


def _shown(character: str) -> str:
    return character if character.isprintable() else f"\\U{ord(character):08x}"


def value_text(value: object) -> str:
    """
    Format a value on one line.

    >>> value_text({"env": {"A": "1"}, "args": ["-m", "x"], "n": 3, "on": True})
    '{ env = { A = "1" }, args = ["-m", "x"], n = 3, on = true }'
    """
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        inner = ", ".join(f"{key_text(k)} = {value_text(v)}" for k, v in pairs)
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(value_text, cast('list[object]', value)))}]"
    if isinstance(value, str):
        return quoted(value)
    return json.dumps(value)


def comment(text: str) -> str:
    """Format any text as a comment."""
    return "# " + "".join(map(_shown, text))
