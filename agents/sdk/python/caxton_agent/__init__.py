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
returns, and fails when ``run`` raises an exception. The return value of ``run``, unless
it is None, is the output. Values are JSON values: None, booleans, integers of 64 bits,
finite floats, strings, lists, and dicts with string keys.

``caxton agent build`` compiles it to a WebAssembly component. There, the time and the
randomness of the standard library come from the run, so that a replay sees the same.
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
)
from ._chat import chat, conversation, converse
from ._run import context, image, input, log, now, output, random, random_bytes
from ._tools import Tools

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
    "chat",
    "context",
    "conversation",
    "converse",
    "image",
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

#: The granted tools: ``tools.time.get_current_time(timezone="UTC")``. ``tools()`` lists
#: them, ``tools.search("currency")`` finds some, and ``tools["EXPOSED NAME"]`` is one.
tools = Tools()

for _error in (AgentError, BadRequest, Denied, Failed, NoHostError, ToolError):
    _error.__module__ = __name__  # The name that a traceback shows.
