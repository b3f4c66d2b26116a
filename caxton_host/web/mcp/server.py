"""
The host as a server of MCP: agents are its tools, and a call of one is a run.

Every request is answered for the principal that makes it: what that may not start or
see does not exist for it. Nothing is kept between requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, TypeAlias

import anyio
import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from ... import __version__
from ...core.calls import JSON
from ...core.grants.principals import Principal
from ...errors import CaxtonError, StoreError
from ...service.run_service import Service
from .agent_resources import AgentResources
from .agent_tools import AgentTool
from .calling import Call, Calls, Held, Tell
from .http_router import ASKING, Front
from .list_changed import Changes
from .paging import TTL, page
from .parse_error import answer_garbled

logger = logging.getLogger("caxton_host")

_INSTRUCTIONS = (
    "Each tool is an agent, and each call of one is a run of it that the host records. "
    "A result names its run in _meta, as io.caxton/run-id. A run may be suspended "
    "until a person has decided something: the result says so. Do not call the tool "
    "again for the same then."
)

#: Names a call of one client: who, which session, which request.
Key: TypeAlias = tuple[str, ...]

_FAULT = "the host could not do it"
_UNRECORDED = "the host cannot record what it does"

_Context: TypeAlias = ServerRequestContext[Any, Any]


class _Server(Server[Any]):
    """One that says only what it does: resources are not subscribed to."""

    def get_capabilities(
        self,
        *args: Any,  # noqa: ANN401 -- as it is called
        **options: Any,  # noqa: ANN401 -- as it is called
    ) -> types.ServerCapabilities:
        found = super().get_capabilities(*args, **options)
        if found.resources is not None:
            found.resources.subscribe = False
        return found


@dataclass(slots=True, kw_only=True)
class AgentServer:
    """
    Answers the requests of clients.

    Attributes:
        service: Runs the agents.

        principal: Returns who makes a request.

    """

    service: Service
    principal: Callable[[_Context], Principal]
    _held: dict[Key, Held] = field(default_factory=dict[Key, Held], init=False)
    calls: Calls = field(init=False)
    changes: Changes = field(init=False)
    server: Server[Any] = field(init=False)

    def __post_init__(self) -> None:
        self.calls = Calls(self.service)
        self.changes = Changes(self.service, self.principal)
        resources = AgentResources(self.service, self.principal)
        self.server = _Server(
            "caxton",
            version=__version__,
            title="Caxton",
            instructions=_INSTRUCTIONS,
            get_tool_input_schema=self._input_schema,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=resources.list,
            on_list_resource_templates=resources.templates,
            on_read_resource=resources.read,
            on_subscriptions_listen=self.changes.listen,
        )
        self.server.middleware.append(_guarded)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Tell clients of other tools, and in the end cancel what nobody waits for."""
        watching = asyncio.create_task(self.changes.watch())
        try:
            yield
        finally:
            watching.cancel()
            await self.calls.settled()

    def tools(self, who: Principal) -> dict[str, AgentTool]:
        """Return the agents that *who* may call, by their names as tools, in order."""
        tools = (AgentTool(card) for card in self.service.agents(who) if card.tool)
        return {tool.name: tool for tool in sorted(tools, key=attrgetter("name"))}

    def tool(self, who: Principal, name: str) -> AgentTool | None:
        """Return the agent that *who* may call by that name, if there is one."""
        for agent in self.service.config().agents.values():
            if agent.tool == name and who.may("run", agent.name):
                return AgentTool(self.service.library.card(agent))
        return None

    def _input_schema(self, name: str) -> dict[str, JSON] | None:
        who = ASKING.get(None)
        tool = None if who is None else self.tool(who, name)
        return None if tool is None else tool.input_schema

    async def _list_tools(
        self, ctx: _Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        tools = self.tools(self.principal(ctx))
        names, cursor = page(tools, params)
        return types.ListToolsResult(
            tools=[tools[name].listed() for name in names],
            next_cursor=cursor,
            ttl_ms=TTL,
            cache_scope="private",
        )

    async def _call_tool(
        self, ctx: _Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        who = self.principal(ctx)
        tool = self.tool(who, params.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"no tool {params.name[:128]!r}")
        scope = _scope(ctx)
        call = Call(
            who=who,
            tool=tool,
            arguments=params.arguments or {},
            meta=ctx.meta or {},
            ticket=scope.get("caxton.ticket"),
            tell=_telling(ctx),
        )
        key: Key | None = scope.get("caxton.call")
        if key is None:
            return await self.calls.make(call)
        held = self._held[key] = call.held
        try:
            return await self.calls.make(call)
        finally:
            if self._held.get(key) is held:
                del self._held[key]

    async def stop(self, key: Key, who: Principal, reason: str) -> None:
        """Cancel the call with that key, if it is under way."""
        if (held := self._held.get(key)) is None:
            return
        held.reason = reason
        if held.run_id:
            await self.calls.cancel(who, held.run_id, reason)


def _scope(ctx: _Context) -> Mapping[str, Any]:
    """Return the ASGI scope of a request; on stdio it has none."""
    return {} if ctx.request is None else ctx.request.scope


def _telling(ctx: _Context) -> Tell | None:
    if "progressToken" not in ((ctx.params or {}).get("_meta") or {}):
        return None

    async def tell(number: float, said: str) -> None:
        await ctx.session.report_progress(number, message=said)

    return tell


async def _guarded(ctx: _Context, call_next: CallNext) -> HandlerResult:
    """Let no message of an error out that was not meant for clients."""
    try:
        return await call_next(ctx)
    except (MCPError, ValidationError):
        raise
    except Exception as exc:
        if isinstance(exc, CaxtonError):
            logger.warning("%s of a client failed: %s", ctx.method, exc)
        else:
            logger.exception("%s of a client failed", ctx.method)
        said = _UNRECORDED if isinstance(exc, StoreError) else _FAULT
        raise MCPError(types.INTERNAL_ERROR, said) from None


def agents_app(service: Service, *, body: int = 4 * 1024 * 1024) -> Front:
    """
    Return the ASGI application that serves agents, at whatever path it is mounted.

    It works inside ``async with app.running():``, and once. Each request's scope has
    ``caxton.principal``, and may have ``caxton.ticket``.

    Args:
        service: Runs the agents.

        body: The most bytes of a request.
    """

    def principal(ctx: _Context) -> Principal:
        who: Principal = _scope(ctx)["caxton.principal"]
        return who

    return Front(AgentServer(service=service, principal=principal), body)


async def serve_stdio(service: Service, principal: Principal) -> None:
    """Serve agents on stdin and stdout, to one client, until it closes stdin."""
    agents = AgentServer(service=service, principal=lambda _: principal)
    put, messages = anyio.create_memory_object_stream[SessionMessage]()
    async with (
        agents.running(),
        stdio_server() as (read, write),
        anyio.create_task_group() as tasks,
    ):
        agents.server.middleware.append(agents.changes.unasked)
        options = agents.server.create_initialization_options(
            NotificationOptions(tools_changed=True)
        )
        tasks.start_soon(answer_garbled, read, write.send, put)
        await agents.server.run(messages, write, options)
