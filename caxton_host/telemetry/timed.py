"""Tool clients whose every attempt is timed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.calls import Completed
from ..core.grants.tool_catalog import Offered
from ..core.tools.contexts import ServerResource
from ..ports import RunScope, ToolClient, ToolRequest, ToolService
from .attributes import raised_fields

if TYPE_CHECKING:
    from .sinks import Sink


@dataclass(frozen=True, slots=True)
class _Timed:
    """The tools of one run."""

    tools: ToolClient
    observers: Sequence[Sink]

    async def offered(self, servers: Collection[str]) -> Offered:
        """Return what the servers offer."""
        return await self.tools.offered(servers)

    async def resources(
        self, servers: Collection[str], scope: RunScope
    ) -> Sequence[ServerResource]:
        """Read the resources of *servers*."""
        return await self.tools.resources(servers, scope)

    async def call_tool(self, request: ToolRequest) -> Completed:
        """Send *request*, and tell how long that took."""
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
            for each in self.observers:
                each.attempted(request, seconds, error)


@dataclass(frozen=True, slots=True)
class TimedTools(_Timed):
    """A tool client that reports every attempt to *observers*."""

    tools: ToolService

    @contextlib.asynccontextmanager
    async def open(self, scope: RunScope) -> AsyncGenerator[ToolClient]:
        """Return the tools of one run, timed as well."""
        async with self.tools.open(scope) as tools:
            yield _Timed(tools, self.observers)
