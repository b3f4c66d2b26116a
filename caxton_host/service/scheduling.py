"""
Starts the runs of schedules: each tick once, over all hosts of a log.

    a minute begins -> ticks since the last look -> has each a run, by its id?
    one has none    -> submitted, or recorded as skipped, under that id

Nobody is elected: every host looks. The id of a run follows from its schedule and tick,
and the number of the first event of its stream admits one host.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import asdict, dataclass, field

from ..config import Config
from ..config.model import Schedule
from ..core.calls import JSON
from ..core.grants.freezes import Freezes, freeze_document
from ..core.grants.principals import Principal
from ..core.log.runs import GOING_ON, RunFilter, RunRow
from ..core.names import tick_run, time_of
from ..errors import BusyError, CaxtonError, LeaseLost, StoreError
from ..lib.cron import next_tick, ticks
from ..ports.history import Readings
from .run_service import Service, Submission

logger = logging.getLogger("caxton_host")

#: Seconds between two looks at the clock, and over which hosts spread their starts.
_EVERY_S = 1.0
_MINUTE_US = 60_000_000
#: How far back ticks are caught up: so many, and microseconds.
_MOST, _WEEK_US = 100, 7 * 24 * 60 * _MINUTE_US
#: Runs of a schedule that are looked at, the newest.
_RUNS = 1000


@dataclass(slots=True, kw_only=True, eq=False)
class Scheduler:
    """
    Starts the runs of the schedules that are configured now.

    Attributes:
        service: Takes them, as it takes any other run.
    """

    service: Service
    # Up to when each schedule was looked at: microseconds since 1970.
    _seen: dict[str, int] = field(default_factory=dict[str, int], init=False)
    # A start that takes long delays no other schedule.
    _looking: dict[str, asyncio.Task[None]] = field(
        default_factory=dict[str, asyncio.Task[None]], init=False
    )
    # Something that was due is not done.
    _again: bool = field(default=False, init=False)

    async def watch(self) -> None:
        """Start what is due, until cancelled."""
        minute = -1
        try:
            while True:
                # Ticks are whole minutes, and clocks may be set to any.
                now = self.service.host.clock.now() // _MINUTE_US
                if now != minute or self._again:
                    minute, self._again = now, False
                    self._look()
                await asyncio.sleep(_EVERY_S)
        finally:
            for task in self._looking.values():
                task.cancel()
            await asyncio.gather(*self._looking.values(), return_exceptions=True)

    def _look(self) -> None:
        known = self.service.config().schedules
        self._seen = {name: at for name, at in self._seen.items() if name in known}
        for name, schedule in known.items():
            if name in self._looking and not self._looking[name].done():
                self._again = True
            else:
                self._looking[name] = asyncio.create_task(self.look_at(schedule))

    async def look_at(self, schedule: Schedule) -> None:
        """Start the runs of a schedule that are due."""
        now = self.service.host.clock.now()
        try:
            due = await self._due(schedule, now)
            if due:
                await asyncio.sleep(await self._turn())
            for tick in due:
                await self._start(schedule, tick)
                self._seen[schedule.name] = tick
            self._seen[schedule.name] = now
        except (BusyError, StoreError) as exc:
            logger.warning("schedule %s has to wait: %s", schedule.name, exc)
            self._again = True

    async def _due(self, schedule: Schedule, now: int) -> list[int]:
        """Return the ticks that are to be started now, unless that is done."""
        if self.service.host.freezes.now.on(schedule.agent, schedule.actor):
            return []
        after = self._seen.get(schedule.name)
        if after is None:
            after = await self._since(schedule, now)
        reach = _MINUTE_US if schedule.catch_up == "none" else _WEEK_US
        after = max(min(after, now), now - reach)
        most = 1 if schedule.catch_up == "last" else _MOST
        return ticks(schedule.cron, schedule.timezone, after, now, most)

    async def _since(self, schedule: Schedule, now: int) -> int:
        """Return when ticks begin to count, for a host that has not looked before."""
        fresh = now - _MINUTE_US
        if schedule.catch_up == "none":
            return fresh
        # What has never run is new, and has nothing to catch up.
        rows = await runs_of(self.service.store.reader, schedule)
        last = max((time_of(row.run_id) for row in rows), default=fresh)
        thawed = self.service.host.freezes.now.thawed
        keys = ("schedule", schedule.name), ("agent", schedule.agent)
        return max(last, *(thawed.get(key, 0) for key in keys))

    async def _turn(self) -> float:
        """Return how long this host lets others go first, in seconds."""
        hosts = await self.service.store.leases.hosts()
        own = self.service.host.stream
        return _EVERY_S * hosts.index(own) / len(hosts) if own in hosts else 0.0

    async def _start(self, schedule: Schedule, tick: int) -> None:
        reader, run_id = self.service.store.reader, tick_run(schedule.name, tick)
        if await reader.row(run_id):
            return
        who = Principal(
            kind="schedule",
            id=schedule.name,
            authenticated=False,
            scopes=frozenset({"run"}),
            agents=(schedule.agent,),
        )
        wanted = Submission(
            agent=schedule.agent,
            input=schedule.input,
            variables=schedule.variables,
            trigger="schedule",
            run_id=run_id,
        )
        skips = schedule.overlap == "skip"
        going = await runs_of(reader, schedule, *GOING_ON) if skips else []
        try:
            if going:
                reason = f"run {going[0].run_id} of the schedule goes on"
                await self.service.skip(who, wanted, reason)
            else:
                await self.service.submit(who, wanted)
        except LeaseLost:
            if await reader.row(run_id) is None:
                raise  # Nobody was faster: the lease of this host has lapsed.
        except (BusyError, StoreError):
            raise
        except CaxtonError as exc:
            logger.warning("schedule %s misses a tick: %s", schedule.name, exc)


async def runs_of(log: Readings, schedule: Schedule, *states: str) -> list[RunRow]:
    """Return the runs that a schedule has started: in one of *states*, if given."""
    found: list[RunRow] = []
    for state in states or (None,):
        mine = RunFilter(agent=schedule.agent, state=state, actor=schedule.name)
        found += await log.runs(_RUNS, mine)
    # Another actor may have that id.
    return [row for row in found if json.loads(row.actor) == schedule.actor]


async def schedule_documents(
    config: Config, log: Readings | None, freezes: Freezes, now: int
) -> list[dict[str, JSON]]:
    """Return the ``caxton.schedule/v1`` documents of all schedules, by name."""
    found: list[dict[str, JSON]] = []
    for _, one in sorted(config.schedules.items()):
        paused = freezes.standing.get(freezes.on(one.agent, one.actor) or ("", ""))
        runs = await runs_of(log, one) if log else []
        last = [{"run_id": row.run_id, "state": row.state} for row in runs[:1]]
        found.append(
            {
                "$type": "caxton.schedule/v1",
                **asdict(one),
                "next": None if paused else next_tick(one.cron, one.timezone, now),
                "last": {**last[0]} if last else None,
                "paused": freeze_document(paused) if paused else None,
            }
        )
    return found
