"""
How a session with one server comes to stand, on the official SDK.

The SDK settles which protocol is spoken; the rest is the `Connection`'s.
"""

from __future__ import annotations

import asyncio
import gc
import math
import os
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from .. import __version__
from ..core.text.redact import Redactor
from ..core.text.sanitize import plain
from ..core.tools.servers import ServerConfig
from ..errors import ServerUnavailable, ToolError
from ..lib.machine import SystemClock
from .auth.oauth import Access
from .connection import Connection
from .transport import stdio
from .transport.serverlog import LogFile
from .transport.subscription import listening
from .transport.wire import Link, Strays, Wire
from .transport.wirelog import tap_of

if TYPE_CHECKING:
    from mcp.client.session import ClientSession
    from mcp_types import Implementation


#: A server that has not answered the newest handshake by now is offered the old one
#: as well. Nothing is lost if it is only slow to start: the first yes counts.
_PROBE = 1.0


@asynccontextmanager
async def connect(  # noqa: PLR0913 -- a server, and what is around it
    config: ServerConfig,
    redact: Redactor,
    *,
    legacy: Callable[[], Awaitable[bool]] | None = None,
    proxy: str | None = None,
    log: LogFile | None = None,
    access: Access | None = None,
) -> AsyncGenerator[Connection]:
    """
    Start or reach a server and keep it for as long as the block lasts.

    Enter and leave it in one task: the SDK's session ends where it began. A server
    known to be *legacy*, which is found out while it starts, is not asked for a
    protocol of 2026 or later. One that has a URL is reached through the *proxy*, if
    there is one, and with tokens of *access*. What one with a command says to people
    goes to *log*.

    Raises:
        ServerUnavailable: It did not come up within its ``start_timeout``.
    """
    async with AsyncExitStack() as stack:
        around = _link(config, redact, proxy, log, access)
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
            link.peer.lose("transport", "the server is of no use")
            raise
        except Exception as exc:  # noqa: BLE001 -- what hostile bytes make the SDK raise
            link.peer.lose("transport", "the server did not come up")
            raise _unavailable(config, redact, link, exc) from None
        async with listening(link.peer, session, connection.meta):
            yield connection


@asynccontextmanager
async def _link(
    config: ServerConfig,
    redact: Redactor,
    proxy: str | None,
    log: LogFile | None,
    access: Access | None,
) -> AsyncGenerator[Link]:
    if config.url is not None:
        await asyncio.to_thread(_sdk)
        from .transport import legacy_sse, streamable  # noqa: PLC0415 -- half a second

        way = legacy_sse if config.transport == "sse" else streamable
        async with way.connect(config, config.url, proxy, access) as link:
            yield link
    elif config.command:
        async with stdio.connect(config, redact, log) as link:
            yield link
    else:
        raise ServerUnavailable(
            "there is nothing to run", fix=f"give [servers.{config.name}] a command"
        )


@asynccontextmanager
async def _session(peer: Wire, config: ServerConfig) -> AsyncGenerator[ClientSession]:
    # Half a second, the first time, while the server starts as well.
    session_type, info_type = await asyncio.to_thread(_sdk)
    session = session_type(
        dispatcher=peer,
        client_info=info_type(name="caxton-host", version=__version__),
        # That there is one is told to the server; it is the peer that answers.
        elicitation_callback=_never if config.elicitation == "defaults" else None,
    )
    await session.__aenter__()
    try:
        yield session
    finally:
        # Told of an exception, it would wrap it in a group.
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
    """Settle the protocol. The SDK's own way waits ten seconds for an old server."""
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
    if not connection.told:
        raise ServerUnavailable(
            "no usable capability: it has neither tools nor resources",
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
    if config.url is not None:
        told = exc.fix if isinstance(exc, ToolError) else ""
        return ServerUnavailable(
            why,
            fix=told
            or f"check url and {'oauth' if config.oauth else 'headers'} "
            f"of [servers.{config.name}]; {_also(config, exc)}",
        )
    missing = stdio.withheld(os.environ, config.env)
    passing = ", ".join(f'{name} = "${{env:{name}}}"' for name in missing)
    return ServerUnavailable(
        why,
        fix=f"check the command of [servers.{config.name}]"
        + (
            f"; if it needs the network, add env = {{ {passing} }}, "
            "which the host has and does not pass on"
            if missing
            else ""
        ),
    )


def _also(config: ServerConfig, exc: Exception) -> str:
    """Return what else may be wrong with a url."""
    # So the protocol tells a server that knows nothing but the first transport.
    if config.transport == "http" and re.search(r"answered 40[045]", str(exc)):
        return 'if it speaks SSE alone, add transport = "sse"'
    return "a proxy is named in [http] proxy, never by the environment"
