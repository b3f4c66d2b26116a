"""
A session with one server, on the official SDK.

The SDK settles which protocol is spoken. Calls then go past its models, straight to
the peer: they lose unknown fields, and reject an answer after the tool has run.
"""

from __future__ import annotations

import asyncio
import gc
import math
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..clock import SystemClock
from ..core.calls import JSON, Completed
from ..core.catalogue import Offer
from ..core.redact import Redactor
from ..core.servers import ServerConfig, ToolOptions
from ..errors import ServerUnavailable, ToolError
from . import stdio
from .catalogue import offers_of
from .listening import listening
from .results import completed
from .serverlog import LogFile
from .texts import plain
from .wire import Answer, Link, Wire
from .wirelog import tap_of

if TYPE_CHECKING:
    from mcp.client.session import ClientSession
    from mcp_types import Implementation

__all__ = ["Connection", "connect"]

#: A server that has not answered the newest handshake by now is offered the old one
#: as well. Nothing is lost if it is only slow to start: the first yes counts.
_PROBE = 1.0

#: Seconds that a list is good for over HTTP, where no word of a change need come, if
#: the server does not say how long. Its word counts up to a day. That it is good for
#: nothing, which the SDK has servers say by default, would double every call.
_LIST_SECONDS = 60.0
_LONGEST_LIST_SECONDS = 24 * 3600.0

_PAGES = 100
_TOOLS = 1_000
_LIST_BYTES = 1024 * 1024

_NO_OPTIONS = ToolOptions()
_NAME_LENGTH = 128


class Connection:
    """
    A server that has told its tools.

    Attributes:
        name: What the server calls itself.

        legacy: It speaks a protocol of before 2026.

        offers: Its tools, by its own names.

        left_out: Why each tool that it told and that is not offered is not.
    """

    def __init__(
        self, config: ServerConfig, redact: Redactor, peer: Wire, session: ClientSession
    ) -> None:
        info = session.server_info
        self._config = config
        self._redact = redact
        self._peer = peer
        self._loop = asyncio.get_running_loop()
        self._meta = _meta_of(session)
        self._told = _capabilities(session)
        self._listed = -1
        self._good_until = 0.0
        self._listing = asyncio.Lock()
        self._mirrored: dict[str, Callable[[Mapping[str, Any]], dict[str, str]]] = {}
        self.name = plain(info.name if info else "", redact, _NAME_LENGTH)
        self.version = plain(info.version if info else "", redact, _NAME_LENGTH)
        self.protocol = str(session.protocol_version)
        self.legacy = session.discover_result is None
        self.offers: Mapping[str, Offer] = {}
        self.left_out: list[str] = []

    @property
    def alive(self) -> bool:
        """Whether calls can be made."""
        return self._peer.lost is None and not self._peer.broken

    @property
    def ready(self) -> bool:
        """Whether a call can be made without waiting for anything."""
        return self.alive and not self.stale and self._peer.ready

    @property
    def stale(self) -> bool:
        """Whether the tools of the server may be others now."""
        changed = self._peer.changes != self._listed
        return changed or self._loop.time() > self._good_until

    async def ended(self) -> str:
        """Wait until the server is gone, and return why."""
        return str(await self._peer.ended())

    def lose(self, why: str) -> None:
        """End the connection."""
        self._peer.lose("transport", why)

    async def ping(self, deadline: float) -> bool:
        """Return whether the server says anything before the *deadline*."""
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415 -- loaded by now

        # Since 2026 there is no ping.
        method = "ping" if self.legacy else "server/discover"
        params = {"_meta": self._meta} if self._meta else None
        try:
            await self._peer.request(method, params, deadline)
        except MCPError:
            return True
        except ToolError as exc:
            return exc.sent == "yes"
        return True

    async def writable(self) -> None:
        """Wait until the server has read what it was sent."""
        await self._peer.writable()

    async def refresh(self, deadline: float) -> bool:
        """
        Read the list of tools, all pages, and return whether that was needed.

        Raises:
            ToolError: The list is none, has no end or is too large.
        """
        async with self._listing:
            if not self.stale:
                return False
            now = self._peer.changes
            entries: list[JSON] = []
            good_for = _LIST_SECONDS
            if "tools" in self._told:
                entries, good_for = await self._list(deadline)
            self.offers, self.left_out = offers_of(self._config, entries, self._redact)
            if self._config.url is not None and not self.legacy:
                self._mirror()
            self._listed = now
            self._good_until = self._loop.time() + good_for
            return True

    def _mirror(self) -> None:
        """Learn which parameters a call repeats in its headers, since 2026."""
        from mcp.shared import inbound  # noqa: PLC0415 -- loaded by now

        offers = dict(self.offers)
        self._mirrored.clear()
        for name, offer in self.offers.items():
            if inbound.find_invalid_x_mcp_header(offer.input_schema) is not None:
                # The protocol forbids to use such a tool.
                self.left_out.append(f"'{name}': its x-mcp-header is not sound")
                del offers[name]
            elif found := inbound.x_mcp_header_map(offer.input_schema):
                self._mirrored[name] = partial(inbound.mcp_param_headers, found)
        self.offers = offers

    async def _list(self, deadline: float) -> tuple[list[JSON], float]:
        """Return all entries of all pages, and for how many seconds they are good."""
        entries: list[JSON] = []
        good_for: list[float] = []
        cursor: JSON = None
        size = 0
        for _ in range(_PAGES):
            params: dict[str, JSON] = {"_meta": self._meta} if self._meta else {}
            if cursor is not None:
                params["cursor"] = cursor
            page = await self._ask("tools/list", params, deadline)
            tools, cursor = page.result.get("tools"), page.result.get("nextCursor")
            if not isinstance(tools, list):
                raise ToolError("protocol", "no", "the server told no list of tools")
            entries += tools
            good_for += _good_for(page.result.get("ttlMs"))
            size += page.size
            if len(entries) > _TOOLS or size > _LIST_BYTES:
                raise ToolError("too_large", "no", "the list of tools is too long")
            if cursor is None:
                usual = math.inf if self._config.url is None else _LIST_SECONDS
                return entries, min(good_for, default=usual)
        raise ToolError("too_large", "no", "the list of tools does not end")

    async def _ask(
        self,
        method: str,
        params: dict[str, JSON],
        deadline: float,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415 -- loaded by now

        try:
            return await self._peer.request(method, params, deadline, headers=headers)
        except MCPError as exc:
            said = plain(exc.error.message, self._redact)
            raise ToolError(
                "protocol", "yes", f"the server refused {method}: {said}"
            ) from None

    async def call(
        self, tool: str, params: dict[str, JSON], meta: dict[str, JSON], deadline: float
    ) -> Completed:
        """
        Call a tool once.

        What *meta* holds goes along, for servers that know it. The *deadline* is
        on the clock of the event loop.

        Raises:
            ToolError: There is no answer, or none that can be used.
        """
        began = self._loop.time()
        mirrored = self._mirrored.get(tool)
        answer = await self._ask(
            "tools/call",
            {"name": tool, "arguments": params, "_meta": {**self._meta, **meta}},
            deadline,
            mirrored(params) if mirrored else None,
        )
        if answer.size > self._config.max_result:
            raise ToolError(
                "too_large",
                "yes",
                f"the answer has {answer.size} bytes, "
                f"of {self._config.max_result} allowed",
            )
        return completed(
            answer.result,
            self._config.tools.get(tool, _NO_OPTIONS),
            self._redact,
            size=answer.size,
            duration_us=round((self._loop.time() - began) * 1_000_000),
        )


def _good_for(said: JSON) -> list[float]:
    """Return the seconds that a server promises for a page, if it does."""
    if isinstance(said, bool) or not isinstance(said, int | float) or said <= 0:
        return []
    return [min(said / 1000, _LONGEST_LIST_SECONDS)]


@asynccontextmanager
async def connect(
    config: ServerConfig,
    redact: Redactor,
    *,
    legacy: bool = False,
    proxy: str | None = None,
    log: LogFile | None = None,
) -> AsyncGenerator[Connection]:
    """
    Start or reach a server and keep it for as long as the block lasts.

    Enter and leave it in one task: the SDK's session ends where it began. A server
    known to be *legacy* is not asked for a protocol of 2026 or later. One that has
    a URL is reached through the *proxy*, if there is one. What one with a command says
    to people goes to *log*.

    Raises:
        ServerUnavailable: It did not come up within its ``start_timeout``.
    """
    async with AsyncExitStack() as stack:
        link = await stack.enter_async_context(_link(config, redact, proxy, log))
        link.peer.tap = tap_of(config, redact, SystemClock())
        try:
            async with asyncio.timeout(config.start_timeout):
                session = await stack.enter_async_context(_session(link.peer))
                await _negotiate(session, legacy=legacy)
                _check_usable(config, session)
                connection = Connection(config, redact, link.peer, session)
                link.peer.settled(connection.protocol, legacy=connection.legacy)
                await connection.refresh(math.inf)
        except ServerUnavailable:
            link.peer.lose("transport", "the server is of no use")
            raise
        except Exception as exc:  # noqa: BLE001 -- what hostile bytes make the SDK raise
            link.peer.lose("transport", "the server did not come up")
            raise _unavailable(config, redact, link, exc) from None
        async with listening(link.peer, session, _meta_of(session)):
            yield connection


@asynccontextmanager
async def _link(
    config: ServerConfig, redact: Redactor, proxy: str | None, log: LogFile | None
) -> AsyncGenerator[Link]:
    if config.transport == "sse":
        raise ServerUnavailable(
            "the old transport of SSE alone is not spoken here",
            fix=f"if it speaks streamable HTTP too, give [servers.{config.name}] "
            'that url and transport = "http"',
        )
    if config.url is not None:
        await asyncio.to_thread(_sdk)
        from . import streamable  # noqa: PLC0415 -- on the SDK, so half a second

        async with streamable.connect(config, config.url, proxy) as link:
            yield link
    elif config.command:
        async with stdio.connect(config, redact, log) as link:
            yield link
    else:
        raise ServerUnavailable(
            "there is nothing to run", fix=f"give [servers.{config.name}] a command"
        )


@asynccontextmanager
async def _session(peer: Wire) -> AsyncGenerator[ClientSession]:
    # Half a second, the first time, while the server starts as well.
    session_type, info_type = await asyncio.to_thread(_sdk)
    session = session_type(
        dispatcher=peer,
        client_info=info_type(name="caxton-host", version=__version__),
    )
    await session.__aenter__()
    try:
        yield session
    finally:
        # Told of an exception, it would wrap it in a group.
        await session.__aexit__(None, None, None)


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


def _capabilities(session: ClientSession) -> frozenset[str]:
    """Return what the server says it has, of what is used here."""
    told = session.server_capabilities
    names = ("tools", "resources")
    return frozenset(name for name in names if getattr(told, name, None) is not None)


def _check_usable(config: ServerConfig, session: ClientSession) -> None:
    if not _capabilities(session):
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
        return ServerUnavailable(
            why,
            fix=f"check url and headers of [servers.{config.name}]; "
            "a proxy is named in [http] proxy, never by the environment",
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


def _meta_of(session: ClientSession) -> dict[str, JSON]:
    """Return what every request of a protocol without a handshake carries."""
    if session.discover_result is None:
        return {}
    import mcp_types  # noqa: PLC0415 -- loaded by now

    return {
        mcp_types.PROTOCOL_VERSION_META_KEY: session.protocol_version,
        mcp_types.CLIENT_INFO_META_KEY: {"name": "caxton-host", "version": __version__},
        mcp_types.CLIENT_CAPABILITIES_META_KEY: {},
    }
