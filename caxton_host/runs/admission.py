"""
Admission of runs: bounds on how many run, how many wait, and how many per principal.

A host takes a bounded number of runs. A client over the network first takes a ticket,
which is refused at once if there is no room, and then waits for its turn. Turns
alternate between tenants, or principals without one: one that has many requests delays
only its own.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from ..core.grants.principals import Principal
from ..core.limits import Places
from ..core.turns import sharer_of
from ..errors import BusyError, OverloadedError

#: Seconds after which a client may try again, if nothing tells more precisely.
_RETRY_AFTER_S = 1.0
_MINUTE_S = 60.0


def about_to_stop() -> OverloadedError:
    """Return the refusal of requests while the host shuts down."""
    return OverloadedError(
        "the host is about to stop", retry_after=5 * _RETRY_AFTER_S, whose="host"
    )


@dataclass(slots=True)
class Admission:
    """
    Bounds the number of runs of a host; ``with admission:`` holds one place.

    Attributes:
        most: How many runs the host takes.

        inside: How many are under way.
    """

    most: int = field(default_factory=lambda: Places().runs)
    inside: int = 0

    def __enter__(self) -> None:
        if self.inside >= self.most:
            raise BusyError(
                f"the host has {self.inside} runs under way, which is the most",
                fix="wait for one to end, or raise runs in [sandbox]",
            )
        self.inside += 1

    def __exit__(self, *_: object) -> None:
        self.inside -= 1


@dataclass(slots=True)
class _Visitor:
    """
    What is counted of one principal.

    Attributes:
        allowance: How many runs it may start now.

        counted_at: When *allowance* was computed, in seconds of the clock.

        present: How many tickets it has.
    """

    allowance: float
    counted_at: float
    present: int = 0


@dataclass(slots=True, eq=False)
class Ticket:
    """
    A place in the queue, and later a running place. A context manager that returns it.

    Attributes:
        line: Where it was taken.

        who: The principal that has it.

        kept: A run has taken it over, and returns it.
    """

    line: RunQueue
    who: str
    kept: bool = False
    _inside: bool = field(default=False, init=False)
    _present: bool = field(default=True, init=False)

    async def turn(self) -> None:
        """Wait until there is a place inside."""
        await self.line.wait(self.who)
        self._inside = True

    def leave(self) -> None:
        """Return the place. Further calls do nothing."""
        if self._present:
            self._present = False
            self.line.left(self.who, inside=self._inside)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.leave()


def _nothing(_who: str) -> tuple[int, int]:
    return 0, 0


async def _alone(_who: Principal) -> None:
    """Refuse nobody: no other host counts."""


@dataclass(slots=True, kw_only=True)
class RunQueue:
    """
    A fair queue of requests for running places.

    Attributes:
        places: How many may run at a time.

        queue: How many may wait.

        each: How many tickets one principal may have.

        rate: How many tickets one principal may take in a minute, and in one burst.

        now: Returns seconds of a monotonic clock.

        fleet: Awaited before a ticket is given out; raises `OverloadedError` if its
            principal, or its tenant, has what it may have on all hosts.

        queued: Returns how many runs wait in the log, and how many of a principal.

        closed: No more tickets are given out, because the host shuts down.

        inside: How many run.

        present: How many tickets are given out.
    """

    places: int
    queue: int
    each: int
    rate: int
    now: Callable[[], float]
    fleet: Callable[[Principal], Awaitable[None]] = _alone
    queued: Callable[[str], tuple[int, int]] = _nothing
    closed: bool = False
    inside: int = field(default=0, init=False)
    present: int = field(default=0, init=False)
    _visitors: dict[str, _Visitor] = field(
        default_factory=dict[str, _Visitor], init=False
    )
    # Who waits, of each tenant or principal; the one whose turn is next comes first.
    _lines: dict[str, deque[asyncio.Future[None]]] = field(
        default_factory=dict[str, deque[asyncio.Future[None]]], init=False
    )
    # When each of them began to wait, the longest first.
    _since: dict[asyncio.Future[None], float] = field(
        default_factory=dict[asyncio.Future[None], float], init=False
    )
    _swept_at: float = field(default=-math.inf, init=False)
    _moved: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    async def until(self, *, free: bool) -> None:
        """Return once there is a running place that nobody waits for, or none."""
        while self.is_free is not free:
            self._moved.clear()
            await self._moved.wait()

    @property
    def is_free(self) -> bool:
        """Whether a ticket would not have to wait."""
        return self.present < self.places and not self.closed

    @property
    def waiting(self) -> int:
        """How many tickets have no running place yet."""
        return self.present - self.inside

    @property
    def waited_s(self) -> float:
        """For how long one has waited for a place. May be called from any thread."""
        first = next(iter([*self._since.values()]), None)
        return 0.0 if first is None else self.now() - first

    async def enter(self, who: Principal) -> Ticket:
        """
        Return a ticket for *who*, if the limits of all hosts have room for it, too.

        Raises:
            OverloadedError: See `take`.

            StoreError: They cannot be counted.
        """
        ticket = self.take(who.key)
        try:
            await self.fleet(who)
        except BaseException:
            self._visitor(who.key).allowance += 1
            ticket.leave()
            raise
        return ticket

    def take(self, who: str) -> Ticket:
        """
        Return a ticket for *who*.

        Raises:
            OverloadedError: There is no room now, or *who* takes too many.
        """
        if self.closed:
            raise about_to_stop()
        self.check(*self.queued(who), who)
        visitor = self._visitor(who)
        if visitor.allowance < 1:
            raise OverloadedError(
                f"you have started {self.rate} runs in a minute, which is the most",
                retry_after=(1 - visitor.allowance) * _MINUTE_S / self.rate,
                whose="principal",
                fix="try again later",
            )
        visitor.allowance -= 1
        return self.admit(who)

    def check(self, queued: int, own: int, who: str) -> None:
        """
        Return if there is room for one more.

        Args:
            queued: How many wait elsewhere.

            own: How many of them are of *who*.

            who: The principal.

        Raises:
            OverloadedError: There is none.
        """
        if self.present + queued >= self.places + self.queue:
            raise OverloadedError(
                f"{self.inside} runs are under way and {self.waiting + queued} wait",
                retry_after=_RETRY_AFTER_S,
                whose="host",
                fix="try again later",
            )
        present = self._visitor(who).present + own
        if present >= self.each:
            raise OverloadedError(
                f"you have {present} requests under way, which is the most",
                retry_after=_RETRY_AFTER_S,
                whose="principal",
                fix="wait for one of them",
            )

    def admit(self, who: str) -> Ticket:
        """Return a ticket for *who* even if there is no room; it waits for its turn."""
        self._visitor(who).present += 1
        self.present += 1
        self._moved.set()
        return Ticket(self, who)

    def _visitor(self, who: str) -> _Visitor:
        now = self.now()
        if who not in self._visitors:
            self._forget(now)
        visitor = self._visitors.setdefault(who, _Visitor(self.rate, now))
        earned = (now - visitor.counted_at) * self.rate / _MINUTE_S
        visitor.allowance = min(visitor.allowance + earned, self.rate)
        visitor.counted_at = now
        return visitor

    def _forget(self, now: float) -> None:
        """Drop, once a minute, principals without tickets and with a full allowance."""
        if now - self._swept_at < _MINUTE_S:
            return
        self._swept_at = now
        for who, visitor in [*self._visitors.items()]:
            if not visitor.present and now - visitor.counted_at >= _MINUTE_S:
                del self._visitors[who]

    async def wait(self, who: str) -> None:
        """Wait for a running place. Only `Ticket` calls this."""
        if self.inside < self.places:
            self.inside += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line = self._lines.setdefault(sharer_of(who), deque())
        line.append(turn)
        self._since[turn] = self.now()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._next()
            elif turn in line:
                line.remove(turn)
            raise
        finally:
            del self._since[turn]

    def left(self, who: str, *, inside: bool) -> None:
        """Take back a place. Only `Ticket` calls this."""
        visitor = self._visitors[who]
        visitor.present -= 1
        self.present -= 1
        if inside:
            self._next()
        self._moved.set()
        if not visitor.present and self._visitor(who).allowance >= self.rate:
            del self._visitors[who]

    def _next(self) -> None:
        """Give the place to those whose last turn is the longest ago."""
        while self._lines:
            sharer = next(iter(self._lines))
            if not (line := self._lines.pop(sharer)):
                continue
            turn = line.popleft()
            self._lines[sharer] = line  # Behind all others now.
            if not turn.done():
                turn.set_result(None)
                return
        self.inside -= 1
