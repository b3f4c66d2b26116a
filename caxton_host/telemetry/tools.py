"""Tool clients whose every attempt is a CLIENT span."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..core.calls import JSON, Completed
from ..core.grants.tool_catalog import Offered
from ..core.tools.contexts import ServerResource
from ..errors import ToolError
from ..ports import RunScope, ToolClient, ToolRequest, ToolService
from .attributes import server_fields

if TYPE_CHECKING:
    from .spans import Spans


@dataclass(frozen=True, slots=True)
class _Traced:
    """
    The tools of one run, watched.

    Attributes:
        servers: What is known of each server, once it has offered.
    """

    tools: ToolClient
    spans: Spans
    servers: dict[str, Mapping[str, JSON]] = field(
        default_factory=dict[str, "Mapping[str, JSON]"]
    )

    async def offered(self, servers: Collection[str]) -> Offered:
        """Return what the servers offer."""
        offered = await self.tools.offered(servers)
        self.servers.update(offered.servers)
        return offered

    async def resources(
        self, servers: Collection[str], scope: RunScope
    ) -> Sequence[ServerResource]:
        """Read the resources of *servers*."""
        return await self.tools.resources(servers, scope)

    async def call_tool(self, request: ToolRequest) -> Completed:
        """Send *request*; each time that it is sent is watched."""
        known = server_fields(self.servers.get(request.server, {}))
        server, tool, attempt = request.server, request.tool, request.attempt
        span = self.spans.attempt(server, tool, attempt, known).__enter__()

        async def again() -> None:
            nonlocal attempt, span
            await request.on_resend()
            span.__exit__(None, None, None)
            attempt += 1
            span = self.spans.attempt(server, tool, attempt, known).__enter__()

        try:
            done = await self.tools.call_tool(replace(request, on_resend=again))
        except BaseException as exc:
            if (
                isinstance(exc, ToolError)
                and exc.code is not None
                and not request.quiet
            ):
                span.fields["rpc.response.status_code"] = str(exc.code)
            span.__exit__(None, exc, None)
            raise
        if done.is_error:
            span.fields["error.type"] = "tool_error"
        span.__exit__(None, None, None)
        return done


@dataclass(frozen=True, slots=True)
class TracedTools(_Traced):
    """A tool client whose every attempt is a CLIENT span."""

    tools: ToolService

    @contextlib.asynccontextmanager
    async def open(self, scope: RunScope) -> AsyncGenerator[ToolClient]:
        """Return the tools of one run, watched as well."""
        async with self.tools.open(scope) as tools:
            yield _Traced(tools, self.spans)
