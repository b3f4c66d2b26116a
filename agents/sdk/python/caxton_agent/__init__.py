"""
Write an agent for caxton_host in Python.

    from caxton_agent import ToolError, mcp_call, output


    def run() -> None:
        try:
            reply = mcp_call("weather", {"location": "Seattle"})
        except ToolError as error:
            output({"error": error.message})
        else:
            output({"weather": reply.message})

An agent is a file ``agent.py`` with a function ``run``. It completes when ``run``
returns, and fails when an exception leaves it. What ``run`` returns, if anything, is
its output. Values are what JSON can say: None, booleans, integers of 64 bits,
finite floats, texts, lists, and dicts with texts as keys.

``caxton agent build`` makes a WebAssembly component of it. In there the time and the
randomness of the standard library are the run's own, so that a replay sees the same.
`caxton_agent.testing` runs the same file on your machine.
"""

from __future__ import annotations

from ._bridge import NoHostError
from ._calls import (
    JSON,
    AgentError,
    BadRequest,
    Denied,
    Failed,
    Reply,
    Tool,
    ToolError,
    mcp_call,
    mcp_call_many,
    tools,
)
from ._run import context, input, log, now, output, random, random_bytes

__all__ = [
    "JSON",
    "AgentError",
    "BadRequest",
    "Denied",
    "Failed",
    "NoHostError",
    "Reply",
    "Tool",
    "ToolError",
    "context",
    "input",
    "log",
    "mcp_call",
    "mcp_call_many",
    "now",
    "output",
    "random",
    "random_bytes",
    "tools",
]

for _error in (AgentError, BadRequest, Denied, Failed, NoHostError, ToolError):
    _error.__module__ = __name__  # What a traceback calls them.
