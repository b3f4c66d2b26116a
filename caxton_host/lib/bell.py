"""Waking those who look for what other processes write."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from typing import Literal, TypeAlias
from weakref import WeakSet

#: What is looked for.
Topic: TypeAlias = Literal["freezes", "requests", "jobs"]

#: Seconds between two looks for what was announced, in case that was not heard.
SLOW_S = 60.0


class Bell:
    """
    Tells a process that another one has written something.

    Attributes:
        is_heard: Whether announcements arrive. Otherwise one looks periodically.
    """

    def __init__(self) -> None:
        self.is_heard = False
        self._waiting = defaultdict[Topic, WeakSet[asyncio.Event]](WeakSet)

    def news(self, topic: Topic) -> asyncio.Event:
        """Return what is set when there is something new."""
        event = asyncio.Event()
        self._waiting[topic].add(event)
        return event

    def ring(self, topic: Topic) -> None:
        """Wake those who look for *topic*."""
        for event in self._waiting[topic]:
            event.set()

    def note(self, *, is_heard: bool) -> None:
        """Note whether announcements arrive, and have everybody look on a change."""
        if self.is_heard != is_heard:
            self.is_heard = is_heard
            for topic in self._waiting:
                self.ring(topic)

    async def pause(self, news: asyncio.Event, every: float) -> None:
        """
        Return when it is time for the next look.

        Args:
            news: See `news`.

            every: Seconds between two looks at least; where nothing is heard, exactly.
        """
        await asyncio.sleep(every)
        if self.is_heard:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SLOW_S):
                    await news.wait()
        news.clear()
