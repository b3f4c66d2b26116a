"""
What clients may read: of each agent what it is, of each run what became of it.

Who asks gets what it may see, and nothing else exists for it.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from ...core.calls import JSON
from ...core.grants.principals import Principal
from ...core.log.events import event_document
from ...core.names import stream_of
from ...errors import NotFoundError, UsageError
from ...runs.modules import Card
from ...runs.recording import summary_of
from ...service.run_service import Service
from .paging import TTL, page

logger = logging.getLogger("caxton_host")

#: Events that are read at a time, and so many bytes of them; the last may be longer.
_EVENTS = 200
_BYTES = 4 * 1024 * 1024
_JSON = "application/json"
_AGENT = "caxton://agents/"

_URI = re.compile(
    r"caxton://(?:agents/(?P<agent>[^/?]+)"
    r"|runs/(?P<run>[^/?]+)(?P<events>/events(?:\?after=(?P<after>[^&]+))?)?)"
)
_TEMPLATES = (
    ("agent", "caxton://agents/{name}", "What an agent is, takes and gives."),
    ("run", "caxton://runs/{run}", "What became of a run."),
    (
        "events",
        "caxton://runs/{run}/events{?after}",
        "What a run did: the next events behind a cursor, and the cursor of the last.",
    ),
)


@dataclass(frozen=True, slots=True)
class AgentResources:
    """Lists and reads them."""

    service: Service
    principal: Callable[[ServerRequestContext[Any, Any]], Principal]

    async def list(
        self,
        ctx: ServerRequestContext[Any, Any],
        params: types.PaginatedRequestParams | None,
    ) -> types.ListResourcesResult:
        """Return the agents that somebody may call."""
        offered = self.service.agents(self.principal(ctx))
        cards = {card.name: card for card in offered if card.tool}
        names, cursor = page(sorted(cards), params)
        return types.ListResourcesResult(
            resources=[
                types.Resource(
                    name=name,
                    uri=_AGENT + quote(name, safe=""),
                    description=cards[name].description or None,
                    mime_type=_JSON,
                )
                for name in names
            ],
            next_cursor=cursor,
            ttl_ms=TTL,
            cache_scope="private",
        )

    async def templates(
        self,
        _: ServerRequestContext[Any, Any],
        __: types.PaginatedRequestParams | None,
    ) -> types.ListResourceTemplatesResult:
        """Return what addresses there are."""
        return types.ListResourceTemplatesResult(
            resource_templates=[
                types.ResourceTemplate(
                    name=name, uri_template=uri, description=said, mime_type=_JSON
                )
                for name, uri, said in _TEMPLATES
            ],
            ttl_ms=TTL,
            cache_scope="private",
        )

    async def read(
        self,
        ctx: ServerRequestContext[Any, Any],
        params: types.ReadResourceRequestParams,
    ) -> types.ReadResourceResult:
        """
        Return the document at an address.

        Raises:
            MCPError: There is none that whoever asks may see.
        """
        try:
            document = await self._document(self.principal(ctx), params.uri)
        except UsageError as exc:
            raise MCPError(
                types.INVALID_PARAMS, str(exc), {"uri": params.uri[:1000]}
            ) from None
        text = json.dumps(document, ensure_ascii=False)
        return types.ReadResourceResult(
            contents=[
                types.TextResourceContents(uri=params.uri, mime_type=_JSON, text=text)
            ],
            ttl_ms=0,
            cache_scope="private",
        )

    async def _document(self, who: Principal, uri: str) -> dict[str, JSON]:
        if (found := _URI.fullmatch(uri)) is None:
            raise NotFoundError("there is no such resource")
        if name := found["agent"]:
            return self._agent(who, unquote(name))
        row = await self.service.row(who, unquote(found["run"]))
        if not found["events"]:
            return (await summary_of(self.service.store.reader, row)).to_document()
        return await self._events(who, row.run_id, found["after"])

    def _agent(self, who: Principal, name: str) -> dict[str, JSON]:
        agent = self.service.agent(who, name)
        if agent.tool is None:
            raise NotFoundError(f"no agent {agent.name!r}")
        try:
            return _of_agent(self.service.library.card(agent))
        except UsageError as exc:
            # It names files of the host.
            logger.warning("agent %s cannot be shown: %s", name, exc)
            raise NotFoundError("the host has no module for that agent") from None

    async def _events(
        self, who: Principal, run_id: str, after: str | None
    ) -> dict[str, JSON]:
        cursor = after and unquote(after)
        events: list[JSON] = []
        tail = self.service.store.reader.tail(
            cursor, stream=stream_of(run_id), follow=False
        )
        more, size = False, 0
        async with aclosing(tail) as found:
            async for recorded, place in found:
                if more := len(events) == _EVENTS or size >= _BYTES:
                    break
                event = event_document(who.shown(recorded))
                events.append(event)
                size += len(json.dumps(event))
                cursor = place
        return {
            "$type": "caxton.events/v1",
            "events": events,
            "cursor": cursor,
            "more": more,
        }


def _of_agent(card: Card) -> dict[str, JSON]:
    takes, gives = card.input_schema, card.output_schema
    return {
        "$type": "caxton.card/v1",
        "name": card.name,
        "tool": card.tool,
        "description": card.description,
        "version": card.version,
        "input_schema": None if takes is None else {**takes},
        "output_schema": None if gives is None else {**gives},
    }
