"""
Durable appends per second: each append is one event, awaited until it is on disk.

The peers of the host's store are the bare driver with the same tables, with one event
per commit and, as the upper bound of batching, one event per run in each commit; and
the recorder of the `eventsourcing` library with one thread per run, because it is
blocking. SQLite commits with ``synchronous=FULL``, PostgreSQL with
``synchronous_commit=on``. The sides alternate. A figure is the median of the rounds,
with the spread.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg

from caxton_host.core.log.events import ToolInvoked
from caxton_host.lib.machine import SystemClock
from caxton_host.lib.signing import Keyring
from caxton_host.store import migrate
from caxton_host.store.commit import Batch, Group, Line
from caxton_host.store.drafts import Drafter, salts
from caxton_host.store.engine import open_engine
from caxton_host.store.postgres import statement
from caxton_host.store.sql import SqlStore
from caxton_host.store.sqlite import EVENT, PAYLOAD

from .page import Figure, Section

if TYPE_CHECKING:
    from eventsourcing.persistence import ApplicationRecorder

RUNS = (1, 16, 64, 256)
_TARGETS = {("SQLite", 64, "caxton"): 40_000.0}
_ONE_RUN = (
    "With a single run, the pages written per commit determine the rate. "
    "`eventsourcing` writes 2.4 pages per commit: a table and its index. This log "
    "writes 4.5: one more for salts and payloads, which have a separate table so that "
    "they can be erased without breaking the chain, and one for the frontier of the "
    "Merkle tree, which reveals a removed run. The hash and the salt take 3 to 4 "
    "microseconds of processor time. Decisions 0008 and 0014 account for each page "
    "and microsecond."
)

#: Appends for a number of runs and of seconds, and returns the rate per second.
Side = Callable[[int, float], float]

_EVENT = ToolInvoked(
    call=1,
    name="mcp__demo__echo",
    server="demo",
    tool="echo",
    params={"text": "x" * 100},
    params_sha256="ab" * 32,
    effect="unsafe",
    rule="allow[0]",
    idempotency_key="cd" * 32,
    fuel=1_000_000,
)
_numbers = count(1)


def section(folder: Path, options: argparse.Namespace) -> Section:
    """Measure the rate of each side for each number of runs."""
    return Section(
        "appends",
        "Durable appends per second",
        "Each append is one event, awaited until it is on disk. SQLite with "
        "`synchronous=FULL`; PostgreSQL with `synchronous_commit=on`, on this machine.",
        list(measure(folder, options.rounds, options.seconds)),
        [_ONE_RUN],
    )


def measure(folder: Path, rounds: int, seconds: float) -> Iterator[Figure]:
    """Yield a figure for each side and number of runs."""
    from tests.postgres import running  # noqa: PLC0415 -- starts a server

    with ExitStack() as stack:
        server = stack.enter_context(running(folder))
        for database, sides in (
            ("SQLite", _sqlite(folder, stack)),
            ("PostgreSQL", _postgres(server.make, stack)),
        ):
            for runs in RUNS:
                found: dict[str, list[float]] = {name: [] for name in sides}
                for _ in range(rounds):
                    for name, side in sides.items():
                        found[name].append(side(runs, seconds))
                if (database, runs) == ("SQLite", 1):
                    pairs = zip(found["caxton"], found["eventsourcing"], strict=True)
                    ratios = [ours / theirs for ours, theirs in pairs]
                    what = "SQLite, 1 run, caxton to eventsourcing"
                    yield Figure(what, ratios, "", (1.0, True))
                for name, rates in found.items():
                    wanted = _TARGETS.get((database, runs, name))
                    what = f"{database}, {runs} runs, {name}"
                    target = None if wanted is None else (wanted, True)
                    yield Figure(what, rates, "/s", target)


def _sqlite(folder: Path, stack: ExitStack) -> dict[str, Side]:
    ours = f"sqlite:///{folder}/ours.db"
    migrate.upgrade(f"sqlite:///{folder}/raw.db")
    engine = open_engine(f"sqlite:///{folder}/raw.db", write=True)
    stack.callback(engine.dispose)
    connection = stack.enter_context(engine.connect())
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)  # noqa: S101 -- by its url
    positions = count(1)

    def commit(batch: Batch) -> None:
        driver.execute("BEGIN IMMEDIATE")
        payloads = [(next(positions), *payload) for payload in batch.payloads]
        driver.executemany(EVENT, batch.events)
        driver.executemany(PAYLOAD, payloads)
        driver.execute("COMMIT")

    return {
        "caxton": Ours(ours, stack),
        "driver, 1 event a commit": lambda _, s: _raw(commit, 1, s),
        "driver, batches": lambda runs, s: _raw(commit, runs, s),
        "eventsourcing": _Peer(_sqlite_recorder(folder / "peer.db")),
    }


def _postgres(make: Callable[[], str], stack: ExitStack) -> dict[str, Side]:
    ours, url = make(), make()
    driver = stack.enter_context(psycopg.connect(url, autocommit=True))
    peer = make()

    def commit(batch: Batch) -> None:
        driver.execute(*statement(batch))

    return {
        "caxton": Ours(ours, stack),
        "driver, 1 event a commit": lambda _, s: _raw(commit, 1, s),
        "driver, batches": lambda runs, s: _raw(commit, runs, s),
        "eventsourcing": _Peer(_postgres_recorder(peer)),
    }


class Ours:
    """Appends through the store, which stays open across rounds, as all sides do."""

    def __init__(self, url: str, stack: ExitStack, keys: Keyring | None = None) -> None:
        self._loop = stack.enter_context(asyncio.Runner())
        self._store = SqlStore.open(
            url, clock=SystemClock(), entropy=os.urandom, signer=keys
        )
        self._loop.run(self._store.__aenter__())
        stack.callback(lambda: self._loop.run(self._store.aclose()))

    def __call__(self, runs: int, seconds: float) -> float:
        """Append for *runs* runs during *seconds*, and return the rate per second."""
        return self._loop.run(self._round(runs, seconds))

    async def _round(self, runs: int, seconds: float) -> float:
        done = 0

        async def run() -> None:
            nonlocal done
            log = self._store.create(f"run/{next(_numbers)}")
            while time.perf_counter() < until:
                await log.append(_EVENT)
                done += 1

        started = time.perf_counter()
        until = started + seconds
        await asyncio.gather(*(run() for _ in range(runs)))
        return done / (time.perf_counter() - started)


def _raw(commit: Callable[[Batch], None], size: int, seconds: float) -> float:
    """Send prepared rows, so that only the database is measured."""
    first = next(_numbers)
    drafter = Drafter(f"run/{first}", SystemClock(), salts(os.urandom), None)
    draft = drafter.draft([_EVENT])
    streams = [Line(f"run/{first}/{i}") for i in range(size)]
    done, started = 0, time.perf_counter()
    while time.perf_counter() < started + seconds:
        batch = Batch()
        for line in streams:
            batch.admit(Group(line=line, drafts=draft, blobs={}))
        commit(batch)
        batch.done()
        done += size
    return done / (time.perf_counter() - started)


class _Peer:
    """Appends through the library's recorder, with one thread per run."""

    def __init__(self, recorder: ApplicationRecorder) -> None:
        self._recorder = recorder

    def __call__(self, runs: int, seconds: float) -> float:
        until = time.perf_counter() + seconds
        with ThreadPoolExecutor(runs) as threads:
            started = time.perf_counter()
            done = [threads.submit(self._run, until) for _ in range(runs)]
            total = sum(each.result() for each in done)
            return total / (time.perf_counter() - started)

    def _run(self, until: float) -> int:
        from eventsourcing.persistence import StoredEvent  # noqa: PLC0415 -- an extra

        stream, version, state = UUID(bytes=os.urandom(16)), 0, os.urandom(300)
        while time.perf_counter() < until:
            event = StoredEvent(stream, version, "ToolInvoked", state)
            self._recorder.insert_events([event])
            version += 1
        return version


def _sqlite_recorder(path: Path) -> ApplicationRecorder:
    from eventsourcing.sqlite import (  # noqa: PLC0415 -- in an extra
        SQLiteApplicationRecorder,
        SQLiteDatastore,
    )

    recorder = SQLiteApplicationRecorder(SQLiteDatastore(str(path)))
    recorder.create_table()
    return recorder


def _postgres_recorder(url: str) -> ApplicationRecorder:
    from eventsourcing.postgres import (  # noqa: PLC0415 -- in an extra
        PostgresApplicationRecorder,
        PostgresDatastore,
    )

    parts: dict[str, Any] = psycopg.conninfo.conninfo_to_dict(url)
    store = PostgresDatastore(
        dbname=parts["dbname"],
        host=parts["host"],
        port=parts.get("port", "5432"),
        user=parts["user"],
        password="",
        pool_size=16,
        max_overflow=32,
        connect_timeout=60,
    )
    recorder = PostgresApplicationRecorder(store)
    recorder.create_table()
    return recorder
