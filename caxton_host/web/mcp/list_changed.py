"""
Telling clients that the agents are others now.

Clients of 2026-07-28 ask to be told, on a stream of their own. Others are told on
stdio only: over HTTP nothing is kept between their requests.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import (
    ResourcesListChanged,
    ServerEvent,
    ToolsListChanged,
)

from ...core.grants.principals import Principal
from ...errors import UsageError
from ...runs.modules import Card
from ...service.run_service import Service

#: Seconds between two looks at what the agents are.
EVERY = 1.0
#: Streams of one principal.
_STREAMS = 64

_REFUSED = -32000


@dataclass(slots=True)
class Changes:
    """Watches the agents, and tells of changes."""

    service: Service
    principal: Callable[[ServerRequestContext[Any, Any]], Principal]
    bus: InMemorySubscriptionBus = field(default_factory=InMemorySubscriptionBus)
    _piped: bool = field(default=False, init=False)
    _listeners: Counter[str] = field(default_factory=Counter[str], init=False)
    _telling: set[asyncio.Task[None]] = field(
        default_factory=set[asyncio.Task[None]], init=False
    )
    _handler: ListenHandler = field(init=False)

    def __post_init__(self) -> None:
        self._handler = ListenHandler(self.bus)

    async def listen(
        self,
        ctx: ServerRequestContext[Any, Any],
        params: types.SubscriptionsListenRequestParams,
    ) -> types.SubscriptionsListenResult:
        """Tell a client of changes until it hangs up, or the host is about to stop."""
        who = self.principal(ctx)
        key = who.key
        if self._listeners[key] >= _STREAMS:
            raise MCPError(_REFUSED, f"{_STREAMS} streams are open: that is the most")
        self._listeners[key] += 1
        wanted = types.SubscriptionFilter(
            tools_list_changed=params.notifications.tools_list_changed,
            resources_list_changed=params.notifications.resources_list_changed,
        )
        try:
            return await self._handler(
                ctx, params.model_copy(update={"notifications": wanted})
            )
        finally:
            self._listeners -= Counter([key])

    async def unasked(
        self, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        """Tell the one client of a pipe, as protocols before 2026-07-28 have it."""
        if ctx.method == "notifications/initialized" and not self._piped:

            def tell(event: ServerEvent) -> None:
                if not isinstance(event, ToolsListChanged):
                    return
                task = asyncio.create_task(ctx.session.send_tool_list_changed())
                self._telling.add(task)
                task.add_done_callback(self._telling.discard)

            self._piped = True
            self.bus.subscribe(tell)
        return await call_next(ctx)

    async def watch(self) -> None:
        """Look for changes, for ever."""
        before = self._cards()
        while True:
            await asyncio.sleep(EVERY)
            if self.service.line.closed:
                self._handler.close()
            if not self._listeners and not self._piped:
                continue
            now = self._cards()
            if now != before:
                before = now
                await self.bus.publish(ToolsListChanged())
                await self.bus.publish(ResourcesListChanged())

    def _cards(self) -> list[Card]:
        found: list[Card] = []
        for agent in self.service.config().agents.values():
            if agent.tool is not None:
                try:
                    found.append(self.service.library.card(agent))
                except UsageError:
                    continue
        return found
