"""
Has suspended runs go on when what they wait for has come.

    a word, said here       -> `Service.decided`
    a word, said elsewhere  -> a request to this host
    nobody in time          -> the earliest such time
    a host that has stopped -> a look at all of them, now and then
    a host that is gone     -> the same; its runs were not suspended
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field

from .core.runs import Request
from .errors import CaxtonError, StoreError
from .recording import Recording
from .service import Service

__all__ = ["Waker"]

logger = logging.getLogger("caxton_host")

#: Seconds between two looks at all suspended runs, and how many are looked at.
_EVERY = 60.0
_MOST = 10_000

_SECOND = 1_000_000


@dataclass(slots=True, kw_only=True, eq=False)
class Waker:
    """
    Looks after the suspended runs of a service.

    Attributes:
        every: Seconds between two looks at all of them.
    """

    service: Service
    every: float = _EVERY
    _fresh: set[str] = field(default_factory=set[str], init=False)
    _due: dict[str, int] = field(default_factory=dict[str, int], init=False)
    _seen: dict[str, int] = field(default_factory=dict[str, int], init=False)
    _some: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def look(self, run_id: str) -> None:
        """Look at a run soon: something was said of it, or it was suspended."""
        self._fresh.add(run_id)
        self._some.set()

    async def asked(self, request: Request) -> str:
        """Do what a request asks for: look at the run that it names."""
        self.look(request.subject or "")
        return "looks at it"

    async def watch(self) -> None:
        """Go on for ever."""
        loop = asyncio.get_running_loop()
        next_look = loop.time()
        while True:
            if loop.time() >= next_look:
                await self._look_at_all()
                next_look = loop.time() + self.every
            self._some.clear()
            fresh, self._fresh = self._fresh, set()
            now = self.service.host.clock.now()
            late = {run for run, until in self._due.items() if until <= now}
            for run_id in fresh | late:
                await self._look_at(run_id)
            await self._pause(next_look - loop.time())

    async def _pause(self, longest: float) -> None:
        now = self.service.host.clock.now()
        soonest = min(self._due.values(), default=None)
        left = longest if soonest is None else (soonest - now) / _SECOND
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(min(left, longest), 0.0)):
                await self._some.wait()

    async def _look_at_all(self) -> None:
        try:
            await self.service.pick_up()
            rows = await self.service.store.runs(_MOST, state="suspended")
        except StoreError as exc:
            logger.warning("suspended runs cannot be read: %s", exc)
            return
        # Who was driven anew since, waits for something else.
        self._fresh |= {
            row.run_id for row in rows if self._seen.get(row.run_id) != row.epoch
        }
        self._seen = {row.run_id: row.epoch for row in rows}

    async def _look_at(self, run_id: str) -> None:
        self._due.pop(run_id, None)
        try:
            recording = await Recording.load(run_id, self.service.store)
            if recording.state != "suspended":
                return
            waiting = recording.journal().waiting
        except CaxtonError as exc:
            logger.warning("run %s cannot be read: %s", run_id, exc)
            self._seen.pop(run_id, None)
            return
        now = self.service.host.clock.now()
        if all(asked.is_over(now) for asked in waiting):
            await self.service.go_on(run_id, recording.started.agent, "decided")
            return
        ends = [asked.requested.until or 0 for asked in waiting]
        if all(ends):  # Or else one waits for ever.
            self._due[run_id] = max(ends)
