"""What a tool can be said to answer in a test."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

from ..core.calls import JSON, Completed
from ..core.text.redact import Redactor
from ..core.tools.servers import ToolOptions
from ..errors import BadBytes, FailureKind, Sent, ToolError, UsageError
from ..gateway import results
from ..lib import codec

_RESULT = frozenset({"content", "structuredContent", "isError"})


class _Denial(Enum):
    DENIED = "DENIED"


#: Instead of an answer: the tool is there, and not granted.
DENIED: Final = _Denial.DENIED

#: A text; a dictionary that is an MCP ``CallToolResult``; any other JSON value but a
#: list, as structured content; a `ToolError`; `DENIED`; a function of the parameters
#: that returns or raises one of these; or a list of them, one for each call in order.
Answer: TypeAlias = object


@dataclass(frozen=True, slots=True)
class Tool:
    """
    An answer, and what the agent's ``tools()`` says about the tool.

    Attributes:
        answer: See `Answer`.

        description: As a server would give it.

        input_schema: JSON Schema of the parameters. Nobody checks them here.
    """

    answer: Answer
    description: str = ""
    input_schema: Mapping[str, object] = field(
        default_factory=lambda: {"type": "object"}
    )


def tool_error(text: str) -> dict[str, JSON]:
    """
    Return the answer of a tool that says that it failed.

    >>> tool_error("no such city")["isError"]
    True
    """
    return {"content": [{"type": "text", "text": text}], "isError": True}


def failure(
    kind: FailureKind = "transport",
    *,
    sent: Sent = "unknown",
    message: str = "the connection was lost",
) -> ToolError:
    """
    Return what stands for no answer at all: the server is down, slow or broken.

    Args:
        kind: ``timeout``, ``transport``, ``protocol``, ``too_large``,
            ``invalid_result`` or ``changed``.

        sent: Whether the server may have acted: ``no``, ``yes`` or ``unknown``.

        message: What the agent reads.
    """
    return ToolError(kind, sent, message)


def completed(name: str, answer: Answer) -> Completed:
    """
    Return an answer in the form that is recorded, as if a server had given it.

    Args:
        name: Of the tool, for messages.

        answer: No list and no function.

    Raises:
        ToolError: That is the answer.

        UsageError: It is no answer.
    """
    if isinstance(answer, ToolError):
        raise answer
    result = _result(as_json(name, answer))
    try:
        size = len(codec.encode(result))
        return results.completed(result, name, ToolOptions(), Redactor(), size=size)
    except ToolError as exc:
        raise UsageError(
            f"the answer of {name} is no CallToolResult: {exc}",
            fix="give a text, or what an MCP server would answer",
        ) from None


def _result(value: JSON) -> dict[str, JSON]:
    if isinstance(value, dict) and value.keys() & _RESULT:
        return {"content": [], **value}
    if value is None:
        return {"content": []}
    if isinstance(value, str):
        return {"content": [{"type": "text", "text": value}]}
    text = json.dumps(value, ensure_ascii=False)
    return {
        "content": [{"type": "text", "text": text}],
        # A server may only answer with an object; SDKs wrap the rest like that.
        "structuredContent": value if isinstance(value, dict) else {"result": value},
    }


def as_json(name: str, value: object) -> JSON:
    """
    Return a value as the log can hold it.

    Raises:
        UsageError: It cannot.
    """
    try:
        data = codec.encode(value)
        return codec.decode(data, limit=len(data), nodes=codec.RESULT_NODES)
    except BadBytes as exc:
        shown = type(value).__name__
        raise UsageError(
            f"the script of {name} is not JSON but {shown}: {exc}",
            fix="use texts, numbers, True, False, None, lists and dictionaries",
        ) from None
