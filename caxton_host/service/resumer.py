"""
Resumes runs that no host drives, once they no longer have to wait.

    this host starts                  -> those that may go on are checked
    a decision at this host           -> `Service.decided`
    a decision elsewhere              -> a request to this host
    the time to decide is over        -> a timer for the earliest such time
    another host has stopped, or died -> those that may go on
    something was thawed              -> those that may go on, again

Several hosts find the same runs. Each takes its part of them at once, and soon what the
others have left. It waits in line for a place, before all that is queued, as it has had
its place. The host that has a place first takes it.

Projections find them, so runs that wait for people cost nothing; their events decide.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from zlib import crc32

from ..core.log.events import RunSuspended
from ..core.log.requests import Request
from ..core.log.runs import GOING_ON
from ..core.names import stream_of
from ..errors import BusyError, CaxtonError, LogBrokenError, StoreError, UsageError
from ..runs.cancellation import cancel_idle
from ..runs.recording import Recording
from .run_service import HOST, Service

logger = logging.getLogger("caxton_host")

#: Seconds between two searches, and before what is left to others is taken.
_EVERY_S, _PATIENCE_S = 60.0, 1.0

#: Seconds before a run that cannot be read is tried again, at most.
_LONGEST_S = 300.0

#: How many times more hosts may take a run after each time that it was left.
_MORE = 8

#: Runs that are checked concurrently.
_AT_ONCE = 16

_SECOND_US = 1_000_000


@dataclass(slots=True, kw_only=True, eq=False)
class Resumer:
    """
    Resumes the runs of a service that are suspended, or whose host is gone.

    Attributes:
        service: Drives the runs.

        every: Seconds between two searches for runs.

        patience: Seconds in which another host may take its part.
    """

    service: Service
    every: float = _EVERY_S
    patience: float = _PATIENCE_S
    # Runs to check at the next opportunity.
    _fresh: set[str] = field(default_factory=set[str], init=False)
    # Runs that wait for a decision, and when the time for it is over (microseconds).
    _due: dict[str, int] = field(default_factory=dict[str, int], init=False)
    # The epoch in which each run was checked last: it is not checked twice in one.
    _seen: dict[str, int] = field(default_factory=dict[str, int], init=False)
    # Runs that were left to other hosts, and how often.
    _left: Counter[str] = field(default_factory=Counter[str], init=False)
    # Runs that could not be read, and how often in a row.
    _failed: Counter[str] = field(default_factory=Counter[str], init=False)
    # Runs that are being checked, or wait for a place.
    _looking: set[str] = field(default_factory=set[str], init=False)
    _at_once: asyncio.Semaphore = field(
        default_factory=partial(asyncio.Semaphore, _AT_ONCE), init=False
    )
    # When the next of those is due that were not looked at, in microseconds.
    _next: int | None = field(default=None, init=False)
    # The last search failed.
    _away: bool = field(default=False, init=False)
    # Runs are to be searched for.
    _all: bool = field(default=False, init=False)
    # Set when there is a run to check.
    _some: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def look(self, run_id: str) -> None:
        """Check a run soon: it was suspended, or decided about."""
        self._fresh.add(run_id)
        self._some.set()

    def look_again(self) -> None:
        """Search soon, also for those that had to wait: something was thawed."""
        self._seen.clear()
        self.search()

    def search(self) -> None:
        """Search soon: another host may have left runs."""
        self._all = True
        self._some.set()

    async def asked(self, request: Request) -> str:
        """Carry out a request: check the run that it names."""
        self.look(request.subject or "")
        return "looks at it"

    async def watch(self) -> None:
        """Resume runs that no host drives, until cancelled."""
        loop = asyncio.get_running_loop()
        self.search()
        reason: str | None = "host_started"
        next_look = 0.0
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._pause(next_look - loop.time())
                now = self.service.host.clock.now()
                due = self._next is not None and self._next <= now
                if self._all or due or loop.time() >= next_look:
                    await self._find_all()
                    next_look = loop.time() + self.every
                for run_id in self._ready():
                    tasks.create_task(self._look_at(run_id, reason))
                reason = None

    async def _pause(self, longest: float) -> None:
        now = self.service.host.clock.now()
        times = [*self._due.values(), *([self._next] if self._next else [])]
        soonest = min(times, default=None)
        left = longest if soonest is None else (soonest - now) / _SECOND_US
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(min(left, longest), 0.0)):
                await self._some.wait()

    async def _find_all(self) -> None:
        self._all, self._next = False, None
        store, now = self.service.store, self.service.host.clock.now()
        try:
            await store.projections.fill()
            found = await store.reader.due(now)
            idle = await store.leases.idle()
            next_due = await store.reader.next_due(now)
            hosts = await store.leases.hosts()
        except StoreError as exc:
            if not self._away:
                logger.warning("runs that wait cannot be read: %s", exc)
            self._away = True
            self._search_soon()
            return
        self._away = False
        if next_due is not None:
            self._search_at(next_due)
        await self.service.placer.look_at([row for row in idle if not row.epoch])
        found |= {row.run_id: row.epoch for row in idle if row.epoch}
        # A run that was driven again since waits for something else.
        fresh = {
            run_id
            for run_id, epoch in found.items()
            if self._seen.get(run_id) != epoch
            and run_id not in self._failed
            and not self.service.background.drives(run_id)
        }
        mine = self._part(fresh, hosts)
        self._fresh |= mine
        self._left = Counter({run: self._left[run] + 1 for run in fresh - mine})
        if self._left:
            self._search_soon()
        # One that is driven here may be left in this epoch, too.
        self._seen = {
            run: epoch
            for run, epoch in found.items()
            if run in mine or self._seen.get(run) == epoch
        }

    def _search_soon(self) -> None:
        now = self.service.host.clock.now()
        self._search_at(now + round(self.patience * _SECOND_US))

    def _search_at(self, due: int) -> None:
        self._next = min(self._next or due, due)

    def _part(self, fresh: set[str], hosts: Sequence[str]) -> set[str]:
        """Return the runs that this host takes now."""
        line, me = self.service.line, self.service.host.stream
        if me not in hosts or len(hosts) == 1:
            return fresh
        own = {run for run in fresh if hosts[_hash(run) % len(hosts)] == me}
        places = {run: _hash(f"{me}/{run}") % len(hosts) for run in fresh - own}
        mine = [run for run in places if places[run] < _MORE ** self._left[run] - 1]
        mine.sort(key=lambda run: (places[run], run))
        return {*own, *mine[: max(line.places - line.waiting, 0)]}

    def _ready(self) -> list[str]:
        """Return the runs to check now; the others are being checked."""
        self._some.clear()
        now = self.service.host.clock.now()
        late = {run for run, until in self._due.items() if until <= now}
        ready = (self._fresh | late) - self._looking
        self._fresh -= ready
        self._looking |= ready
        for run_id in ready:
            self._due.pop(run_id, None)
        return sorted(ready)

    async def _look_at(self, run_id: str, reason: str | None) -> None:
        try:
            async with self._at_once:
                recording = await Recording.load(run_id, self.service.store.reader)
            self._failed.pop(run_id, None)
            # A session goes on with the next call of its client.
            waits = recording.is_restored or recording.is_session
            if recording.end is None and not waits:
                await self._go_on(recording, reason)
        except LogBrokenError as exc:
            self._wait_longer(run_id, exc)
        except (BusyError, StoreError):
            # Another host was faster, or was only thought dead; or the log is away.
            self._seen.pop(run_id, None)
            self._failed.pop(run_id, None)
            self._search_soon()
        except UsageError as exc:
            logger.warning("cannot resume run %s: %s", run_id, exc)
        except CaxtonError as exc:
            logger.warning("cannot resume run %s: %s", run_id, exc)
            self._seen.pop(run_id, None)  # It is checked again with the next check.
        finally:
            self._looking.discard(run_id)
            self._some.set()

    def _wait_longer(self, run_id: str, exc: LogBrokenError) -> None:
        """Check a run again whose events cannot be read: later each time."""
        self._failed[run_id] += 1
        self._fresh.discard(run_id)
        if self._failed[run_id] == 1:
            fix = exc.fix or "caxton audit verify"
            text = "run %s cannot be read, and is tried again: %s. To fix: %s"
            logger.warning(text, run_id, exc, fix)
        pause = min(self.patience * 2 ** self._failed[run_id], _LONGEST_S)
        until = self.service.host.clock.now() + round(pause * _SECOND_US)
        self._due[run_id] = until

    async def _go_on(self, recording: Recording, reason: str | None) -> None:
        """Resume a run, or note when the time to decide is over."""
        caller = recording.started.parent
        if caller and await self._is_left(recording.run_id, caller):
            return
        now = self.service.host.clock.now()
        suspended = recording.state == "suspended"
        waiting = recording.journal().waiting if suspended else []
        ends = [asked.requested.until or 0 for asked in waiting]
        if all(asked.is_over(now) for asked in waiting):
            why = "decided" if suspended else "host_lost"
            agent = recording.started.agent
            if caller is None:
                run_id, epoch = recording.run_id, recording.epoch
                await self.service.go_on(run_id, agent, reason or why, epoch)
            elif not self.service.background.drives(caller):
                await self._let_go(recording)
                self.look(caller)  # It goes on with its caller.
        elif all(ends):  # Without an end, one waits for a decision.
            self._due[recording.run_id] = max(ends)

    async def _let_go(self, recording: Recording) -> None:
        """Suspend a run whose log failed here: its caller may go on elsewhere."""
        store, run_id = self.service.store, recording.run_id
        row = await store.reader.row(run_id)
        if row and row.owner == self.service.host.stream:
            stopped, last = RunSuspended(reason="host_stopped"), recording.history[-1]
            await store.claim(stream_of(run_id), stopped, after=last.seq)

    async def _is_left(self, run_id: str, caller: str) -> bool:
        """Return whether the caller of a run has ended; then cancel that run."""
        row = await self.service.store.reader.row(caller)
        if row is None or row.state in GOING_ON:
            return False
        why = "the run that called it ended"
        await cancel_idle(self.service.store, run_id, {**HOST}, why)
        return True


def _hash(text: str) -> int:
    return crc32(text.encode())
