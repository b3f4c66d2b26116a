"""What a call passes on its way to a server: its breaker, and a place in its queue."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TypeVar

from ..core.log.events import BreakerClosed, BreakerOpened, Event
from ..core.tools.servers import ServerConfig
from ..errors import ToolError
from .breaker import Breaker, Outcome
from .transport.bucket import Bucket

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

    def entered(
        self, deadline: float, seconds: float
    ) -> AbstractAsyncContextManager[None]:
        """
        Let a call in, for as long as the block lasts.

        Raises:
            ToolError: It may not in, or not before the *deadline*, that many *seconds*
                after it was made.
        """
        return _Inside(self, deadline, seconds)

    async def enter(self, deadline: float, seconds: float) -> float:
        """Let a call in, and return when. See `entered`."""
        began = _now()
        if self.breaker.refuses(began):
            raise self._refused()
        if self._bucket:
            await self._in_turn(self._bucket, deadline)
            began = _now()
        if self._slots.locked():
            await by(deadline, self._slots.acquire(), seconds)
            began = _now()
        else:
            await self._slots.acquire()
        if not self.breaker.admits(began):
            self._slots.release()
            raise self._refused()
        self._inside.append(began)
        return began

    def leave(self, began: float, exc: BaseException | None) -> None:
        """Take note that the call which came in then is out, and why."""
        outcome: Outcome = "answered" if exc is None else "given_up"
        if isinstance(exc, ToolError):
            outcome = "failed" if exc.kind in _TROUBLE else "answered"
            first = began == min(self._inside)
            if first and (exc.kind, exc.sent) == ("timeout", "unknown"):
                self.silent.set()
        self._inside.remove(began)
        self._left = now = _now()
        self._slots.release()
        self._ended(outcome, began, now)

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

    def _ended(self, outcome: Outcome, began: float, now: float) -> None:
        if outcome == "answered":
            self.silent.clear()
        change = self.breaker.ended(outcome, began=began, now=now)
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


class _Inside:
    """A call that is in."""

    __slots__ = ("_began", "_deadline", "_gate", "_seconds")

    def __init__(self, gate: Gate, deadline: float, seconds: float) -> None:
        self._gate = gate
        self._deadline = deadline
        self._seconds = seconds

    async def __aenter__(self) -> None:
        self._began = await self._gate.enter(self._deadline, self._seconds)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._gate.leave(self._began, exc)


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
