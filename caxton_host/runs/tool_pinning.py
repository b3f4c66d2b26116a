"""
Pins each tool to the definition that was accepted, at first use or by a person.

A server may change the description of a tool to change what agents do. Runs under way
keep the definition of their start. New runs do not see a changed tool until a person
accepts the change, unless the operator trusts the server to change its tools.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ..core.calls import JSON
from ..core.grants.tool_catalog import Offer, Offered
from ..core.log.diff import Difference, changes
from ..core.log.events import Event, ToolsChanged
from ..gateway.tool_layers import ToolLayer
from ..lib.codec import decode_trusted
from ..ports.log import Definitions, SharedStore
from ..ports.tools import RunScope, ToolClient, ToolSource

_log = logging.getLogger("caxton_host")

Target: TypeAlias = tuple[str, str]


@dataclass(slots=True, kw_only=True)
class Accepting:
    """
    A source of accepted tools.

    Attributes:
        source: The tools as servers offer them.

        definitions: The store of accepted definitions. Unknown and different ones are
            looked up each time, because a person may have accepted them meanwhile.

        actor: Who accepts a tool at first use.

        on_event: Called once for each change.
    """

    source: ToolSource
    definitions: Definitions
    actor: dict[str, JSON]
    on_event: Callable[[Event], None]
    # Digests of accepted definitions.
    _known: dict[Target, str] = field(default_factory=dict[Target, str], init=False)
    # Changes that were reported.
    _told: set[tuple[Target, str]] = field(
        default_factory=set[tuple[Target, str]], init=False
    )

    @asynccontextmanager
    async def open(self, scope: RunScope) -> AsyncGenerator[ToolClient]:
        """Return the tools of one run, which offer only accepted definitions."""
        async with self.source.open(scope) as tools:
            yield _Accepted(tools, self)

    async def judged(self, offered: Offered, servers: Collection[str]) -> Offered:
        """Return *offered* of *servers* without the tools that are not accepted."""
        if others := self._others(offered.offers):
            named = {offer.server for offer in others}
            self._known |= await self.definitions.accepted(named)
            await self._accept(self._others(others))
        if offered.unlisted:
            self._known |= await self.definitions.accepted(offered.unlisted)
        refused = {_target(offer) for offer in self._others(offered.offers)}
        there = {_target(offer) for offer in offered.offers} - refused
        return replace(
            offered,
            offers=tuple(o for o in offered.offers if _target(o) not in refused),
            accepted={
                target: digest
                for target, digest in self._known.items()
                if target[0] in servers and target not in there
            },
        )

    def _others(self, offers: Iterable[Offer]) -> list[Offer]:
        """Return those of *offers* that differ from what is known to be accepted."""
        return [
            offer
            for offer in offers
            if offer.on_change is not None
            and self._known.get(_target(offer)) != offer.definition_sha256
        ]

    async def _accept(self, others: Collection[Offer]) -> None:
        new = [offer for offer in others if _target(offer) not in self._known]
        trusted = [o for o in others if o.on_change == "accept" and o not in new]
        for offers, anew in ((new, False), (trusted, True)):
            if offers:
                known = {_target(offer): offer.definition for offer in offers}
                await self.definitions.accept(known, self.actor, anew=anew)
        # Another host may have accepted one of them first.
        named = {offer.server for offer in (*new, *trusted)}
        self._known |= await self.definitions.accepted(named) if named else {}
        for server in {offer.server for offer in others}:
            self._tell(server, [o for o in self._others(others) if o.server == server])

    def _tell(self, server: str, changed: Iterable[Offer]) -> None:
        seen = {(_target(offer), offer.definition_sha256) for offer in changed}
        if new := sorted(tool for (_, tool), _ in seen - self._told):
            self._told |= seen
            self.on_event(ToolsChanged(server=server, changed=tuple(new)))
            for tool in new:
                _log.warning("%s", unaccepted(server, tool))


@dataclass(eq=False)
class _Accepted(ToolLayer):
    """The tools of one run. See `Accepting`."""

    accepting: Accepting

    async def offered(self, servers: Collection[str]) -> Offered:
        """Return the accepted tools of *servers*."""
        return await self.accepting.judged(await self.tools.offered(servers), servers)


async def compared(
    store: SharedStore | None, offer: Offer
) -> tuple[str | None, list[Difference]]:
    """Return the accepted digest of a tool, and how what is offered differs."""
    before: str | None = None
    old: JSON = {}
    if store is not None:
        known = await store.definitions.accepted([offer.server])
        before = known.get((offer.server, offer.tool))
        old = decode_trusted(await store.reader.blob(before)) if before else {}
    found = changes(old, decode_trusted(offer.definition))
    return before, [one for one in found if one.a != one.b]


def acceptance(
    offer: Offer, before: str | None, state: str, found: Sequence[Difference]
) -> dict[str, JSON]:
    """Return the ``caxton.acceptance/v1`` document of a tool."""
    return {
        "$type": "caxton.acceptance/v1",
        "server": offer.server,
        "tool": offer.tool,
        "state": state,
        "before": before,
        "definition_sha256": offer.definition_sha256,
        "differences": [one.to_document() for one in found],
    }


def unaccepted(server: str, tool: str) -> str:
    """Return the warning about a tool that has changed since it was accepted."""
    return (
        f"MCP: {server}/{tool} has changed since it was accepted; runs that start "
        f"now do not see it. To fix: caxton tool accept {server}/{tool}"
    )


def _target(offer: Offer) -> Target:
    return offer.server, offer.tool
