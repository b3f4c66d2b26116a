"""Brings up what reaches the tools of a configuration: servers and webhooks."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from .config import Config
from .core.calls import Completed
from .core.catalogue import Offered
from .core.events import Event
from .core.redact import Redactor
from .core.runs import Request
from .core.webhooks import SERVER as WEBHOOK
from .errors import ToolError
from .ports import RunScope, ToolClient, ToolRequest
from .telemetry import NoTelemetry, OtelTelemetry, TracedTools

if TYPE_CHECKING:
    from pathlib import Path

    from .mcp import McpTools, Pool

__all__ = ["Routed", "Tooling", "open_tools", "server_names"]


_NOT_HERE = "not here: no run has needed it"


@dataclass(frozen=True, slots=True)
class Routed:
    """
    Several tool clients as one; each server belongs to one of them.

    Attributes:
        clients: Name of a server to the client that reaches it.
    """

    clients: Mapping[str, ToolClient]

    def open(self, scope: RunScope) -> nullcontext[Self]:
        """Return itself: it serves every run alike."""
        del scope
        return nullcontext(self)

    async def offered(self, servers: Collection[str]) -> Offered:
        """Return what *servers* offer, by whichever client; others are left out."""
        groups: dict[int, tuple[ToolClient, list[str]]] = {}
        for name in servers:
            if client := self.clients.get(name):
                groups.setdefault(id(client), (client, []))[1].append(name)
        parts = [await client.offered(names) for client, names in groups.values()]
        return Offered(
            offers=tuple(offer for part in parts for offer in part.offers),
            servers={k: v for part in parts for k, v in part.servers.items()},
            options={k: v for part in parts for k, v in part.options.items()},
        )

    async def call_tool(self, request: ToolRequest) -> Completed:
        """Send *request* by the client of its server."""
        client = self.clients.get(request.server)
        if client is None:
            raise ToolError(
                "transport", "no", f"no server {request.server!r} is configured"
            )
        return await client.call_tool(request)


def server_names(config: Config) -> tuple[str, ...]:
    """Return what a grant may name: every server, and the group of webhooks."""
    return (*config.servers, *((WEBHOOK,) if config.webhooks else ()))


@dataclass(slots=True, kw_only=True)
class Tooling:
    """
    Brings up the tools of one configuration after another.

    A server that two of them describe alike is started once.

    Attributes:
        redact: Learns the secrets of each.

        on_event: Is told what happens to servers.

        start: Servers that are started at once, whatever the configuration says.

        logs: The folder where what they say to people is kept.
    """

    redact: Redactor
    telemetry: OtelTelemetry | NoTelemetry
    on_event: Callable[[Event], None]
    start: Collection[str] = ()
    logs: Path | None = None
    _pool: Pool | None = field(default=None, init=False)

    @contextlib.asynccontextmanager
    async def open(self, config: Config) -> AsyncGenerator[Routed | TracedTools]:
        """
        Bring up the client of every configured server; the eager ones are started.

        This process becomes unreadable to them: it holds the credentials of all.
        """
        from .sandbox.confine import harden_host  # noqa: PLC0415 -- 10 ms

        harden_host()
        self.redact.learn(config.secrets)
        async with contextlib.AsyncExitStack() as stack:
            clients: dict[str, ToolClient] = {}
            if config.servers:
                mcp = await stack.enter_async_context(self._servers(config))
                clients |= dict.fromkeys(config.servers, mcp)
            if config.webhooks:
                from .webhooks import WebhookTools  # noqa: PLC0415 -- only with one

                clients[WEBHOOK] = await stack.enter_async_context(
                    WebhookTools(
                        config.webhooks,
                        redact=self.redact,
                        proxy=config.proxy,
                        trace_context=self.telemetry.headers,
                    )
                )
            routed = Routed(clients)
            if isinstance(self.telemetry, OtelTelemetry):
                yield TracedTools(routed, self.telemetry)
            else:
                yield routed

    async def restart(self, request: Request) -> str:
        """Start the server anew that a request names, and return what came of it."""
        if self._pool is None:
            return _NOT_HERE
        return await self._pool.restart(request.subject or "") or _NOT_HERE

    def _servers(self, config: Config) -> McpTools:
        from .mcp import McpTools, Pool  # noqa: PLC0415 -- only with a server

        if self._pool is None:
            self._pool = Pool()
        return McpTools(
            {
                name: replace(server, eager=server.eager or name in self.start)
                for name, server in config.servers.items()
            },
            redact=self.redact,
            on_event=self.on_event,
            trace_context=self.telemetry.headers,
            proxy=config.proxy,
            logs=self.logs,
            pool=self._pool,
        )


@contextlib.asynccontextmanager
async def open_tools(
    config: Config,
    redact: Redactor,
    telemetry: OtelTelemetry | NoTelemetry,
    on_event: Callable[[Event], None],
    *,
    logs: Path | None = None,
) -> AsyncGenerator[Routed | TracedTools]:
    """Bring up the tools of one configuration. See `Tooling`."""
    tooling = Tooling(redact=redact, telemetry=telemetry, on_event=on_event, logs=logs)
    async with tooling.open(config) as tools:
        yield tools
