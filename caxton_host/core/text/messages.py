"""How the short text of an answer is picked out of its data."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from ..calls import JSON

#: Characters. A template that repeats a long value must not multiply it.
MAX_MESSAGE = 64 * 1024

_NOTHING = "MCP tool returned no result."
_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")


def pick_message(value: JSON, field: str | None, template: str | None) -> str | None:
    """
    Return the text that *field* or *template* picks out of *value*.

    >>> data = {"customer": {"name": "Ada"}, "orders": [{"id": 7}]}
    >>> pick_message(data, "customer.name", None)
    'Ada'
    >>> pick_message(data, None, "{customer.name} ordered {orders.0.id}{nothing}")
    'Ada ordered 7'

    Args:
        value: The data of the answer.

        field: A dotted path; list items by their index.

        template: A text with ``{dotted.path}`` placeholders. What is not there
            is left empty. Wins over *field*.

    Returns:
        ``None`` if neither is given, or there is nothing at *field*.
    """
    if template is not None:
        text = _PLACEHOLDER.sub(lambda found: _text(_at(value, found[1])), template)
        return text[:MAX_MESSAGE]
    if field is None or (picked := _at(value, field)) is None:
        return None
    return _text(picked)[:MAX_MESSAGE]


def summary(tool: str, data: Mapping[str, JSON]) -> str:
    """
    Return what is said of an answer that has no text.

    >>> summary("lookup", {"content": [], "structuredContent": {"name": "Ada"}})
    'lookup returned 1 field'
    """
    structured, parts = data.get("structuredContent"), data.get("content")
    if isinstance(structured, dict):
        return f"{tool} returned {_counted(len(structured), 'field')}"
    if isinstance(parts, list) and parts:
        return f"{tool} returned {_counted(len(parts), 'part')}"
    return _NOTHING


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _at(value: JSON, path: str) -> JSON:
    for step in path.split("."):
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, list) and step.isascii() and step.isdigit():
            value = value[int(step)] if int(step) < len(value) else None
        else:
            return None
    return value


def _text(value: JSON) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
