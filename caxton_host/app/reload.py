"""
Reading the configuration again, while runs go on.

Whoever wants it asks: by ``caxton config reload``, by SIGHUP, or by writing a file that
is watched. What cannot be loaded changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from ..config import Config
from ..config.sections import FIXED
from ..core.calls import JSON
from ..core.grants.grants import Grant
from ..core.log.events import ConfigLoaded, Event, GrantChanged
from ..core.log.runs import Request
from ..errors import CaxtonError
from ..lib.local_user import local_actor
from ..runs.run_request import grants_digest
from .tool_generations import Generations

#: Seconds between two looks at files that are watched.
EVERY = 1.0

_WATCH: dict[str, JSON] = {"kind": "service", "id": "watch", "authenticated": False}

_log = logging.getLogger("caxton_host")

_State: TypeAlias = tuple[tuple[int, int, int] | None, ...]


@dataclass(slots=True, kw_only=True, eq=False)
class Reloader:
    """
    Has new runs use what the configuration says now.

    Attributes:
        load: Reads it.

        tools: Where runs get theirs from.

        on_event: Is told of each that is loaded.
    """

    load: Callable[[], Config]
    tools: Generations
    on_event: Callable[[Event], None]
    _one: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def asked(self, request: Request) -> str:
        """Do what a request asks for. See `reload`."""
        return await self.reload(request.actor)

    async def reload(self, actor: dict[str, JSON]) -> str:
        """
        Load the configuration in the name of *actor*, and return what came of it.

        Raises:
            CaxtonError: It cannot be loaded, or its tools cannot be brought up. All is
                as before.
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
        """Reload on SIGHUP, and when a file changes if they are watched."""
        hangups = asyncio.Event()
        tasks = [
            asyncio.create_task(self._heed(hangups)),
            asyncio.create_task(self._watch(_state(self.tools.config.files))),
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

    async def _watch(self, seen: _State) -> None:
        while True:
            await asyncio.sleep(EVERY)
            now = await asyncio.to_thread(_state, self.tools.config.files)
            # A file that is being written is not read before it rests.
            if now != seen and self.tools.config.watch:
                await asyncio.sleep(EVERY / 4)
                seen = await asyncio.to_thread(_state, self.tools.config.files)
                if await self._try(_WATCH):
                    seen = _state(self.tools.config.files)

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
        former, new = (
            grants_digest(one.agents[agent].grant if agent in one.agents else Grant())
            for one in (before, now)
        )
        if former != new:
            yield GrantChanged(
                agent=agent, actor=actor, grants_sha256=new, former_sha256=former
            )


def _plain(config: Config) -> Config:
    # A comment is no change.
    return replace(config, sha256="", warnings=())


def _state(files: Iterable[Path]) -> _State:
    """Return what is another once one of *files* is written."""

    def of(path: Path) -> tuple[int, int, int] | None:
        with contextlib.suppress(OSError):
            found = path.stat()
            return found.st_ino, found.st_size, found.st_mtime_ns
        return None

    return tuple(map(of, files))


@contextlib.contextmanager
def _hangup(hangups: asyncio.Event) -> Generator[None]:
    """
    Take SIGHUP as a request, where no terminal sends it.

    It ends what runs in a terminal that is closed. A service has none; there it means
    what it does everywhere. Who ignores it goes on to.
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
