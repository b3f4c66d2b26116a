"""
A simulated language model that follows a fixed script offline.

    python model_server.py

Its tool "complete" takes the messages so far and the offered tools, as the interfaces
of language models do, and answers with the next message. Asked about the weather, it
requests the weather of each city in the question, then requests a mail, and finally
answers with the results.
"""

from __future__ import annotations

import re
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

_LIST = {"type": "array", "items": {"type": "object"}}
COMPLETE = types.Tool(
    name="complete",
    description="The next message of a conversation.",
    input_schema={
        "type": "object",
        "properties": {"messages": _LIST, "tools": _LIST},
        "required": ["messages", "tools"],
    },
)
CITY = re.compile(r"\b(?!What|Is|How)[A-Z][a-z]+\b")


def complete(messages: list[dict[str, Any]], offered: list[str]) -> dict[str, Any]:
    """Return the next message."""
    question = str(messages[0].get("content"))
    turn = sum(message.get("role") == "assistant" for message in messages)
    weather = next((name for name in offered if "weather" in name), None)
    told = [str(each["content"]) for each in messages if each.get("role") == "tool"]
    if weather is None:
        return said("I have no tool that knows the weather.")
    if turn == 0:
        cities = CITY.findall(question)
        return said(None, *((weather, {"location": city}) for city in cities))
    if turn == 1:
        return said(None, ("mcp__mail__send", {"to": "everybody", "text": told[-1]}))
    found, allowed = told[:-1], not told[-1].startswith("You may not")
    mailed = (
        "and everybody knows" if allowed else "and I was not allowed to tell anybody"
    )
    return said(f"{'; '.join(found)}; {mailed}.")


def said(content: str | None, *calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """Return a message with a *content* and calls of tools."""
    wanted = [
        {"id": f"call-{at}", "name": name, "arguments": arguments}
        for at, (name, arguments) in enumerate(calls, 1)
    ]
    return {"role": "assistant", "content": content, "tool_calls": wanted}


async def _list(
    _context: ServerRequestContext[object], _params: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[COMPLETE])


async def _call(
    _context: ServerRequestContext[object], params: types.CallToolRequestParams
) -> types.CallToolResult:
    given = params.arguments or {}
    offered = [str(tool.get("name")) for tool in given["tools"]]
    message = complete(given["messages"], offered)
    text = message["content"] or f"wants {len(message['tool_calls'])} calls"
    return types.CallToolResult(
        content=[types.TextContent(text=text)], structured_content=message
    )


async def _serve() -> None:
    server = Server("scripted-model", on_list_tools=_list, on_call_tool=_call)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(_serve)
