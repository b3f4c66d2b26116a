"""
A simulated language model that writes programs, offline.

    python model_server.py

Its tool "complete" takes the parameters of OpenAI's chat completions, and answers with
a completion. Asked for the mean temperature of some cities, it writes a program with a
syntax error, then one that reads a key that does not exist, then one that works. It
writes the next program only when it has read the error of the one before.
"""

from __future__ import annotations

import json
import re
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

COMPLETE = types.Tool(
    name="complete",
    description="The next message of a conversation.",
    input_schema={
        "type": "object",
        "properties": {
            "messages": {"type": "array", "items": {"type": "object"}},
            "tools": {"type": "array", "items": {"type": "object"}},
        },
        "required": ["messages"],
    },
)
CITY = re.compile(r"\b(?!What)[A-Z][a-z]+\b")

PROGRAM = """\
from caxton_agent import output, tools

cities = {cities}
degrees = []
for city in cities{colon}
    weather = tools.demo.get_weather(location=city)
    degrees.append(weather["{key}"])
output(sum(degrees) / len(degrees))
"""
#: What is wrong in each program: the parts of it, and the error that it causes.
DRAFTS = (
    ({"colon": "", "key": "degrees"}, "SyntaxError"),
    ({"colon": ":", "key": "degrees"}, "KeyError"),
    ({"colon": ":", "key": "temperature"}, None),
)


def complete(
    messages: list[dict[str, Any]], offered: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return the next message."""
    task = next(one["content"] for one in messages if one["role"] == "user")
    told = [str(one["content"]) for one in messages if one["role"] == "tool"]
    names = [tool["function"]["name"] for tool in offered]
    run = next((name for name in names if name.endswith("run_code")), None)
    if run is None:
        return said("I have no tool that runs programs.")
    if told:
        error = DRAFTS[min(len(told), len(DRAFTS)) - 1][1]
        if error is None:
            return said(f"The mean temperature is {told[-1]} °C.")
        if error not in told[-1]:
            return said(f"I do not understand this error: {told[-1]}")
    parts, _ = DRAFTS[len(told)]
    code = PROGRAM.format(cities=CITY.findall(task), **parts)
    return said(None, {"name": run, "arguments": json.dumps({"code": code})})


def said(content: str | None, *functions: dict[str, str]) -> dict[str, Any]:
    """Return a message with a *content* and calls of functions."""
    calls = [
        {"id": f"call-{at}", "type": "function", "function": function}
        for at, function in enumerate(functions, 1)
    ]
    return {"role": "assistant", "content": content, "tool_calls": calls}


async def _list(
    _context: ServerRequestContext[object], _params: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[COMPLETE])


async def _call(
    _context: ServerRequestContext[object], params: types.CallToolRequestParams
) -> types.CallToolResult:
    given = params.arguments or {}
    message = complete(given["messages"], given.get("tools", []))
    completion = {
        "object": "chat.completion",
        "model": "scripted",
        "choices": [{"index": 0, "message": message}],
    }
    text = message["content"] or f"wants {len(message['tool_calls'])} calls"
    return types.CallToolResult(
        content=[types.TextContent(text=text)], structured_content=completion
    )


async def _serve() -> None:
    server = Server("scripted-coder", on_list_tools=_list, on_call_tool=_call)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(_serve)
