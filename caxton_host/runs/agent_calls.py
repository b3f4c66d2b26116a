"""
Agents that call agents: the tools of the server ``agents``.

    ToolInvoked of the caller -> RunStarted, ... of a run of its own -> ToolCompleted

The id of that run follows from the call. So a host that carries the caller on finds the
run: it starts it if there is none, takes it up if nobody drives it, and reads its end.
Therefore such a call is never in doubt.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..config import Config
from ..config.model import run_variables
from ..core.calls import JSON, Completed
from ..core.grants.bounds import Bound, names_of
from ..core.grants.grants import Grant
from ..core.grants.tool_catalog import Offer, Offered
from ..core.log.events import Event, RunCancelled, RunSuspended
from ..core.names import AGENTS, called_run, exposed_name
from ..core.tools.servers import ToolOptions
from ..errors import (
    BusyError,
    CaxtonError,
    ChildSuspended,
    NotFoundError,
    NotKeptError,
    ServerUnavailable,
    StoreError,
    ToolError,
    UsageError,
)
from ..gateway.results import completed
from ..gateway.tool_layers import ToolLayer, check_names
from ..lib.codec import canonical, sha256
from ..ports.tools import RunScope, ToolClient, ToolRequest, ToolSource
from .agent_tools import AgentTool
from .modules import AgentDescription, Library
from .recording import Recording
from .run_request import RunRequest

if TYPE_CHECKING:
    from .host import Host

logger = logging.getLogger("caxton_host")

#: Seconds between two looks at a run that another host drives.
_EVERY = 0.5
#: For ``RunStarted.servers``.
_THIS_HOST: Mapping[str, JSON] = {
    "transport": "host",
    "address": "",
    "name": AGENTS,
    "version": None,
    "protocol": None,
}


@dataclass(slots=True, kw_only=True, eq=False)
class CallingAgents:
    """
    A source of tools, with the agents that runs may call among them.

    Attributes:
        source: Of all other tools.

        config: Returns what is configured now.

        library: Their modules.

        host: Drives their runs. Set once that exists.
    """

    source: ToolSource
    config: Callable[[], Config]
    library: Library
    host: Host = field(init=False, repr=False)

    @asynccontextmanager
    async def open(self, scope: RunScope) -> AsyncGenerator[ToolClient]:
        """Return the tools of one run, with the agents that it may call."""
        async with self.source.open(scope) as tools:
            yield _AgentTools(tools, self, scope)

    def tool(self, name: str) -> AgentTool | None:
        """Return an agent as a tool, or ``None`` if it cannot be one now."""
        try:
            return AgentTool(self.library.card(self.config().executed[name]))
        except KeyError:
            return None
        except UsageError as exc:
            # It names files of this host.
            logger.warning("agent %s cannot be called: %s", name, exc)
            return None

    def offers(self) -> tuple[Offer, ...]:
        """Return every agent as a tool."""
        found = ((name, self.tool(name)) for name in self.config().executed)
        return tuple(_offer(name, tool) for name, tool in found if tool)


@dataclass(eq=False)
class _AgentTools(ToolLayer):
    """The tools of the run *scope*. See `CallingAgents`."""

    callees: CallingAgents
    scope: RunScope

    async def offered(self, servers: Collection[str]) -> Offered:
        """Return what *servers* offer, which may include the agents."""
        others = await self.tools.offered([one for one in servers if one != AGENTS])
        if AGENTS not in servers:
            return others
        offers = (*others.offers, *self.callees.offers())
        check_names(offers)
        described = {**others.servers, AGENTS: {**_THIS_HOST}}
        return replace(others, offers=offers, servers=described)

    async def call_tool(self, request: ToolRequest) -> Completed:
        """
        Send *request*. A call of an agent is answered by the end of its run.

        Raises:
            ToolError: There is no valid answer.

            ChildSuspended: The run of the agent is suspended.
        """
        if request.server != AGENTS:
            return await self.tools.call_tool(request)
        run_id = called_run(request.run_id, request.idempotency_key)
        clock = self.callees.host.clock
        began = clock.monotonic()
        while True:
            try:
                recording = await self._recorded(run_id)
            except NotKeptError:  # Its end was erased.
                return self._answer(request.tool, run_id, None)
            if recording is None:
                await self._drive(request, run_id, self._start(request, run_id))
            elif recording.end is None:
                await self._drive(request, run_id, self._resume(request, recording))
            else:
                answer = self._answer(request.tool, run_id, recording.end.event)
                took_us = int((clock.monotonic() - began) * 1_000_000)
                called = recording.journal().tallies.recorded.called
                return replace(answer, duration_us=took_us, reached=names_of(called))

    async def _recorded(self, run_id: str) -> Recording | None:
        try:
            return await Recording.load(run_id, self.callees.host.store.reader)
        except NotFoundError:
            return None

    def _answer(self, name: str, run_id: str, end: Event | None) -> Completed:
        """Return what the caller is told of a run that has ended."""
        said = (self.callees.tool(name) or _unknown(name)).ended(run_id, end)
        result: dict[str, JSON] = {
            "content": said.content or [{"type": "text", "text": said.text}],
            "isError": said.is_error,
        }
        if said.structured is not None:
            result["structuredContent"] = said.structured
        size = len(canonical(result))
        redact = self.callees.host.redact
        return completed(result, name, ToolOptions(), redact, size=size)

    # -- the run of the agent --------------------------------------------------

    async def _start(self, request: ToolRequest, run_id: str) -> None:
        name = request.tool
        try:
            await self.callees.host.start(self._wanted(request), run_id=run_id)
        except ToolError:
            raise
        except StoreError:
            # A host that had lost the caller may have started it at last.
            if await self._recorded(run_id) is None:
                raise
        except ServerUnavailable:
            raise _unstarted(name, "a server that it requires is down") from None
        except CaxtonError as exc:
            if self.callees.host.freezes.of_calls.on(name, self.scope.actor):
                raise ChildSuspended(request.call, str(exc), fix=exc.fix) from None
            if isinstance(exc, BusyError):
                why = "the host has as many runs as it takes"
                raise _unstarted(name, why) from None
            # It may name files of this host.
            logger.warning("agent %s was not started: %s", name, exc)
            raise _unstarted(name, "the log of the host says why") from None

    def _wanted(self, request: ToolRequest) -> RunRequest:
        """Return the request for a run of the agent that is called."""
        config, scope, name = self.callees.config(), self.scope, request.tool
        agent, tool = config.executed.get(name), self.callees.tool(name)
        pinned = request.definition_sha256
        if agent is None or tool is None:
            raise ToolError("changed", "no", f"there is no agent {name!r} now")
        if pinned not in {None, _offer(name, tool).definition_sha256}:
            raise ToolError(
                "changed", "no", f"agent {name!r} has changed since the run started"
            )
        code = self.callees.library.code(agent, tool.input(request.params))
        known = config.context.keys() & scope.context.keys()
        context, private = run_variables(
            config, {key: scope.context[key] for key in known}
        )
        return replace(
            RunRequest.of(agent, code, {**scope.actor}),
            context=context,
            private=private,
            limits=replace(
                agent.limits,
                depth=min(agent.limits.depth, scope.limits.depth - 1),
                descendants=scope.limits.descendants,
            ),
            trigger="agent",
            bounds=self._handed(request),
            called_by=request.call,
            callers=(*scope.callers, request.run_id),
            unvouched=scope.unvouched,
        )

    def _handed(self, request: ToolRequest) -> tuple[Bound, ...]:
        """Return the grants of its callers that bind the run of an agent."""
        agent = self.callees.config().executed.get(request.tool)
        return () if agent and agent.authority == "own" else request.handed

    async def _resume(self, request: ToolRequest, recording: Recording) -> None:
        name, scope = recording.started.agent, self.scope
        agent = self.callees.config().executed.get(name)
        try:
            await self.callees.host.resume(
                recording.run_id,
                actor={**scope.actor},
                grant=agent.grant if agent else Grant(),
                reason="called",
                private={key: scope.context[key] for key in scope.private},
                restored=True,  # A person has resumed the caller.
                above=self._handed(request),
            )
        except BusyError:
            await asyncio.sleep(_EVERY)  # Another host drives it.
        except StoreError:
            raise
        except CaxtonError as exc:
            found = await self._recorded(recording.run_id)
            if found is None or found.end is None:
                raise ChildSuspended(request.call, str(exc), fix=exc.fix) from None

    async def _drive(
        self, request: ToolRequest, run_id: str, work: Coroutine[Any, Any, None]
    ) -> None:
        """Drive the run of an agent; whatever stops the caller stops that run too."""
        host, actor = self.callees.host, {**self.scope.actor}
        task = asyncio.create_task(work)
        end: RunCancelled | RunSuspended | None
        try:
            async with asyncio.timeout(request.timeout):
                await asyncio.shield(task)
        except TimeoutError:
            reason = f"the call took longer than {request.timeout:g} s"
            end = RunCancelled(actor=actor, reason=reason)
            await self._stop(run_id, task, end)
            if await self._recorded(run_id) is None:
                raise ToolError("timeout", "no", reason) from None
        except asyncio.CancelledError:
            end = host.under_way.stopping(request.run_id)
            stopped = RunCancelled(actor=actor, reason="the run that called it ended")
            await self._stop(run_id, task, end or stopped)
            raise

    async def _stop(
        self, run_id: str, task: asyncio.Task[None], end: RunCancelled | RunSuspended
    ) -> None:
        if await self.callees.host.under_way.stop(run_id, end) is None:
            task.cancel()  # It has not begun.
        await asyncio.wait([task])
        if not task.cancelled() and (exc := task.exception()):
            logger.info("run %s: %s", run_id, exc)


def _offer(name: str, tool: AgentTool) -> Offer:
    schema = tool.input_schema
    description = tool.card.description
    definition = canonical(
        {
            "name": name,
            "description": description,
            "inputSchema": schema,
            "outputSchema": tool.output_schema,
        }
    )
    return Offer(
        server=AGENTS,
        tool=name,
        exposed=exposed_name(AGENTS, name),
        description=description,
        input_schema=schema,
        output_schema=tool.output_schema,
        definition=definition,
        definition_sha256=sha256(definition),
        effect="keyed",
    )


def _unknown(name: str) -> AgentTool:
    return AgentTool(
        AgentDescription(
            name=name,
            tool=None,
            description="",
            version="",
            input_schema=None,
            output_schema=None,
        )
    )


def _unstarted(name: str, why: str) -> ToolError:
    return ToolError("transport", "no", f"agent {name!r} was not started: {why}")
