"""Verification on request: in the background, once at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, cast

from ..core.calls import JSON
from ..core.grants.principals import Principal
from ..core.log.events import AuditFailed, Event
from ..errors import CaxtonError, LogBrokenError

_log = logging.getLogger("caxton_host")


class Look(Protocol):
    """Verifies a log."""

    async def __call__(
        self, told: Callable[[int], None], *, full: bool
    ) -> dict[str, JSON]:
        """
        Return a ``caxton.audit/v1`` document.

        Args:
            told: Called in a thread with how many events are verified by then.

            full: Verify also what was verified before.

        Raises:
            CaxtonError: It cannot be read.
        """
        ...


class _Stopped(Exception):  # noqa: N818 -- no fault
    """The host stops."""


async def _cannot(told: Callable[[int], None], *, full: bool) -> dict[str, JSON]:
    del told, full
    raise LogBrokenError("this process keeps no log")


@dataclass(slots=True, kw_only=True)
class Verifying:
    """
    Verifies a log for those who ask.

    Attributes:
        look: Verifies it.

        now: Returns microseconds since 1970.

        last: What was found last.

        kept: Returns up to where this machine found the log intact, and when.

        record: Records that it is not intact.
    """

    look: Look = _cannot
    now: Callable[[], int]
    last: dict[str, JSON] | None = None
    kept: Callable[[], JSON] = lambda: None
    record: Callable[[Event], None] = lambda _: None
    _task: asyncio.Task[None] | None = field(default=None, init=False)
    _verified: int = field(default=0, init=False)
    _stops: bool = field(default=False, init=False)

    @property
    def running(self) -> bool:
        """Whether one is under way."""
        return self._task is not None and not self._task.done()

    def start(self, who: Principal, *, full: bool) -> None:
        """Begin to verify, unless that is under way."""
        if not self.running:
            self._verified = 0
            self._task = asyncio.create_task(self._verify(who, full=full))

    def progress(self) -> int | None:
        """Return how many events are verified; ``None``: nothing is under way."""
        return self._verified if self.running else None

    async def aclose(self) -> None:
        """End what is under way."""
        self._stops = True
        if self._task:
            await self._task

    async def _verify(self, who: Principal, *, full: bool) -> None:
        began, audit, error = self.now(), None, None
        try:
            audit = await self.look(self._told, full=full)
            # A log without faults may still be signed by nobody known.
            for fault in cast("list[dict[str, JSON]]", audit["faults"])[:1]:
                self.record(AuditFailed(what="verify", reason=str(fault["message"])))
        except _Stopped:
            return
        except LogBrokenError as exc:
            error = str(exc)
            self.record(AuditFailed(what="verify", reason=error))
        except CaxtonError as exc:
            _log.warning("the log cannot be verified: %s. To fix: %s", exc, exc.fix)
            error = "the log cannot be read"
        self.last = {
            "actor": who.actor,
            "began_at": began,
            "ended_at": self.now(),
            "audit": audit,
            "error": error,
        }

    def _told(self, events: int) -> None:
        if self._stops:
            raise _Stopped
        self._verified = events
