"""Two tools in place of many: a client searches, and calls one by its name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...core.calls import JSON
from ...core.tools.search import best
from ...lib.json_schema import input_check

SEARCH, CALL = "search_tools", "call_tool"
_MOST, _USUAL, _LONGEST = 50, 10, 500

_SEARCHES: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "maxLength": _LONGEST},
        "limit": {"type": "integer", "minimum": 1, "maximum": _MOST},
    },
    "required": ["query"],
    "additionalProperties": False,
}
_CALLS: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}},
    "required": ["name"],
    "additionalProperties": False,
}


def tools(many: int) -> list[dict[str, JSON]]:
    """Return the definitions of the two tools, for a client that may call *many*."""
    return [
        {
            "name": SEARCH,
            "description": f"Search the {many} tools that may be called here, by words "
            "of their names and descriptions. Returns their definitions.",
            "inputSchema": _SEARCHES,
            "annotations": {"readOnlyHint": True},
        },
        {
            "name": CALL,
            "description": f"Call a tool that {SEARCH} has found, by its name.",
            "inputSchema": _CALLS,
        },
    ]


def wrong(name: str, arguments: dict[str, JSON]) -> str:
    """Return where arguments do not match the schema of one of the two, or ``""``."""
    return str(input_check(_SEARCHES if name == SEARCH else _CALLS)(arguments) or "")


def found(
    arguments: Mapping[str, Any], many: Sequence[dict[str, JSON]]
) -> dict[str, JSON]:
    """Return the result of a search, as MCP has it."""
    likely = best(arguments["query"], many, arguments.get("limit", _USUAL))
    said: dict[str, JSON] = {"tools": [{**tool} for tool in likely], "of": len(many)}
    text = json.dumps(said, ensure_ascii=False)
    return {"content": [{"type": "text", "text": text}], "structuredContent": said}
