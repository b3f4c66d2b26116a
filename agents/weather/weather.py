"""
Ask for the weather, then call a tool that is not granted.

Input: {"location": text}; without one, Seattle. Output: a map with the answers and the
denial.
"""

from __future__ import annotations

from caxton_agent import JSON, AgentError, Reply, input, log, mcp_call


def ask(tool: str, params: dict[str, JSON]) -> Reply | AgentError:
    try:
        return mcp_call(tool, params)
    except AgentError as error:
        return error


def location() -> str:
    given = input()
    wanted = given.get("location") if isinstance(given, dict) else None
    return wanted if wanted and isinstance(wanted, str) else "Seattle"


def answer(reply: Reply | AgentError) -> dict[str, str]:
    return {"status": reply.status, "message": reply.message}


def run() -> dict[str, JSON]:
    weather = ask("weather", {"location": location()})
    (log.info if weather.status == "ok" else log.warning)(weather.message)
    forecast = ask("mcp__webhook__forecast", {"location": location()})
    echo = ask("mcp__demo__echo", {"text": "is anybody there?"})
    return {
        "summary": weather.message,
        "forecast": answer(forecast),
        "denied": echo.status == "denied",
        "echo": answer(echo),
    }
