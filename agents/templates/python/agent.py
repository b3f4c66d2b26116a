"""{{name}}: asks a tool for the time and returns its answer."""

from __future__ import annotations

from caxton_agent import AgentError, log, mcp_call


def run() -> dict[str, str]:
    try:
        reply = mcp_call("mcp__time__get_current_time", {"timezone": "UTC"})
    except AgentError as error:
        log.warning("there is no answer")
        return {"error": error.code}
    return {"time": reply.message}
