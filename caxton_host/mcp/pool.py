"""The MCP servers of a host, shared by all its runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self
from weakref import WeakValueDictionary, finalize

from ..core.calls import JSON
from ..core.grants.principals import Callers, named, trust_domain
from ..core.log.events import Event
from ..core.log.requests import FAILED, RESTARTED
from ..core.text.redact import Redactor
from ..core.tools.servers import ServerConfig
from ..errors import ServerUnavailable
from ..gateway.tool_layers import ToolRouter
from ..lib.codec import canonical, sha256
from ..ports.log import ServerProtocols
from ..ports.tools import RunScope
from .auth.oauth import Access
from .auth.tokens import TokenFile
from .health import ServerStatus
from .run_headers import LeftOut, composed, fill, refers_to_run
from .supervisor import Server
from .transport.serverlog import LogFile

_OF_A_RUN = "its headers or tokens depend on the context of a run"
_OF_A_DOMAIN = "each agent has a process of its own"

#: Lingering servers that are kept, and the seconds that a connection is kept. A process
#: takes longer to start.
_IDLE = 32
_LINGER_S, _PROCESS_LINGER_S = 60.0, 300.0


class PoolKey(NamedTuple):
    """
    Identifies servers that runs may share.

    Attributes:
        domain: The trust domain that has it alone; ``None``: all share it.

        credentials: Digest of command, address, environment, headers and proxy, any of
            which may hold a secret.
    """

    domain: str | None
    server: str
    credentials: str


class Pool:
    """
    Servers that several clients share, with the number of clients that use each.

    Args:
        callers: The access tokens of those who ask for runs.
    """

    def __init__(self, callers: Callers | None = None) -> None:
        self.callers = callers or Callers()
        self._holders: dict[PoolKey, list[tuple[Server, int]]] = {}
        self._idle: dict[Server, tuple[PoolKey, asyncio.TimerHandle]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._access: WeakValueDictionary[PoolKey, Access] = WeakValueDictionary()

    def take(
        self, key: PoolKey, config: ServerConfig, make: Callable[[], Server]
    ) -> Server:
        """Return the server with that *key* and configuration, or make one."""
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
        """Return the tokens of a server, which all its clients share."""
        if config.oauth is None or config.url is None:
            return None
        by_login = config.oauth.flow == "code"
        if by_login and tokens is None:
            return None
        said = canonical([config.url, asdict(config.oauth), proxy])
        key = PoolKey(None, config.name, sha256(said))
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
                caller=partial(self.callers.token, config.oauth.principal),
            )
            self._access[key] = found
            # There is one for each caller of a run.
            finalize(found, redact.let_go, owner)
        return found

    def status(self) -> list[ServerStatus]:
        """Return the state of each server. May be called from another thread."""
        held = [one for some in [*self._holders.values()] for one, _ in [*some]]
        return [server.status() for server in held]

    async def restart(self, name: str) -> str | None:
        """Restart the servers called *name*; return the outcome, or ``None``."""
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
        Release a server.

        After its last client it ends, or lingers for the next one if it was started.
        """
        held = self._holders[key]
        n = next(n for n, (one, _) in enumerate(held) if one is server)
        held[n] = server, held[n][1] - 1
        if held[n][1]:
            return
        if not (linger and server.started):
            await self._end(key, server)
            return
        seconds = _PROCESS_LINGER_S if server.config.command else _LINGER_S
        timer = asyncio.get_running_loop().call_later(seconds, self._evict, server)
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
        """End those of the named servers that linger."""
        for server, (key, _) in [*self._idle.items()]:
            if key.server in names:
                self._evict(server)
        await asyncio.gather(*self._ending)


def _alike(one: ServerConfig, other: ServerConfig) -> bool:
    # The time of its start makes no difference.
    return replace(one, eager=False) == replace(other, eager=False)


class McpTools(ToolRouter):
    """
    Tool servers that speak MCP, as a `ToolClient`.

    An asynchronous context manager: leaving it ends every server that no other client
    uses. Servers whose headers or tokens are those of a run, and confined ones that
    are not ``shared``, are reached for one run only: see `open`.

    Args:
        servers: By name.

        redact: Removes secrets from what servers say.

        on_event: Called with each event of a server.

        trace_context: Returns the W3C trace context of a call, for its ``_meta``.

        proxy: For requests to servers that have a URL.

        pool: Servers that are shared with other clients.

        protocols: Where the protocol of each server is remembered.

        logs: The folder for the standard error of servers, one file each.

        tokens: The folder of the tokens of logins.

        linger: Keep servers for a while after this ends, for the next client.

        domain: The trust domain whose own servers these are, instead of those of all.
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
        protocols: ServerProtocols | None = None,
        logs: Path | None = None,
        tokens: Path | None = None,
        linger: bool = False,
        domain: str | None = None,
    ) -> None:
        self._shared = pool or Pool()
        self._linger = linger
        self._apart = {
            name: config
            for name, config in servers.items()
            if config.confine and not config.confine.shared and domain is None
        }
        self._for_runs = self._apart | {
            name: config for name, config in servers.items() if refers_to_run(config)
        }
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
            protocols=protocols,
            logs=logs,
            tokens=tokens,
            linger=True,
        )
        keys = {name: _key(config, proxy, domain) for name, config in servers.items()}
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
                    protocols=protocols,
                    log=LogFile(logs, name) if logs else None,
                    access=self._shared.access(servers[name], redact, proxy, tokens),
                    domain=key.domain,
                ),
            )
            for name, key in keys.items()
        }
        self._servers = {name: self._pool[key] for name, key in keys.items()}
        missing = {
            name: LeftOut(it, _OF_A_DOMAIN if name in self._apart else _OF_A_RUN)
            for name, it in self._for_runs.items()
        }
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

        Servers whose headers refer to its context are reached with those values, and
        with tokens of its caller. Runs with equal values share a connection; others
        never do. Confined servers have a process for each trust domain.
        """
        if not self._for_runs:
            yield self
            return
        caller = named(scope.actor)
        caller = caller if self._shared.callers.token(caller) else ""
        filled, problems = fill(self._for_runs, scope.context, caller)
        missing = {n: LeftOut(self._for_runs[n], why) for n, why in problems.items()}
        owner = f"headers of {scope.run_id}"
        self._redact.hold(owner, composed(self._for_runs, filled))
        domain = trust_domain(scope.agent, scope.actor)
        try:
            async with self._again(filled, domain=domain) as own:
                yield ToolRouter({**self.clients, **own.clients, **missing})
        finally:
            self._redact.hold(owner, ())

    @asynccontextmanager
    async def kept(self, agent: str, names: Collection[str]) -> AsyncGenerator[None]:
        """Start the processes that an agent has of the named servers, and keep them."""
        own = {
            n: replace(it, eager=True) for n, it in self._apart.items() if n in names
        }
        async with self._again(own, domain=trust_domain(agent, {})):
            yield

    def status(self) -> tuple[ServerStatus, ...]:
        """Return the state of each server."""
        return tuple(server.status() for server in self._pool.values())

    def problem(self, server: str) -> ServerUnavailable | None:
        """Return why *server* is down, or ``None``."""
        if server in self._for_runs:
            return ServerUnavailable(_OF_A_RUN)
        return self._servers[server].problem


def _ignore(_event: Event) -> None:
    """Drop an event."""


def _key(
    config: ServerConfig, proxy: str | None = None, domain: str | None = None
) -> PoolKey:
    given: list[JSON] = [
        [*config.command],
        config.url,
        dict(config.env),
        dict(config.headers),
        proxy,
        asdict(config.oauth) if config.oauth else None,
    ]
    domain = domain if config.confine else None
    return PoolKey(domain, config.name, sha256(canonical(given)))
