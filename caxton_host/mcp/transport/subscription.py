"""
Hearing of changes: a stream on which a server says that its tools are others now.

What is heard is a hint and no more: the next run or call lists the tools again, once
however often it was said. A stream that ends is opened again, later each time, and
what may have been said in between counts as said.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ...core.calls import JSON
from ...errors import ToolError
from .wire import Wire

if TYPE_CHECKING:
    from mcp.client.session import ClientSession


#: Seconds before a stream that ended is opened again. One that lasted starts anew.
_SOONEST = 1.0
_LATEST = 60.0

#: What the stream is opened for.
_WANTED: dict[str, JSON] = {"toolsListChanged": True}


@asynccontextmanager
async def listening(
    peer: Wire, session: ClientSession, meta: Mapping[str, JSON]
) -> AsyncGenerator[None]:
    """
    Hear of changes for as long as the block lasts, if the server tells of any.

    Args:
        peer: The other end of the connection.

        session: What was settled.

        meta: What every request carries.
    """
    told = session.server_capabilities
    modern = session.discover_result is not None
    # An old server asks a person on the stream that tells of changes.
    asks = peer.elicitation == "defaults" and not modern
    if not (told and told.tools and (told.tools.list_changed or asks)):
        yield
        return

    async def subscribe() -> bool:
        params = {"notifications": _WANTED, "_meta": dict(meta)}
        await peer.request("subscriptions/listen", params, math.inf, standing=True)
        return True

    task = asyncio.create_task(_hear(peer, subscribe if modern else peer.overhear))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _hear(peer: Wire, stream: Callable[[], Awaitable[bool]]) -> None:
    from mcp.shared.exceptions import MCPError  # noqa: PLC0415 -- loaded by now

    loop = asyncio.get_running_loop()
    wait = _SOONEST
    while peer.lost is None:
        began = loop.time()
        try:
            if not await stream():
                return
        except MCPError:
            return  # It has none, whatever it said.
        except ToolError as exc:
            if exc.kind not in {"transport", "timeout"}:
                return
        peer.changes += 1
        if loop.time() - began > _LATEST:
            wait = _SOONEST
        await asyncio.sleep(wait * (0.5 + secrets.randbelow(501) / 1000))
        wait = min(wait * 2, _LATEST)
