"""
Answer a question with a language model and the granted tools.

Input: {"question": text}. Output: the answer and the calls of tools. The model is a
tool like any other: "complete" of the server "model". The agent makes the calls that
the model requests, and tells the model about denials.
"""

from __future__ import annotations

from typing import TypedDict

from caxton_agent import (
    JSON,
    AgentError,
    Denied,
    Reply,
    input,
    log,
    mcp_call,
    mcp_call_many,
    tools,
)

MODEL = "mcp__model__complete"
ROUNDS = 8


class Wanted(TypedDict):
    """A call that the model requests."""

    id: str
    name: str
    arguments: dict[str, JSON]


def run() -> dict[str, JSON]:
    offered = [
        {
            "name": tool.name,
            "description": tool.description,
            "schema": tool.input_schema,
        }
        for tool in tools()
        if tool.name != MODEL
    ]
    messages: list[JSON] = [{"role": "user", "content": input()["question"]}]
    used: list[dict[str, str]] = []
    for number in range(1, ROUNDS + 1):
        said = mcp_call(MODEL, {"messages": messages, "tools": offered}).structured
        messages.append(said)
        wanted: list[Wanted] = said.get("tool_calls") or []
        if not wanted:
            return {"answer": said["content"], "rounds": number, "used": used}
        for call, reply in zip(wanted, ask(wanted), strict=True):
            used.append({"tool": call["name"], "status": reply.status})
            messages.append(
                {"role": "tool", "tool_call_id": call["id"], "content": told(reply)}
            )
    raise RuntimeError(f"there is no answer after {ROUNDS} rounds")


def ask(wanted: list[Wanted]) -> list[Reply | AgentError]:
    """Make the calls that the model requests, all at once."""
    for call in wanted:
        log.info(f"the model wants {call['name']}")
    return mcp_call_many([(call["name"], call["arguments"]) for call in wanted])


def told(reply: Reply | AgentError) -> str:
    """Return the outcome of a call as text for the model."""
    if isinstance(reply, Denied):
        return f"You may not use this tool: {reply.message}. Go on without it."
    if isinstance(reply, AgentError):
        return f"This did not work: {reply}."
    return reply.message
