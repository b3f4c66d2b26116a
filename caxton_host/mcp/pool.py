"""The servers of a host, shared by all its runs, as one client of tools."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
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

__all__ = ["McpTools", "Pool"]


class PoolKey(NamedTuple):
    """
    What must be equal for two runs to share a process.

    Attributes:
        credentials: Digest of everything that the server is reached with, and
            through: any of it may hold a secret.
    """

    trust_domain: str
    server: str
    credentials: str


class Pool:
    """Servers that several clients share, and how many of them hold each."""

    def __init__(self) -> None:
        self._holders: dict[PoolKey, list[tuple[Server, int]]] = {}

    def take(
        self, key: PoolKey, config: ServerConfig, make: Callable[[], Server]
    ) -> Server:
        """Return the server with that *key* that is configured alike, or make one."""
        held = self._holders.setdefault(key, [])
        for n, (server, holders) in enumerate(held):
            if _alike(server.config, config):
                held[n] = server, holders + 1
                return server
        server = make()
        held.append((server, 1))
        return server

    async def restart(self, name: str) -> str | None:
        """Start servers of that *name* anew: what came of it; ``None``: none is so."""
        named = [
            server
            for key, held in self._holders.items()
            for server, _ in held
            if key.server == name
        ]
        problems = await asyncio.gather(*(server.restart() for server in named))
        if not named:
            return None
        found = [str(problem) for problem in problems if problem]
        return f"failed: {'; '.join(found)}" if found else "restarted"

    async def give_back(self, key: PoolKey, server: Server) -> None:
        """Hold a server no longer. It ends with its last holder."""
        held = self._holders[key]
        n = next(n for n, (one, _) in enumerate(held) if one is server)
        if held[n][1] > 1:
            held[n] = server, held[n][1] - 1
            return
        del held[n]
        if not held:
            del self._holders[key]
        await server.close()


def _alike(one: ServerConfig, other: ServerConfig) -> bool:
    # When it is started makes no other server of it.
    return replace(one, eager=False) == replace(other, eager=False)


class McpTools:
    """
    Tool servers that speak MCP, as a `ToolClient`.

    An asynchronous context manager: leaving it ends every server. What
    *trace_context* returns at the time of a call goes along in its ``_meta``: W3C's.
    Servers that have a URL are reached through the *proxy*, if there is one. What the
    others say to people is kept in the folder *logs*, a file each. Those of a *pool*
    are shared with other clients of it.
    """

    def __init__(  # noqa: PLR0913 -- what a server takes, and who else has it
        self,
        servers: Mapping[str, ServerConfig],
        *,
        redact: Redactor,
        on_event: Callable[[Event], None] | None = None,
        trace_context: Callable[[], Mapping[str, str]] = dict,
        proxy: str | None = None,
        logs: Path | None = None,
        pool: Pool | None = None,
    ) -> None:
        self._shared = pool or Pool()
        self._eager = [name for name, config in servers.items() if config.eager]
        self._keys = {name: _key(config, proxy) for name, config in servers.items()}
        tell = on_event or _ignore
        self._pool = {
            key: self._shared.take(
                key,
                servers[name],
                partial(
                    Server,
                    servers[name],
                    redact,
                    tell,
                    trace_context,
                    proxy,
                    log=LogFile(logs, name) if logs else None,
                ),
            )
            for name, key in self._keys.items()
        }

    async def __aenter__(self) -> Self:
        for name in self._eager:
            self._pool[self._keys[name]].want()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.gather(
            *(self._shared.give_back(key, server) for key, server in self._pool.items())
        )

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


def _key(config: ServerConfig, proxy: str | None = None) -> PoolKey:
    given = canonical(
        [[*config.command], config.url, dict(config.env), dict(config.headers), proxy]
    )
    return PoolKey("default", config.name, sha256(given))
