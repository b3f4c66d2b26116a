"""The servers of a host, shared by all its runs, as one client of tools."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from ..codec import canonical, sha256
from ..core.calls import Completed
from ..core.catalogue import Offered
from ..core.events import Event
from ..core.redact import Redactor
from ..core.servers import ServerConfig
from ..errors import ServerUnavailable, ToolError
from ..ports import ToolRequest
from .catalogue import check_names
from .serverlog import LogFile
from .status import ServerStatus
from .supervisor import Server

__all__ = ["McpTools"]


class PoolKey(NamedTuple):
    """
    What must be equal for two runs to share a process.

    Attributes:
        credentials: Digest of everything that the server is reached with: any of it
            may hold a secret.
    """

    trust_domain: str
    server: str
    credentials: str


class McpTools:
    """
    Tool servers that speak MCP, as a `ToolClient`.

    An asynchronous context manager: leaving it ends every server. What
    *trace_context* returns at the time of a call goes along in its ``_meta``: W3C's.
    Servers that have a URL are reached through the *proxy*, if there is one. What the
    others say to people is kept in the folder *logs*, a file each.
    """

    def __init__(  # noqa: PLR0913 -- one for each thing around it
        self,
        servers: Mapping[str, ServerConfig],
        *,
        redact: Redactor,
        on_event: Callable[[Event], None] | None = None,
        trace_context: Callable[[], Mapping[str, str]] = dict,
        proxy: str | None = None,
        logs: Path | None = None,
    ) -> None:
        self._keys = {name: _key(config) for name, config in servers.items()}
        self._pool = {
            self._keys[name]: Server(
                config,
                redact,
                on_event or _ignore,
                trace_context,
                proxy,
                log=LogFile(logs, name) if logs else None,
            )
            for name, config in servers.items()
        }

    async def __aenter__(self) -> Self:
        for server in self._pool.values():
            if server.config.eager:
                server.want()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.gather(*(server.close() for server in self._pool.values()))

    async def offered(self, servers: Collection[str]) -> Offered:
        """
        Return what *servers* offer, starting those that are not running.

        Names that are no MCP servers are left to others.

        Raises:
            ServerUnavailable: One that is ``required`` cannot be reached.

            ConfigError: Two of the tools would have the same name.
        """
        asked = [self._pool[self._keys[name]] for name in servers if name in self._keys]
        found = await asyncio.gather(*(server.offers() for server in asked))
        offers = tuple(offer for some in found for offer in some)
        check_names(offers)
        return Offered(
            offers=offers,
            servers={server.config.name: server.described() for server in asked},
            options={
                (server.config.name, tool): options
                for server in asked
                for tool, options in server.config.tools.items()
            },
        )

    async def call_tool(self, request: ToolRequest) -> Completed:
        """
        Send *request* once, and return the bounded, redacted answer.

        Raises:
            ToolError: There is none.
        """
        key = self._keys.get(request.server)
        if key is None:
            raise ToolError("transport", "no", f"there is no server {request.server}")
        return await self._pool[key].call(request)

    def status(self) -> tuple[ServerStatus, ...]:
        """Return how each server does."""
        return tuple(server.status() for server in self._pool.values())

    def problem(self, server: str) -> ServerUnavailable | None:
        """Return why *server* is down, as far as known; ``None`` if it is not."""
        return self._pool[self._keys[server]].problem


def _ignore(_event: Event) -> None:
    """Take an event that nobody asked for."""


def _key(config: ServerConfig) -> PoolKey:
    given = canonical(
        [[*config.command], config.url, dict(config.env), dict(config.headers)]
    )
    return PoolKey("default", config.name, sha256(given))
