"""
What a server asks during one call, and who answers.

Before 2026-07-28 a server sends a request of its own; since then its answer to the call
holds the questions. Each is passed on, and its answer is sent back to the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from ...core.calls import JSON
from ...core.questions import To
from ...ports.tools import Ask

#: Puts a question to people: its name, and its parameters.
Put: TypeAlias = Callable[[str, JSON], Awaitable[dict[str, JSON]]]

#: The share of the time of a call that is left for an answer: a server that gets none
#: needs the rest to end the call.
_SHARE = 0.9


def put(ask: Ask, to: To, deadline: float) -> Put:
    """Return what puts a question of a call with that deadline to people."""

    async def putting(name: str, params: JSON) -> dict[str, JSON]:
        left = deadline - asyncio.get_running_loop().time()
        return await ask(name, params, to, max(left, 0.0) * _SHARE)

    return putting


class Asker:
    """Answers the requests that a server sends while it works on one call."""

    def __init__(self, tasks: asyncio.TaskGroup, put: Put) -> None:
        self._tasks = tasks
        self._put = put
        self._open: list[asyncio.Task[None]] = []

    def take(
        self, request: Mapping[str, JSON], send: Callable[[Mapping[str, Any]], object]
    ) -> None:
        """Send the answer of a request for input, once there is one."""
        self._open.append(self._tasks.create_task(self._answer(request, send)))

    async def _answer(
        self, request: Mapping[str, JSON], send: Callable[[Mapping[str, Any]], object]
    ) -> None:
        said = await self._put("question", request.get("params"))
        send({"jsonrpc": "2.0", "id": request["id"], "result": said})

    def end(self) -> None:
        """Answer nothing more: the call has ended."""
        for task in self._open:
            task.cancel()


@asynccontextmanager
async def asking(put: Put) -> AsyncGenerator[Asker]:
    """
    Answer what a server asks during the block.

    Raises:
        Exception: What is raised by the block, or while a question is put to people,
            which ends the block.
    """
    try:
        async with asyncio.TaskGroup() as tasks:
            asker = Asker(tasks, put)
            yield asker
            asker.end()
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
