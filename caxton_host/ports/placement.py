"""Which host tries to start a run that waits for a place."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from ..core.turns import sharer_of

#: Called in the transaction that stores an event, with its driver.
Within: TypeAlias = Callable[[Any], None]

#: Stores an event, and does what it is given in the same transaction.
Record: TypeAlias = Callable[[Within | None], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """
    A run that waits.

    Attributes:
        run_id: The run, whose log has `RunQueued`.

        who: The key of the principal that asked for it.

        priority: Its class: a higher one comes first. -100 to 100.
    """

    run_id: str
    who: str
    priority: int = 0

    @property
    def sharer(self) -> str:
        """Those who share the places; see `sharer_of`."""
        return sharer_of(self.who)


class Placement(Protocol):
    """
    An engine that decides which host tries next.

    It may lose a job, and give one to several hosts: a run is started once whatever it
    does, and `Placer` submits what was lost again.

    Attributes:
        shared: Whether every host of the log claims from the same queue.

        is_empty: Whether nothing waited when this host looked last.
    """

    @property
    def shared(self) -> bool: ...  # noqa: D102 -- as above

    @property
    def is_empty(self) -> bool: ...  # noqa: D102 -- as above

    def running(self) -> AbstractAsyncContextManager[None]:
        """Keep the engine's view of this host up to date inside ``async with``."""
        ...

    async def submit(self, job: Job, record: Record | None = None) -> None:
        """
        Put a job into the queue, unless it is there.

        Args:
            job: The job.

            record: Stores the event that the job stands for, and does what it is given
                in the same transaction; ``None``: that is stored.

        Raises:
            StoreError: It could not be recorded, and is not in the queue.
        """
        ...

    async def claim(self) -> Job:
        """
        Return the next job for this host, once there is one.

        Nobody else gets it until it is released, or this host is dead.

        Raises:
            StoreError: The queue cannot be read.
        """
        ...

    def known(self, who: str) -> tuple[int, int]:
        """Return what `waiting` returned last, or more precisely."""
        ...

    async def waiting(self, who: str) -> tuple[int, int]:
        """
        Return how many jobs wait, and how many of them are of that principal.

        Raises:
            StoreError: The queue cannot be read.
        """
        ...

    async def missing(self, run_ids: Collection[str]) -> set[str]:
        """
        Return those of the runs that neither wait nor are claimed here.

        Raises:
            StoreError: The queue cannot be read.
        """
        ...

    async def release(self, job: Job, *, again: bool = False) -> None:
        """
        Give back a job that was claimed.

        Args:
            job: The job.

            again: It was not started: let a host try again.

        Raises:
            StoreError: The queue cannot be written.
        """
        ...

    async def cancel(self, run_id: str) -> None:
        """
        Take a run out of the queue, if it is in there.

        Raises:
            StoreError: The queue cannot be written.
        """
        ...
