"""
A call of an agent over MCP: start its run, report progress, and cancel it.

A client that disconnects cancels its run. A call that names a run, or has an
idempotency key, can be repeated: its run continues.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.shared.exceptions import MCPError

from ...core.calls import JSON
from ...core.grants.freezes import frozen_in
from ...core.grants.principals import Principal
from ...core.log.events import LogWritten, RunSuspended, ToolProgress
from ...core.names import stream_of
from ...errors import (
    BusyError,
    CaxtonError,
    ForbiddenError,
    NotFoundError,
    NotKeptError,
    OverloadedError,
    ServerUnavailable,
    Suspend,
    UsageError,
)
from ...runs.admission import Ticket
from ...runs.agent_tools import AgentTool
from ...runs.recording import Recording
from ...service.run_service import Service, Submission
from .agents import CONTEXT, IDEMPOTENCY_KEY, NARROW, RUN_ID, ended, refused, told

logger = logging.getLogger("caxton_host")

#: Takes how many reports there were, and the last.
Tell = Callable[[float, str], Awaitable[None]]
#: Takes a log line of a run.
Line = Callable[[LogWritten], Awaitable[None]]

#: Seconds between two looks at the log lines of a run.
_LINES = 0.1
#: Reports that wait for a slow client; what comes on top is dropped.
_REPORTS = 100
_LONGEST_KEY = 256
OVERLOADED = -32000
_HUNG_UP = "the client hung up"


@dataclass(slots=True)
class Held:
    """
    A call under way.

    Attributes:
        run_id: Its run, once that has begun.

        reason: Why it is to end, if it is.
    """

    run_id: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """
    One call.

    Attributes:
        who: Makes it.

        tool: The agent that is called.

        meta: What the client says besides.

        ticket: Its place in the line, if it was taken before.

        tell: Reports progress to the client; ``None`` if it did not ask.

        line: Passes on a log line of the run; ``None`` if the client did not ask.

        held: What others need to end it.

        task_ttl: Milliseconds for which it is a task; ``None``: it is none.
    """

    who: Principal
    tool: AgentTool
    arguments: Mapping[str, JSON]
    meta: Mapping[str, object]
    ticket: Ticket | None
    tell: Tell | None
    line: Line | None = None
    held: Held = field(default_factory=Held)
    task_ttl: int | None = None


@dataclass(slots=True)
class Calls:
    """Makes calls."""

    service: Service
    _ends: set[asyncio.Task[None]] = field(
        default_factory=set[asyncio.Task[None]], init=False
    )

    async def make(self, call: Call) -> types.CallToolResult:
        """
        Run an agent, and return its result.

        Raises:
            MCPError: There is no room, or no such run.

            StoreError: It could not be recorded.
        """
        run_id = await self.begun(call)
        if isinstance(run_id, types.CallToolResult):
            return run_id
        call.held.run_id = run_id
        if call.held.reason:
            self._end(call.who, run_id, call.held.reason)
        async with self._told(call, run_id), self._cancelling(call, run_id):
            end = await self.service.over(run_id)
        if isinstance(end, RunSuspended):
            return await self._suspended(call.tool, run_id)
        return ended(call.tool, run_id, end)

    async def begun(self, call: Call) -> str | types.CallToolResult:
        """
        Start the run of a call, and return its id; or why it was not started.

        Raises:
            MCPError, StoreError: See `make`.
        """
        try:
            return await self._begun(call)
        except OverloadedError as exc:
            raise MCPError(
                OVERLOADED, str(exc), {"retryAfter": round(exc.retry_after, 3)}
            ) from None
        except NotFoundError as exc:
            raise MCPError(types.INVALID_PARAMS, str(exc)) from None
        except (UsageError, ForbiddenError, BusyError, NotKeptError) as exc:
            return refused(f"The agent was not started: {exc}")
        except ServerUnavailable:
            return refused("The agent was not started: a required tool server is down.")

    async def _begun(self, call: Call) -> str:
        run_id, key = _text(call.meta, RUN_ID), _text(call.meta, IDEMPOTENCY_KEY)
        if run_id is not None and (
            await self._again(call, run_id) != "completed" or not call.arguments
        ):
            return run_id
        if wrong := call.tool.mismatch(call.arguments):
            raise UsageError(f"the arguments do not match the input schema: {wrong}")
        wanted = Submission(
            agent=call.tool.card.name,
            input=call.tool.input(call.arguments),
            variables=_object(call.meta, CONTEXT) or {},
            key=key,
            trigger="mcp",
            trace=self.service.host.telemetry.trace_of(call.meta),
            # What a client gets before the run has ended must be durable (law 3).
            ahead=key is None and call.task_ttl is None,
            task_ttl=call.task_ttl,
            narrow=_object(call.meta, NARROW),
        )
        if run_id is not None:
            more = await self.service.continuing(call.who, run_id, wanted)
            if more is None:
                return run_id
            wanted = more
        return await self.service.submit(call.who, wanted, call.ticket)

    async def _again(self, call: Call, run_id: str) -> str:
        """Resume a run if it is suspended, and return its state before."""
        row = await self.service.row(call.who, run_id)
        if row.agent != call.tool.card.name:
            raise NotFoundError(f"no run {run_id} of this agent")
        if row.state == "suspended":
            try:
                new = _object(call.meta, CONTEXT) or {}
                await self.service.resume(call.who, run_id, call.ticket, variables=new)
            except OverloadedError:
                raise
            except (Suspend, BusyError):
                pass  # It still waits, or runs already.
        return row.state

    # -- while it lasts --------------------------------------------------------

    @asynccontextmanager
    async def _told(self, call: Call, run_id: str) -> AsyncGenerator[None]:
        """Report the progress and the log lines of the run to the client."""
        async with reporting(call.tell, _said) as watch, self._logged(call, run_id):
            unwatch = self.service.watchers.add(run_id, watch)
            try:
                yield
            finally:
                unwatch()

    @asynccontextmanager
    async def _logged(self, call: Call, run_id: str) -> AsyncGenerator[None]:
        """Pass on what the run logs to the client."""
        over = asyncio.Event()
        telling = asyncio.create_task(self._lines(run_id, call.line, over))
        try:
            yield
            over.set()
            await telling
        finally:
            telling.cancel()

    async def _lines(self, run_id: str, line: Line | None, over: asyncio.Event) -> None:
        stream, cursor, is_last = stream_of(run_id), None, False
        with contextlib.suppress(Exception):  # The client may be gone.
            while line and not is_last:
                is_last = over.is_set()
                tail = self.service.store.reader.tail(
                    cursor, stream=stream, follow=False
                )
                async with aclosing(tail) as found:
                    async for recorded, place in found:
                        cursor = place
                        if isinstance(recorded.event, LogWritten):
                            await line(recorded.event)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(over.wait(), _LINES)

    @asynccontextmanager
    async def _cancelling(self, call: Call, run_id: str) -> AsyncGenerator[None]:
        """Cancel the run if the client disconnects, unless it can resume it."""
        try:
            yield
        except asyncio.CancelledError:
            if RUN_ID not in call.meta and IDEMPOTENCY_KEY not in call.meta:
                # This task is cancelled, so another one must do it.
                self._end(call.who, run_id, _HUNG_UP)
            raise

    def _end(self, who: Principal, run_id: str, reason: str) -> None:
        end = asyncio.create_task(self.cancel(who, run_id, reason))
        self._ends.add(end)
        end.add_done_callback(self._ends.discard)

    async def cancel(self, who: Principal, run_id: str, reason: str) -> None:
        """Cancel a run as *who*, if it has not ended."""
        try:
            await self.service.cancel(who, run_id, reason)
        except CaxtonError as exc:
            logger.info("run %s is not cancelled: %s", run_id, exc)

    async def settled(self) -> None:
        """Wait until the runs of disconnected clients are cancelled."""
        while self._ends:
            await asyncio.wait(self._ends)

    # -- when it is over -------------------------------------------------------

    async def _suspended(self, tool: AgentTool, run_id: str) -> types.CallToolResult:
        recording = await Recording.load(run_id, self.service.store.reader)
        # A tool that promises a structured result would break its word.
        error = tool.output_schema is not None
        how = f'To continue, call with {{"{RUN_ID}": "{run_id}"}} in _meta.'
        said = f"{waits_for(recording)}\n{how}"
        return told(run_id, "suspended", said, error=error)


@asynccontextmanager
async def reporting(
    tell: Tell | None, said: Callable[[ToolProgress], str]
) -> AsyncGenerator[Callable[[ToolProgress], None]]:
    """
    Return a callback for progress reports, which passes them on to a client.

    Args:
        tell: Tells the client; ``None`` if it did not ask.

        said: Returns the text of a report.
    """
    if tell is None:
        yield lambda _: None
        return
    reports, rest = anyio.create_memory_object_stream[str](_REPORTS)
    telling = asyncio.create_task(_tell(rest, tell))

    def watch(event: ToolProgress) -> None:
        # A slow or disconnected client does not delay the run.
        with contextlib.suppress(anyio.WouldBlock, anyio.BrokenResourceError):
            reports.send_nowait(said(event))

    try:
        yield watch
        reports.close()
        await telling
    finally:
        reports.close()
        telling.cancel()


async def _tell(reports: MemoryObjectReceiveStream[str], tell: Tell) -> None:
    number = 0
    with reports:
        async for said in reports:
            number += 1
            try:
                await tell(number, said)
            except Exception:
                logger.debug("a client is not told how far a run is", exc_info=True)
                return


def _said(event: ToolProgress) -> str:
    words = [f"call {event.call}:", event.message]
    if event.progress is not None:
        of = "" if event.total is None else f" of {event.total:g}"
        words.append(f"({event.progress:g}{of})")
    return " ".join(filter(None, words))


def waits_for(recording: Recording) -> str:
    """Return what a suspended run waits for."""
    run_id, journal = recording.run_id, recording.journal()
    lines = [f"Run {run_id} is suspended. Do not call the tool again for the same."]
    if frozen_in(recording.latest.event):
        lines.append("The operator has stopped its calls for a while.")
    callees = recording.callees
    for doubt in journal.in_doubt:
        if doubt.resolved:
            continue
        call = doubt.invoked
        if callee := callees.get(call.call):
            lines.append(f"Call {call.call} ({call.name}) waits for run {callee}.")
            continue
        lines.append(
            f"Call {call.call} ({call.name}) was sent, and its outcome is "
            "unknown: a person must find out and record it."
        )
    for asked in journal.waiting:
        wanted = asked.requested
        by = " or ".join(map(str, wanted.by)) or "anyone with the scope decide"
        lines.append(
            f"Call {wanted.call} ({wanted.server}/{wanted.tool}) waits for the "
            f"approval of {by}."
        )
    if len(lines) == 1:
        lines.append("It continues when the host does.")
    return "\n".join(lines)


def _object(meta: Mapping[str, object], key: str) -> dict[str, JSON] | None:
    value = meta.get(key)
    if value is not None and not isinstance(value, dict):
        raise UsageError(f"{key} is an object")
    return cast("dict[str, JSON] | None", value)


def _text(meta: Mapping[str, object], key: str) -> str | None:
    value = meta.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_KEY:
        raise UsageError(f"{key} is a text of at most {_LONGEST_KEY} characters")
    return value
