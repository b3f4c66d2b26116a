"""
Fairness on an event loop: of the many that could go on, a few do in each turn.

The loop carries out in one turn all that is ready, and looks for news only after it.
When a hundred runs have their answers at once, whoever asks whether the host is well
would wait for all of them.
"""

from __future__ import annotations

import asyncio
import types
from collections import deque
from collections.abc import Awaitable, Generator
from typing import Any, TypeVar

T = TypeVar("T")


class Pace:
    """
    Says who may go on in this turn of the event loop, and serves one loop only.

    Args:
        most: How many may.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._gone_on = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def turn(self) -> asyncio.Future[None] | None:
        """Return what to wait for, if others are to go on first."""
        # Not counted anew in each turn: that would be a turn more for each of them.
        if self._gone_on < self._most:
            self._gone_on += 1
            return None
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._next)
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        return turn

    def _next(self) -> None:
        self._gone_on = 0
        while self._waiting and self._gone_on < self._most:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._gone_on += 1
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next)


@types.coroutine
def paced(work: Awaitable[T], pace: Pace) -> Generator[Any, None, T]:
    """
    Carry out *work*, that waits for its turn each time that it could go on.

    What is raised in it, as by who cancels it, does not wait.

    >>> async def greet() -> str:
    ...     await asyncio.sleep(0)
    ...     return "hello"
    >>> async def main() -> str:
    ...     return await paced(greet(), Pace(1))
    >>> asyncio.run(main())
    'hello'
    """
    steps = work.__await__()
    raised: BaseException | None = None
    waits_for: object = None
    try:
        while True:
            if raised is None:
                try:
                    if turn := pace.turn():
                        yield from turn
                except BaseException as exc:  # noqa: BLE001 -- is the work's own
                    raised = exc
            try:
                waits_for = next(steps) if raised is None else steps.throw(raised)
            except StopIteration as done:
                result: T = done.value
                return result
            raised = None
            try:
                yield waits_for
            except BaseException as exc:  # noqa: BLE001 -- as above
                raised = exc
    finally:
        # They may refer to this frame, and would keep what the work had.
        raised = waits_for = None
