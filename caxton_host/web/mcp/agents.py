"""Agents as MCP tools and resources. A cursor is the last name of a page."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import re
from collections.abc import Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from ...core.calls import JSON
from ...core.grants.principals import Principal
from ...core.log.events import Event, event_document
from ...core.names import stream_of
from ...errors import NotFoundError, UsageError
from ...runs.agent_tools import CONTENT, AgentTool
from ...runs.modules import AgentDescription
from ...service.run_service import Service

#: How long a client may take a list for true, in milliseconds.
TTL = 60_000

_SIZE = 500


def page(
    names: Iterable[str], params: types.PaginatedRequestParams | None
) -> tuple[list[str], str | None]:
    """
    Return the names of a page, and the cursor of the next.

    Args:
        names: All of them, in order.

        params: Of the request.

    Raises:
        MCPError: The cursor is invalid.
    """
    after = ""
    if params is not None and params.cursor is not None:
        with contextlib.suppress(ValueError):
            after = base64.urlsafe_b64decode(params.cursor).decode()
        if params.cursor != _cursor(after):
            raise MCPError(types.INVALID_PARAMS, "no such cursor")
    left = [name for name in names if name > after]
    found = left[:_SIZE]
    return found, _cursor(found[-1]) if len(left) > _SIZE else None


def _cursor(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


#: In ``_meta`` of a result: the run, and its state. In ``_meta`` of a call:
#: the run to continue; a key by which a second call is the same run; rules that the run
#: is given beside those of its agent; and variables of the run.
RUN_ID = "io.caxton/run-id"
STATE = "io.caxton/state"
IDEMPOTENCY_KEY = "io.caxton/idempotency-key"
NARROW = "io.caxton/narrow"
CONTEXT = "io.caxton/context"


def listed(tool: AgentTool) -> types.Tool:
    """Return the entry of an agent in a list of tools."""
    return types.Tool(
        name=tool.name,
        title=None if tool.card.name == tool.name else tool.card.name,
        description=tool.card.description or None,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        execution=types.ToolExecution(task_support=tool.card.tasks),
    )


def ended(tool: AgentTool, run_id: str, end: Event | None) -> types.CallToolResult:
    """Return the result of a call for the end of its run."""
    said = tool.ended(run_id, end)
    if said.is_error:
        return told(run_id, said.state, said.text, error=True)
    result = {
        "content": said.content or [{"type": "text", "text": said.text}],
        "structuredContent": said.structured,
        "_meta": _meta(run_id, said.state),
    }
    try:
        found = types.CallToolResult.model_validate(result)
    except ValidationError:
        wrong = f"The output of run {run_id} has content that is not valid."
        return told(run_id, said.state, wrong, error=True)
    found.content = [_linked(run_id, n, one) for n, one in enumerate(found.content)]
    return found


def _linked(run_id: str, n: int, block: types.ContentBlock) -> types.ContentBlock:
    """Return a block, or a link to it if it is too large."""
    kept = getattr(block, "resource", block)
    data = getattr(kept, "data", getattr(kept, "blob", ""))
    if len(data) <= _INLINE:
        return block
    return types.ResourceLink(
        name=f"{block.type}-{n}",
        uri=f"caxton://runs/{run_id}/content/{n}",
        mime_type=getattr(kept, "mime_type", None),
        size=len(data) * 3 // 4,
    )


def told(
    run_id: str, state: str, said: str, *, error: bool = False
) -> types.CallToolResult:
    """Return a result with a text about a run."""
    return types.CallToolResult(
        content=[types.TextContent(text=said)],
        is_error=error,
        _meta=_meta(run_id, state),
    )


def refused(said: str) -> types.CallToolResult:
    """Return an error result: the run was not started."""
    return types.CallToolResult(content=[types.TextContent(text=said)], is_error=True)


def _meta(run_id: str, state: str) -> dict[str, JSON]:
    return {RUN_ID: run_id, STATE: state}


logger = logging.getLogger("caxton_host")

#: Events that are read at a time, and so many bytes of them; the last may be longer.
_EVENTS = 200
_BYTES = 4 * 1024 * 1024
#: Characters of base64 in one block of an answer; more is read by a link.
_INLINE = 256 * 1024
_JSON = "application/json"
_AGENT = "caxton://agents/"

_URI = re.compile(
    r"caxton://(?:agents/(?P<agent>[^/?]+)"
    r"|runs/(?P<run>[^/?]+)(?:/content/(?P<content>[0-9]{1,5})"
    r"|(?P<events>/events(?:\?after=(?P<after>[^&]+))?))?)"
)
_TEMPLATES = (
    ("agent", "caxton://agents/{name}", "An agent: its description, input and output."),
    ("run", "caxton://runs/{run}", "The state and result of a run."),
    (
        "events",
        "caxton://runs/{run}/events{?after}",
        "The events of a run after a cursor, and the cursor of the last one.",
    ),
)


@dataclass(frozen=True, slots=True)
class AgentResources:
    """Lists and reads agents and runs as MCP resources."""

    service: Service
    principal: Callable[[ServerRequestContext[Any, Any]], Principal]

    async def list(
        self,
        ctx: ServerRequestContext[Any, Any],
        params: types.PaginatedRequestParams | None,
    ) -> types.ListResourcesResult:
        """Return the agents that the principal may call."""
        await self.service.code.refresh()
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
        """Return the URI templates."""
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
        Return the document at a URI.

        Raises:
            MCPError: It does not exist, or the principal may not see it.
        """
        try:
            document = await self._document(self.principal(ctx), params.uri)
        except UsageError as exc:
            raise MCPError(
                types.INVALID_PARAMS, str(exc), {"uri": params.uri[:1000]}
            ) from None
        if "blob" not in document:
            text = json.dumps(document, ensure_ascii=False)
            document = {"mimeType": _JSON, "text": text}
        contents = [{**document, "uri": params.uri}]
        result = {"contents": contents, "ttlMs": 0, "cacheScope": "private"}
        return types.ReadResourceResult.model_validate(result)

    async def _document(self, who: Principal, uri: str) -> dict[str, JSON]:
        if (found := _URI.fullmatch(uri)) is None:
            raise NotFoundError("there is no such resource")
        if name := found["agent"]:
            await self.service.code.refresh()
            return self._agent(who, unquote(name))
        row = await self.service.row(who, unquote(found["run"]))
        self.service.reads.note(who, row.run_id, "events" if found["events"] else "run")
        if found["events"]:
            return await self._events(who, row.run_id, found["after"])
        run = (await self.service.summaries.of(row)).to_document()
        return _block(run["output"], int(n)) if (n := found["content"]) else run

    def _agent(self, who: Principal, name: str) -> dict[str, JSON]:
        agent = self.service.agent(who, name)
        if agent.tool is None:
            raise NotFoundError(f"no agent {agent.name!r}")
        try:
            return _of_agent(self.service.card(agent))
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


def _block(output: Any, n: int) -> dict[str, JSON]:  # noqa: ANN401 -- of an agent
    """Return the bytes of a content block of an output."""
    try:
        block = output[CONTENT][n]
        kept = block.get("resource", block)
        blob = kept["blob"] if "blob" in kept else kept["data"]
        return {"mimeType": kept.get("mimeType"), "blob": blob}
    except (LookupError, TypeError, AttributeError):
        raise NotFoundError("there is no such resource") from None


def _of_agent(card: AgentDescription) -> dict[str, JSON]:
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
