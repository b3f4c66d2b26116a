"""Servers for one command: without a host, a run or a record."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..core.text.redact import MIN_LENGTH, Redactor
from ..core.text.templates import texts
from ..errors import CaxtonError
from ..ports import RunScope

if TYPE_CHECKING:
    from ..config import Config
    from ..core.grants.tool_catalog import Offered
    from ..ports import Era, ToolClient
    from ..store.sql import SqlStore


@dataclass(frozen=True, slots=True)
class _Recalled:
    """What a log remembers of servers. It is only read."""

    store: SqlStore

    async def era(self, key: str) -> Era | None:
        """Return what the server with that *key* spoke lately, if it was met."""
        return await self.store.server_protocols.era(key)

    async def learn_era(self, key: str, era: Era) -> None:
        """Leave the log as it is: a command by hand records nothing."""


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
    Bring up the servers called *names*, while the log is looked for.

    The *scope* is of no run, and fills in what servers want to know of one.
    """
    from ..app.bootstrap import open_store
    from ..app.tool_setup import LateEras, open_tools
    from ..config import Paths
    from ..telemetry import NoTelemetry

    servers = {
        name: replace(server, required=required, eager=True)
        for name, server in config.servers.items()
        if name in names
    }
    eras, paths = LateEras(), Paths.of(os.environ)
    async with contextlib.AsyncExitStack() as stack:
        tools = await stack.enter_async_context(
            open_tools(
                replace(config, servers=servers),
                Redactor(config.secrets | _hidden(scope)),
                NoTelemetry(),
                lambda _: None,
                eras=eras,
                logs=paths.logs,
                tokens=paths.tokens,
            )
        )
        stack.callback(eras.settle, None)
        store: SqlStore | None = None
        # What cannot be read is for other commands to complain of.
        with contextlib.suppress(CaxtonError):
            store = await stack.enter_async_context(open_store(config, write=False))
        eras.settle(_Recalled(store) if store else None)
        yield Reached(await stack.enter_async_context(tools.open(scope)), store)


def _hidden(scope: RunScope) -> set[str]:
    """Return the values that only servers get to see."""
    private = [value for key, value in scope.context.items() if key in scope.private]
    found = {text for value in private for text in texts(value)}
    return {text for text in found if len(text.encode()) >= MIN_LENGTH}
