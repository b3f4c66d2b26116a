"""
Leases on PostgreSQL: a row a host, and the server's clock.

Why two hosts never both send for a run:

* A host sends only while `holds` returns true: until a margin before the earliest end
  of its lease, counted from before the renewal was sent, on a clock that continues
  while the machine sleeps.
* A run is taken over only in a transaction that locked its owner's row, found it
  lapsed, and marked it so. A renewal waits for that transaction, or it came first
  and the row has not lapsed.
* A renewal that finds its row lapsed, marked or deleted does not rely on the state of
  the host. It locks the row and then reads which runs still belong to the host; the
  others are lost before `holds` returns true again.
* Every call was committed before it is sent, under a number of the stream that only
  one host can have (`uq_events_stream_seq`). So a host that lost a run in between
  cannot commit its next call, even before it learns of the takeover.

One gap remains, between `holds` and the first byte: a host that is suspended exactly
there, for longer than its lease, still sends that one call when it resumes. The log has
the call as in doubt, and its effect class decides whether it is repeated. Also, the
server's clock must not jump ahead by more than the margin.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Mapping, MutableMapping

import psycopg
import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from ..core.names import run_of
from ..errors import LeaseLost, StoreError
from ..lib.bell import Bell
from .commit import Driver, Line
from .diagnosis import explain, said, unreadable
from .drafts import CONFLICT, CONFLICT_FIX
from .listener import Listener

_BEATS = 3  # in the time of a lease
_MARGIN = 2 / 15  # of it
_LATE = 1 / 300  # of it

# Parameters: seconds, host. Updates no row if the lease has lapsed. Returns the hosts
# that are alive, and in how many seconds the first lease of another one lapses: an idle
# host executes nothing else as often.
_RENEW = """\
UPDATE hosts SET lease_until = clock_timestamp() + %s * interval '1 second'
WHERE host = %s AND lease_until > clock_timestamp()
RETURNING (SELECT array_agg(h.host ORDER BY h.host) FROM hosts AS h
    WHERE h.lease_until > clock_timestamp()),
  (SELECT extract(epoch FROM min(h.lease_until) - clock_timestamp())::float
    FROM hosts AS h
    WHERE h.lease_until > clock_timestamp() AND h.host <> hosts.host)"""

# Parameters: host, seconds.
_BEGIN = """\
INSERT INTO hosts (host, lease_until)
VALUES (%s, clock_timestamp() + %s * interval '1 second')
ON CONFLICT (host) DO UPDATE SET lease_until = excluded.lease_until"""

# Parameter: host.
_OWNED = "SELECT run_id FROM runs WHERE owner = %s AND state = 'running'"

# Parameter: host. Locks its row; returns no row if the host is alive. A missing row is
# inserted, to have one to lock.
_MARK = """\
INSERT INTO hosts (host, lease_until) VALUES (%s, '-infinity')
ON CONFLICT (host) DO UPDATE SET lease_until = '-infinity'
WHERE hosts.lease_until <= clock_timestamp() RETURNING host"""

_SWEEP = """\
DELETE FROM hosts WHERE lease_until <= clock_timestamp() AND NOT EXISTS (
  SELECT FROM runs WHERE owner = hosts.host AND state = 'running')"""

_END = "DELETE FROM hosts WHERE host = %s"

_LIVING = sa.text(
    "SELECT host FROM hosts "
    "WHERE host = ANY(:hosts) AND lease_until > clock_timestamp()"
)

_HOSTS = sa.text("SELECT host FROM hosts WHERE lease_until > clock_timestamp()")

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

logger = logging.getLogger("caxton_host")


def elapsed() -> float:
    """Return seconds from an arbitrary start, including time asleep."""
    return time.clock_gettime(_CLOCK)


class PostgresLeases:
    """
    See `HostLeases`. Renewed by its own task, over its own connection.

    Args:
        engine: To the database.

        bell: Rung by what that connection hears between two renewals.

        lines: The streams that this host writes, by name.

        lease: Seconds after which a host without a renewal counts as dead.

    Attributes:
        left: See `HostLeases`.
    """

    def __init__(
        self,
        engine: sa.Engine,
        bell: Bell,
        lines: MutableMapping[str, Line],
        lease: float,
    ) -> None:
        self._engine = engine
        self._own = Listener(engine, "lease", bell)
        self._lines = lines
        self._lease = lease
        self.left: Callable[[], None] = lambda: None
        self._until = float("-inf")
        self._host = ""
        self._living: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    def holds(self) -> bool:
        """Return whether the lease lasts a while yet, as far as this host knows."""
        return elapsed() < self._until

    async def join(self, host: str) -> None:
        """Take the lease of *host*, and renew it until the store is closed."""
        sent = elapsed()
        try:
            await self._own.do(lambda driver: self._begin(driver, host))
            self._host = self._own.host = host
            self._extend(sent)
            pause = await self._renew()
        except (psycopg.Error, SQLAlchemyError) as exc:
            text, fix = explain(exc, None, "see `caxton db status`")
            raise StoreError(
                f"the host cannot take its lease: {text}", fix=fix
            ) from None
        self._task = asyncio.create_task(self._beat(pause))

    async def _beat(self, pause: float) -> None:
        while True:
            await asyncio.sleep(pause)
            pause = self._lease / _BEATS
            try:
                pause = await self._renew()
            except (psycopg.Error, SQLAlchemyError, StoreError) as exc:
                logger.warning("the host's lease cannot be renewed: %s", said(exc))

    async def _renew(self) -> float:
        """
        Renew the lease, and return after how many seconds to do so again.

        That is when the first other lease lapses, if its host has died before.
        """
        # Streams without a stored event belong to no other host.
        known = [line for line in self._lines.values() if line.head[0]]
        sent = elapsed()
        owned, living, lapses = await self._own.do(self._renew_there)
        # Without a lease, this host has dropped runs too.
        if self._living - living or not self.holds():
            self.left()
        self._living = living
        if owned is not None:
            for line in known:
                if run_of(line.stream) not in {"", *owned}:
                    line.error = LeaseLost(CONFLICT, fix=CONFLICT_FIX)
        self._extend(sent)
        return min(lapses + _LATE * self._lease, self._lease / _BEATS)

    def _extend(self, sent: float) -> None:
        self._until = sent + self._lease * (1 - _MARGIN)

    def _begin(self, driver: psycopg.Connection, host: str) -> None:
        driver.execute(_SWEEP)
        driver.execute(_BEGIN, [host, self._lease])

    def _renew_there(
        self, driver: psycopg.Connection
    ) -> tuple[set[str] | None, set[str], float]:
        """
        Renew the lease; return which hosts are alive, and when the first one lapses.

        If it had lapsed, return before that the runs that are still ours.
        """
        renewed = driver.execute(_RENEW, [self._lease, self._host]).fetchone()
        if renewed:
            living, lapses = renewed
            return None, {*living}, self._lease if lapses is None else lapses
        with driver.transaction():
            # First the row: a host that takes over a run holds its lock, or waits for
            # it now.
            driver.execute(_BEGIN, [self._host, self._lease])
            owned = {row[0] for row in driver.execute(_OWNED, [self._host])}
            return owned, set(), self._lease

    def is_dead(self, driver: Driver, host: str) -> bool:
        """Lock the row of *host*, and return whether its lease has lapsed."""
        return driver.execute(_MARK, [host]).fetchone() is not None

    def living(self, hosts: Collection[str]) -> set[str]:
        """Return those of *hosts* whose leases have not lapsed."""
        return self._found(_LIVING, {"hosts": [*hosts]})

    def hosts(self) -> set[str]:
        """Return all hosts whose leases have not lapsed."""
        return self._found(_HOSTS, {})

    def _found(self, query: sa.TextClause, given: Mapping[str, object]) -> set[str]:
        try:
            with self._engine.connect() as connection:
                return {row.host for row in connection.execute(query, given)}
        except SQLAlchemyError as exc:
            raise unreadable(exc) from None

    async def aclose(self) -> None:
        """Give the lease back."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self._until = float("-inf")
        host, self._host = self._host, ""
        if host:
            with contextlib.suppress(psycopg.Error, SQLAlchemyError, StoreError):
                await self._own.do(lambda driver: driver.execute(_END, [host]))
        await self._own.aclose()
