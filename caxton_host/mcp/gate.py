"""What a call passes on its way to a server: its breaker, and a place in its queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from ..core.events import BreakerClosed, BreakerOpened, Event
from ..core.servers import ServerConfig
from ..errors import ToolError
from .breaker import Breaker, Outcome
from .bucket import Bucket

__all__ = ["Gate", "by"]

_TROUBLE = frozenset({"transport", "timeout"})
_T = TypeVar("_T")


class Gate:
    """
    The way in of one server.

    Attributes:
        breaker: Keeps calls away from it while it fails.

        silent: Set if a call ended by its deadline, none was answered since, and the
            server was not at work for an older one, which may have kept it.
    """

    def __init__(self, config: ServerConfig, emit: Callable[[Event], None]) -> None:
        self._config = config
        self._emit = emit
        self._slots = asyncio.Semaphore(config.concurrency)
        self._bucket = Bucket(*config.rate) if config.rate else None
        self._inside: list[float] = []
        self._left = 0.0
        self.breaker = Breaker(config.breaker)
        self.silent = asyncio.Event()

    def rested(self) -> float:
        """Return for how many seconds no call is in."""
        return 0.0 if self._inside else _now() - self._left

    @asynccontextmanager
    async def entered(self, deadline: float, seconds: float) -> AsyncGenerator[None]:
        """
        Let a call in, for as long as the block lasts.

        Raises:
            ToolError: It may not in, or not before the *deadline*, that many *seconds*
                after it was made.
        """
        if self.breaker.refuses(_now()):
            raise self._refused()
        if self._bucket:
            await self._in_turn(self._bucket, deadline)
        if self._slots.locked():
            await by(deadline, self._slots.acquire(), seconds)
        else:
            await self._slots.acquire()
        try:
            async with self._watched():
                yield
        finally:
            self._slots.release()

    async def _in_turn(self, bucket: Bucket, deadline: float) -> None:
        wait = bucket.reserve(_now(), deadline)
        if wait is None:
            raise ToolError(
                "timeout",
                "no",
                f"the rate of the server {self._config.name} leaves no room for it "
                "in time",
            )
        if wait:
            try:
                await asyncio.sleep(wait)
            except asyncio.CancelledError:
                bucket.give_back()
                raise

    @asynccontextmanager
    async def _watched(self) -> AsyncGenerator[None]:
        began = _now()
        if not self.breaker.admits(began):
            raise self._refused()
        outcome: Outcome = "given_up"
        self._inside.append(began)
        try:
            yield
            outcome = "answered"
        except ToolError as exc:
            outcome = "failed" if exc.kind in _TROUBLE else "answered"
            first = began == min(self._inside)
            if first and (exc.kind, exc.sent) == ("timeout", "unknown"):
                self.silent.set()
            raise
        finally:
            self._inside.remove(began)
            self._left = _now()
            self._ended(outcome, began)

    def _ended(self, outcome: Outcome, began: float) -> None:
        if outcome == "answered":
            self.silent.clear()
        change = self.breaker.ended(outcome, began=began, now=_now())
        if change == "opened":
            failures = self.breaker.failures
            self._emit(BreakerOpened(server=self._config.name, failures=failures))
        elif change == "closed":
            self._emit(BreakerClosed(server=self._config.name))

    def _refused(self) -> ToolError:
        return ToolError(
            "transport",
            "no",
            f"the server {self._config.name} failed {self.breaker.failures} times "
            "in a row, so it is not asked for a while",
        )


async def by(deadline: float, awaitable: Awaitable[_T], seconds: float) -> _T:
    """
    Wait until the *deadline*, and no longer.

    Raises:
        ToolError: It came first. It was that many *seconds* away.
    """
    try:
        async with asyncio.timeout_at(deadline):
            return await awaitable
    except TimeoutError:
        raise ToolError(
            "timeout", "no", f"the server was not ready for it within {seconds:g} s"
        ) from None


def _now() -> float:
    return asyncio.get_running_loop().time()
