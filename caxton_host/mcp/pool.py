"""The servers of a host, shared by all its runs, as one client of tools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self
from weakref import WeakValueDictionary

from ..core.calls import JSON
from ..core.log.events import Event
from ..core.log.request_outcomes import FAILED, RESTARTED
from ..core.text.redact import Redactor
from ..core.tools.servers import ServerConfig
from ..errors import ServerUnavailable
from ..gateway.tool_layers import ToolRouter
from ..lib.codec import canonical, sha256
from ..ports import Eras, RunScope
from .auth.oauth import Access
from .auth.tokens import TokenFile
from .health import ServerStatus
from .run_headers import LeftOut, composed, fill, refers_to_run
from .supervisor import Server
from .transport.serverlog import LogFile

_TRUST_DOMAIN = "default"

_OF_A_RUN = "its headers refer to the context of a run"

#: Servers that are kept for the next run with the same headers: how many, how long.
_IDLE = 32
_LINGER = 60.0


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
        self._idle: dict[Server, tuple[PoolKey, asyncio.TimerHandle]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._access: WeakValueDictionary[PoolKey, Access] = WeakValueDictionary()

    def take(
        self, key: PoolKey, config: ServerConfig, make: Callable[[], Server]
    ) -> Server:
        """Return the server with that *key* that is configured alike, or make one."""
        held = self._holders.setdefault(key, [])
        for n, (server, holders) in enumerate(held):
            if _alike(server.config, config):
                held[n] = server, holders + 1
                if server in self._idle:
                    self._idle.pop(server)[1].cancel()
                return server
        server = make()
        held.append((server, 1))
        return server

    def access(
        self,
        config: ServerConfig,
        redact: Redactor,
        proxy: str | None,
        tokens: Path | None = None,
    ) -> Access | None:
        """Return the tokens of a server: the same for all that use it."""
        if config.oauth is None or config.url is None:
            return None
        by_login = config.oauth.flow == "code"
        if by_login and tokens is None:
            return None
        said = canonical([config.url, asdict(config.oauth), proxy])
        key = PoolKey(_TRUST_DOMAIN, config.name, sha256(said))
        found = self._access.get(key)
        if found is None:
            owner = f"token {config.name} {key.credentials}"
            found = Access(
                config.oauth,
                config.url,
                redact,
                owner=owner,
                proxy=proxy,
                name=config.name,
                file=TokenFile(tokens, config) if tokens and by_login else None,
            )
            self._access[key] = found
        return found

    def status(self) -> list[ServerStatus]:
        """Return how each server does. May be called from another thread."""
        held = [one for some in [*self._holders.values()] for one, _ in [*some]]
        return [server.status() for server in held]

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
        return f"{FAILED}{'; '.join(found)}" if found else RESTARTED

    async def give_back(
        self, key: PoolKey, server: Server, *, linger: bool = False
    ) -> None:
        """
        Hold a server no longer.

        It ends with its last holder, or it is kept for a while for the next one.
        """
        held = self._holders[key]
        n = next(n for n, (one, _) in enumerate(held) if one is server)
        held[n] = server, held[n][1] - 1
        if held[n][1]:
            return
        if not linger:
            await self._end(key, server)
            return
        timer = asyncio.get_running_loop().call_later(_LINGER, self._evict, server)
        self._idle[server] = key, timer
        if len(self._idle) > _IDLE:
            self._evict(next(iter(self._idle)))

    def _evict(self, server: Server) -> None:
        key, timer = self._idle.pop(server)
        timer.cancel()
        task = asyncio.create_task(self._end(key, server))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end(self, key: PoolKey, server: Server) -> None:
        held = self._holders[key]
        held[:] = [one for one in held if one[0] is not server]
        if not held:
            del self._holders[key]
        await server.close()

    async def clear(self, names: Collection[str]) -> None:
        """End those of the named servers that nobody holds."""
        for server, (key, _) in [*self._idle.items()]:
            if key.server in names:
                self._evict(server)
        await asyncio.gather(*self._ending)


def _alike(one: ServerConfig, other: ServerConfig) -> bool:
    # When it is started makes no other server of it.
    return replace(one, eager=False) == replace(other, eager=False)


class McpTools(ToolRouter):
    """
    Tool servers that speak MCP, as a `ToolClient`.

    An asynchronous context manager: leaving it ends every server. What
    *trace_context* returns at the time of a call goes along in its ``_meta``: W3C's.
    Servers that have a URL are reached through the *proxy*, if there is one; what the
    others say to people is kept in the folder *logs*, a file each. Those of a *pool*
    are shared with other clients of it; those that are to *linger* are kept for a
    while when this ends. What they speak is remembered in *eras*. Servers whose headers
    refer to the context of a run are reached for a run alone: see `open`. Logins left
    their tokens in the folder *tokens*.
    """

    def __init__(  # noqa: PLR0913 -- what a server takes, and who else has it
        self,
        servers: Mapping[str, ServerConfig],
        *,
        redact: Redactor,
        on_event: Callable[[Event], None] | None = None,
        trace_context: Callable[[], Mapping[str, str]] = dict,
        proxy: str | None = None,
        pool: Pool | None = None,
        eras: Eras | None = None,
        logs: Path | None = None,
        tokens: Path | None = None,
        linger: bool = False,
    ) -> None:
        self._shared = pool or Pool()
        self._linger = linger
        self._for_runs = {n: it for n, it in servers.items() if refers_to_run(it)}
        servers = {n: it for n, it in servers.items() if n not in self._for_runs}
        self._eager = [name for name, config in servers.items() if config.eager]
        self._redact = redact
        self._again = partial(
            McpTools,
            redact=redact,
            on_event=on_event,
            trace_context=trace_context,
            proxy=proxy,
            pool=self._shared,
            eras=eras,
            tokens=tokens,
            linger=True,
        )
        keys = {name: _key(config, proxy) for name, config in servers.items()}
        self._pool = {
            key: self._shared.take(
                key,
                servers[name],
                partial(
                    Server,
                    servers[name],
                    redact,
                    on_event or _ignore,
                    trace_context,
                    proxy=proxy,
                    eras=eras,
                    log=LogFile(logs, name) if logs else None,
                    access=self._shared.access(servers[name], redact, proxy, tokens),
                ),
            )
            for name, key in keys.items()
        }
        self._servers = {name: self._pool[key] for name, key in keys.items()}
        missing = {n: LeftOut(it, _OF_A_RUN) for n, it in self._for_runs.items()}
        super().__init__({**self._servers, **missing})

    async def __aenter__(self) -> Self:
        for name in self._eager:
            self._servers[name].want()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.gather(
            *(
                self._shared.give_back(key, server, linger=self._linger)
                for key, server in self._pool.items()
            )
        )
        await self._shared.clear(self._for_runs)

    @asynccontextmanager
    async def open(self, scope: RunScope) -> AsyncGenerator[ToolRouter]:
        """
        Return the tools of one run.

        Servers whose headers refer to its context are reached with those values. Runs
        with equal values share a connection; others never do.
        """
        if not self._for_runs:
            yield self
            return
        filled, problems = fill(self._for_runs, scope.context)
        missing = {n: LeftOut(self._for_runs[n], why) for n, why in problems.items()}
        owner = f"headers of {scope.run_id}"
        self._redact.hold(owner, composed(self._for_runs, filled))
        try:
            async with self._again(filled) as own:
                yield ToolRouter({**self.clients, **own.clients, **missing})
        finally:
            self._redact.hold(owner, ())

    def status(self) -> tuple[ServerStatus, ...]:
        """Return how each server does."""
        return tuple(server.status() for server in self._pool.values())

    def problem(self, server: str) -> ServerUnavailable | None:
        """Return why *server* is down, as far as known; ``None`` if it is not."""
        if server in self._for_runs:
            return ServerUnavailable(_OF_A_RUN)
        return self._servers[server].problem


def _ignore(_event: Event) -> None:
    """Take an event that nobody asked for."""


def _key(config: ServerConfig, proxy: str | None = None) -> PoolKey:
    given: list[JSON] = [
        [*config.command],
        config.url,
        dict(config.env),
        dict(config.headers),
        proxy,
        asdict(config.oauth) if config.oauth else None,
    ]
    return PoolKey(_TRUST_DOMAIN, config.name, sha256(canonical(given)))
