"""
Call tools from coroutines: what is awaited together is sent as one batch.

    import asyncio

    from caxton_agent import aio


    async def run() -> list[str]:
        calls = (aio.mcp_call("weather", {"location": at}) for at in ("Lima", "Oslo"))
        return [reply.message for reply in await asyncio.gather(*calls)]

The functions raise the same errors as those of `caxton_agent`. A batch has at most 64
calls, and returns with the slowest of its calls: a timeout cannot end a call that was
sent. A call that is cancelled before it was sent is never sent.
"""

from __future__ import annotations

from collections.abc import Mapping

from ._bridge import encode
from ._calls import JSON, AgentError, Reply
from ._loop import DeadlockError, send
from ._tools import AsyncTools

__all__ = ["DeadlockError", "mcp_call", "tools"]


async def mcp_call(name: str, params: Mapping[str, JSON] | None = None) -> Reply:
    """Call a tool and return its answer; see `caxton_agent.mcp_call`."""
    answer = await send(name, encode(dict(params or {}), f"params of {name}"))
    if isinstance(answer, AgentError):
        raise answer
    return answer


#: The granted tools as coroutines: ``await aio.tools.time.get_current_time()``.
tools = AsyncTools(mcp_call)

DeadlockError.__module__ = __name__  # The name that a traceback shows.
