"""
Connects to one server with the official SDK.

The SDK negotiates the protocol; `Connection` does the rest. What each server speaks is
remembered, and changes of its tools are listened for while a connection lasts.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import os
import re
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn

from .. import __version__
from ..core.calls import JSON
from ..core.log.events import Event
from ..core.text.redact import Redactor, plain
from ..core.tools.confinement import NOT_CONFINED
from ..core.tools.servers import ServerConfig
from ..errors import CaxtonError, ServerUnavailable, TokenError, ToolError
from ..lib.codec import canonical, sha256
from ..lib.machine import SystemClock
from ..ports.log import ServerProtocol, ServerProtocols
from ..sandbox.launch import CANNOT
from .auth.oauth import Access
from .connection import Connection
from .transport import stdio
from .transport.messages import Refusal
from .transport.serverlog import LogFile
from .transport.wire import Link, Strays, Wire, tap_of

if TYPE_CHECKING:
    from mcp.client.session import ClientSession
    from mcp_types import Implementation


logger = logging.getLogger(__name__)

#: Seconds after which a server that has not answered the newest handshake is offered
#: the old one as well. If it is only slow to start, its first answer counts.
_PROBE = 1.0

#: Seconds to look up or store a protocol: negotiating it anew costs a second.
_STORE_S = 1.0

#: Seconds before a stream of changes that ended is opened again: doubled each time, and
#: reset by a stream that lasted.
_REOPEN_MIN_S, _REOPEN_MAX_S = 1.0, 60.0

#: The notifications that the stream is opened for.
_WANTED: dict[str, JSON] = {"toolsListChanged": True}


@asynccontextmanager
async def connect(  # noqa: PLR0913 -- a server, and what is around it
    config: ServerConfig,
    redact: Redactor,
    *,
    legacy: Callable[[], Awaitable[bool]] | None = None,
    proxy: str | None = None,
    log: LogFile | None = None,
    access: Access | None = None,
    emit: Callable[[Event], None] = lambda _: None,
) -> AsyncGenerator[Connection]:
    """
    Start or reach a server, and keep the connection for the block.

    Enter and leave it in one task: the SDK's session has to end in the task in which it
    began.

    Args:
        config: The server.

        redact: Removes secrets from what it says.

        legacy: Returns whether it is known to speak only protocols of before 2026.

        proxy: For a server that has a URL.

        log: For the standard error of a process.

        access: Tokens for a server that has a URL.

        emit: Called with each event of a process.

    Raises:
        ServerUnavailable: It did not come up within its ``start_timeout``.
    """
    async with AsyncExitStack() as stack:
        around = _link(config, redact, proxy, log, access, emit)
        link = await stack.enter_async_context(around)
        link.peer.elicitation = config.elicitation
        link.peer.tap = tap_of(config, redact, SystemClock())
        link.peer.strays = Strays(config.name)
        try:
            async with asyncio.timeout(config.start_timeout):
                session = await stack.enter_async_context(_session(link.peer, config))
                known = config.transport == "sse" or (legacy and await legacy())
                await _negotiate(session, legacy=bool(known))
                connection = Connection(config, redact, link.peer, session)
                _check_usable(config, connection)
                link.peer.settled(connection.protocol, legacy=connection.legacy)
                await connection.refresh(math.inf)
        except ServerUnavailable:
            link.peer.lose("transport", "the server has nothing to offer")
            raise
        except Exception as exc:  # noqa: BLE001 -- what hostile bytes make the SDK raise
            link.peer.lose("transport", "the server did not come up")
            cause = exc if isinstance(exc, TokenError) else None
            raise _unavailable(config, redact, link, exc) from cause
        async with listening(link.peer, session, connection.meta):
            yield connection


@asynccontextmanager
async def _link(  # noqa: PLR0913, PLR0917 -- as of `connect`
    config: ServerConfig,
    redact: Redactor,
    proxy: str | None,
    log: LogFile | None,
    access: Access | None,
    emit: Callable[[Event], None],
) -> AsyncGenerator[Link]:
    if config.url is not None:
        await asyncio.to_thread(_sdk)
        from .transport import legacy_sse, streamable  # noqa: PLC0415 -- half a second

        way = legacy_sse if config.transport == "sse" else streamable
        async with way.connect(config, config.url, proxy, access) as link:
            yield link
    elif config.command:
        async with stdio.connect(config, redact, log, emit) as link:
            yield link
    else:
        raise ServerUnavailable(
            "no command is configured", fix=f"give [servers.{config.name}] a command"
        )


@asynccontextmanager
async def _session(peer: Wire, config: ServerConfig) -> AsyncGenerator[ClientSession]:
    # The import takes half a second, the first time, while the server starts.
    session_type, info_type = await asyncio.to_thread(_sdk)
    session = session_type(
        dispatcher=peer,
        client_info=info_type(name="caxton-host", version=__version__),
        # Declares the capability; the peer answers the requests.
        elicitation_callback=_never if config.elicitation != "refuse" else None,
    )
    await session.__aenter__()
    try:
        yield session
    finally:
        # Given an exception, it would wrap it in a group.
        await session.__aexit__(None, None, None)


async def _never(context: Any, params: Any) -> NoReturn:  # noqa: ANN401 -- the SDK's
    del context, params
    raise AssertionError  # pragma: no cover -- no request of a server comes this far


def _sdk() -> tuple[type[ClientSession], type[Implementation]]:
    collecting = gc.isenabled()
    gc.disable()  # A sixth of the time: the SDK builds its models on import.
    try:
        from mcp.client.session import ClientSession  # noqa: PLC0415 -- see above
        from mcp_types import Implementation  # noqa: PLC0415 -- see above
    finally:
        if collecting:
            gc.enable()
    return ClientSession, Implementation


async def _negotiate(session: ClientSession, *, legacy: bool) -> None:
    """Negotiate the protocol; the SDK itself would wait 10 s for an old server."""
    if legacy:
        await session.initialize()
        return
    tasks: list[asyncio.Task[Any]] = [asyncio.create_task(session.discover())]
    try:
        await asyncio.wait(tasks, timeout=_PROBE)
        if not _agreed(tasks):
            tasks.append(asyncio.create_task(session.initialize()))
        while not _agreed(tasks):
            running = [task for task in tasks if not task.done()]
            if not running:
                await tasks[-1]
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _agreed(tasks: list[asyncio.Task[Any]]) -> bool:
    return any(task.done() and task.exception() is None for task in tasks)


def _check_usable(config: ServerConfig, connection: Connection) -> None:
    if connection.told <= {"completions"}:
        raise ServerUnavailable(
            "no usable capability: it has no tools, resources or prompts",
            fix=f"remove [servers.{config.name}], or correct the server",
        )


def _unavailable(
    config: ServerConfig, redact: Redactor, link: Link, exc: Exception
) -> ServerUnavailable:
    if isinstance(exc, TimeoutError):
        why = f"it was not ready within {config.start_timeout:g} s"
    elif isinstance(exc, ToolError):
        why = str(exc)
    else:
        # Never the text of a validation error: it quotes what it was given.
        said = getattr(getattr(exc, "error", None), "message", "")
        said = plain(str(said), redact) or type(exc).__name__
        why = f"it did not agree on a protocol: {said}"
    if words := link.last_words():
        why += f"; its last words: {words}"
        if config.confine and CANNOT in words:
            why = f"{NOT_CONFINED}{why}"
    if config.url is not None:
        told = exc.fix if isinstance(exc, ToolError) else ""
        return ServerUnavailable(
            why,
            fix=told
            or f"check url and {'oauth' if config.oauth else 'headers'} "
            f"of [servers.{config.name}]; {_also(config, exc)}",
        )
    missing = [] if config.confine else stdio.withheld(os.environ, config.env)
    passing = ", ".join(f'{name} = "${{env:{name}}}"' for name in missing)
    keys = "command and confine" if config.confine else "the command"
    return ServerUnavailable(
        why,
        fix=f"check {keys} of [servers.{config.name}]"
        + (
            f"; if it needs the network, add env = {{ {passing} }}, "
            "which the host has and does not pass on"
            if missing
            else ""
        ),
    )


def _also(config: ServerConfig, exc: Exception) -> str:
    """Return a further hint for a server that has a URL."""
    # The specification has servers of the first transport answer with these.
    if config.transport == "http" and re.search(r"answered 40[045]", str(exc)):
        return 'if it speaks SSE alone, add transport = "sse"'
    return "a proxy is named in [http] proxy, never by the environment"


# -- what a server speaks --------------------------------------------------------------


class ProtocolMemory:
    """
    The protocol of one server, remembered between connections and hosts.

    Args:
        config: The server.

        address: Without secrets: a digest of it is stored.

        protocols: The store; without one the protocol is known to this object only.
    """

    def __init__(
        self, config: ServerConfig, address: str, protocols: ServerProtocols | None
    ) -> None:
        self._key = sha256(canonical([config.name, config.transport, address]))
        # The oldest transport has one protocol only.
        self._protocols = protocols if config.transport != "sse" else None
        self._stored: ServerProtocol | None = None
        self._protocol: ServerProtocol | None = None
        self._storing: set[asyncio.Task[None]] = set()

    async def legacy(self) -> bool:
        """Return whether the server is known to speak only protocols of before 2026."""
        if self._protocol is None and self._protocols is not None:
            with suppress(CaxtonError, TimeoutError):
                async with asyncio.timeout(_STORE_S):
                    self._protocol = self._stored = await self._protocols.protocol_of(
                        self._key
                    )
        return self._protocol is not None and self._protocol.legacy

    def learn(self, protocol: ServerProtocol) -> None:
        """Remember the protocol of the server."""
        self._protocol = protocol
        if self._protocols is not None and protocol != self._stored:
            self._stored = protocol
            task = asyncio.create_task(self._store(self._protocols, protocol))
            self._storing.add(task)
            task.add_done_callback(self._storing.discard)

    def forget(self) -> None:
        """Negotiate anew next time: the known protocol did not work."""
        if self._protocol is not None and self._protocol.legacy:
            self.learn(ServerProtocol("", legacy=False))

    async def _store(
        self, protocols: ServerProtocols, protocol: ServerProtocol
    ) -> None:
        try:
            await protocols.learn_protocol(self._key, protocol)
        except CaxtonError as exc:
            logger.debug("MCP: what a server speaks is not remembered: %s", exc)

    async def close(self) -> None:
        """Wait for writes to the store, for at most a second."""
        if self._storing:
            _, late = await asyncio.wait(self._storing, timeout=_STORE_S)
            for task in late:
                task.cancel()


# -- changes of its tools --------------------------------------------------------------


@asynccontextmanager
async def listening(
    peer: Wire, session: ClientSession, meta: Mapping[str, JSON]
) -> AsyncGenerator[None]:
    """
    Listen for changes of the tools during the block, if the server announces any.

    A change is only a hint: the next run or call lists the tools again. A stream that
    ends is opened again, later each time, and counts as a change.

    Args:
        peer: The other end of the connection.

        session: What was negotiated.

        meta: The ``_meta`` of every request.
    """
    told = session.server_capabilities
    modern = session.discover_result is not None
    # An old server asks a person on the stream that tells of changes.
    asks = peer.elicitation != "refuse" and not modern
    if not (told and told.tools and (told.tools.list_changed or asks)):
        yield
        return

    async def subscribe() -> bool:
        params = {"notifications": _WANTED, "_meta": dict(meta)}
        await peer.request("subscriptions/listen", params, math.inf, standing=True)
        return True

    task = asyncio.create_task(_hear(peer, subscribe if modern else peer.overhear))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _hear(peer: Wire, stream: Callable[[], Awaitable[bool]]) -> None:
    loop = asyncio.get_running_loop()
    wait = _REOPEN_MIN_S
    while peer.lost is None:
        began = loop.time()
        try:
            if not await stream():
                return
        except Refusal:
            return  # It has no such stream, whatever it announced.
        except ToolError as exc:
            if exc.kind not in {"transport", "timeout"}:
                return
        peer.changes += 1
        if loop.time() - began > _REOPEN_MAX_S:
            wait = _REOPEN_MIN_S
        await asyncio.sleep(wait * (0.5 + secrets.randbelow(501) / 1000))
        wait = min(wait * 2, _REOPEN_MAX_S)
