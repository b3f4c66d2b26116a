"""The result of a tool, in the form that the log and the agent get. Pure."""

from __future__ import annotations

from collections.abc import Callable

from ..core.calls import JSON, Completed
from ..core.log.events import ToolInvoked
from ..core.text.redact import Redactor
from ..core.text.templates import pick_message, summary
from ..core.tools.servers import ToolOptions
from ..errors import BadBytes, ToolError
from ..lib.codec import load_json

#: Keys that are not data of the tool: they belong to the protocol.
_ENVELOPE = frozenset({"isError", "resultType", "_meta"})


def answered(
    result: dict[str, JSON],
    call: ToolInvoked | None,
    options: Callable[[str, str], ToolOptions],
    redact: Redactor,
    *,
    size: int,
) -> Completed:
    """
    Return a result that a person gives for a *call*; see `completed`.

    Args:
        result: A ``CallToolResult``.

        call: The call, if it is known.

        options: Returns the configured options of a tool of a server.

        redact: Removes secrets from it.

        size: Of the result, in bytes.

    Raises:
        ToolError: It is not a valid result, or says nothing.
    """
    server, tool = (call and call.server) or "", (call and call.tool) or "the tool"
    found = completed(result, tool, options(server, tool), redact, size=size)
    # Of a tool this is an empty answer. A person meant to say something.
    if result.get("content") is None and result.get("structuredContent") is None:
        raise _invalid("the answer has neither content nor structuredContent")
    return found


def completed(  # noqa: PLR0913 -- what came, and how it is to be told
    result: dict[str, JSON],
    tool: str,
    options: ToolOptions,
    redact: Redactor,
    *,
    size: int = 0,
    duration_us: int = 0,
) -> Completed:
    """
    Return a ``CallToolResult`` in the form that is recorded.

    >>> raw = {"content": [{"type": "text", "text": "clear"}]}
    >>> completed(raw, "look", ToolOptions(), Redactor()).message
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

    def told(data: dict[str, JSON]) -> str:
        return redact.text(_message(data, tool, options))

    return Completed(
        is_error=bool(is_error),
        message=told(data),
        data=None if data == {"content": []} else data,
        duration_us=duration_us,
        bytes=size,
        told=told,
    )


def _content(result: dict[str, JSON]) -> list[JSON]:
    content = result.get("content")
    if content is None and isinstance(result.get("structuredContent", {}), dict | None):
        return []
    if not isinstance(content, list):
        raise _invalid("the answer has no list of content")
    for block in content:
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise _invalid("a part of the content has no type")
    return content


def _message(data: dict[str, JSON], tool: str, options: ToolOptions) -> str:
    text, structured = _text(data.get("content")), data.get("structuredContent")
    field, template = options.message_field, options.message_template
    if field is not None or template is not None:
        source = structured if structured is not None else _parsed(text)
        if (
            source is not None
            and (picked := pick_message(source, field, template)) is not None
        ):
            return picked
        if options.reply == "message":
            # The text may be all of the data, which the agent must not get.
            return summary(tool, data)
    if text:
        return text
    return summary(tool, data)


def _parsed(text: str) -> JSON:
    try:
        return load_json(text, limit=len(text.encode()))
    except BadBytes:
        return None


def _text(content: JSON) -> str:
    blocks = content if isinstance(content, list) else []
    texts = [
        block.get("text")
        for block in blocks
        if isinstance(block, dict) and block["type"] == "text"
    ]
    return "\n".join(text for text in texts if isinstance(text, str))


def _invalid(why: str) -> ToolError:
    return ToolError("invalid_result", "yes", why)
