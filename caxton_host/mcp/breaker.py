"""
When a server that keeps failing is asked no more for a while. Pure: told the time.

Closed, calls pass. After so many failures in a row it is open, and none does. When
the pause is over it is half open: one call passes, and its outcome decides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, TypeAlias

from ..core.tools.servers import BreakerOptions

State: TypeAlias = Literal["closed", "open", "half_open"]

#: Of a call that passed: the server answered, whatever it said; it did not; or nobody
#: waited for it.
Outcome: TypeAlias = Literal["answered", "failed", "given_up"]
Change: TypeAlias = Literal["opened", "closed"]

#: What is not here changes nothing. An answer is an answer, however late it comes.
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

        failures: How many there were since the last answer.
    """

    def __init__(self, options: BreakerOptions) -> None:
        self._options = options
        self._last_failure = -math.inf
        self._until = 0.0
        self.state: State = "closed"
        self.failures = 0

    def refuses(self, now: float) -> bool:
        """Return whether no call passes now."""
        return self.state == "half_open" or (self.state == "open" and now < self._until)

    def admits(self, now: float) -> bool:
        """Return whether this call passes. How it *ended* has to be told."""
        if self.refuses(now):
            return False
        self.state = _NEXT.get((self.state, "asked"), self.state)
        return True

    def ended(self, outcome: Outcome, *, began: float, now: float) -> Change | None:
        """
        Take note of how a call that had passed ended, and return what changed.

        Calls that were under way at the same time fail for the same reason, so they
        count as one.
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
