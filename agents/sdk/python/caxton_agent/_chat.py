"""
Chats with a language model that is a tool.

The tool takes what OpenAI's chat completions take (``messages``, ``tools``, ``model``
and so on) and answers with a completion, or with its message alone. What a model says
is untrusted: everything is checked and bounded before it is used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from ._bridge import encode
from ._calls import (
    JSON,
    AgentError,
    BadRequest,
    Denied,
    Reply,
    Tool,
    ToolError,
    list_tools,
    mcp_call,
    mcp_call_many,
)
from ._run import context

__all__ = ["chat", "conversation", "converse"]

_CALLS = 64
_DEPTH = 64
_SHOWN = 80
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NAME = re.compile(r"[!-~]{1,128}")
_BRACKET = re.compile(r"[][{}]")


def chat(
    messages: Iterable[JSON],
    *,
    tools: Iterable[Tool | dict[str, JSON]] = (),
    via: str = "chat",
    **options: JSON,
) -> dict[str, JSON]:
    """
    Send a conversation to a language model, and return its message.

    The message has the role ``assistant``, ``content``, and ``tool_calls`` if the model
    requests calls. Append it to the messages before the next chat.

    Args:
        messages: The conversation so far: ``{"role": "user", "content": "..."}``.

        tools: Tools that the model may request: granted ones, or definitions of your
            own, ``{"type": "function", "function": {...}}``.

        via: The exposed name of the model.

        options: Further parameters, such as ``model`` or ``temperature``.

    Raises:
        ToolError: The model answered with an error, or (``bad_answer``) its answer is
            not a message.

        AgentError: As `mcp_call`.
    """
    params: dict[str, JSON] = {**options, "messages": list(messages)}
    if definitions := [_definition(tool) for tool in tools]:
        params["tools"] = definitions
    return _message(mcp_call(via, params), via)


def converse(
    messages: list[JSON],
    *,
    tools: Iterable[Tool] | None = None,
    via: str = "chat",
    rounds: int = 8,
    most: int = 16_000,
    **options: JSON,
) -> dict[str, JSON]:
    """
    Chat, make the calls that the model requests, and return its last message.

    The calls of one message are made together, under the grants of the agent. The model
    is told about each error, and can continue without that call.

    Args:
        messages: The conversation so far. Every message and every answer of a tool is
            appended to it.

        tools: Tools that the model may request; by default every granted tool except
            the model.

        via: The exposed name of the model.

        rounds: How often the model is asked at most.

        most: Characters of one answer that the model is told.

        options: Further parameters, such as ``model`` or ``temperature``.

    Raises:
        ToolError: As `chat`, or (``rounds``) the model still requests calls in the last
            round.

        AgentError: As `mcp_call`.
    """
    if tools is None:
        tools = [tool for tool in list_tools() if tool.name != via]
    offered = {tool.name: tool for tool in tools}
    # What the author left out is not called. Without that, the host decides.
    asks = all(tool.name in {*offered, via} for tool in list_tools())
    for _ in range(rounds):
        said = chat(messages, tools=offered.values(), via=via, **options)
        messages.append(said)
        calls = said.get("tool_calls")
        if not calls:
            return said
        read = [
            _read(function, offered, asks=asks and function["name"] != via)
            for function in (call["function"] for call in calls)
        ]
        for call, outcome in zip(calls, _outcomes(read), strict=True):
            content = _told(outcome, most)
            answer = {"role": "tool", "tool_call_id": call["id"], "content": content}
            messages.append(answer)
    raise ToolError("rounds", f"the model still requests calls in round {rounds}")


def conversation(via: str = "chat") -> list[JSON]:
    """
    Return the messages of the run that this one continues, with the last answer.

    The list is empty if the run continues none. Append to it, and chat.

    Raises:
        ToolError: As `chat`: the last answer is not a message.
    """
    found = context("conversation")
    if found is None:
        return []
    last = Reply(found["answer"]["message"], found["answer"]["data"])
    return [*found["messages"], _message(last, via)]


def _definition(tool: Tool | dict[str, JSON]) -> dict[str, JSON]:
    if isinstance(tool, dict):
        return tool
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.input_schema,
    }
    return {"type": "function", "function": function}


def _message(reply: Reply, via: str) -> dict[str, JSON]:
    """Return the message in the answer of a model, checked."""
    found = reply.structured
    if found is None:
        try:
            found = _parsed(reply.message)
        except ValueError as exc:
            raise _bad(f"the answer of {via} is not a completion: {exc}") from None
    if isinstance(found, dict) and found.keys() == {"result"}:
        found = found["result"]
    if isinstance(found, dict) and "choices" in found:
        choices = found["choices"]
        choice = choices[0] if isinstance(choices, list) and choices else None
        found = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(found, dict) or not found.keys() & {"content", "tool_calls"}:
        raise _bad(f"the answer of {via} has no message")
    if not isinstance(found.get("content"), str | list | None):
        raise _bad("the content of the message is neither text nor a list")
    calls = found.get("tool_calls") or []
    if not isinstance(calls, list) or not all(_is_call(call) for call in calls):
        raise _bad("tool_calls is not a list of calls with id, name and arguments")
    if len(calls) > _CALLS:
        raise _bad(f"the message requests {len(calls)} calls, {_CALLS} are allowed")
    return {**found, "role": "assistant"}


def _is_call(call: JSON) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    return (
        isinstance(function, dict)
        and isinstance(call.get("id"), str)
        and isinstance(function.get("name"), str)
        and isinstance(function.get("arguments"), str | dict | None)
    )


def _bad(message: str) -> ToolError:
    return ToolError("bad_answer", message)


def _outcomes(
    read: list[tuple[str, dict[str, JSON]] | AgentError],
) -> list[Reply | AgentError]:
    """Make the calls that are valid, together, and return the outcome of each."""
    valid = [call for call in read if not isinstance(call, AgentError)]
    answers = iter(mcp_call_many(valid) if valid else ())
    return [call if isinstance(call, AgentError) else next(answers) for call in read]


def _read(
    function: dict[str, JSON], offered: dict[str, Tool], *, asks: bool
) -> tuple[str, dict[str, JSON]] | AgentError:
    name, arguments = function["name"], function.get("arguments")
    # A name that the model made up is the host's to deny, and to record.
    if name not in offered and not (asks and _NAME.fullmatch(name)):
        shown = ascii(name[:_SHOWN])
        return Denied("not_offered", f"there is no tool {shown} in this conversation")
    try:
        params = (
            _parsed(arguments or "{}") if not isinstance(arguments, dict) else arguments
        )
        encode(params, "they")
    except ValueError as exc:
        return BadRequest("bad_arguments", f"the arguments are not JSON: {exc}")
    if not isinstance(params, dict):
        return BadRequest("bad_arguments", "the arguments are not a JSON object")
    return name, params


def _parsed(text: str) -> Any:  # noqa: ANN401 -- JSON
    """
    Return the value of JSON *text*.

    Raises:
        ValueError: It is not JSON, or too deep. The parser itself ends a run whose
            text is too deep.
    """
    depth = 0
    for bracket in _BRACKET.findall(_STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        if depth > _DEPTH:
            raise ValueError(f"more than {_DEPTH} levels")
    return json.loads(text)


def _told(outcome: Reply | AgentError, most: int) -> str:
    """Return the outcome of a call as text for the model."""
    if isinstance(outcome, AgentError):
        text = f"{outcome.status}: {outcome}"
    elif outcome.content or outcome.structured is None:
        text = outcome.message
    else:
        text = json.dumps(outcome.structured, ensure_ascii=False)
    rest = len(text) - most
    return text if rest <= 0 else f"{text[:most]}\n({rest} more characters were cut)"
