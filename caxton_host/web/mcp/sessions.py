"""
The MCP server of sessions: its clients are agents, and see the tools of their grant.

A call is answered when its outcome is in the log. What a rule or a person keeps from a
client is a result with ``isError``, which a model can read.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, assert_never, cast

import anyio
import mcp_types as types
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from ... import __version__
from ...core.calls import JSON, Completed, Denied, Failed, Outcome
from ...core.clients import Client
from ...core.grants.content import LISTS
from ...core.grants.principals import Principal
from ...core.log.events import ToolProgress
from ...core.names import PROMPT, READ
from ...errors import CaxtonError, OverloadedError, StoreError
from ...service.session_content import Content
from ...service.sessions import Asked, Connection, Sessions
from . import search
from .agents import RUN_ID, TTL, page
from .calling import OVERLOADED, reporting
from .elicit import Asking, InputRequired, point
from .pipes import over_stdio
from .server import Changes, Context, Key, ListServer, scope_of, telling, watch
from .session_tasks import SessionTasks, key_of
from .tasks import Tasks, created, is_dated, ttl_of

#: In ``_meta`` of a result that is not an answer of the tool: ``denied``, ``failed`` or
#: ``waits``, with the code; and the approval that the call waits for.
STATUS = "io.caxton/status"
CODE = "io.caxton/code"
APPROVAL = "io.caxton/approval"

#: The capabilities that a session has if its grant names one of the methods.
_ANNOUNCED = {"resources": {READ}, "prompts": {PROMPT}, "completions": {READ, PROMPT}}
_NOT_READ = -32000
#: The parameters that are passed on.
_READING, _COMPLETING = {"uri", "name", "arguments"}, {"ref", "argument", "context"}
_WHOLE = {"resultType": "complete", "cacheScope": "private"}

_INSTRUCTIONS = (
    "Every call of a tool here is checked against a grant and recorded. A result says "
    "so if a call was denied, or if it waits for a person's approval: then make the "
    "same call again later, with the same arguments."
)


@dataclass(slots=True, kw_only=True)
class SessionServer:
    """
    Answers the requests of clients of sessions.

    Attributes:
        sessions: Makes their calls.

        asking: Returns the principal of a request, and the name of its session.

        closed: Returns whether the host is about to stop.
    """

    sessions: Sessions
    asking: Callable[[Context], tuple[Principal, str]]
    closed: Callable[[], bool] = lambda: False
    users: Asking = field(default_factory=Asking, init=False)
    _held: dict[Key, _Held] = field(default_factory=dict[Key, "_Held"], init=False)
    changes: Changes = field(init=False)
    calls: SessionTasks = field(init=False)
    tasks: Tasks = field(init=False)
    server: Server[Any] = field(init=False)

    def __post_init__(self) -> None:
        self.changes = Changes(
            asking=self.asking,
            shown=self.sessions.shown,
            seen=lambda _, name: self.sessions.shown().get(name),
            offered=lambda name: {"tools", "resources", "prompts"} - self._lacks(name),
            closed=self.closed,
        )
        self.server = ListServer(
            "caxton",
            version=__version__,
            title="Caxton",
            instructions=_INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_completion=self._complete,
            on_subscriptions_listen=self.changes.listen,
        )
        watch(self.server, self.sessions.host)
        self.server.middleware.append(self._honest)
        add = self.server.add_request_handler
        for method in LISTS:
            add(method, types.PaginatedRequestParams, partial(self._list, method))
        add(READ, types.ReadResourceRequestParams, partial(self._read, READ))
        add(PROMPT, types.GetPromptRequestParams, partial(self._read, PROMPT))
        add("logging/setLevel", types.SetLevelRequestParams, _accept)
        self.calls = SessionTasks(
            sessions=self.sessions, connection=self._connection, told=result_of
        )
        self.tasks = Tasks(source=self.calls, call=self._call_tool, closed=self.closed)
        self.tasks.offer(self.server)

    def running(self) -> AbstractAsyncContextManager[None]:
        """Notify clients of changes while this is entered."""
        return self.changes.watched()

    async def _list_tools(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        found, is_large = await self._tools(ctx)
        some = search.tools(len(found)) if is_large else found
        tools = {str(tool["name"]): _as_task(tool) for tool in some}
        names, cursor = page(sorted(tools), params)
        return types.ListToolsResult(
            tools=[types.Tool.model_validate(tools[name]) for name in names],
            next_cursor=cursor,
            ttl_ms=TTL,
            cache_scope="private",
        )

    async def _call_tool(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> Any:  # noqa: ANN401 -- a task is no `CallToolResult`
        name, arguments = params.name, params.arguments or {}
        ttl = ttl_of(ctx, params)
        if name in {search.SEARCH, search.CALL}:
            many, is_large = await self._tools(ctx)
            if is_large and name == search.SEARCH:
                ttl = ttl_of(ctx, params, "forbidden")
            if is_large and (wrong := search.wrong(name, arguments)):
                no_answer = _no_answer("failed", "bad_request", wrong)
                said = types.CallToolResult.model_validate(no_answer)
                return created(ctx, said) if ttl else said
            if is_large and name == search.SEARCH:
                listed = search.found(arguments, many)
                return types.CallToolResult.model_validate(listed)
            if is_large:
                name, arguments = arguments["name"], arguments.get("arguments", {})
        if ttl and is_dated(ctx):
            by = self._connection(ctx)
            key = await self.calls.begin(by, name, arguments, ttl)
            return created(ctx, await self.tasks.found(ctx, key))
        found = await self._made(ctx, name, arguments)
        if ttl and isinstance(found, Asked):
            key = key_of(found.run_id, found.call, ttl)
            return created(ctx, await self.tasks.found(ctx, key))
        return types.CallToolResult.model_validate(result_of(found))

    async def _tools(self, ctx: Context) -> tuple[list[dict[str, JSON]], bool]:
        """Return the tools of a client, and whether they are too many for a list."""
        by = self._connection(ctx)
        found = await self.sessions.tools(by)
        known = self.sessions.agent(by.session).session
        return found, known is not None and len(found) > known.search_above

    async def _list(
        self, method: str, ctx: Context, params: types.PaginatedRequestParams
    ) -> dict[str, Any]:
        listed = await (await self._content(ctx)).listed(method)
        names, cursor = page(listed, params)
        entries = [listed[name].entry for name in names]
        found = {LISTS[method].key: entries, **_WHOLE, "ttlMs": TTL}
        return found if cursor is None else {**found, "nextCursor": cursor}

    async def _read(
        self, method: str, ctx: Context, params: types.RequestParams
    ) -> dict[str, Any]:
        """Make the call that reads a resource or a prompt."""
        asked = params.model_dump(include=_READING, exclude_none=True)
        call = await (await self._content(ctx)).call(method, asked)
        made = await self._made(ctx, *call)
        said: dict[str, Any] = result_of(made)
        data = made.data if isinstance(made, Completed) else None
        if not isinstance(data, dict) or "content" not in data or said["isError"]:
            raise MCPError(_NOT_READ, said["content"][0]["text"], said.get("_meta"))
        contents = [part.get("resource") for part in said["content"]]
        return {**said, "contents": contents, **_WHOLE, "ttlMs": 0}

    async def _complete(
        self, ctx: Context, params: types.CompleteRequestParams
    ) -> types.CompleteResult:
        asked = params.model_dump(include=_COMPLETING, exclude_none=True)
        values = await (await self._content(ctx)).complete(asked)
        return types.CompleteResult(completion=types.Completion(values=values))

    async def _content(self, ctx: Context) -> Content:
        return await self.sessions.content(self._connection(ctx))

    async def _honest(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Announce what the session has, and tell clients why a request failed."""
        try:
            found = await call_next(ctx)
        except InputRequired as exc:
            return exc.result
        except CaxtonError as exc:
            raise _refusal(exc) from None
        if ctx.method in {"initialize", "server/discover"} and isinstance(found, dict):
            for key in self._lacks(self.asking(ctx)[1]):
                del found["capabilities"][key]
        return found

    def _lacks(self, name: str) -> set[str]:
        """Return the capabilities that the grant of a session leaves out."""
        grant = self.sessions.agent(name).grant
        named = {tool for _, tool in grant.literals()}
        return {key for key, of in _ANNOUNCED.items() if not of & named}

    async def _made(
        self, ctx: Context, name: str, params: Mapping[str, JSON]
    ) -> Outcome | Asked:
        """Make a call, unless it is cancelled meanwhile."""
        key: Key | None = scope_of(ctx).get("caxton.call")
        held = _Held()
        with held.scope:
            if key is not None:
                self._held[key] = held
            try:
                async with reporting(telling(ctx), _said) as tell:
                    by = self._connection(ctx)
                    make = partial(self.sessions.call, by, name, params)
                    whose = by.key, name, params
                    found = await self.users.made(ctx, whose, by.who.actor, make, tell)
                if isinstance(found, Asked):
                    serve = self.sessions.config().serve
                    point(ctx, found, serve, _waits(found)["_meta"])
                return found
            finally:
                if key is not None and self._held.get(key) is held:
                    del self._held[key]
        return Failed(kind="cancelled", sent="unknown", message=held.reason)

    async def stop(self, key: Key, who: Principal, reason: str) -> None:
        """Cancel the call with that key, if it is in progress."""
        del who  # The key names it.
        if held := self._held.get(key):
            held.reason = reason
            held.scope.cancel()

    def _connection(self, ctx: Context) -> Connection:
        who, session = self.asking(ctx)
        name, version = scope_of(ctx).get("caxton.client", ("", ""))
        if params := ctx.session.client_params:
            name, version = params.client_info.name, params.client_info.version
        client = Client.said(name, version, ctx.protocol_version)
        return Connection(who=who, session=session, client=client)


@dataclass(slots=True)
class _Held:
    """A call in progress, and why it is cancelled."""

    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    reason: str = ""


def _as_task(tool: dict[str, JSON]) -> dict[str, JSON]:
    """Return the definition of a tool; each but the search can be called as a task."""
    is_one = tool["name"] != search.SEARCH
    return {**tool, "execution": {"taskSupport": "optional"}} if is_one else tool


async def _accept(_: Context, __: types.SetLevelRequestParams) -> types.EmptyResult:
    """Accept a level: no log message is sent, since each result says what happened."""
    return types.EmptyResult()


def _said(event: ToolProgress) -> str:
    return event.message


def _refusal(exc: CaxtonError) -> MCPError:
    """Return the error that tells a client why there is no outcome."""
    if isinstance(exc, StoreError):
        raise exc
    if isinstance(exc, OverloadedError):
        return MCPError(OVERLOADED, str(exc), {"retryAfter": round(exc.retry_after, 3)})
    return MCPError(types.INTERNAL_ERROR, str(exc))


def result_of(found: Outcome | Asked) -> dict[str, JSON]:
    """
    Return the ``CallToolResult`` for an outcome.

    >>> said = result_of(Denied(code="budget", rule=None, message="5 calls were made"))
    >>> said["content"][0]["text"], said["isError"]
    ('denied (budget): 5 calls were made', True)
    """
    match found:
        case Completed():
            return _answer(found)
        case Denied(code=code, message=message):
            return _no_answer("denied", code, message)
        case Failed(kind=kind, message=message):
            return _no_answer("failed", kind, message)
        case Asked():
            return _waits(found)
        case _:
            assert_never(found)


def _answer(done: Completed) -> dict[str, JSON]:
    if not isinstance(done.data, dict) or not isinstance(
        done.data.get("content"), list
    ):
        text: JSON = {"type": "text", "text": done.message}
        return {"content": [text], "isError": done.is_error}
    content = cast("list[JSON]", done.data["content"])
    parts = [_whole(block, done.contents) for block in content]
    return {**done.data, "content": parts, "isError": done.is_error}


def _whole(block: JSON, contents: Mapping[str, bytes]) -> JSON:
    """Return a part of an answer with its bytes, which the log keeps as a blob."""
    if not isinstance(block, dict):
        return block
    if isinstance(inner := block.get("resource"), dict):
        return {**block, "resource": _with_bytes(inner, "blob", contents)}
    return _with_bytes(block, "data", contents)


def _with_bytes(
    part: dict[str, JSON], key: str, contents: Mapping[str, bytes]
) -> dict[str, JSON]:
    name = part.get(key)
    if not isinstance(name, dict) or name.get("sha256") not in contents:
        return part
    data = contents[str(name["sha256"])]
    return {**part, key: base64.b64encode(data).decode()}


def _no_answer(status: str, code: str, message: str) -> dict[str, JSON]:
    text: JSON = {"type": "text", "text": f"{status} ({code}): {message}"}
    return {
        "content": [text],
        "isError": True,
        "_meta": {STATUS: status, CODE: code},
    }


def _waits(asked: Asked) -> dict[str, JSON]:
    by = f" of {' or '.join(asked.by)}" if asked.by else ""
    said = _no_answer(
        "waits",
        "approval",
        f"the call needs the approval{by}. It is event {asked.seq} of run "
        f"{asked.run_id}. Make the same call again, with the same arguments, once it "
        "is approved.",
    )
    meta = cast("dict[str, JSON]", said["_meta"])
    meta[RUN_ID], meta[APPROVAL] = asked.run_id, asked.seq
    return said


async def serve_stdio(sessions: Sessions, principal: Principal, session: str) -> None:
    """
    Serve a session on stdin and stdout, to one client, until it closes stdin.

    Raises:
        BrokenPipeError: It no longer reads stdout.
    """
    it = SessionServer(sessions=sessions, asking=lambda _: (principal, session))
    it.server.middleware.append(it.changes.unasked)
    async with it.running():
        await over_stdio(it.server)
    await it.calls.stop()
    await sessions.close((principal.key, session))
