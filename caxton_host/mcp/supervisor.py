"""
One server of the pool: started when first needed, restarted, and ended with the host.

Each server has one task, which opens a connection, waits for its end and opens the
next one. Callers only wait for the outcome of an attempt.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import lru_cache, partial
from urllib.parse import urlsplit

from ..core.calls import JSON, Completed
from ..core.grants.tool_catalog import Offer, Offered
from ..core.log.events import (
    Event,
    ServerConnected,
    ServerDisabled,
    ServerEvent,
    ServerFailed,
    ServerLost,
    ServerRestarted,
)
from ..core.text.redact import Redactor, plain
from ..core.tools.contexts import ServerResource
from ..core.tools.servers import ServerConfig, ToolOptions
from ..errors import CaxtonError, ServerUnavailable, TokenError, ToolError
from ..lib.codec import canonical, sha256
from ..ports.log import ServerProtocol, ServerProtocols
from ..ports.tools import Progress, RunScope, ToolRequest
from .admission import Gate, by
from .auth.oauth import Access
from .catalogue import report_changes
from .connect import ProtocolMemory, connect
from .connection import Connection
from .health import Latency, ServerStatus, watch
from .transport.serverlog import LogFile
from .transport.stdio import shown
from .transport.timing import Alarms

logger = logging.getLogger(__name__)

_LONGEST_BACKOFF = 60.0

#: Seconds that a call waits for a server beyond its ``start_timeout``.
_PATIENCE = 5.0

#: Tools whose options are cached.
_TOOLS = 1_000


class Server:
    """
    One server, as a `ToolClient`.

    Attributes:
        problem: Why the last attempt to connect failed, or ``None``.
    """

    def __init__(  # noqa: PLR0913 -- one for each thing around it
        self,
        config: ServerConfig,
        redact: Redactor,
        emit: Callable[[Event], None],
        trace_context: Callable[[], Mapping[str, str]],
        *,
        proxy: str | None = None,
        protocols: ServerProtocols | None = None,
        log: LogFile | None = None,
        access: Access | None = None,
        domain: str | None = None,
    ) -> None:
        self.config = config
        self.problem: ServerUnavailable | None = None
        self._options = lru_cache(_TOOLS)(config.options)
        self._redact = redact
        self._on_event = emit
        self._trace_context = trace_context
        self._proxy = proxy
        self._log = log
        self._access = access
        self._domain = domain
        self._gate = Gate(config, self._emit)
        self._current: Connection | None = None
        # The outcome of the attempt to connect that callers wait for.
        self._attempt: asyncio.Future[Connection | None] | None = None
        # The one task that opens and closes connections.
        self._owner: asyncio.Task[None] | None = None
        # Set while a connection is needed.
        self._wanted = asyncio.Event()
        # It failed too often, or the host ends: no attempt is made any more.
        self._disabled = False
        # The connection was ended by `restart`, so the next attempt is made at once.
        self._by_hand = False
        # Of the current outage: a warning was logged, and an event was recorded.
        self._warned = self._recorded = False
        # Restarts in a row.
        self._restarts = 0
        self._memory = ProtocolMemory(config, self._digest(), protocols)
        self._known: dict[str, Offer] = {}
        self._generation = 0
        self._latency = Latency()
        self._alarms = Alarms()

    # -- for runs --------------------------------------------------------------

    async def call_tool(self, request: ToolRequest) -> Completed:
        """
        Send *request* once. See `ToolClient`.

        Its timeout bounds the wait for a slot, and then the send. If the server has to
        start in between, ``start_timeout`` bounds that.
        """
        options, loop = self._options(request.tool), asyncio.get_running_loop()
        now, began, alarm = loop.time(), None, None
        seconds = options.timeout or self.config.timeout
        seconds = min(seconds, request.timeout or seconds)
        if wait := options.slow_response_threshold:
            tell = partial(_slow, options, request.tool, request.on_progress)
            alarm = self._alarms.at(now + wait, tell)
        try:
            with request.queued():
                began = await self._gate.enter(request, now + seconds, seconds)
                connection = await self._usable(seconds)
            deadline = loop.time() + seconds
            done = await connection.call(request, self._trace_context(), deadline)
        except BaseException as exc:
            if began is not None:
                self._gate.leave(began, exc)
            raise
        finally:
            if alarm is not None:
                self._alarms.off(alarm)
        self._gate.leave(began, None)
        self._latency.add(done.duration_us)
        return done

    async def _usable(self, seconds: float) -> Connection:
        """Return a connection that is ready for a call."""
        now = self._current
        if now is not None and now.ready:
            return now
        clock = asyncio.get_running_loop().time
        patience = self.config.start_timeout + _PATIENCE
        connection = await by(clock() + patience, self._connected(), patience)
        if connection is None:
            why = f"the server {self.config.name} is down"
            cause = self.problem.__cause__ if self.problem else None
            if isinstance(cause, TokenError):
                raise TokenError("transport", "no", why, fix=cause.fix)
            raise ToolError("transport", "no", why)
        deadline = clock() + seconds
        return await by(deadline, self._refreshed(connection, deadline), seconds)

    async def _refreshed(self, connection: Connection, deadline: float) -> Connection:
        try:
            if await connection.refresh(deadline):
                self._learn(connection)
        except ToolError as exc:
            raise type(exc)(exc.kind, "no", str(exc), fix=exc.fix) from None
        await connection.writable()
        return connection

    async def offered(self, servers: Collection[str]) -> Offered:
        """
        Return what the server offers. See `ToolClient`.

        A server that cannot list its tools offers nothing, and ``problem`` says why.
        There is one warning per outage.
        """
        del servers
        name, described = self.config.name, self._described
        known = self.config.tools
        options = {(name, tool): self.config.options(tool) for tool in known}
        try:
            connection = await self._usable(self.config.start_timeout)
        except ToolError as exc:
            problem = self.problem or ServerUnavailable(str(exc))
        else:
            self._warned = False
            return Offered(
                offers=tuple(connection.offers.values()),
                servers={name: described()},
                options=options,
            )
        ends = self._disabled and self.problem is None  # with its host
        if self.config.required and not ends:
            raise ServerUnavailable(
                f"the server {name} is down: {problem}", fix=problem.fix
            )
        if not self._warned and not ends:
            self._warned = True
            logger.warning(
                "MCP: failed to initialize %s, skipping: %s. To fix: %s",
                self._address(),
                problem,
                problem.fix,
            )
        why = plain(str(problem), self._redact)
        return Offered(servers={name: described() | {"problem": why}}, options=options)

    async def resources(
        self, servers: Collection[str], scope: RunScope
    ) -> Sequence[ServerResource]:
        """Read the resources that the configuration selects. See `ToolClient`."""
        del servers
        wanted, seconds = self.config.resources, self.config.timeout
        if wanted is None:
            return ()
        try:
            connection = await self._usable(seconds)
            deadline = asyncio.get_running_loop().time() + seconds
            found = await connection.resources(wanted, scope, deadline)
        except ToolError as exc:
            error = f"{exc.kind}: {exc}"
            found = [
                ServerResource(server=self.config.name, key="", uri="", error=error)
            ]
        for one in found:
            if one.error is None:
                continue
            if wanted.required:
                raise ServerUnavailable(
                    f"a required resource of {self.config.name} cannot be read: "
                    f"{one.uri or 'all'}: {one.error}",
                    fix=f"caxton server test {self.config.name}",
                )
            logger.warning(
                "MCP: %s: resource %s left out: %s",
                *(self.config.name, one.uri or "list", one.error),
            )
        return found

    def _described(self) -> dict[str, JSON]:
        now = self._current
        up = now is not None and now.alive
        return {
            "transport": self.config.transport,
            "address": self._digest(),
            "name": now.name if now and up else None,
            "version": now.version if now and up else None,
            "protocol": now.protocol if now and up else None,
        }

    def status(self) -> ServerStatus:
        """Return its state."""
        now = self._current if self._current and self._current.alive else None
        return ServerStatus(
            server=self.config.name,
            up=now is not None,
            protocol=now.protocol if now else None,
            latency_us=self._latency.median,
            restarts=self._restarts,
            disabled=self._disabled,
            breaker=self._gate.breaker.state,
            generation=self._generation,
            tools=len(self._known),
            problem=str(self.problem) if self.problem else None,
        )

    def _address(self) -> str:
        if self.config.url is not None:
            return self._redact.text(_place(self.config.url))
        return shown(self.config, self._redact)

    def _digest(self) -> str:
        if self.config.url is not None:
            return self._redact.text(_place(self.config.url))
        return "sha256:" + sha256(canonical([*self.config.command]))

    # -- the owner -------------------------------------------------------------

    def _emit(self, event: Event) -> None:
        if isinstance(event, ServerEvent):
            event = replace(event, domain=self._domain)
        try:
            self._on_event(event)
        except CaxtonError:
            # A log that fails is reported by the runs; servers go on without it.
            logger.exception("MCP: an event of %s was lost", self.config.name)

    @property
    def started(self) -> bool:
        """Whether it was ever needed."""
        return self._owner is not None

    def want(self) -> None:
        """Request a connection, without waiting for it."""
        if self._owner is None:
            self._owner = asyncio.create_task(
                self._own(), name=f"mcp server {self.config.name}"
            )
        self._wanted.set()

    async def _connected(self) -> Connection | None:
        if self._current is not None and self._current.alive:
            return self._current
        if self._disabled:
            return None
        if self._attempt is None:
            self._attempt = asyncio.get_running_loop().create_future()
        self.want()
        return await asyncio.shield(self._attempt)

    async def restart(self) -> ServerUnavailable | None:
        """Replace the connection, and return why that failed, if it did."""
        self._recorded = False
        if self._disabled and self._owner is not None:
            await asyncio.wait([self._owner])
            self._owner, self._disabled, self._restarts = None, False, 1
        elif self._current is not None:
            self._by_hand = True
            self._current.lose("it is restarted by hand")
        return None if await self._connected() else self.problem

    async def close(self) -> None:
        """End the server, and fail the callers that wait for it."""
        self._disabled = True
        if self._owner is not None:
            self._owner.cancel()
            await asyncio.wait([self._owner])
        self._alarms.end()
        await self._memory.close()

    async def _own(self) -> None:
        try:
            await self._keep_up()
        except Exception as exc:
            logger.exception("MCP: %s is given up", self.config.name)
            self.problem = ServerUnavailable(f"the host failed: {type(exc).__name__}")
            self._emit(
                ServerDisabled(server=self.config.name, reason=str(self.problem))
            )
        finally:
            # Whatever the reason, callers must not wait for a connection any more.
            self._disabled = True
            self._current = None
            self._settle(None)

    async def _keep_up(self) -> None:
        loop = asyncio.get_running_loop()
        not_before = 0.0
        while not self._disabled:
            await self._wanted.wait()
            await asyncio.sleep(not_before - loop.time())
            if self._restarts:
                self._emit(
                    ServerRestarted(server=self.config.name, attempt=self._restarts)
                )
            try:
                async with connect(
                    self.config,
                    self._redact,
                    legacy=self._memory.legacy,
                    proxy=self._proxy,
                    log=self._log,
                    access=self._access,
                    emit=self._emit,
                ) as connection:
                    lived = await self._live(connection)
            except ServerUnavailable as exc:
                delay = self._failed(exc)
            else:
                delay = self._again(lived)
            not_before = loop.time() + delay

    async def _live(self, connection: Connection) -> float:
        """Wait until the connection ends, and return how many seconds it lasted."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._memory.learn(ServerProtocol(connection.protocol, connection.legacy))
        self._current, self.problem, self._recorded = connection, None, False
        self._emit(
            ServerConnected(
                server=self.config.name,
                name=connection.name,
                version=connection.version,
                protocol=connection.protocol,
                tools=len(connection.offers),
            )
        )
        self._learn(connection)
        self._settle(connection)
        async with self._watched(connection):
            reason = await connection.ended()
        self._current, self.problem = None, ServerUnavailable(reason)
        self._emit(ServerLost(server=self.config.name, reason=reason))
        return loop.time() - began

    @asynccontextmanager
    async def _watched(self, connection: Connection) -> AsyncGenerator[None]:
        if not self.config.health:
            yield
            return
        watcher = asyncio.create_task(
            watch(
                connection,
                self.config.health,
                self._gate.rested,
                self._gate.silent,
            ),
            name=f"health of {self.config.name}",
        )
        try:
            yield
        finally:
            watcher.cancel()
            await asyncio.wait([watcher])

    def _failed(self, problem: ServerUnavailable) -> float:
        self.problem = problem
        if not self._recorded:
            self._recorded = True
            reason = plain(str(problem), self._redact)
            self._emit(ServerFailed(server=self.config.name, reason=reason))
        self._memory.forget()
        self._settle(None)
        return self._again(0) if self._restarts else self.config.restart.backoff

    def _again(self, lived: float) -> float:
        """Return how many seconds to wait before the next restart, if there is one."""
        restart = self.config.restart
        if self._by_hand:
            self._by_hand, self._restarts = False, 1
            self.want()
            return 0
        if self.config.url is not None:
            # A remote server is not restarted: the next call connects again.
            return 0
        if lived >= restart.reset_after:
            self._restarts = 0
        if not restart.enabled or self._restarts >= restart.max_restarts:
            self._disabled = True
            self._emit(
                ServerDisabled(server=self.config.name, reason=str(self.problem))
            )
            self._settle(None)
            return 0
        self._restarts += 1
        self.want()
        if self._restarts == 1:
            return 0
        delay = restart.backoff * 2.0 ** min(self._restarts - 2, 16)
        return min(delay, _LONGEST_BACKOFF) * (0.5 + secrets.randbelow(501) / 1000)

    def _settle(self, outcome: Connection | None) -> None:
        self._wanted.clear()
        waiting, self._attempt = self._attempt, None
        if waiting is not None:
            waiting.set_result(outcome)

    def _learn(self, connection: Connection) -> None:
        """Log and record what changed in the tools of the server."""
        old, new = self._known, dict(connection.offers)
        self._known = new
        self._generation += old != new or not self._generation
        if changed := report_changes(self.config, old, new, connection.left_out):
            self._emit(changed)


def _place(url: str) -> str:
    """Return a URL without user information and query, which may hold secrets."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _slow(options: ToolOptions, tool: str, tell: Callable[[Progress], None]) -> None:
    """Report that a call is slow."""
    text = (options.slow_response_message or "").replace("{tool}", tool)
    tell(Progress(message=text))
