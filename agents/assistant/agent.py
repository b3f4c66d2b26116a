"""
Answers a question with a language model and the tools that are granted.

Input: {"question": text}. Output: the answer, and what was asked of tools on the way.
The model is a tool like any other: "complete" of a server named "model". What it asks
for is asked of the host, and what the host denies it is told.
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
    """A call that the model wants."""

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
    """Make the calls that the model wants, all at once."""
    for call in wanted:
        log.info(f"the model wants {call['name']}")
    return mcp_call_many([(call["name"], call["arguments"]) for call in wanted])


def told(reply: Reply | AgentError) -> str:
    """Return what the model is told of a call."""
    if isinstance(reply, Denied):
        return f"You may not use this tool: {reply.message}. Go on without it."
    if isinstance(reply, AgentError):
        return f"This did not work: {reply}."
    return reply.message
