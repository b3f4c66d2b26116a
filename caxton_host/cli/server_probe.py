"""What servers offer: asked without a host or a run, or known from the log."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..core.calls import JSON
from ..core.grants.tool_catalog import Offered, tool_document
from ..core.log.events import Recorded
from ..core.log.server_history import (
    HOST,
    LOOKED_AT,
    OF_HOSTS,
    OF_RUNS,
    ServerRecord,
    server_records,
)
from ..core.names import RUN
from ..core.text.redact import MIN_LENGTH, Redactor
from ..core.text.templates import texts
from ..core.tools.servers import SERVERS_OFF, SERVERS_ON
from ..core.tools.webhooks import SERVER as WEBHOOK
from ..errors import CaxtonError, NotFoundError, UsageError
from ..ports.tools import RunScope, ToolClient
from .context import check_known, wait
from .output import awaiting, note
from .overrides import by_hand

if TYPE_CHECKING:
    from ..config import Config
    from ..core.analysis.checking import Known
    from ..core.tools.contexts import ServerResource
    from ..ports.log import ServerProtocol
    from ..store.sql import SqlStore


@dataclass(frozen=True, slots=True)
class _Recalled:
    """The protocol versions in a log, read-only."""

    store: SqlStore

    async def protocol_of(self, key: str) -> ServerProtocol | None:
        """Return the last protocol of the server with that *key*, if known."""
        return await self.store.server_protocols.protocol_of(key)

    async def learn_protocol(self, key: str, protocol: ServerProtocol) -> None:
        """Record nothing: this command has no run."""


@dataclass(frozen=True, slots=True)
class Reached:
    """
    Servers that were started, or are connected to.

    Attributes:
        tools: Where calls go.

        store: The log, if there is one and it can be read.
    """

    tools: ToolClient
    store: SqlStore | None

    async def offered(self, names: Collection[str]) -> Offered:
        """Return what servers offer, and what of all their tools was accepted."""
        offered = await self.tools.offered(names)
        if self.store is None:
            return offered
        return replace(offered, accepted=await self.store.definitions.accepted(names))


async def offers(
    config: Config, names: Collection[str], scope: RunScope, *, required: bool = True
) -> Offered:
    """
    Return what the servers called *names* offer; nothing is recorded.

    See `reached` for the *scope*.

    Raises:
        ServerUnavailable: One of them is *required*, and cannot be reached.
    """
    async with reached(config, names, scope, required=required) as servers:
        return await servers.offered(names)


@contextlib.asynccontextmanager
async def reached(
    config: Config, names: Collection[str], scope: RunScope, *, required: bool = True
) -> AsyncGenerator[Reached]:
    """
    Start the servers called *names*, and open the log meanwhile.

    The *scope* stands for a run where servers use its variables.
    """
    from ..app.bootstrap import library_of, open_store
    from ..app.tool_setup import LateServerProtocols, open_tools
    from ..config import Paths
    from ..runs.agent_calls import CallingAgents
    from ..telemetry import NoTelemetry

    servers = {
        name: replace(server, required=required, eager=True)
        for name, server in config.servers.items()
        if name in names
    }
    protocols, paths = LateServerProtocols(), Paths.of(os.environ)
    async with contextlib.AsyncExitStack() as stack:
        tools = await stack.enter_async_context(
            open_tools(
                replace(config, servers=servers),
                Redactor(config.secrets | _hidden(scope)),
                NoTelemetry(),
                lambda _: None,
                protocols=protocols,
                logs=paths.logs,
                tokens=paths.tokens,
            )
        )
        stack.callback(protocols.settle, None)
        store: SqlStore | None = None
        # A log that cannot be read is reported by other commands.
        with contextlib.suppress(CaxtonError):
            store = await stack.enter_async_context(open_store(config, write=False))
        protocols.settle(_Recalled(store) if store else None)
        # It lists the agents. Without a host, none can be called.
        all_ = CallingAgents(
            source=tools, config=lambda: config, library=library_of(paths)
        )
        yield Reached(await stack.enter_async_context(all_.open(scope)), store)


def _hidden(scope: RunScope) -> set[str]:
    """Return the private values of a scope."""
    private = [value for key, value in scope.context.items() if key in scope.private]
    found = {text for value in private for text in texts(value)}
    return {text for text in found if len(text.encode()) >= MIN_LENGTH}


def known(config: Config, *, start: bool) -> Known:
    """
    Return what each server offers: tool to input schema; ``None`` if unknown.

    Args:
        config: Has the servers.

        start: Ask them. Otherwise it is what was accepted when a run saw them first.
    """
    found: dict[str, dict[str, JSON] | None] = dict.fromkeys(config.servers)
    with suppress(UsageError):  # There is no log yet.
        wait(_accepted(config, found))
    if start:
        with awaiting("asking the servers"):
            _ask(config, found)
    if config.webhooks:
        found[WEBHOOK] = {
            name: {**hook.params} for name, hook in config.webhooks.items()
        }
    return found


def tell_unasked(found: Mapping[str, object]) -> None:
    """Print the servers whose tools are not known yet."""
    if unasked := [name for name, tools in found.items() if tools is None]:
        note(
            f"tools unknown for: {', '.join(sorted(unasked))}; "
            "to list them, add --start"
        )


async def _accepted(config: Config, found: dict[str, dict[str, JSON] | None]) -> None:
    from ..app.bootstrap import open_store
    from ..lib.codec import decode_trusted

    async with open_store(config, write=False) as store:
        for (server, tool), digest in (
            await store.definitions.accepted(config.servers)
        ).items():
            said = decode_trusted(await store.reader.blob(digest))
            own = config.servers[server].options(tool).input_schema
            tools = found[server] or {}
            tools[tool] = said.get("inputSchema") if own is None else own
            found[server] = tools


def _ask(config: Config, found: dict[str, dict[str, JSON] | None]) -> None:
    offered = wait(
        offers(config, [*config.servers], by_hand(config, ()), required=False)
    )
    for name, said in offered.servers.items():
        if said.get("version") is None:
            note(f"warning: {name} does not answer")
            continue
        found[name] = {
            offer.tool: offer.parameters
            for offer in offered.offers
            if offer.server == name
        }


def check_server(config: Config, name: str) -> None:
    """Check that a server is called *name*, and that servers are on."""
    if not config.mcp:
        raise NotFoundError(SERVERS_OFF, fix=SERVERS_ON)
    otherwise = f"no server {name!r} in the configuration"
    check_known(name, config.servers, otherwise, "caxton server list")


def history_of(config: Config) -> dict[str, ServerRecord]:
    """Return how each server of *config* did, as far as the log knows."""
    hosts: list[Recorded] = []
    runs: list[Recorded] = []
    up: list[str] = []
    with contextlib.suppress(UsageError):  # There is no log yet.
        hosts, runs, up = wait(_server_events(config))
    return server_records(config.servers, hosts, runs, up)


async def _server_events(
    config: Config,
) -> tuple[list[Recorded], list[Recorded], list[str]]:
    """Return the newest events about servers, and the hosts that are up."""
    from ..app.bootstrap import open_store

    async with open_store(config, write=False) as store:
        of_hosts = await store.reader.newest(HOST, OF_HOSTS, LOOKED_AT)
        of_runs = await store.reader.newest(RUN, OF_RUNS, LOOKED_AT)
        return of_hosts, of_runs, await store.leases.hosts()


def tools_of(
    config: Config,
    servers: Collection[str],
    variables: Sequence[str],
    *,
    required: bool = True,
) -> list[Mapping[str, JSON]]:
    """Return the tools of servers, which are started for it."""
    asked = f"asking {', '.join(servers)}" if required else "asking the servers"
    with awaiting(asked):
        scope = by_hand(config, variables)
        offered = wait(offers(config, servers, scope, required=required))
    return [tool_document(offer, offered.accepted) for offer in offered.offers]


async def tested(
    config: Config, name: str, scope: RunScope
) -> tuple[Offered, Sequence[ServerResource]]:
    """Return what a server offers, and what a run with that *scope* would read."""
    server = config.servers[name]
    if server.resources is not None:
        # Report resources that cannot be read instead of failing.
        read = replace(server.resources, required=False)
        servers = {**config.servers, name: replace(server, resources=read)}
        config = replace(config, servers=servers)
    async with reached(config, [name], scope) as asked:
        offered = await asked.offered([name])
        return offered, await asked.tools.resources([name], scope)
