"""What a tool answered, as the log and the agent are to see it. Pure."""

from __future__ import annotations

import json
import re

from ..codec import load_json
from ..core.calls import JSON, Completed
from ..core.redact import Redactor
from ..core.servers import ToolOptions
from ..errors import BadBytes, ToolError

__all__ = ["completed"]

#: Not the tool's: they belong to the protocol, or have a place of their own.
_ENVELOPE = frozenset({"isError", "resultType", "_meta"})

_PLACEHOLDER = re.compile(r"\{([A-Za-z0-9_.-]+)\}")


def completed(
    result: dict[str, JSON],
    options: ToolOptions,
    redact: Redactor,
    *,
    size: int = 0,
    duration_us: int = 0,
) -> Completed:
    """
    Return a ``CallToolResult``, as it came, in the form that is recorded.

    >>> raw = {"content": [{"type": "text", "text": "clear"}]}
    >>> completed(raw, ToolOptions(), Redactor()).message
    'clear'

    Raises:
        ToolError: It has no usable shape (``invalid_result``).
    """
    kind = result.get("resultType", "complete")
    if kind != "complete":
        raise _invalid("the tool asks for more input, and an agent has none to give")
    is_error = result.get("isError")
    if not isinstance(is_error, bool | None):
        raise _invalid("isError is neither true nor false")
    data: dict[str, JSON] = {"content": _content(result)}
    for key, value in result.items():
        if key not in _ENVELOPE:
            data.setdefault(key, value)
    data = redact.value(data)
    return Completed(
        is_error=bool(is_error),
        message=redact.text(_message(data, options)),
        data=data,
        duration_us=duration_us,
        bytes=size,
    )


def _content(result: dict[str, JSON]) -> list[JSON]:
    content = result.get("content")
    if content is None and isinstance(result.get("structuredContent"), dict):
        return []
    if not isinstance(content, list):
        raise _invalid("the answer has no list of content")
    for block in content:
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise _invalid("a part of the content has no type")
    return content


def _message(data: dict[str, JSON], options: ToolOptions) -> str:
    text = _text(data["content"])
    if options.message_template is None and options.message_field is None:
        return text
    source = data.get("structuredContent")
    if source is None:
        try:
            source = load_json(text, limit=len(text))
        except BadBytes:
            return text
    if options.message_template is not None:
        return _PLACEHOLDER.sub(
            lambda found: _at(source, found[1], found[0]),
            options.message_template,
        )
    return _at(source, options.message_field or "", text)


def _text(content: JSON) -> str:
    blocks = content if isinstance(content, list) else []
    texts = [
        block.get("text")
        for block in blocks
        if isinstance(block, dict) and block["type"] == "text"
    ]
    return "\n".join(text for text in texts if isinstance(text, str))


def _at(value: JSON, path: str, otherwise: str) -> str:
    """Return what a dotted path leads to. Numbers count the items of a list."""
    for step in path.split("."):
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return otherwise
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _invalid(why: str) -> ToolError:
    return ToolError("invalid_result", "yes", why)
