"""Calls of tools: requests, replies and errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from ._bridge import decode, encode, host

__all__ = [
    "JSON",
    "AgentError",
    "BadRequest",
    "Denied",
    "Failed",
    "Reply",
    "Tool",
    "ToolError",
    "list_tools",
    "mcp_call",
    "mcp_call_many",
    "read_reply",
]

#: Any JSON value. A type checker cannot know the type of a tool's answer.
JSON: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Reply:
    """
    The answer of a tool.

    Attributes:
        message: A short text for people: the text parts of the answer, one per line,
            or the part that the operator's configuration selects.

        data: Every content block of the answer under ``content``, and
            ``structuredContent`` if there is one.
    """

    message: str
    data: JSON = None

    @property
    def status(self) -> str:
        """Always ``ok``; any other outcome is an `AgentError`."""
        return "ok"

    @property
    def content(self) -> list[dict[str, JSON]]:
        """The MCP content blocks of the answer."""
        return _content(self.data)

    @property
    def structured(self) -> JSON:
        """The structured content, or None if the tool sent none."""
        return self.data.get("structuredContent") if self.data else None


class AgentError(Exception):
    """
    A call without a usable answer. Catch this class, or one of its four subclasses.

    Attributes:
        status: ``denied``, ``tool_error``, ``failed`` or ``bad_request``.

        code: The specific reason, such as ``not_granted``, ``budget`` or ``timeout``.

        message: A short text for people.

        data: The answer of the tool, for `ToolError` only.
    """

    status = "failed"

    def __init__(self, code: str, message: str, data: JSON = None) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.data = data

    def __str__(self) -> str:
        return f"{self.message} ({self.code})"

    @property
    def content(self) -> list[dict[str, JSON]]:
        """The content blocks of the answer, if there was one."""
        return _content(self.data)


class Denied(AgentError):  # noqa: N818 -- the word of the reply
    """The call was not sent: no rule allows it, one denies it, or a budget is spent."""

    status = "denied"


class ToolError(AgentError):
    """The tool answered with an error."""

    status = "tool_error"


class Failed(AgentError):  # noqa: N818 -- the word of the reply
    """The call has no answer. It may have had an effect."""

    status = "failed"


class BadRequest(AgentError):  # noqa: N818 -- the word of the reply
    """The call is invalid: its name or its parameters break the rules."""

    status = "bad_request"


_ERRORS: Mapping[str, type[AgentError]] = {
    kind.status: kind for kind in (Denied, ToolError, Failed, BadRequest)
}


@dataclass(frozen=True, slots=True)
class Tool:
    """
    A granted tool.

    Attributes:
        name: Its name for `mcp_call`.

        description: The description from its server; may be empty.

        input_schema: A JSON schema of its parameters.
    """

    name: str
    description: str
    input_schema: dict[str, JSON]


def mcp_call(name: str, params: Mapping[str, JSON] | None = None) -> Reply:
    """
    Call a tool and return its answer.

    Args:
        name: As in `caxton_agent.tools`, for example ``mcp__time__get_current_time``.

        params: Its parameters by name; empty by default.

    Raises:
        Denied: The call was not sent.

        ToolError: The tool answered with an error.

        Failed: The call has no answer.

        BadRequest: The name or the parameters break the rules.

        TypeError: The parameters hold a value that JSON does not have.
    """
    reply = host().mcp_call(name, encode(_params(params), f"params of {name}"))
    answer = read_reply(decode(reply))
    if isinstance(answer, AgentError):
        raise answer
    return answer


def mcp_call_many(
    batch: Iterable[tuple[str, Mapping[str, JSON] | None]],
) -> list[Reply | AgentError]:
    """
    Call up to 64 tools at once, and return their outcomes in the same order.

    The host decides the calls in order and sends the allowed ones together. A failed
    call does not affect the others: its outcome is the error that `mcp_call` would
    raise.

    Args:
        batch: A name and parameters for each call, as for `mcp_call`.

    Raises:
        BadRequest: The batch has more than 64 calls or more than 1 MiB.

        TypeError: The parameters hold a value that JSON does not have.
    """
    calls = [[name, _params(params)] for name, params in batch]
    replies = decode(host().mcp_call_many(encode(calls, "a batch")))
    if isinstance(replies, list):
        return [read_reply(reply) for reply in replies]
    answer = read_reply(replies)
    raise answer if isinstance(answer, AgentError) else AssertionError(answer)


def list_tools() -> list[Tool]:
    """Return the granted tools."""
    return [
        Tool(tool["name"], tool["description"] or "", tool["input_schema"])
        for tool in decode(host().tools())
    ]


def read_reply(reply: dict[str, JSON]) -> Reply | AgentError:
    """Return the outcome in the host's reply to one call."""
    if reply["status"] == "ok":
        return Reply(reply["message"], reply["data"])
    error = reply["error"]
    kind = _ERRORS.get(reply["status"], AgentError)
    return kind(error["code"], reply["message"], reply["data"])


def _params(params: Mapping[str, JSON] | None) -> dict[str, JSON]:
    return dict(params or {})


def _content(data: JSON) -> list[dict[str, JSON]]:
    return list(data.get("content") or []) if data else []
