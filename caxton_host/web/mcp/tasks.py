"""
Tasks: a client makes a call, and comes back for its result.

A task is a view of the log: a `Source` finds it there by its id. 2025-11-25 has tasks
in the protocol, and the client asks for one; 2026-07-28 as an extension, and the server
decides which calls are one. This module owns what differs between the two.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol, TypeAlias

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types.methods import serialize_server_result
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ...config.model import TaskSupport

Context: TypeAlias = ServerRequestContext[Any, Any]

DATED = "2025-11-25"
EXTENSION = "io.modelcontextprotocol/tasks"
RELATED = "io.modelcontextprotocol/related-task"

#: Milliseconds for which a task can be asked for, unless its client says so; and the
#: least and the most: a task that is gone before its call is answered looks like a call
#: that was not made.
TTL_MS, SHORTEST_TTL_MS, LONGEST_TTL_MS = 86_400_000, 60_000, 7 * 86_400_000
_POLL_MS = 1_000
#: Characters of a message about a status.
_LONGEST = 2_000
_STOPPING = -32000

_BOTH = frozenset({DATED, *MODERN_PROTOCOL_VERSIONS})
_METHODS: Mapping[str, frozenset[str]] = {
    "tasks/get": _BOTH,
    "tasks/cancel": _BOTH,
    "tasks/result": frozenset({DATED}),
    "tasks/list": frozenset({DATED}),
    "tasks/update": frozenset(MODERN_PROTOCOL_VERSIONS),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """
    A call of a client, as it stands.

    Attributes:
        status: ``completed`` if the call gave a result, which may be an error of the
            tool; ``failed``: it was cut off.

        said: What it waits for, or why it failed.

        created: Microseconds since 1970; so is `updated`.

        ttl: Milliseconds since then, after which it does not exist.

        result: What the call gives; ``None``: it goes on.
    """

    id: str
    status: str
    said: str = ""
    created: int
    updated: int
    ttl: int
    result: dict[str, Any] | None = None


class Source(Protocol):
    """Finds the tasks of clients."""

    async def find(self, ctx: Context, key: str) -> Task | None:
        """Return a task of the client; ``None``: it has none of that id."""
        ...

    async def wait(self, task: Task) -> None:
        """Return when a task may have gone on."""
        ...

    async def cancel(self, ctx: Context, task: Task) -> None:
        """Cancel a task, if it has not ended."""
        ...


_Asked: TypeAlias = types.GetTaskRequestParams
#: Returns a page of the tasks of a client, and the cursor of the next.
Listing = Callable[[Context, str | None], Awaitable[tuple[Sequence[Task], str | None]]]
Handler = Callable[[Context, Any], Awaitable[HandlerResult]]


@dataclass(slots=True, kw_only=True)
class Tasks:
    """
    Answers what clients ask about tasks.

    Attributes:
        source: Finds them.

        call: Answers ``tools/call``.

        closed: Returns whether the host is about to stop.

        listing: Lists them; ``None``: that is not offered.
    """

    source: Source
    call: Handler
    closed: Callable[[], bool]
    listing: Listing | None = None
    _announced: dict[str, Any] = field(init=False)

    def offer(self, server: Server[Any]) -> None:
        """Let a server offer tasks."""
        self._announced = {"cancel": {}, "requests": {"tools": {"call": {}}}}
        add = server.add_request_handler
        add("tasks/get", _Asked, self._get)
        add("tasks/result", _Asked, self._result)
        add("tasks/cancel", _Asked, self._cancel)
        add("tasks/update", _Asked, self._update)
        if self.listing:
            self._announced["list"] = {}
            add("tasks/list", types.PaginatedRequestParams, self._list)
        server.extensions[EXTENSION] = {}
        server.middleware.append(self._between)

    async def _between(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Do what the SDK does not: it knows no tasks of 2025-11-25."""
        if versions := _METHODS.get(ctx.method):
            if ctx.protocol_version not in versions:
                raise MCPError(types.METHOD_NOT_FOUND, "Method not found", ctx.method)
            if ctx.protocol_version != DATED:
                _check_extension(ctx)
        asks = is_dated(ctx) and (ctx.params or {}).get("task") is not None
        if asks and ctx.method == "tools/call":
            params = types.CallToolRequestParams.model_validate(
                ctx.params, by_name=False
            )
            return await self.call(ctx, params)
        found = await call_next(ctx)
        told: Any = found if ctx.method == "initialize" else {}
        if told.get("protocolVersion") == DATED:
            told["capabilities"]["tasks"] = self._announced
        return found

    async def found(self, ctx: Context, key: str) -> Task:
        """
        Return a task of a client.

        Raises:
            MCPError: It has none of that id.
        """
        task = await self.source.find(ctx, key)
        if task is None:
            raise MCPError(types.INVALID_PARAMS, "there is no such task")
        return task

    async def _get(self, ctx: Context, asked: _Asked) -> HandlerResult:
        task = await self.found(ctx, asked.task_id)
        return _dated(task) if is_dated(ctx) else _detailed(task)

    async def _result(self, ctx: Context, asked: _Asked) -> HandlerResult:
        while (task := await self.found(ctx, asked.task_id)).result is None:
            if self.closed():
                raise MCPError(_STOPPING, "the host is about to stop: ask again")
            await self.source.wait(task)
        found = serialize_server_result("tools/call", DATED, task.result)
        related = {RELATED: {"taskId": task.id}}
        return {**found, "_meta": {**found.get("_meta", {}), **related}}

    async def _cancel(self, ctx: Context, asked: _Asked) -> HandlerResult:
        task = await self.found(ctx, asked.task_id)
        if going_on := task.result is None:
            await self.source.cancel(ctx, task)
            task = await self.found(ctx, asked.task_id)
        if not is_dated(ctx):
            return {}
        if task.result is not None and not (going_on and task.status == "cancelled"):
            raise MCPError(types.INVALID_PARAMS, "the task has ended already")
        return _dated(task)

    async def _update(self, ctx: Context, asked: _Asked) -> HandlerResult:
        """Take answers of a client to questions: it is asked none."""
        await self.found(ctx, asked.task_id)
        return {}

    async def _list(
        self, ctx: Context, params: types.PaginatedRequestParams
    ) -> HandlerResult:
        assert self.listing is not None  # noqa: S101 -- see `offer`
        tasks, cursor = await self.listing(ctx, params.cursor)
        found: dict[str, Any] = {"tasks": [_dated(task) for task in tasks]}
        return found if cursor is None else {**found, "nextCursor": cursor}


def is_dated(ctx: Context) -> bool:
    """Return whether a client speaks the protocol that has tasks in itself."""
    return ctx.protocol_version == DATED


def ttl_of(
    ctx: Context,
    params: types.CallToolRequestParams,
    support: TaskSupport = "optional",
) -> int | None:
    """
    Return how long a call is a task, in milliseconds; ``None``: it is none.

    Args:
        ctx: Of the call.

        params: Of the call.

        support: Whether the tool is called as a task.

    Raises:
        MCPError: The tool is not called so, or the client asks for less than nothing.
    """
    if not is_dated(ctx) and _has_extension(ctx):
        return None if support == "forbidden" else TTL_MS
    asked = params.task if is_dated(ctx) else None
    if support == ("required" if asked is None else "forbidden"):
        said = f"it is {support} to call {params.name} as a task"
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            raise _without_extension(said)
        raise MCPError(types.METHOD_NOT_FOUND, said)
    if asked is None:
        return None
    ttl = TTL_MS if asked.ttl is None else asked.ttl
    if ttl < 1:
        raise MCPError(types.INVALID_PARAMS, "the ttl of a task is 1 ms at least")
    return min(max(ttl, SHORTEST_TTL_MS), LONGEST_TTL_MS)


def created(ctx: Context, task: Task | types.CallToolResult) -> HandlerResult:
    """
    Return the answer to a call that is a task.

    Args:
        ctx: Of the call.

        task: The task; or why there is none.

    Raises:
        MCPError: There is none, and the client takes nothing else.
    """
    if isinstance(task, Task):
        own = {"task": _dated(task)}
        return own if is_dated(ctx) else {"resultType": "task", **_extended(task)}
    if is_dated(ctx):
        raise MCPError(types.INVALID_PARAMS, _text(task.model_dump(by_alias=True)))
    return task


def _has_extension(ctx: Context) -> bool:
    known = ctx.session.client_capabilities
    return known is not None and EXTENSION in (known.extensions or {})


def _without_extension(said: str) -> MCPError:
    wanted: Any = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
    return MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, said, wanted)


def _check_extension(ctx: Context) -> None:
    """
    Check that a client of 2026-07-28 has declared tasks, and says one id.

    Raises:
        MCPError: It has not, or does.
    """
    if not _has_extension(ctx):
        raise _without_extension(f"declare the extension {EXTENSION}")
    if ctx.request is not None:
        told = decode_header_value(ctx.request.headers.get(MCP_NAME_HEADER))
        if told != (ctx.params or {}).get("taskId"):
            said = "the Mcp-Name header is not the taskId"
            raise MCPError(types.HEADER_MISMATCH, said)


def _text(result: Mapping[str, Any]) -> str:
    return str(next((part.get("text", "") for part in result["content"]), ""))


def _dated(task: Task) -> dict[str, Any]:
    """Return a task as 2025-11-25 has it, where an error of a tool is a failure."""
    is_error = task.result is not None and task.result.get("isError")
    status = "failed" if is_error and task.status == "completed" else task.status
    times = {"ttl": task.ttl, "pollInterval": _POLL_MS}
    return {**_common(task), "status": status, **times}


def _extended(task: Task) -> dict[str, Any]:
    """Return a task as the extension has it, where only the client gives input."""
    status = "working" if task.status == "input_required" else task.status
    times = {"ttlMs": task.ttl, "pollIntervalMs": _POLL_MS}
    return {**_common(task), "status": status, **times}


def _common(task: Task) -> dict[str, Any]:
    said = task.said
    if task.result is not None and task.result.get("isError"):
        said = _text(task.result)
    return {
        "taskId": task.id,
        "createdAt": _at(task.created),
        "lastUpdatedAt": _at(task.updated),
        **({"statusMessage": said[:_LONGEST]} if said else {}),
    }


def _detailed(task: Task) -> dict[str, Any]:
    found = _extended(task)
    if task.result is not None and task.status == "completed":
        (version,) = MODERN_PROTOCOL_VERSIONS
        result = {"resultType": "complete", **task.result}
        found["result"] = serialize_server_result("tools/call", version, result)
    if task.result is not None and task.status == "failed":
        about = {"_meta": task.result.get("_meta", {})}
        said = _text(task.result)
        found["error"] = {"code": types.INTERNAL_ERROR, "message": said, "data": about}
    return found


def _at(time: int) -> str:
    at = datetime.fromtimestamp(time // 1_000 / 1_000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
