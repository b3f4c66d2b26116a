"""Clients with tasks: one without an SDK, and the extension for that of the SDK."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import httpx2
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp_types import CallToolResult, Request, RequestParams, Result

from caxton_host.core.calls import JSON
from caxton_host.web.mcp.tasks import DATED, EXTENSION

__all__ = ["DATED", "MODERN", "Refused", "Revision", "Rpc", "TasksExtension", "rpc"]

Revision: TypeAlias = Literal["2025-11-25", "2026-07-28"]
MODERN: Revision = "2026-07-28"
_NAMED = {"tools/call": "name"}


@dataclass
class Refused(Exception):  # noqa: N818 -- an answer
    """An error of JSON-RPC."""

    code: int
    message: str
    data: Any = None


@dataclass
class Rpc:
    """
    Attributes:
        can: The client has tasks.

        named: It says the id of a task in a header too.
    """

    http: httpx2.AsyncClient
    url: str
    revision: str = DATED
    can: bool = True
    named: bool = True

    async def __call__(self, method: str, **params: Any) -> Any:  # noqa: ANN401 -- JSON
        """Send a request, and return its result."""
        headers = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": self.revision,
        }
        if self.revision == MODERN:
            extensions: dict[str, JSON] = {EXTENSION: {}} if self.can else {}
            own = "io.modelcontextprotocol/"
            params["_meta"] = {
                f"{own}protocolVersion": MODERN,
                f"{own}clientInfo": {"name": "x", "version": "1"},
                f"{own}clientCapabilities": {"extensions": extensions},
            } | params.get("_meta", {})
            headers["mcp-method"] = method
            name = params.get(_NAMED.get(method, "taskId"))
            if self.named and isinstance(name, str):
                headers["mcp-name"] = name
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = await self.http.post(self.url, json=body, headers=headers, timeout=60)
        text = answer.text
        if answer.headers["content-type"].startswith("text/event-stream"):
            lines = (line for line in text.splitlines() if line.startswith("data:"))
            text = [line.removeprefix("data:") for line in lines if line[5:].strip()][
                -1
            ]
        said = json.loads(text)
        if "error" in said:
            raise Refused(**said["error"])
        return said["result"]

    async def begin(self, name: str, ttl: int | None = None, **params: Any) -> Any:  # noqa: ANN401 -- JSON
        """Call a tool as a task, and return the task."""
        if self.revision == MODERN:
            return await self("tools/call", name=name, **params)
        task = {} if ttl is None else {"ttl": ttl}
        return (await self("tools/call", name=name, task=task, **params))["task"]


@asynccontextmanager
async def rpc(url: str, revision: str = DATED, **more: Any) -> AsyncGenerator[Rpc]:  # noqa: ANN401
    async with httpx2.AsyncClient() as http:
        yield Rpc(http, url, revision, **more)


class _Named(RequestParams):
    task_id: str


class _Get(Request[_Named, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    params: _Named

    name_param = "taskId"


class _Found(Result):
    status: str
    result: dict[str, Any] | None = None


class _Created(Result):
    result_type: Literal["task"] = "task"
    task_id: str


class TasksExtension(ClientExtension):
    """The extension, for the client of the SDK."""

    identifier = EXTENSION

    def __init__(self) -> None:
        self.polled: list[str] = []

    def claims(self) -> list[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=_Created, resolve=self._resolve)]

    async def _resolve(self, made: _Created, ctx: ClaimContext) -> CallToolResult:
        ask = _Get(params=_Named(task_id=made.task_id))
        async with asyncio.timeout(60):
            while True:
                found = await ctx.session.send_request(ask, _Found)
                self.polled.append(found.status)
                if found.result is not None:
                    return CallToolResult.model_validate(found.result)
                await asyncio.sleep(0.05)
