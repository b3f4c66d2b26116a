"""
The desk of a host: questions of tool servers that wait for an answer.

A person answers by a request to the host, from another process or from its own API.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeAlias, cast

from ..core.calls import JSON
from ..core.log.events import QuestionAsked
from ..core.log.requests import Request
from ..core.questions import BYTES, Said
from ..errors import BadBytes
from ..lib.json_schema import mismatch

#: The kind of request that answers a question, and its outcomes.
ANSWER, ANSWERED = "answer", "answered"
OVER = "refused: the question does not wait any more"

_Key: TypeAlias = tuple[str, int, int]
#: Asks the client that makes the calls of a run; ``None``: it cannot ask its user.
Client: TypeAlias = Callable[[str, QuestionAsked], Awaitable[Said | None]]


async def no_client(_: str, __: QuestionAsked) -> Said | None:
    """Ask nobody: no client makes the calls of the run."""
    return None


class Desk:
    """The questions that wait for an answer in this host."""

    def __init__(self) -> None:
        self._waiting: dict[_Key, asyncio.Future[Said]] = {}

    async def ask(
        self, client: Client, run_id: str, asked: QuestionAsked, seconds: float
    ) -> Said:
        """Return the answer to a recorded question, which fits its form."""
        try:
            async with asyncio.timeout(seconds):
                if asked.to == "client":
                    said = await client(run_id, asked)
                else:
                    said = await self._people(run_id, asked)
        except TimeoutError:
            return Said(action="cancel", reason="nobody answered in time")
        if said is None:
            return Said(action="decline", reason="the client cannot ask its user")
        if said.action == "accept" and (wrong := misfit(asked, said.content)):
            reason = f"the answer is not what was asked: {wrong}"
            return replace(said, action="decline", content=None, reason=reason)
        return said

    async def _people(self, run_id: str, asked: QuestionAsked) -> Said:
        key = run_id, asked.call, asked.question
        answer: asyncio.Future[Said] = asyncio.get_running_loop().create_future()
        self._waiting[key] = answer
        try:
            return await answer
        finally:
            del self._waiting[key]

    def answer(self, run_id: str, request: Request) -> str:
        """Carry out a request that answers a question, and return the outcome."""
        told: dict[str, JSON] = json.loads(request.subject or "{}")
        key = run_id, cast("int", told["call"]), cast("int", told["question"])
        waiting = self._waiting.get(key)
        if waiting is None or waiting.done():
            return OVER
        content = cast("dict[str, JSON] | None", told["content"])
        said = Said(
            action="decline" if content is None else "accept",
            content=content,
            actor=request.actor,
            reason=request.reason,
            role=str(told["role"]),
        )
        waiting.set_result(said)
        return ANSWERED


def misfit(asked: QuestionAsked, content: JSON) -> str:
    """Return why *content* does not answer a question; ``""`` if it does."""
    form = {**(asked.form or {}), "additionalProperties": False}
    if len(json.dumps(content)) > BYTES:
        return f"it has more than {BYTES} bytes"
    try:
        return str(mismatch(form, content) or "")
    except BadBytes as exc:
        return str(exc)
