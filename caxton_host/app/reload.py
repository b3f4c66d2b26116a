"""
The configuration, read again while runs go on.

It is read again on ``caxton config reload``, on SIGHUP, or when a watched file changes.
An error leaves everything as it was. Runs that begin later use the tools of the new
configuration; a run keeps the generation of tools that it began with. The tools of a
generation end with its last run; servers that two generations share are the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, KeysView
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self, TypeAlias

from ..config import Config
from ..config.sections import FIXED
from ..core.calls import JSON
from ..core.grants.grants import Grant
from ..core.log.events import ConfigLoaded, Event, GrantChanged
from ..core.log.requests import Request
from ..errors import CaxtonError
from ..lib.files import FileStates, file_states
from ..lib.machine import local_actor
from ..ports.tools import RunScope, ToolClient, ToolSource
from ..runs.run_request import grants_digest

_log = logging.getLogger(__name__)

Granting: TypeAlias = Callable[[Config, str], Grant]
Opening: TypeAlias = Callable[[Config], AbstractAsyncContextManager[ToolSource]]


@dataclass(slots=True, eq=False, kw_only=True)
class _Generation:
    number: int
    config: Config
    tools: ToolSource
    stack: AsyncExitStack
    runs: int = 0
    grants: dict[str, Grant] = field(default_factory=dict[str, Grant])


def granted(config: Config, agent: str) -> Grant:
    """Return what a configuration grants an agent; one that it lacks has nothing."""
    known = config.agents.get(agent)
    return known.grant if known else Grant()


@dataclass(slots=True, eq=False)
class Generations:
    """
    A source of tools that can be configured again while runs go on.

    An asynchronous context manager: leaving it closes the tools of every generation.

    Attributes:
        opening: Opens the tools of a configuration.

        naming: Returns which servers its grants may name.

        granting: Returns what a configuration grants an agent.
    """

    opening: Opening
    naming: Callable[[Config], Iterable[str]]
    granting: Granting = granted
    _current: _Generation | None = field(default=None, init=False)
    _names: dict[str, None] = field(default_factory=dict[str, None], init=False)
    _retired: set[_Generation] = field(default_factory=set[_Generation], init=False)
    _ending: set[asyncio.Task[None]] = field(
        default_factory=set[asyncio.Task[None]], init=False
    )
    _publishing: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    @property
    def servers(self) -> KeysView[str]:
        """Every server that a grant may name: a view that stays up to date."""
        return self._names.keys()

    @property
    def config(self) -> Config:
        """The configuration of the newest generation."""
        return self._newest.config

    def grant(self, agent: str) -> Grant | None:
        """Return the grant of an agent since the last reload, if there was one."""
        newest = self._newest
        if newest.number == 1:
            return None
        if agent not in newest.grants:
            newest.grants[agent] = self.granting(newest.config, agent)
        return newest.grants[agent]

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
        Use *config* for runs that start from now on.

        If that fails, the former generation stays in use.

        Raises:
            CaxtonError: Its tools cannot be opened.
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
            # Servers take a while to stop, and no caller has to wait for that.
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
    except Exception:  # noqa: BLE001 -- it is retired; the generations after it go on
        _log.exception("the tools of generation %d did not end", generation.number)


#: Seconds between two checks of watched files.
EVERY = 1.0

_WATCH: dict[str, JSON] = {"kind": "service", "id": "watch", "authenticated": False}

_log = logging.getLogger("caxton_host")


@dataclass(slots=True, kw_only=True, eq=False)
class Reloader:
    """
    Loads the configuration again for new runs.

    Attributes:
        load: Reads the configuration.

        tools: The tools of runs, by generation.

        on_event: Called with the events that record a reload.
    """

    load: Callable[[], Config]
    tools: Generations
    on_event: Callable[[Event], None]
    _one: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def asked(self, request: Request) -> str:
        """Carry out a request. See `reload`."""
        return await self.reload(request.actor)

    async def reload(self, actor: dict[str, JSON]) -> str:
        """
        Load the configuration on behalf of *actor*, and return the outcome in words.

        Raises:
            CaxtonError: It cannot be loaded, or its tools cannot be opened. Nothing
                has changed.
        """
        async with self._one:
            before = self.tools.config
            config = await asyncio.to_thread(self.load)
            if _plain(config) == _plain(before):
                return "nothing has changed"
            await self.tools.publish(config)
        path = config.path
        name = path.name if path else ""
        self.on_event(ConfigLoaded(path=name, sha256=config.sha256, actor=actor))
        for event in _grants_changed(before, config, actor):
            self.on_event(event)
        late = [key for key in FIXED if getattr(config, key) != getattr(before, key)]
        left = f"; {', '.join(late)} with the next host" if late else ""
        outcome = f"generation {self.tools.number}{left}"
        _log.info("the configuration is loaded: %s", outcome)
        return outcome

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[None]:
        """Reload on SIGHUP, and when a watched file changes."""
        hangups = asyncio.Event()
        tasks = [
            asyncio.create_task(self._heed(hangups)),
            asyncio.create_task(self._watch(file_states(self.tools.config.files))),
        ]
        try:
            with _hangup(hangups):
                yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _heed(self, hangups: asyncio.Event) -> None:
        while await hangups.wait():
            hangups.clear()
            await self._try(local_actor())

    async def _watch(self, seen: FileStates) -> None:
        while True:
            await asyncio.sleep(EVERY)
            now = await asyncio.to_thread(file_states, self.tools.config.files)
            # Wait until a file that is being written is complete.
            if now != seen and self.tools.config.watch:
                await asyncio.sleep(EVERY / 4)
                seen = await asyncio.to_thread(file_states, self.tools.config.files)
                if await self._try(_WATCH):
                    seen = file_states(self.tools.config.files)

    async def _try(self, actor: dict[str, JSON]) -> bool:
        try:
            await self.reload(actor)
        except CaxtonError as exc:
            _log.error(
                "the configuration stays as it was: %s. To fix: %s", exc, exc.fix
            )
            return False
        return True


def _grants_changed(
    before: Config, now: Config, actor: dict[str, JSON]
) -> Iterable[GrantChanged]:
    for agent in sorted(before.agents.keys() | now.agents.keys()):
        former, new = (grants_digest(granted(one, agent)) for one in (before, now))
        if former != new:
            yield GrantChanged(
                agent=agent, actor=actor, grants_sha256=new, former_sha256=former
            )


def _plain(config: Config) -> Config:
    # A changed comment changes the digest only.
    return replace(config, sha256="", warnings=())


@contextlib.contextmanager
def _hangup(hangups: asyncio.Event) -> Generator[None]:
    """
    Treat SIGHUP as a request to reload, unless a terminal may send it.

    In a terminal it means that the terminal was closed, and ends this process. If
    SIGHUP is ignored, it stays so.
    """
    before = signal.getsignal(signal.SIGHUP)
    main = threading.current_thread() is threading.main_thread()
    if before == signal.SIG_IGN or not main or _has_terminal():
        yield
        return
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, hangups.set)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        signal.signal(signal.SIGHUP, before)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
