"""Tools whose every attempt is observed: timed, and a CLIENT span if spans are sent."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..core.calls import JSON, Completed
from ..core.grants.tool_catalog import Offered
from ..core.tools.webhooks import SERVER as WEBHOOK
from ..errors import ToolError
from ..gateway.tool_layers import ToolLayer
from ..ports.tools import ToolRequest
from ..ports.watch import Fields
from .attributes import raised_fields, server_fields, webhook_fields

if TYPE_CHECKING:
    from .spans import OpenSpan, Spans


@dataclass(eq=False)
class ObservedTools(ToolLayer):
    """
    Tools whose every attempt is observed.

    Attributes:
        report: Called with each attempt: the seconds that it took, and the type of its
            error, or ``""``.

        spans: Makes the CLIENT spans; ``None``: none are sent.

        servers: The description of each server, from its offers.

        webhooks: The same of each webhook.
    """

    report: Sequence[Callable[[ToolRequest, float, str], None]]
    spans: Spans | None
    servers: dict[str, Mapping[str, JSON]] = field(
        default_factory=dict[str, "Mapping[str, JSON]"], init=False
    )
    webhooks: dict[str, Fields] = field(default_factory=dict[str, Fields], init=False)

    async def offered(self, servers: Collection[str]) -> Offered:
        """Return what the servers offer."""
        offered = await self.tools.offered(servers)
        self.servers.update(offered.servers)
        self.webhooks |= {
            one.tool: webhook_fields(one.definition)
            for one in offered.offers
            if one.server == WEBHOOK and self.spans
        }
        return offered

    async def call_tool(self, request: ToolRequest) -> Completed:
        """Send *request*, with a span for each time that it is sent."""
        attempt = self.spans and _Attempt(self.spans, request, self._known(request))
        began_s = time.perf_counter()
        try:
            done = await self.tools.call_tool(attempt.request if attempt else request)
        except BaseException as exc:
            self._timed(request, began_s, str(raised_fields(exc).get("error.type", "")))
            if attempt:
                attempt.failed(exc)
            raise
        error = "tool_error" if done.is_error else ""
        self._timed(request, began_s, error)
        if attempt:
            attempt.ended(error)
        return done

    def _known(self, request: ToolRequest) -> Fields:
        if request.server == WEBHOOK:
            return self.webhooks.get(request.tool, {})
        return server_fields(self.servers.get(request.server, {}))

    def _timed(self, request: ToolRequest, began_s: float, error: str) -> None:
        took_s = time.perf_counter() - began_s
        for report in self.report:
            report(request, took_s, error)


class _Attempt:
    """The span of an attempt, and of each time that its request is sent again."""

    def __init__(self, spans: Spans, request: ToolRequest, known: Fields) -> None:
        self.request = replace(request, on_resend=self._again, on_wire=self._wire)
        self._given = request
        self._spans = spans
        self._known = known
        self._number = request.attempt
        self._span = self._begun()

    def _begun(self) -> OpenSpan:
        server, tool = self._given.server, self._given.tool
        attempt = self._spans.attempt(server, tool, self._number, self._known)
        return attempt.__enter__()

    async def _again(self) -> None:
        await self._given.on_resend()
        self._span.__exit__(None, None, None)
        self._number += 1
        self._span = self._begun()

    def _wire(self, fields: Fields) -> None:
        self._span.fields |= fields

    def failed(self, exc: BaseException) -> None:
        """End the span with what was raised."""
        fields = raised_fields(exc)
        if (
            isinstance(exc, ToolError)
            and exc.code is not None
            and not self._given.quiet
        ):
            fields |= dict.fromkeys(
                ("error.type", "rpc.response.status_code"), str(exc.code)
            )
        self._end(fields)

    def ended(self, error: str) -> None:
        """End the span; *error* is the type of the tool's own error, or empty."""
        status = self._span.fields.get("http.response.status_code", error)
        self._end({"error.type": str(status)} if error else {})

    def _end(self, fields: Fields) -> None:
        self._wire(fields)
        self._span.__exit__(None, None, None)
