"""Calls of tools: what goes out, what comes back, and what can go wrong."""

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
    "mcp_call",
    "mcp_call_many",
    "read_reply",
    "tools",
]

#: Any value that JSON can say. What a tool answered is not known to a type checker.
JSON: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Reply:
    """
    What a tool answered.

    Attributes:
        message: A short text for people: the text parts of the answer, one a line, or
            what the operator's configuration picks out of it.

        data: Every content block of the answer under ``content``, and
            ``structuredContent`` if there is one.
    """

    message: str
    data: JSON = None

    @property
    def status(self) -> str:
        """Always ``ok``: an answer that is not is an `AgentError`."""
        return "ok"

    @property
    def content(self) -> list[dict[str, JSON]]:
        """The content blocks of the answer, as MCP has them."""
        return _content(self.data)

    @property
    def structured(self) -> JSON:
        """The structured content, or None if the tool sent none."""
        return self.data.get("structuredContent") if self.data else None


class AgentError(Exception):
    """
    A call without an answer that could be used. Catch this, or one of the four kinds.

    Attributes:
        status: ``denied``, ``tool_error``, ``failed`` or ``bad_request``.

        code: More exactly why, such as ``not_granted``, ``budget`` or ``timeout``.

        message: A short text for people.

        data: What the tool answered, if it did: `ToolError` only.
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
    """Nothing was sent: no rule allows it, one forbids it, or its budget is spent."""

    status = "denied"


class ToolError(AgentError):
    """The tool answered that it failed."""

    status = "tool_error"


class Failed(AgentError):  # noqa: N818 -- the word of the reply
    """There is no answer. The call may have had an effect."""

    status = "failed"


class BadRequest(AgentError):  # noqa: N818 -- the word of the reply
    """What was passed is no call: the name or the parameters break the rules."""

    status = "bad_request"


_ERRORS: Mapping[str, type[AgentError]] = {
    kind.status: kind for kind in (Denied, ToolError, Failed, BadRequest)
}


@dataclass(frozen=True, slots=True)
class Tool:
    """
    A tool that is granted.

    Attributes:
        name: What `mcp_call` takes.

        description: What its server says of it; may be empty.

        input_schema: A JSON schema of its parameters.
    """

    name: str
    description: str
    input_schema: dict[str, JSON]


def mcp_call(name: str, params: Mapping[str, JSON] | None = None) -> Reply:
    """
    Call a tool, and return its answer.

    Args:
        name: As `tools` has it, for example ``mcp__time__get_current_time``.

        params: Its parameters by name; none by default.

    Raises:
        Denied: Nothing was sent.

        ToolError: The tool answered that it failed.

        Failed: There is no answer.

        BadRequest: The name or the parameters break the rules.

        TypeError: The parameters hold something that JSON cannot say.
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
    Call up to 64 tools at once, and return what became of each, in the same order.

    The calls are decided in order, and those that are allowed are sent together. One
    that goes wrong spoils only itself: in its place is the error that `mcp_call`
    would have raised.

    Args:
        batch: A name and parameters for each call, as for `mcp_call`.

    Raises:
        BadRequest: It is no batch: more than 64 calls or more than 1 MiB.

        TypeError: The parameters hold something that JSON cannot say.
    """
    calls = [[name, _params(params)] for name, params in batch]
    replies = decode(host().mcp_call_many(encode(calls, "a batch")))
    if isinstance(replies, list):
        return [read_reply(reply) for reply in replies]
    answer = read_reply(replies)
    raise answer if isinstance(answer, AgentError) else AssertionError(answer)


def tools() -> list[Tool]:
    """Return the tools that are granted."""
    return [
        Tool(tool["name"], tool["description"] or "", tool["input_schema"])
        for tool in decode(host().tools())
    ]


def read_reply(reply: dict[str, JSON]) -> Reply | AgentError:
    """Return what the host's reply to one call says."""
    if reply["status"] == "ok":
        return Reply(reply["message"], reply["data"])
    error = reply["error"]
    kind = _ERRORS.get(reply["status"], AgentError)
    return kind(error["code"], reply["message"], reply["data"])


def _params(params: Mapping[str, JSON] | None) -> dict[str, JSON]:
    return dict(params or {})


def _content(data: JSON) -> list[dict[str, JSON]]:
    return list(data.get("content") or []) if data else []
