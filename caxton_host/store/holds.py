"""
Holds: runs that must not be erased, until they are released.

The events decide, in a stream for each held run. An erasure and a hold lock the row of
the run first, and read these events then: of two at the same time, the second sees what
the first has done.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ..core.log.events import RunHeld, RunReleased
from ..core.log.holds import HOLDS
from ..core.names import stream_of
from .commit import Driver, ask
from .database import Database
from .drafts import check_hold, lineage, no_run, parent_in


class Holds:
    """Puts runs on hold, and releases them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def record(self, event: RunHeld | RunReleased) -> None:
        """
        Put a run on hold, or release it.

        Raises:
            NotFoundError: There is no such run.

            UsageError: It is on hold already, or is not.

            NotKeptError: It was erased.

            StoreError: It could not be stored.
        """
        await self._database.record(HOLDS + event.run, [event], _Guard(event))


@dataclass(frozen=True, slots=True)
class _Guard:
    """The guard of the transaction that holds or releases a run."""

    event: RunHeld | RunReleased

    def __call__(self, driver: Driver) -> None:
        """Return if the event can be recorded; see `Holds.record`."""
        run_id = self.event.run
        lock(driver, run_id)
        # A fork first, as everybody does who locks more than one.
        for ancestor in lineage(run_id, partial(parent_of_run, driver)):
            ask(driver, _LOCK, ancestor)
        check_hold(
            self.event,
            held=run_id in held_runs(driver),
            kept=bool(ask(driver, _STARTED, stream_of(run_id)).fetchone()),
        )


def lock(driver: Driver, run_id: str) -> None:
    """
    Lock the row of a run until the transaction ends.

    Raises:
        NotFoundError: There is no such run.
    """
    if not ask(driver, _LOCK, run_id).rowcount:
        raise no_run(run_id)


def held_runs(driver: Driver) -> list[str]:
    """Return the runs that are on hold."""
    return [run_id for (run_id,) in ask(driver, HELD).fetchall()]


def parent_of_run(driver: Driver, run_id: str) -> str | None:
    """Return the run that a run was forked from."""
    row = ask(driver, _STARTED, stream_of(run_id)).fetchone()
    return parent_in(*row) if row else None


_LOCK = "UPDATE runs SET state = state WHERE run_id = ?"

# By code point, "0" comes right behind "/".
HELD = """\
SELECT substr(stream, 7) FROM events e WHERE stream >= 'holds/' AND stream < 'holds0'
  AND type = 'RunHeld' AND NOT EXISTS (
    SELECT 1 FROM events WHERE stream = e.stream AND seq > e.seq)
ORDER BY stream"""

_STARTED = """\
SELECT e.type, e.schema_version, p.payload
FROM events e JOIN payloads p ON p.position = e.position
WHERE e.stream = ? AND e.seq = 1"""
