"""
The composition root: a configuration becomes a running host.

Everything that `Host` needs from the outside is made here, and ended here in the
reverse order. Nothing else in the package knows which adapters there are.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from . import __version__
from .actor import local_actor
from .clock import SystemClock
from .config import Config, Paths
from .core.calls import JSON, Completed
from .core.catalogue import Offered
from .core.events import ConfigLoaded, Event, HostStarted, RunErased
from .core.names import uuid7
from .core.places import Places
from .core.redact import Redactor
from .core.webhooks import SERVER as WEBHOOK
from .errors import ConfigError, LogBrokenError, StoreError, ToolError, UsageError
from .host import Admission, Host
from .ports import Clock, Sandbox, ToolClient, ToolRequest
from .telemetry import NoTelemetry, OtelTelemetry, TracedTools, connect

if TYPE_CHECKING:
    from .store.sql import SqlStore

__all__ = [
    "Keeper",
    "Routed",
    "Running",
    "keeping",
    "open_sandbox",
    "open_store",
    "open_tools",
    "public_key",
    "running",
    "server_names",
    "usable_store",
]

_KEY_SIZE = 32


@dataclass(frozen=True, slots=True)
class Routed:
    """
    Several tool clients as one; each server belongs to one of them.

    Attributes:
        clients: Name of a server to the client that reaches it.
    """

    clients: Mapping[str, ToolClient]

    async def offered(self, servers: Collection[str]) -> Offered:
        """Return what *servers* offer, by whichever client."""
        groups: dict[int, tuple[ToolClient, list[str]]] = {}
        for name in servers:
            client = self.clients[name]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """
    A host that is up.

    Attributes:
        host: Starts runs.

        tools: Reaches every configured server, traced if telemetry is on.
    """

    config: Config
    host: Host
    store: SqlStore
    tools: ToolClient
    sandbox: Sandbox
    telemetry: OtelTelemetry | NoTelemetry
    redact: Redactor


@contextlib.asynccontextmanager
async def running(
    config: Config,
    paths: Paths,
    environ: Mapping[str, str] = os.environ,
    *,
    start: Collection[str] = (),
) -> AsyncGenerator[Running]:
    """
    Bring up a host, and take it down in the end.

    Args:
        config: What was loaded.

        paths: Where keys and compiled modules are kept.

        environ: Where telemetry is looked for.

        start: Servers that will be needed: they start while the rest does.
    """
    redact = Redactor(config.secrets)
    async with contextlib.AsyncExitStack() as stack:
        telemetry = connect(config.telemetry_endpoint, environ)
        stack.callback(telemetry.close)
        waiting: list[Event] = []
        queue = waiting.append
        # Opened first and closed first, so it has a stack of its own: what a server
        # tells at its end is still to be stored.
        async with contextlib.AsyncExitStack() as servers:
            tools = await servers.enter_async_context(
                open_tools(
                    _eager(config, start),
                    redact,
                    telemetry,
                    lambda event: queue(event),  # noqa: PLW0108 -- it changes below
                )
            )
            store = await stack.enter_async_context(open_store(config, write=True))
            sandbox = await stack.enter_async_context(
                open_sandbox(paths, config.places)
            )
            clock = SystemClock()
            stream = _host_stream(clock)
            log = store.create(stream)
            log.queue(*_announced(config, paths), *waiting)
            queue = log.queue
            host = Host(
                store=store,
                tools=tools,
                sandbox=sandbox,
                clock=clock,
                entropy=secrets.token_bytes,
                telemetry=telemetry,
                stream=stream,
                servers=server_names(config),
                redact=redact,
                admission=Admission(config.places.runs),
            )
            yield Running(
                config=config,
                host=host,
                store=store,
                tools=tools,
                sandbox=sandbox,
                telemetry=telemetry,
                redact=redact,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeper:
    """
    Looks after the log, without a tool, a sandbox or a run.

    Attributes:
        stream: Of this process as a host: what it does is recorded there.

        announced: What that stream begins with.

        actor: Who does it.
    """

    store: SqlStore
    stream: str
    announced: tuple[Event, ...]
    actor: dict[str, JSON]
    redact: Redactor

    async def erase(
        self, run_id: str, reason: str, bundle: dict[str, JSON] | None = None
    ) -> RunErased:
        """Delete the payloads of a run that has ended; see `SqlStore.erase`."""
        known = await self.store.read(self.stream)
        return await self.store.erase(
            run_id,
            self.stream,
            *(() if known else self.announced),
            actor=self.actor,
            reason=self.redact.text(reason),
            bundle=bundle,
        )


@contextlib.asynccontextmanager
async def keeping(config: Config, paths: Paths) -> AsyncGenerator[Keeper]:
    """Open the event store to look after it."""
    async with open_store(config, write=True) as store:
        yield Keeper(
            store=store,
            stream=_host_stream(SystemClock()),
            announced=_announced(config, paths),
            actor=local_actor(),
            redact=Redactor(config.secrets),
        )


def _host_stream(clock: Clock) -> str:
    return f"host/{uuid7(clock.now(), secrets.token_bytes(10))}"


def server_names(config: Config) -> tuple[str, ...]:
    """Return what a grant may name: every server, and the group of webhooks."""
    return (*config.servers, *((WEBHOOK,) if config.webhooks else ()))


def _eager(config: Config, names: Collection[str]) -> Config:
    servers = {
        name: replace(server, eager=server.eager or name in names)
        for name, server in config.servers.items()
    }
    return replace(config, servers=servers)


@contextlib.asynccontextmanager
async def open_store(config: Config, *, write: bool) -> AsyncGenerator[SqlStore]:
    """
    Open the event store; to write, it is made and migrated as needed.

    Raises:
        UsageError: It cannot be used as it is. Nothing was started.
    """
    # In a thread: a server that was asked for starts in the meantime.
    store_type = await asyncio.to_thread(_store_type)
    with usable_store():
        opened = store_type.open(
            config.store_url,
            clock=SystemClock(),
            entropy=secrets.token_bytes,
            write=write,
        )
    async with opened as store:
        yield store


def _store_type() -> type[SqlStore]:
    from .store.sql import SqlStore  # noqa: PLC0415 -- 110 ms

    return SqlStore


@contextlib.contextmanager
def usable_store() -> Generator[None]:
    """Make of a store that cannot be opened an error of whoever named it."""
    try:
        yield
    except LogBrokenError:
        raise
    except StoreError as exc:
        raise UsageError(str(exc), fix=exc.fix) from None


@contextlib.asynccontextmanager
async def open_sandbox(paths: Paths, places: Places) -> AsyncGenerator[Sandbox]:
    """Bring up the sandbox. This process becomes unreadable to its workers."""
    from .sandbox import WasmSandbox  # noqa: PLC0415 -- 20 ms

    _harden()
    key = _key(paths.state / "cache.key")
    async with WasmSandbox(
        paths.cache / "modules",
        key,
        workers=places.workers,
        guests=places.guests,
        compute=places.compute,
    ) as sandbox:
        yield sandbox


@contextlib.asynccontextmanager
async def open_tools(
    config: Config,
    redact: Redactor,
    telemetry: OtelTelemetry | NoTelemetry,
    on_event: Callable[[Event], None],
) -> AsyncGenerator[ToolClient]:
    """
    Bring up the client of every configured server; the eager ones are started.

    This process becomes unreadable to them: it holds the credentials of all.
    """
    _harden()
    async with contextlib.AsyncExitStack() as stack:
        clients: dict[str, ToolClient] = {}
        if config.servers:
            from .mcp import McpTools  # noqa: PLC0415 -- only with a server

            mcp = await stack.enter_async_context(
                McpTools(
                    config.servers,
                    redact=redact,
                    on_event=on_event,
                    trace_context=telemetry.headers,
                    proxy=config.proxy,
                )
            )
            clients |= dict.fromkeys(config.servers, mcp)
        if config.webhooks:
            from .webhooks import WebhookTools  # noqa: PLC0415

            clients[WEBHOOK] = await stack.enter_async_context(
                WebhookTools(
                    config.webhooks,
                    redact=redact,
                    proxy=config.proxy,
                    trace_context=telemetry.headers,
                )
            )
        routed = Routed(clients)
        if isinstance(telemetry, OtelTelemetry):
            yield TracedTools(routed, telemetry)
        else:
            yield routed


def _harden() -> None:
    from .sandbox.confine import harden_host  # noqa: PLC0415 -- 10 ms

    harden_host()


def _announced(config: Config, paths: Paths) -> tuple[Event, ...]:
    """Return the first events of the host's stream; the first run commits them."""
    started = HostStarted(
        version=__version__,
        engine=f"wasmtime-{version('wasmtime')}",
        public_key=public_key(paths).hex(),
        actor=local_actor(),
    )
    loaded = ConfigLoaded(
        path=config.path.name if config.path else "",
        sha256=config.sha256,
        actor=local_actor(),
    )
    return (started, loaded) if config.path else (started,)


def public_key(paths: Paths) -> bytes:
    """Return the public half of the host's Ed25519 key, made on first use."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415
        Ed25519PrivateKey,
    )

    seed = _key(paths.state / "signing.key")
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def _key(path: Path) -> bytes:
    """Return the 32 bytes in a file of mode 0600; random ones at first."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with contextlib.suppress(FileExistsError):
        # Written whole under another name first: a second host never reads half.
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        draft.touch(mode=0o600)
        draft.write_bytes(secrets.token_bytes(_KEY_SIZE))
        try:
            os.link(draft, path)
        finally:
            draft.unlink()
    key = path.read_bytes()
    if len(key) != _KEY_SIZE:
        raise ConfigError(
            f"{path.name} in {path.parent} is not a key of {_KEY_SIZE} bytes",
            fix="move the file away; a new key is made",
        )
    return key
