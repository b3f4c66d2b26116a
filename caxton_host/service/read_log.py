"""Who reads runs over the network, recorded in the stream of the host."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import TypeAlias

from ..core.grants.principals import Principal
from ..core.log.events import Event, RunRead

#: Seconds for which a repeated read of the same is not recorded again.
EVERY = 60.0
#: Reads that are remembered for that; of more, the oldest is recorded again.
_MOST = 10_000

#: Principal, run, and what was read of it.
_Key: TypeAlias = tuple[str, str, str]


def _drop(_event: Event) -> None:
    """Record nothing."""


@dataclass(slots=True, kw_only=True)
class ReadLog:
    """
    Records who reads what of which run, without delaying the answer.

    Attributes:
        queue: Takes an event of the host, without waiting.

        now: Returns seconds of a clock that never goes back.
    """

    queue: Callable[[Event], None] = _drop
    now: Callable[[], float] = monotonic
    # When each read was recorded last, oldest first.
    _last: OrderedDict[_Key, float] = field(
        default_factory=OrderedDict[_Key, float], init=False
    )

    def note(self, who: Principal, run: str, what: str) -> None:
        """Record a read, unless the same one was recorded in the last minute."""
        key, now = (who.key, run, what), self.now()
        if now - self._last.get(key, -EVERY) < EVERY:
            return
        self._last[key] = now
        self._last.move_to_end(key)
        if len(self._last) > _MOST:
            self._last.popitem(last=False)
        self.queue(RunRead(run=run, what=what, actor=who.actor))
