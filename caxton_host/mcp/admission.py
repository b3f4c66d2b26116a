"""
Admits calls to a server: circuit breaker, rate limit and queue.

A rate, and a concurrency that is configured, are those of all hosts: they are counted
in the log before each send. The calls of one host ask there one by one, in order.

Closed, the breaker lets calls pass. After a number of failures in a row it opens, and
refuses all. After a pause it is half open: one call passes, and its outcome decides.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from itertools import count
from typing import Literal, TypeAlias, TypeVar

from ..core.grants.budgets import Concurrency, Pace
from ..core.log.events import BreakerClosed, BreakerOpened, Event
from ..core.tools.servers import BreakerOptions, ServerConfig
from ..errors import TokenError, ToolError
from ..ports.log import Reservation
from ..ports.tools import ToolRequest
from .transport.timing import Bucket

#: Seconds between two looks for a place; and at least, before a rate is asked again.
_LOOK_S, _BREATH_S = 0.05, 0.01
_TROUBLE = frozenset({"transport", "timeout"})
_T = TypeVar("_T")

State: TypeAlias = Literal["closed", "open", "half_open"]

#: The outcome of a call that passed: the server answered, with whatever; it did not; or
#: the caller gave up.
Outcome: TypeAlias = Literal["answered", "failed", "given_up"]
Change: TypeAlias = Literal["opened", "closed"]

#: State and outcome to the next state; others change nothing. Late answers count.
_NEXT: Mapping[tuple[State, Outcome | Literal["failed_too_often", "asked"]], State] = {
    ("closed", "failed_too_often"): "open",
    ("open", "asked"): "half_open",
    ("open", "answered"): "closed",
    ("half_open", "answered"): "closed",
    ("half_open", "failed_too_often"): "open",
    ("half_open", "given_up"): "open",
}
_TOLD: Mapping[tuple[State, State], Change] = {
    ("closed", "open"): "opened",
    ("open", "closed"): "closed",
    ("half_open", "closed"): "closed",
}


class Breaker:
    """
    The breaker of one server.

    >>> breaker = Breaker(BreakerOptions(failures=2, pause=30.0))
    >>> [breaker.ended("failed", began=at, now=at) for at in (0.0, 1.0)]
    [None, 'opened']
    >>> breaker.admits(2.0), breaker.admits(31.0), breaker.admits(31.0)
    (False, True, False)
    >>> breaker.ended("answered", began=31.0, now=32.0), breaker.admits(32.0)
    ('closed', True)

    Attributes:
        state: ``closed``, ``open`` or ``half_open``.

        failures: Failures since the last answer.
    """

    def __init__(self, options: BreakerOptions) -> None:
        self._options = options
        self._last_failure = -math.inf
        self._until = 0.0
        self.state: State = "closed"
        self.failures = 0

    def refuses(self, now: float) -> bool:
        """Return whether calls are refused now."""
        return self.state == "half_open" or (self.state == "open" and now < self._until)

    def admits(self, now: float) -> bool:
        """Return whether this call passes; its end is reported by `ended`."""
        if self.refuses(now):
            return False
        self.state = _NEXT.get((self.state, "asked"), self.state)
        return True

    def ended(self, outcome: Outcome, *, began: float, now: float) -> Change | None:
        """
        Count the outcome of a call that passed, and return the change of state.

        Failures of calls that were under way at the same time count as one.
        """
        before = self.state
        if outcome == "answered":
            self.failures = 0
        elif outcome == "failed" and began >= self._last_failure:
            self._last_failure = now
            self.failures += 1
        often = outcome == "failed" and 0 < self._options.failures <= self.failures
        happened = "failed_too_often" if often else outcome
        self.state = _NEXT.get((before, happened), before)
        if often and before != "open":
            self._until = now + self._options.pause
        return _TOLD.get((before, self.state))


class Gate:
    """
    Admits the calls to one server.

    Attributes:
        breaker: Refuses calls while the server fails.

        silent: Set if a call timed out, none was answered since, and no older call was
            under way, which may have kept the server busy.
    """

    def __init__(self, config: ServerConfig, emit: Callable[[Event], None]) -> None:
        self._config = config
        self._emit = emit
        self._slots = asyncio.Semaphore(config.places)
        self._shared = _Shared(config)
        self._bucket = Bucket(*config.rate) if config.rate else None
        self._inside: list[float] = []
        self._left = 0.0
        self.breaker = Breaker(config.breaker)
        self.silent = asyncio.Event()

    def rested(self) -> float:
        """Return for how many seconds no call was under way."""
        return 0.0 if self._inside else _now() - self._left

    async def enter(
        self, request: ToolRequest, deadline: float, seconds: float
    ) -> float:
        """
        Admit a call, and return the time. Pass it to `leave` when the call ends.

        Raises:
            ToolError: The server is failing, or the call's turn does not come before
                the *deadline*, that many *seconds* after it was made.

            StoreError: What all hosts share cannot be counted.
        """
        began = _now()
        if self.breaker.refuses(began):
            raise self._refused()
        if self._bucket:
            await self._in_turn(self._bucket, deadline)
        try:
            await self._place(request, deadline, seconds)
        except BaseException:
            if self._bucket:
                self._bucket.give_back()
            raise
        began = _now()
        if not self.breaker.admits(began):
            self._slots.release()
            raise self._refused()
        self._inside.append(began)
        return began

    def leave(self, began: float, exc: BaseException | None) -> None:
        """Release the place of the call that was admitted at *began*."""
        outcome: Outcome = "answered" if exc is None else "given_up"
        # Any caller could close the server to all others by a token of its own.
        if isinstance(exc, ToolError) and not isinstance(exc, TokenError):
            outcome = "failed" if exc.kind in _TROUBLE else "answered"
            first = began == min(self._inside)
            if first and (exc.kind, exc.sent) == ("timeout", "unknown"):
                self.silent.set()
        self._inside.remove(began)
        self._left = now = _now()
        self._slots.release()
        self._ended(outcome, began, now)

    async def _place(
        self, request: ToolRequest, deadline: float, seconds: float
    ) -> None:
        if self._slots.locked():
            await by(deadline, self._slots.acquire(), seconds)
        else:
            await self._slots.acquire()
        try:
            if self._shared.items:
                await self._shared.take(request, deadline, seconds)
        except BaseException:
            self._slots.release()
            raise

    async def _in_turn(self, bucket: Bucket, deadline: float) -> None:
        wait = bucket.reserve(_now(), deadline)
        if wait is None:
            raise too_often(self._config.name)
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
            "in a row, so calls are refused for a while",
        )


class _Shared:
    """
    What the calls of all hosts share.

    Attributes:
        items: What a call takes of it.
    """

    def __init__(self, config: ServerConfig) -> None:
        self._name = config.name
        self._turn = asyncio.Lock()
        self.items: list[Reservation] = []
        if config.concurrency:
            self._add(Concurrency(limit=config.concurrency))
        if config.rate:
            number, seconds = config.rate
            self._add(Pace(limit=number, every=int(seconds * 1e6)))

    def _add(self, budget: Concurrency | Pace) -> None:
        # No agent has a name like this.
        key = f"!server/{self._name}/{budget.key}"
        item = Reservation(key=key, amount=1, limit=budget.limit, rule="")
        every = budget.every if isinstance(budget, Pace) else None
        self.items.append(replace(item, every=every))

    async def take(self, request: ToolRequest, deadline: float, seconds: float) -> None:
        """Wait for the turn of a call; see `Gate.enter`."""
        await by(deadline, self._turn.acquire(), seconds)
        try:
            for tries in count():
                refused = await request.reserve(self._wanted(request.call, tries))
                if refused is None:
                    return
                is_rate = self.items[refused.index].every is not None
                wait = max(refused.retry_after or 0, _BREATH_S) if is_rate else _LOOK_S
                if _now() + wait > deadline:
                    raise too_often(self._name) if is_rate else not_ready(seconds)
                await asyncio.sleep(wait)
        finally:
            self._turn.release()

    def _wanted(self, call: int, tries: int) -> list[Reservation]:
        return [
            item if item.every else replace(item, call=call, tries=tries)
            for item in self.items
        ]


def too_often(server: str) -> ToolError:
    """Return the failure of a call that a rate allows too late."""
    text = f"the rate of the server {server} allows no call in time"
    return ToolError("timeout", "no", text)


async def by(deadline: float, awaitable: Awaitable[_T], seconds: float) -> _T:
    """
    Await something until the *deadline*.

    Raises:
        ToolError: The deadline came first; the call had *seconds* in all.
    """
    try:
        async with asyncio.timeout_at(deadline):
            return await awaitable
    except TimeoutError:
        raise not_ready(seconds) from None


def not_ready(seconds: float) -> ToolError:
    """Return the failure of a call whose turn did not come."""
    text = f"the server was not ready for it within {seconds:g} s"
    return ToolError("timeout", "no", text)


def _now() -> float:
    return asyncio.get_running_loop().time()
