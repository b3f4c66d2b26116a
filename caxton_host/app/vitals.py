"""What is measured of a host that serves, beside its runs and calls."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from .. import __version__
from ..config import Config
from ..core.analysis.rule_uses import budget_documents
from ..core.log.projection import Kind
from ..core.log.runs import SUSPENSIONS
from ..errors import StoreError
from ..ports.watch import Clock
from ..service.run_service import Service
from ..service.verifying import Verifying
from ..telemetry import Point, Sink
from ..telemetry import instruments as i

if TYPE_CHECKING:
    from ..sandbox import WasmSandbox
    from ..store.sql import SqlStore

#: Seconds between two looks at the event loop.
_TICK_S = 0.25
_SECOND = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """
    Reads the values of gauges; each method from any thread.

    Attributes:
        tokens: The folder of the tokens of logins.

        started_at: When the host started, in microseconds since 1970.
    """

    store: SqlStore
    sandbox: WasmSandbox
    service: Service
    verifying: Verifying
    clock: Clock
    tokens: Path
    started_at: int

    @contextlib.asynccontextmanager
    async def watched(self, counts: Sink) -> AsyncGenerator[None]:
        """Have *counts* read them while the block runs."""
        counts.look(
            self.process, *(i.MEMORY, i.STARTED, i.BUILD, i.WORKERS, i.QUEUED, i.INTACT)
        )
        waiting = i.WAITING, i.WAITING_AGE, i.SUSPENDED, i.WAITS, i.WAITS_AGE
        counts.look(self.waiting, *waiting, what="runs")
        counts.look(self.health, i.LOG_UP, what="health")
        counts.look(self.sizes, i.SIZE, i.FREE, what="sizes")
        counts.look(self.checkpoint, i.CHECKPOINT, what="checkpoints")
        counts.look(self.budgets, i.BUDGET, what="budgets")
        counts.look(self.expiries, i.EXPIRY, what="tokens")
        late = asyncio.create_task(_lateness(counts.delayed))
        try:
            yield
        finally:
            late.cancel()
            counts.forget()

    def process(self) -> Iterator[Point]:
        """Yield what is known without a look."""
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
        yield i.MEMORY, pages * os.sysconf("SC_PAGE_SIZE"), ()
        yield i.STARTED, self.started_at / _SECOND, ()
        yield i.BUILD, 1, _build()
        busy, idle = self.sandbox.workers
        yield i.WORKERS, busy, ("busy",)
        yield i.WORKERS, idle, ("idle",)
        yield i.QUEUED, self.store.vitals.queued, ()
        if last := self.verifying.last:
            audit = last["audit"]
            is_intact = isinstance(audit, dict) and audit["verdict"] == "intact"
            yield i.INTACT, is_intact, ()

    def waiting(self) -> Iterator[Point]:
        """Yield what waits for a place, a host or a person."""
        vitals = self.store.vitals
        yield i.WAITING, self.service.waiting, ()
        waited = max(self.service.line.waited_s, vitals.queued_for())
        yield i.WAITING_AGE, waited, ()
        for reason, number in vitals.suspended(SUSPENSIONS).items():
            yield i.SUSPENDED, number, (reason,)
        for kind, (number, age) in vitals.waits(get_args(Kind)).items():
            yield i.WAITS, number, (kind,)
            yield i.WAITS_AGE, age, (kind,)

    def health(self) -> Iterator[Point]:
        """Yield whether the log can be used."""
        try:
            self.store.health.look()
        except StoreError:
            yield i.LOG_UP, 0, ()
        else:
            yield i.LOG_UP, 1, ()

    def sizes(self) -> Iterator[Point]:
        """Yield the sizes of the log."""
        for part, size in self.store.vitals.sizes().items():
            yield (i.FREE, size, ()) if part == "free" else (i.SIZE, size, (part,))

    def checkpoint(self) -> Iterator[Point]:
        """Yield the age of the newest checkpoint."""
        age = self.store.vitals.unsigned_for()
        if age is not None:
            yield i.CHECKPOINT, age, ()

    def budgets(self) -> Iterator[Point]:
        """Yield the share that is used of each budget."""
        for name, agent in self._config.agents.items():
            costs = (cost for rule in agent.grant.allow for cost in rule.costs({}))
            if all(cost.is_of_run for cost in costs):
                continue
            spent = self.store.budgets.look(name)
            for said in budget_documents(name, agent.grant, spent):
                used = float(str(said["spent"])) / (float(str(said["limit"])) or 1)
                yield i.BUDGET, used, (name, str(said["rule"]), str(said["budget"]))

    def expiries(self) -> Iterator[Point]:
        """Yield how long tokens, and logins that are not refreshed, are good."""
        from ..mcp.auth.tokens import TokenFile  # noqa: PLC0415 -- slow

        left = self.store.vitals.expires_in()
        if left is not None:
            yield i.EXPIRY, left, ("served",)
        logins = [
            TokenFile(self.tokens, server).read()
            for server in self._config.servers.values()
            if server.oauth and server.oauth.flow == "code"
        ]
        ends = [
            one.expires_at
            for one in logins
            if one and one.expires_at and not one.refresh_token
        ]
        if ends:
            yield i.EXPIRY, min(ends) - self.clock.now() / _SECOND, ("login",)

    @property
    def _config(self) -> Config:
        return self.service.config()


@cache
def _build() -> tuple[str, str, str]:
    """Return the versions of this host, of Python and of the engine."""
    return __version__, platform.python_version(), f"wasmtime-{version('wasmtime')}"


async def _lateness(tell: Callable[[float], None]) -> None:
    """Report how late the event loop is, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + _TICK_S
        await asyncio.sleep(_TICK_S)
        tell(loop.time() - due)
