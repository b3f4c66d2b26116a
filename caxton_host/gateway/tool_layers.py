"""Tool clients made of others: a layer on top of one, and a router of several."""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    Collection,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ..core.calls import Completed
from ..core.grants.tool_catalog import Offer, Offered
from ..core.tools.contexts import ServerResource
from ..errors import ConfigError, ToolError
from ..ports import RunScope, ToolClient, ToolRequest, ToolSource

T = TypeVar("T")


@dataclass(eq=False)
class ToolLayer:
    """
    Tools on top of others: a subclass overrides only the methods that it changes.

    Attributes:
        tools: What calls are passed to.
    """

    tools: ToolClient

    def __post_init__(self) -> None:
        """Let calls skip this layer where no subclass overrides the method."""
        for name in ("offered", "resources", "call_tool"):
            if getattr(type(self), name) is getattr(ToolLayer, name):
                setattr(self, name, getattr(self.tools, name))

    @asynccontextmanager
    async def open(self, scope: RunScope) -> AsyncGenerator[ToolClient]:
        """Return the tools of one run, under the same layer."""
        if not isinstance(self.tools, ToolSource):
            yield self
            return
        async with self.tools.open(scope) as tools:
            yield replace(self, tools=tools)

    async def offered(self, servers: Collection[str]) -> Offered:
        """Return what *servers* offer. See `ToolClient`."""
        return await self.tools.offered(servers)

    async def resources(
        self, servers: Collection[str], scope: RunScope
    ) -> Sequence[ServerResource]:
        """Read the resources of *servers*. See `ToolClient`."""
        return await self.tools.resources(servers, scope)

    async def call_tool(self, request: ToolRequest) -> Completed:
        """Send *request* once. See `ToolClient`."""
        return await self.tools.call_tool(request)


class ToolRouter:
    """
    Several tool clients as one.

    Args:
        clients: By name of a server: the client that reaches it.
    """

    def __init__(self, clients: Mapping[str, ToolClient]) -> None:
        self.clients = clients

    async def offered(self, servers: Collection[str]) -> Offered:
        """
        Return what *servers* offer; unknown names are left out. See `ToolClient`.

        Raises:
            ConfigError: Two of the tools would have the same name.
        """
        parts = await _all([one.offered(names) for one, names in self._groups(servers)])
        offers = tuple(offer for part in parts for offer in part.offers)
        check_names(offers)
        return Offered(
            offers=offers,
            servers={k: v for part in parts for k, v in part.servers.items()},
            options={k: v for part in parts for k, v in part.options.items()},
        )

    async def resources(
        self, servers: Collection[str], scope: RunScope
    ) -> Sequence[ServerResource]:
        """Read the resources of *servers*, each by its client. See `ToolClient`."""
        groups = self._groups(servers)
        parts = await _all([one.resources(names, scope) for one, names in groups])
        return [one for part in parts for one in part]

    async def call_tool(self, request: ToolRequest) -> Completed:
        """Send *request* by the client of its server. See `ToolClient`."""
        client = self.clients.get(request.server)
        if client is None:
            raise ToolError(
                "transport", "no", f"no server {request.server!r} is configured"
            )
        return await client.call_tool(request)

    def _groups(self, servers: Collection[str]) -> list[tuple[ToolClient, list[str]]]:
        groups: dict[int, tuple[ToolClient, list[str]]] = {}
        for name in servers:
            if client := self.clients.get(name):
                groups.setdefault(id(client), (client, []))[1].append(name)
        return [*groups.values()]


async def _all(asked: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the result of each; a single one needs no task of its own."""
    if len(asked) == 1:
        return [await asked[0]]
    return await asyncio.gather(*asked)


def check_names(offers: Iterable[Offer]) -> None:
    """
    Check that no two offers share an exposed name.

    Raises:
        ConfigError: Two do.
    """
    taken: dict[str, Offer] = {}
    for offer in offers:
        other = taken.setdefault(offer.exposed, offer)
        if other is not offer:
            raise ConfigError(
                f"two tools would be called {offer.exposed!r}: "
                f"{other.server}/{other.tool} and {offer.server}/{offer.tool}",
                fix="give one of them another name with expose_as",
            )
