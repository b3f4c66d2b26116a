"""What is done to a fleet: its hosts, their network, the queue, the database."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass, field

from .database import Cluster
from .fleet import Fleet, Host

#: How often each is drawn. The last ones need a server of our own.
TO_HOSTS = {"kill": 5, "stop": 3, "hand-over": 3, "cut": 3, "black-hole": 3, "delay": 2}
TO_QUEUE = {"backends": 3, "deleted": 2, "doubled": 2}
TO_SERVER = {"restart": 2, "read-only": 2, "promote": 1}
TO_DISK = {"disk-full": 1}
_END_BACKENDS = """\
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
  AND backend_type = 'client backend' AND random() < 0.5"""
_DELETE = "DELETE FROM procrastinate_jobs WHERE random() < 0.5"
#: Jobs of runs that have begun, or have ended, or are claimed at this moment.
_DOUBLE = """\
INSERT INTO procrastinate_jobs (queue_name, task_name, queueing_lock, args)
SELECT 'twice', 'caxton.start', run_id, '{"who": "chaos", "priority": 0}'
FROM (SELECT run_id FROM runs ORDER BY started_at DESC LIMIT 60) AS newest
WHERE random() < 0.3 ON CONFLICT DO NOTHING"""


@dataclass
class Faults:
    """
    Does one thing after the other to a fleet, drawn from its seed.

    Attributes:
        weights: How often each kind is drawn.

        pace: Mean seconds between two.

        most: How many there are at most.
    """

    fleet: Fleet
    weights: dict[str, int]
    pace: float
    most: int
    _under_way: set[asyncio.Task[None]] = field(
        default_factory=set[asyncio.Task[None]], init=False
    )
    _server: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def go_on(self) -> None:
        """Do it until cancelled."""
        chance = self.fleet.chance
        # Each kind once, before they are drawn.
        first = [*self.weights]
        chance.shuffle(first)
        for _ in range(self.most):
            await asyncio.sleep(min(chance.expovariate(1 / self.pace), 4 * self.pace))
            kinds, weights = [*self.weights], [*self.weights.values()]
            kind = first.pop() if first else chance.choices(kinds, weights)[0]
            self._under_way.add(asyncio.create_task(self._do(kind)))

    async def over(self) -> None:
        """Wait until everything is healed."""
        await asyncio.gather(*self._under_way)
        for host in self.fleet.hosts:
            await self.fleet.ready(host)

    async def _do(self, kind: str) -> None:
        try:
            await self._done(kind)
        except Exception as exc:
            self.fleet.wrong.append(f"the fault {kind} failed: {exc!r}")
            raise

    async def _done(self, kind: str) -> None:
        if kind in TO_HOSTS:
            # Two hosts stay as they are, so that the work goes on.
            while len(free := self._free()) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
            host = self.fleet.chance.choice(free)
            host.busy = True
            try:
                self.fleet.note(kind, host.stream)
                await self._to_host(kind, host)
            finally:
                host.busy = False
        else:
            async with self._server:
                self.fleet.note(kind)
                await self._to_server(kind)

    def _free(self) -> list[Host]:
        return [one for one in self.fleet.hosts if one.stream and not one.busy]

    async def _to_host(self, kind: str, host: Host) -> None:
        chance, lease = self.fleet.chance, self.fleet.lease
        if kind in {"kill", "hand-over"}:
            host.ends = True
            host.signal(signal.SIGKILL if kind == "kill" else signal.SIGTERM)
            while host.stream:  # noqa: ASYNC110 -- of another task
                await asyncio.sleep(0.05)
            await self.fleet.ready(host)
        elif kind == "stop":
            host.signal(signal.SIGSTOP)
            await asyncio.sleep(lease * chance.uniform(1.1, 1.7))
            host.signal(signal.SIGCONT)
        else:
            if kind == "cut":
                host.proxy.cut()
            elif kind == "black-hole":
                host.proxy.black_hole()
            else:
                host.proxy.delay = chance.uniform(0.01, 0.2)
            await asyncio.sleep(lease * chance.choice((0.1, 0.5, 1.5)))
            if chance.random() < 0.5:
                host.proxy.drop()
            host.proxy.heal()

    async def _to_server(self, kind: str) -> None:
        sql = {"backends": _END_BACKENDS, "deleted": _DELETE, "doubled": _DOUBLE}
        if kind in sql:
            await self.fleet.sql(sql[kind])
            return
        cluster = self.fleet.database
        assert isinstance(cluster, Cluster)
        if kind == "restart":
            await asyncio.to_thread(cluster.restart)
        elif kind == "read-only":
            await asyncio.to_thread(cluster.be_read_only, on=True)
            await asyncio.sleep(self.fleet.chance.uniform(1, 15))
            await asyncio.to_thread(cluster.be_read_only, on=False)
        elif kind == "promote":
            await asyncio.to_thread(cluster.follow)
            while not await asyncio.to_thread(cluster.is_followed):  # noqa: ASYNC110
                await asyncio.sleep(0.2)
            await asyncio.sleep(self.fleet.chance.uniform(0, 5))
            await asyncio.to_thread(cluster.promote)
            for host in self.fleet.hosts:
                host.proxy.drop()
        else:
            ballast = await asyncio.to_thread(cluster.fill)
            await asyncio.sleep(self.fleet.chance.uniform(1, 15))
            ballast.unlink()
            await asyncio.to_thread(cluster.start)
