"""
Cache of the answers of read-only tools, where the configuration enables it.

A call is judged, counted and recorded before it reaches the cache. An answer is valid
for the same agent with the same grants, the same parameters byte by byte, and the same
definition. The cache is in memory, for one configuration: a reload and a change of the
server's tools clear it. Nothing is fetched in advance.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ..core.calls import JSON, Completed
from ..core.text.redact import Redactor
from ..gateway.tool_layers import ToolLayer
from ..lib.codec import canonical, sha256
from ..ports import ToolClient, ToolRequest

_ENTRIES = 1_000
_BYTES = 16 * 1024 * 1024


class _Key(NamedTuple):
    server: str
    tool: str
    definition_sha256: str | None
    asked: str


@dataclass(slots=True, eq=False, kw_only=True)
class Answers:
    """
    A cache of answers, in the order of their last use.

    Attributes:
        ttls: Seconds to live, by server and tool; answers of other tools are not kept.

        redact: Removes secrets that became known since.

        entries: The largest number of answers.

        bytes: The largest size of all answers, as received.
    """

    ttls: Mapping[tuple[str, str], float]
    redact: Redactor
    monotonic: Callable[[], float] = time.monotonic
    entries: int = _ENTRIES
    bytes: int = _BYTES
    _kept: OrderedDict[_Key, tuple[float, Completed]] = field(
        default_factory=OrderedDict["_Key", tuple[float, Completed]], init=False
    )
    _size: int = field(default=0, init=False)
    # Calls to `forget`, so that an answer that was requested before is not kept.
    _changes: int = field(default=0, init=False)

    async def get(self, tools: ToolClient, request: ToolRequest) -> Completed:
        """
        Return the answer to *request*, from the cache or from *tools*.

        Raises:
            ToolError: See `ToolClient`.
        """
        ttl, asker = self.ttls.get((request.server, request.tool)), request.asker
        if ttl is None or asker is None:
            return await tools.call_tool(request)
        grants: list[JSON] = [grant.to_payload() for grant in asker.grants]
        key = _Key(
            request.server,
            request.tool,
            request.definition_sha256,
            sha256(canonical([asker.agent, grants, asker.params_sha256])),
        )
        if found := self._find(key):
            return found
        changes = self._changes
        done = await tools.call_tool(request)
        if changes == self._changes and not done.is_error:
            self._keep(key, ttl, done)
        return done

    def forget(self, server: str) -> None:
        """Drop the answers of a server, including those of calls under way."""
        self._changes += 1
        for key in [key for key in self._kept if key.server == server]:
            self._drop(key)

    def _find(self, key: _Key) -> Completed | None:
        until, done = self._kept.get(key, (0.0, None))
        if done is None:
            return None
        if until <= self.monotonic():
            self._drop(key)
            return None
        self._kept.move_to_end(key)
        return replace(
            done,
            data=self.redact.value(done.data),
            message=self.redact.text(done.message),
            duration_us=0,
            attempts=1,
            cached=True,
        )

    def _keep(self, key: _Key, ttl: float, done: Completed) -> None:
        if done.bytes > self.bytes:
            return
        if key in self._kept:
            self._drop(key)
        self._kept[key] = self.monotonic() + ttl, done
        self._size += done.bytes
        while len(self._kept) > self.entries or self._size > self.bytes:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: _Key) -> None:
        self._size -= self._kept.pop(key)[1].bytes


@dataclass(eq=False)
class Cached(ToolLayer):
    """Tools with a cache of answers."""

    answers: Answers

    async def call_tool(self, request: ToolRequest) -> Completed:
        """Return a cached answer, or send *request*."""
        return await self.answers.get(self.tools, request)
