"""
The MCP server of a host: agents are its tools, and a call of one is a run.

Every request is answered for the principal that makes it: what that may not start or
see does not exist for it. Nothing is kept between requests, but the log level of older
clients.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Generator,
    Mapping,
)
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any, TypeAlias, get_args

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared import subscriptions as changed
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ServerEvent, ToolsListChanged
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import ValidationError

from ... import __version__
from ...core.calls import JSON
from ...core.grants.principals import Principal
from ...core.log.events import LogWritten
from ...errors import CaxtonError, StoreError, UsageError
from ...lib.codec import sha256
from ...ports.watch import Fields
from ...runs.agent_tools import AgentTool
from ...runs.host import Host
from ...runs.modules import AgentDescription
from ...service.run_service import Service
from .agent_tasks import AgentTasks
from .agents import TTL, AgentResources, listed, page
from .calling import Call, Calls, Held, Line, Tell
from .pipes import over_stdio
from .tasks import Tasks, created, ttl_of

Context: TypeAlias = ServerRequestContext[Any, Any]

#: Seconds between two looks at what clients are shown.
EVERY = 1.0
#: Streams of one principal.
_STREAMS = 64
#: What all clients of an `AgentServer` are shown.
AGENTS = "agents"

_REFUSED = -32000
#: Characters of an attribute of a span that a client chooses.
_LONGEST = 128
_SESSION = "mcp-session-id"
#: Clients whose log level is kept.
_CLIENTS = 4096
_SEVERITY: tuple[str, ...] = get_args(types.LoggingLevel)


class _Topic:
    """What clients are shown that listen for the same changes."""

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self.listen = ListenHandler(self.bus)


async def _nothing_to_do() -> None:
    """Do nothing before a look."""


@dataclass(slots=True, kw_only=True)
class Changes:
    """
    Watches what clients are shown, and notifies them of changes.

    Attributes:
        asking: Returns the principal of a request, and the name of what it is shown.

        shown: Returns what clients are shown, by name.

        seen: Returns what one principal is shown of it.

        offered: Returns of what there are lists, by the name of what is shown: tools,
            resources, prompts.

        closed: Returns whether the host is about to stop.

        refresh: Awaited before a look.
    """

    asking: Callable[[Context], tuple[Principal, str]]
    shown: Callable[[], Mapping[str, object]]
    seen: Callable[[Principal, str], object]
    offered: Callable[[str], Collection[str]]
    closed: Callable[[], bool]
    refresh: Callable[[], Awaitable[None]] = _nothing_to_do
    _topics: defaultdict[str, _Topic] = field(
        default_factory=lambda: defaultdict(_Topic), init=False
    )
    _unasked: int = field(default=0, init=False)
    _listeners: Counter[str] = field(default_factory=Counter[str], init=False)
    _telling: set[asyncio.Task[None]] = field(
        default_factory=set[asyncio.Task[None]], init=False
    )

    async def listen(
        self,
        ctx: Context,
        params: types.SubscriptionsListenRequestParams,
    ) -> types.SubscriptionsListenResult:
        """Notify a client of changes until it disconnects, or the host stops."""
        who, name = self.asking(ctx)
        key = who.key
        if self._listeners[key] >= _STREAMS:
            raise MCPError(_REFUSED, f"{_STREAMS} streams are open, which is the limit")
        self._listeners[key] += 1
        asked, offered = params.notifications, self.offered(name)
        wanted = types.SubscriptionFilter(
            tools_list_changed=asked.tools_list_changed,
            resources_list_changed="resources" in offered
            and asked.resources_list_changed,
            prompts_list_changed="prompts" in offered and asked.prompts_list_changed,
        )
        try:
            return await self._topics[name].listen(
                ctx, params.model_copy(update={"notifications": wanted})
            )
        finally:
            self._listeners -= Counter([key])

    async def unasked(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Notify the client of a pipe, as in protocols before 2026-07-28."""
        if ctx.method == "notifications/initialized" and not self._unasked:
            name = self.asking(ctx)[1]
            one = ctx.session
            sends = {
                "tools": one.send_tool_list_changed,
                "resources": one.send_resource_list_changed,
                "prompts": one.send_prompt_list_changed,
            }

            def tell() -> None:
                for kind in self.offered(name):
                    task = asyncio.create_task(sends[kind]())
                    self._telling.add(task)
                    task.add_done_callback(self._telling.discard)

            self._subscribe(name, tell)
        return await call_next(ctx)

    @contextmanager
    def heard(self, name: str) -> Generator[asyncio.Event]:
        """Set an event at each change of what is shown under *name*."""
        changed = asyncio.Event()
        unsubscribe = self._subscribe(name, changed.set)
        try:
            yield changed
        finally:
            self._unasked -= 1
            unsubscribe()

    def _subscribe(self, name: str, tell: Callable[[], None]) -> Callable[[], None]:
        def hear(event: ServerEvent) -> None:
            if isinstance(event, ToolsListChanged):  # The others come with it.
                tell()

        self._unasked += 1
        return self._topics[name].bus.subscribe(hear)

    @asynccontextmanager
    async def watched(self) -> AsyncGenerator[None]:
        """Notify clients while this is entered."""
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watching.cancel()

    async def _watch(self) -> None:
        before = self.shown()
        while True:
            await asyncio.sleep(EVERY)
            if self.closed():
                for topic in self._topics.values():
                    topic.listen.close()
            if not self._listeners and not self._unasked:
                continue
            await self.refresh()
            now = self.shown()
            for name, topic in [*self._topics.items()]:
                if now.get(name) != before.get(name):
                    await topic.bus.publish(ToolsListChanged())
                    await topic.bus.publish(changed.ResourcesListChanged())
                    await topic.bus.publish(changed.PromptsListChanged())
            before = now


logger = logging.getLogger("caxton_host")

_INSTRUCTIONS = (
    "Each tool is an agent, and each call of one is a run of it that the host records. "
    "A result names its run in _meta, as io.caxton/run-id. A run may be suspended "
    "until a person has decided something: the result says so. Do not call the tool "
    "again for the same then."
)

#: The principal of the request that is being answered.
ASKING: ContextVar[Principal] = ContextVar("asking")

#: Identifies a call: principal, session and request.
Key: TypeAlias = tuple[str, ...]

_FAULT = "the host could not handle the request"
_UNRECORDED = "the host cannot write its log"


class ListServer(Server[Any]):
    """A server that tells of changes of its lists, but not of single resources."""

    def get_capabilities(
        self,
        *args: Any,  # noqa: ANN401 -- as it is called
        **options: Any,  # noqa: ANN401 -- as it is called
    ) -> types.ServerCapabilities:
        """Return them, for every protocol."""
        changes = NotificationOptions(*[True] * 3)
        found = super().get_capabilities(changes, *args[1:], **options)
        if found.resources is not None:
            found.resources.subscribe = False
        return found


@dataclass(slots=True, kw_only=True)
class AgentServer:
    """
    Answers the requests of clients.

    Attributes:
        service: Runs the agents.

        principal: Returns the principal of a request.

    """

    service: Service
    principal: Callable[[Context], Principal]
    _held: dict[Key, Held] = field(default_factory=dict[Key, Held], init=False)
    _levels: dict[str, str] = field(default_factory=dict[str, str], init=False)
    calls: Calls = field(init=False)
    changes: Changes = field(init=False)
    tasks: Tasks = field(init=False)
    server: Server[Any] = field(init=False)

    def __post_init__(self) -> None:
        self.calls = Calls(self.service)
        self.changes = Changes(
            asking=lambda ctx: (self.principal(ctx), AGENTS),
            shown=lambda: {AGENTS: self._cards()},
            seen=lambda who, _: self.tools(who),
            offered=lambda _: ("tools", "resources"),
            closed=lambda: self.service.line.closed,
            refresh=self.service.code.refresh,
        )
        resources = AgentResources(self.service, self.principal)
        self.server = ListServer(
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
        watch(self.server, self.service.host)
        # Its argument is deprecated, since newer protocols have no such request.
        self.server.add_request_handler(
            "logging/setLevel", types.SetLevelRequestParams, self._set_level
        )
        runs = AgentTasks(service=self.service, principal=self.principal)
        self.tasks = Tasks(
            source=runs,
            call=self._call_tool,
            closed=lambda: self.service.line.closed,
            listing=runs.list,
        )
        self.tasks.offer(self.server)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Notify clients of changes; at the end, cancel runs without a client."""
        async with self.changes.watched():
            try:
                yield
            finally:
                await self.calls.settled()

    def _cards(self) -> list[AgentDescription]:
        found: list[AgentDescription] = []
        for agent in self.service.config().agents.values():
            if agent.tool is not None:
                try:
                    found.append(self.service.card(agent))
                except UsageError:
                    continue
        return found

    def tools(self, who: Principal) -> dict[str, AgentTool]:
        """Return the agents that *who* may call, by their names as tools, in order."""
        tools = (AgentTool(card) for card in self.service.agents(who) if card.tool)
        return {tool.name: tool for tool in sorted(tools, key=attrgetter("name"))}

    def tool(self, who: Principal, name: str) -> AgentTool | None:
        """Return the agent that *who* may call by that name, or ``None``."""
        for agent in self.service.config().agents.values():
            if agent.tool == name and who.may("run", agent.name):
                return AgentTool(self.service.card(agent))
        return None

    def _input_schema(self, name: str) -> dict[str, JSON] | None:
        who = ASKING.get(None)
        tool = None if who is None else self.tool(who, name)
        return None if tool is None else tool.input_schema

    async def _list_tools(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        await self.service.code.refresh()
        tools = self.tools(self.principal(ctx))
        names, cursor = page(tools, params)
        return types.ListToolsResult(
            tools=[listed(tools[name]) for name in names],
            next_cursor=cursor,
            ttl_ms=TTL,
            cache_scope="private",
        )

    async def _call_tool(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> Any:  # noqa: ANN401 -- a task is no `CallToolResult`
        who = self.principal(ctx)
        tool = self.tool(who, params.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"no tool {params.name[:128]!r}")
        ttl = ttl_of(ctx, params, tool.card.tasks)
        scope = scope_of(ctx)
        call = Call(
            who=who,
            tool=tool,
            arguments=params.arguments or {},
            meta=ctx.meta or {},
            ticket=scope.get("caxton.ticket"),
            tell=telling(ctx),
            line=self._line(ctx, tool.name),
            task_ttl=ttl,
        )
        if ttl is not None:
            return await self._begin(ctx, call)
        key: Key | None = scope.get("caxton.call")
        if key is None:
            return await self.calls.make(call)
        held = self._held[key] = call.held
        try:
            return await self.calls.make(call)
        finally:
            if self._held.get(key) is held:
                del self._held[key]

    async def _begin(self, ctx: Context, call: Call) -> Any:  # noqa: ANN401 -- as above
        """Answer a call that is a task, once its run has begun."""
        begun = await self.calls.begun(call)
        if isinstance(begun, str):
            return created(ctx, await self.tasks.found(ctx, begun))
        return created(ctx, begun)

    async def _set_level(
        self, ctx: Context, params: types.SetLevelRequestParams
    ) -> types.EmptyResult:
        self._levels[self._client(ctx)] = params.level
        if len(self._levels) > _CLIENTS:
            del self._levels[next(iter(self._levels))]
        return types.EmptyResult()

    def _client(self, ctx: Context) -> str:
        """Return what identifies a client of an older protocol between requests."""
        session = ctx.request.headers.get(_SESSION, "") if ctx.request else ""
        return sha256(f"{self.principal(ctx).key} {session}".encode())

    def _line(self, ctx: Context, name: str) -> Line | None:
        """Return what passes on log lines to the client, if it asked for them."""
        wanted = (ctx.meta or {}).get(types.LOG_LEVEL_META_KEY)
        if ctx.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS:
            wanted = self._levels.get(self._client(ctx))
        if wanted not in _SEVERITY:
            return None
        shown = _SEVERITY[_SEVERITY.index(wanted) :]

        async def line(event: LogWritten) -> None:
            # Another level says that lines were cut.
            level = event.level if event.level in _SEVERITY else "warning"
            if level in shown:
                params = {"level": level, "logger": name, "data": event.text}
                told = types.LoggingMessageNotification.model_validate(
                    {"params": params}
                )
                await ctx.session.send_notification(told, ctx.request_id)

        return line

    async def stop(self, key: Key, who: Principal, reason: str) -> None:
        """Cancel the call with that key, if it is in progress."""
        if (held := self._held.get(key)) is None:
            return
        held.reason = reason
        if held.run_id:
            await self.calls.cancel(who, held.run_id, reason)


def scope_of(ctx: Context) -> Mapping[str, Any]:
    """Return the ASGI scope of a request; on stdio it has none."""
    return {} if ctx.request is None else ctx.request.scope


def telling(ctx: Context) -> Tell | None:
    """Return what reports progress to the client, if it asked for that."""
    if "progressToken" not in ((ctx.params or {}).get("_meta") or {}):
        return None

    async def tell(number: float, said: str) -> None:
        await ctx.session.report_progress(number, message=said)

    return tell


def watch(server: Server[Any], host: Host) -> None:
    """Observe each request of a client, and hide errors not meant for it."""
    server.middleware += (partial(observed, host), guarded)


async def observed(host: Host, ctx: Context, call_next: CallNext) -> HandlerResult:
    """Observe a request, by the conventions for MCP servers."""
    if ctx.request_id is None:
        return await call_next(ctx)
    fields: Fields = {
        "mcp.method.name": ctx.method[:_LONGEST],
        "jsonrpc.request.id": host.redact.text(str(ctx.request_id))[:_LONGEST],
        "mcp.protocol.version": ctx.protocol_version,
        "network.transport": "tcp" if ctx.request else "pipe",
    }
    if ctx.request:
        fields["network.protocol.name"] = "http"
    if ctx.method == "tools/call":
        name = host.redact.text(str((ctx.params or {}).get("name")))
        fields["gen_ai.operation.name"] = "execute_tool"
        fields["gen_ai.tool.name"] = name[:_LONGEST]
    meta: Any = ctx.meta or {}
    with host.telemetry.serving(fields, host.telemetry.trace_of(meta)) as trace:
        try:
            ctx.meta = meta | trace
            found = await call_next(ctx)
        except BaseException as exc:
            code = exc.error.code if isinstance(exc, MCPError) else 0
            fields["error.type"] = str(code or type(exc).__name__)
            if code:
                fields["rpc.response.status_code"] = str(code)
            if code == types.METHOD_NOT_FOUND:  # Its name is made up.
                fields["mcp.method.name"] = "_OTHER"
            raise
        if isinstance(found, dict) and found.get("isError"):
            fields["error.type"] = "tool_error"
        return found


async def guarded(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Hide messages of errors that are not meant for clients."""
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


async def serve_stdio(service: Service, principal: Principal) -> None:
    """
    Serve agents on stdin and stdout, to one client, until it closes stdin.

    Raises:
        BrokenPipeError: It no longer reads stdout.
    """
    agents = AgentServer(service=service, principal=lambda _: principal)
    agents.server.middleware.append(agents.changes.unasked)
    async with agents.running():
        await over_stdio(agents.server)
