"""
Who is let in, and when: so many at a time, so many waiting, and nobody alone.

A host takes a bounded number of runs. Who is served over the network first takes a
ticket, which is refused at once when there is no room; then waits for its turn. Turns
go round from one principal to the next, so that one who asks for much waits for itself.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from ..core.limits import Places
from ..errors import BusyError, OverloadedError

#: Seconds after which it is worth to come again, when nothing says more.
_SOON = 1.0
_MINUTE = 60.0


def about_to_stop() -> OverloadedError:
    """Return what is told to whoever comes when nobody is let in any more."""
    return OverloadedError(
        "the host is about to stop", retry_after=5 * _SOON, whose="host"
    )


@dataclass(slots=True)
class Admission:
    """
    Counts the runs of a host, and lets in no more than so many.

    One is held by ``with admission:``.
    """

    most: int = field(default_factory=lambda: Places().runs)
    inside: int = 0

    def __enter__(self) -> None:
        if self.inside >= self.most:
            raise BusyError(
                f"the host has {self.inside} runs under way, and takes no more",
                fix="wait for one to end, or raise runs in [sandbox]",
            )
        self.inside += 1

    def __exit__(self, *_: object) -> None:
        self.inside -= 1


@dataclass(slots=True)
class _Visitor:
    """
    One principal.

    Attributes:
        present: Its tickets.

        waiting: Those whose turn has not come, in order.

        allowance: How many runs it may start now.

        counted_at: When that was so.
    """

    allowance: float
    counted_at: float
    present: int = 0
    waiting: deque[asyncio.Future[None]] = field(
        default_factory=deque[asyncio.Future[None]]
    )


@dataclass(slots=True, eq=False)
class Ticket:
    """
    A place in the line, and later inside. A context manager that gives it back.

    Attributes:
        who: The principal that has it.

        kept: A run has it: whoever took it does not give it back.
    """

    line: Line
    who: str
    kept: bool = False
    _inside: bool = field(default=False, init=False)
    _present: bool = field(default=True, init=False)

    async def turn(self) -> None:
        """Wait until there is a place inside."""
        await self.line.wait(self.who)
        self._inside = True

    def leave(self) -> None:
        """Give the place back; once is enough."""
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


@dataclass(slots=True, kw_only=True)
class Line:
    """
    Lets in so many at a time, and has so many wait.

    Attributes:
        places: How many are inside at a time.

        queue: How many may wait.

        each: How many tickets one principal may have.

        rate: How many it may take in a minute; as many at once.

        now: Returns seconds of a clock that never goes back.

        closed: Nobody is let in any more: the host is about to stop.
    """

    places: int
    queue: int
    each: int
    rate: int
    now: Callable[[], float]
    closed: bool = False
    inside: int = field(default=0, init=False)
    present: int = field(default=0, init=False)
    _visitors: dict[str, _Visitor] = field(
        default_factory=dict[str, _Visitor], init=False
    )
    _swept_at: float = field(default=-math.inf, init=False)

    @property
    def waiting(self) -> int:
        """How many wait for their turn, or have not asked for it yet."""
        return self.present - self.inside

    def take(self, who: str) -> Ticket:
        """
        Return a ticket for *who*.

        Raises:
            OverloadedError: There is no room for it now, or it takes too many.
        """
        if self.closed:
            raise about_to_stop()
        if self.present >= self.places + self.queue:
            raise OverloadedError(
                f"{self.inside} runs are under way and {self.waiting} wait",
                retry_after=_SOON,
                whose="host",
                fix="try again later",
            )
        visitor = self._visitor(who)
        if visitor.present >= self.each:
            raise OverloadedError(
                f"{visitor.present} of your requests are under way: that is the most",
                retry_after=_SOON,
                whose="principal",
                fix="wait for one of them",
            )
        if visitor.allowance < 1:
            raise OverloadedError(
                f"you may start {self.rate} runs a minute, and have",
                retry_after=(1 - visitor.allowance) * _MINUTE / self.rate,
                whose="principal",
                fix="try again later",
            )
        visitor.allowance -= 1
        return self.admit(who)

    def admit(self, who: str) -> Ticket:
        """Return a ticket for *who*, though there be no room: it waits all the same."""
        self._visitor(who).present += 1
        self.present += 1
        return Ticket(self, who)

    def _visitor(self, who: str) -> _Visitor:
        now = self.now()
        if who not in self._visitors:
            self._forget(now)
        visitor = self._visitors.setdefault(who, _Visitor(self.rate, now))
        earned = (now - visitor.counted_at) * self.rate / _MINUTE
        visitor.allowance = min(visitor.allowance + earned, self.rate)
        visitor.counted_at = now
        return visitor

    def _forget(self, now: float) -> None:
        """Forget, once a minute, those who are gone and would be as new."""
        if now - self._swept_at < _MINUTE:
            return
        self._swept_at = now
        for who, visitor in [*self._visitors.items()]:
            if not visitor.present and now - visitor.counted_at >= _MINUTE:
                del self._visitors[who]

    async def wait(self, who: str) -> None:
        """Wait for a place inside. Only tickets ask."""
        if self.inside < self.places:
            self.inside += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        visitor = self._visitors[who]
        visitor.waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._next()
            elif turn in visitor.waiting:
                visitor.waiting.remove(turn)
            raise

    def left(self, who: str, *, inside: bool) -> None:
        """Take back a place. Only tickets ask."""
        visitor = self._visitors[who]
        visitor.present -= 1
        self.present -= 1
        if inside:
            self._next()
        if not visitor.present and self._visitor(who).allowance >= self.rate:
            del self._visitors[who]

    def _next(self) -> None:
        """Hand a place to the principal whose last turn is the longest ago."""
        for who, visitor in self._visitors.items():
            while visitor.waiting:
                turn = visitor.waiting.popleft()
                if not turn.done():
                    # Behind all others now.
                    self._visitors[who] = self._visitors.pop(who)
                    turn.set_result(None)
                    return
        self.inside -= 1
