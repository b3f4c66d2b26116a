"""Sets up the tools of a configuration: MCP servers and webhooks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..config import Config
from ..core.grants.principals import Callers
from ..core.log.events import Event, ToolsChanged
from ..core.log.requests import NOT_HERE, Request
from ..core.text.redact import Redactor
from ..core.tools.webhooks import SERVER as WEBHOOK
from ..gateway.tool_layers import ToolRouter
from ..ports.log import ServerProtocol, ServerProtocols
from ..ports.tools import RunScope, ToolClient, ToolService
from ..runs.response_caching import Answers, Cached
from ..telemetry import Observer

if TYPE_CHECKING:
    from pathlib import Path

    from ..mcp import McpTools, Pool
    from ..mcp.health import ServerStatus


class Routed(ToolRouter):
    """
    The tools of one configuration.

    Args:
        clients: By name of a server: the client that reaches it.

        mcp: The MCP servers among them, some of which a run has of its own.
    """

    def __init__(
        self, clients: Mapping[str, ToolClient], mcp: McpTools | None = None
    ) -> None:
        super().__init__(clients)
        self._mcp = mcp

    @contextlib.asynccontextmanager
    async def open(self, scope: RunScope) -> AsyncGenerator[ToolRouter]:
        """Return the tools of one run."""
        if self._mcp is None:
            yield self
            return
        async with self._mcp.open(scope) as servers:
            yield ToolRouter({**self.clients, **servers.clients})


class LateServerProtocols:
    """The protocols of a store that is opened while the first servers start."""

    def __init__(self) -> None:
        self._protocols: asyncio.Future[ServerProtocols | None] = (
            asyncio.get_running_loop().create_future()
        )

    def settle(self, protocols: ServerProtocols | None) -> None:
        """Set the store, or ``None`` if it cannot be opened."""
        if not self._protocols.done():
            self._protocols.set_result(protocols)

    async def protocol_of(self, key: str) -> ServerProtocol | None:
        """Return the last known protocol of the server with that *key*."""
        protocols = await asyncio.shield(self._protocols)
        return await protocols.protocol_of(key) if protocols else None

    async def learn_protocol(self, key: str, protocol: ServerProtocol) -> None:
        """Remember the protocol of a server."""
        if protocols := await asyncio.shield(self._protocols):
            await protocols.learn_protocol(key, protocol)


@dataclass(slots=True, kw_only=True)
class Tooling:
    """
    Sets up the tools of one configuration after another.

    A server that two of them configure alike is started once.

    Attributes:
        redact: Learns the secrets of each configuration.

        on_event: Called with each event of a server.

        start: The servers that are started at once, by the agent that needs them;
            ``None``: those that are ``eager``, for each agent.

        protocols: Where the protocol of each server is remembered.

        logs: The folder for the standard error of servers.

        tokens: The folder of the tokens of logins.

        callers: The access tokens of those who ask for runs.
    """

    redact: Redactor
    telemetry: Observer
    on_event: Callable[[Event], None]
    start: Mapping[str, Collection[str]] | None = None
    protocols: ServerProtocols | None = None
    logs: Path | None = None
    tokens: Path | None = None
    callers: Callers = field(default_factory=Callers)
    _pool: Pool | None = field(default=None, init=False)
    _answers: list[Answers] = field(default_factory=list[Answers], init=False)

    @contextlib.asynccontextmanager
    async def open(self, config: Config) -> AsyncGenerator[ToolService]:
        """
        Set up a client for every configured server, and start the eager ones.

        This process becomes unreadable to other processes: it holds all credentials.
        """
        from ..sandbox.confine import harden_host  # noqa: PLC0415 -- 10 ms

        harden_host()
        self.redact.learn(config.secrets)
        async with contextlib.AsyncExitStack() as stack:
            clients: dict[str, ToolClient] = {}
            mcp: McpTools | None = None
            if config.servers:
                mcp = await stack.enter_async_context(self._servers(config))
                clients |= mcp.clients
                for agent, names in self._early(config).items():
                    await stack.enter_async_context(mcp.kept(agent, names))
            if config.webhooks:
                from ..webhooks import WebhookTools  # noqa: PLC0415 -- only with one

                clients[WEBHOOK] = await stack.enter_async_context(
                    WebhookTools(
                        config.webhooks,
                        redact=self.redact,
                        proxy=config.proxy,
                        trace_context=self.telemetry.headers,
                    )
                )
            tools = self.telemetry.traced(Routed(clients, mcp))
            if ttls := _ttls(config):
                answers = Answers(ttls=ttls, redact=self.redact)
                self._answers.append(answers)
                stack.callback(self._answers.remove, answers)
                tools = Cached(tools, answers)
            yield tools

    async def restart(self, request: Request) -> str:
        """Restart the server that a request names, and return the outcome."""
        if self._pool is None:
            return NOT_HERE
        return await self._pool.restart(request.subject or "") or NOT_HERE

    def _tell(self, event: Event) -> None:
        if isinstance(event, ToolsChanged):
            for answers in self._answers:
                answers.forget(event.server)
        self.on_event(event)

    def status(self) -> Sequence[ServerStatus]:
        """Return the state of each MCP server. May be called from another thread."""
        return self._pool.status() if self._pool else ()

    def _early(self, config: Config) -> Mapping[str, Collection[str]]:
        """Return the servers that each agent finds started."""
        if self.start is not None:
            return self.start
        eager = [name for name, one in config.servers.items() if one.eager]
        return {
            name: names
            for name, agent in config.agents.items()
            if (names := agent.grant.servers(eager))
        }

    def _servers(self, config: Config) -> McpTools:
        from ..mcp import McpTools, Pool  # noqa: PLC0415 -- only with a server

        if self._pool is None:
            self._pool = Pool(self.callers)
        needed = set[str]().union(*(self.start or {}).values())
        return McpTools(
            {
                name: replace(server, eager=server.eager or name in needed)
                for name, server in config.servers.items()
            },
            redact=self.redact,
            on_event=self._tell,
            trace_context=self.telemetry.headers,
            proxy=config.proxy,
            pool=self._pool,
            protocols=self.protocols,
            logs=self.logs,
            tokens=self.tokens,
        )


def _ttls(config: Config) -> dict[tuple[str, str], float]:
    """Return the seconds that answers are cached, by server and tool."""
    said = {(WEBHOOK, name): hook.cache for name, hook in config.webhooks.items()}
    said |= {
        (server, tool): options.cache
        for server, one in config.servers.items()
        for tool, options in one.tools.items()
    }
    return {target: ttl for target, ttl in said.items() if ttl is not None}


@contextlib.asynccontextmanager
async def open_tools(  # noqa: PLR0913 -- see `Tooling`
    config: Config,
    redact: Redactor,
    telemetry: Observer,
    on_event: Callable[[Event], None],
    *,
    protocols: ServerProtocols | None = None,
    logs: Path | None = None,
    tokens: Path | None = None,
) -> AsyncGenerator[ToolService]:
    """Set up the tools of one configuration. See `Tooling`."""
    tooling = Tooling(
        redact=redact,
        telemetry=telemetry,
        on_event=on_event,
        start={},
        protocols=protocols,
        logs=logs,
        tokens=tokens,
    )
    async with tooling.open(config) as tools:
        yield tools
