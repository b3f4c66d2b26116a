"""Tools whose every attempt is timed, or is a CLIENT span."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..core.calls import JSON, Completed
from ..core.grants.tool_catalog import Offered
from ..errors import ToolError
from ..gateway.tool_layers import ToolLayer
from ..ports import ToolRequest
from .attributes import raised_fields, server_fields

if TYPE_CHECKING:
    from .spans import Spans


@dataclass(eq=False)
class TracedTools(ToolLayer):
    """
    Tools whose every attempt is a CLIENT span.

    Attributes:
        servers: The description of each server, from its offers.
    """

    spans: Spans
    servers: dict[str, Mapping[str, JSON]] = field(
        default_factory=dict[str, "Mapping[str, JSON]"], init=False
    )

    async def offered(self, servers: Collection[str]) -> Offered:
        """Return what the servers offer."""
        offered = await self.tools.offered(servers)
        self.servers.update(offered.servers)
        return offered

    async def call_tool(self, request: ToolRequest) -> Completed:
        """Send *request*, with a span for each time that it is sent."""
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


@dataclass(eq=False)
class TimedTools(ToolLayer):
    """
    Tools whose every attempt is timed.

    Attributes:
        report: Called with each attempt: the seconds that it took, and the type of its
            error, or ``""``.
    """

    report: Sequence[Callable[[ToolRequest, float, str], None]]

    async def call_tool(self, request: ToolRequest) -> Completed:
        """Send *request*, and report how long that took."""
        began, error = time.perf_counter(), ""
        try:
            done = await self.tools.call_tool(request)
            error = "tool_error" if done.is_error else ""
        except BaseException as exc:
            error = str(raised_fields(exc).get("error.type", ""))
            raise
        else:
            return done
        finally:
            seconds = time.perf_counter() - began
            for report in self.report:
                report(request, seconds, error)
