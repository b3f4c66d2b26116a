"""
Tools as they are configured now, for runs that begin now.

A run keeps the generation that it began with. One that is followed by another ends
when its last run does; servers that both have are the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, KeysView
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self, TypeAlias

from ..config import Config
from ..ports import RunScope, ToolClient, ToolSource

_log = logging.getLogger(__name__)

Opening: TypeAlias = Callable[[Config], AbstractAsyncContextManager[ToolSource]]


@dataclass(slots=True, eq=False, kw_only=True)
class _Generation:
    number: int
    config: Config
    tools: ToolSource
    stack: AsyncExitStack
    runs: int = 0


@dataclass(slots=True, eq=False)
class Generations:
    """
    A source of tools that may be configured anew while runs go on.

    An asynchronous context manager: leaving it ends the tools of every generation.

    Attributes:
        opening: Brings up the tools of a configuration.

        naming: Returns which servers its grants may speak of.
    """

    opening: Opening
    naming: Callable[[Config], Iterable[str]]
    _current: _Generation | None = field(default=None, init=False)
    _names: dict[str, None] = field(default_factory=dict[str, None], init=False)
    _retired: set[_Generation] = field(default_factory=set[_Generation], init=False)
    _ending: set[asyncio.Task[None]] = field(
        default_factory=set[asyncio.Task[None]], init=False
    )
    _publishing: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    @property
    def servers(self) -> KeysView[str]:
        """Every server that a grant may speak of: a view that stays up to date."""
        return self._names.keys()

    @property
    def config(self) -> Config:
        """The configuration of the newest generation."""
        return self._newest.config

    @property
    def number(self) -> int:
        """How many generations there were."""
        return self._newest.number

    @property
    def _newest(self) -> _Generation:
        if self._current is None:
            raise RuntimeError("nothing is published yet")
        return self._current

    async def publish(self, config: Config) -> None:
        """
        Have runs that begin from now on use *config*.

        If it fails, they go on with what they had.

        Raises:
            CaxtonError: Its tools cannot be brought up.
        """
        async with self._publishing, AsyncExitStack() as stack:
            tools = await stack.enter_async_context(self.opening(config))
            before = self._current
            self._current = _Generation(
                number=before.number + 1 if before else 1,
                config=config,
                tools=tools,
                stack=stack.pop_all(),
            )
            self._names.clear()
            self._names.update(dict.fromkeys(self.naming(config)))
            if before is not None:
                self._retired.add(before)
                self._let_go(before)

    @asynccontextmanager
    async def open(self, scope: RunScope) -> AsyncGenerator[ToolClient]:
        """Return the tools of the newest generation, for one run."""
        generation = self._newest
        generation.runs += 1
        try:
            async with generation.tools.open(scope) as tools:
                yield tools
        finally:
            generation.runs -= 1
            self._let_go(generation)

    def _let_go(self, generation: _Generation) -> None:
        if generation in self._retired and not generation.runs:
            self._retired.remove(generation)
            # Servers take their time to stop, and nobody has to wait for it.
            task = asyncio.create_task(_end(generation))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        left = {*self._retired, *([self._current] if self._current else [])}
        await asyncio.gather(*map(_end, left), *self._ending)


async def _end(generation: _Generation) -> None:
    try:
        await generation.stack.aclose()
    except Exception:  # noqa: BLE001 -- it serves nobody any more; those after it do
        _log.exception("the tools of generation %d did not end", generation.number)
