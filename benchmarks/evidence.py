"""
Measure evidence: appends with and without the Merkle tree, and verification.

Both sides append as `appends` does, alternately. The side without evidence grows no
tree and signs nothing; on SQLite its tree is a stub. Verification checks every
payload, chain, root and signature of a log in SQLite with a checkpoint every 2,000
events.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from unittest import mock

from caxton_host.core.log.chain import envelope
from caxton_host.core.log.events import LogWritten
from caxton_host.core.names import uuid7
from caxton_host.lib.machine import SystemClock
from caxton_host.lib.signing import Keyring
from caxton_host.store.sql import SqlStore
from caxton_host.store.sqlite import SqliteTree
from caxton_host.store.verify import Place, verify_since

from .appends import Ours
from .page import Figure, Section

RUNS = (1, 64)
_STREAMS = 100
_EACH = 20
_NEW = 2_000
_LINE = LogWritten(n=1, level="info", text="x" * 200)


class _Bare(SqliteTree):
    def grow(self, driver: sqlite3.Cursor, first: int, hashes: Sequence[bytes]) -> None:
        """Do nothing."""


def section(folder: Path, options: argparse.Namespace) -> Section:
    """Measure the cost of evidence."""
    checked = asyncio.run(_verified(folder, options.rounds, options.events))
    rates, bare, again = zip(*checked, strict=True)
    return Section(
        "evidence",
        "Cost of evidence",
        "Durable appends per second with the Merkle tree and one checkpoint per "
        "second, as a percentage of the rate without them (in parentheses); then "
        "events per second of `caxton audit verify` over "
        f"{options.events:,} events, with the signature of every checkpoint; its time "
        "as a multiple of one SHA-256 over the bytes that it hashes, in memory; and "
        f"as a multiple of the time of one that goes on with {_NEW:,} new events.",
        [
            *_appended(folder, options.rounds, options.seconds),
            Figure("verified, SQLite", [*rates], "events/s", (300_000.0, True)),
            Figure("verified, of bare SHA-256", [*bare], "x"),
            Figure("verified in full, of going on", [*again], "x"),
        ],
    )


def _appended(folder: Path, rounds: int, seconds: float) -> Iterator[Figure]:
    from tests.postgres import running  # noqa: PLC0415 -- starts a server

    with ExitStack() as stack:
        server = stack.enter_context(running(folder))
        places: list[tuple[str, Callable[[str], str]]] = [
            ("SQLite", lambda name: f"sqlite:///{folder}/{name}.db"),
            ("PostgreSQL", lambda _: server.make()),
        ]
        for database, make in places:
            keys = Keyring(folder / "state")
            with_ = Ours(make("with"), stack, keys)
            without = _without(make, stack)
            for runs in RUNS:
                yield _part(database, runs, with_, without, rounds, seconds)


def _without(make: Callable[[str], str], stack: ExitStack) -> Ours:
    with mock.patch("caxton_host.store.sql.SqliteTree", _Bare):
        return Ours(make("without"), stack)


def _part(  # noqa: PLR0913, PLR0917 -- two sides and how they are measured
    database: str,
    runs: int,
    with_: Ours,
    without: Ours,
    rounds: int,
    seconds: float,
) -> Figure:
    rates: list[tuple[float, float]] = []
    for number in range(rounds):
        pair = (with_, without) if number % 2 else (without, with_)
        found = {side: side(runs, seconds) for side in pair}
        rates.append((found[with_], found[without]))
    shown = statistics.median(rate for rate, _ in rates)
    return Figure(
        f"{database}, {runs} runs: appends, of the rate without ({shown:,.0f} /s)",
        [100 * have / had for have, had in rates],
        "%",
        (85.0, True) if runs > 1 else None,
    )


async def _verified(
    folder: Path, rounds: int, events: int
) -> list[tuple[float, float, float]]:
    """Return events per second, of bare SHA-256, and of going on, of each round."""
    url = f"sqlite:///{folder}/verified.db"
    keys = Keyring(folder / "state")
    await _written(url, keys, events)
    _, place = await _timed(url, keys, None)
    await _written(url, keys, _NEW)
    bare = _bare(folder / "verified.db")
    found: list[tuple[float, float, float]] = []
    for _ in range(rounds):
        full, end = await _timed(url, keys, None)
        again, same = await _timed(url, keys, place)
        assert end is not None  # noqa: S101 -- or no figure
        assert same is not None  # noqa: S101 -- the same
        assert end.tree.peaks == same.tree.peaks  # noqa: S101 -- the same
        found.append((end.tree.size / full, full / bare, full / again))
    return found


async def _written(url: str, keys: Keyring, events: int) -> None:
    clock = SystemClock()
    async with SqlStore.open(
        url, clock=clock, entropy=os.urandom, signer=keys
    ) as store:
        logs = [
            store.create(f"run/{uuid7(clock.now(), os.urandom(10))}")
            for _ in range(_STREAMS)
        ]
        for _ in range(events // _STREAMS // _EACH):
            for log in logs:
                log.queue(*[_LINE] * _EACH)
            await asyncio.gather(*(log.append() for log in logs))
            await store.seal()


async def _timed(
    url: str, keys: Keyring, since: Place | None
) -> tuple[float, Place | None]:
    async with SqlStore.open(
        url, clock=SystemClock(), entropy=os.urandom, write=False
    ) as store:
        begun = time.perf_counter()
        verdict, place = await verify_since(store.reader, since, trusted=keys.known())
        took = time.perf_counter() - begun
        assert verdict.verdict == "intact", verdict  # noqa: S101 -- or no figure
        return took, place


def _bare(file: Path) -> float:
    """Return how long one SHA-256 over what a verification hashes takes."""
    with closing(sqlite3.connect(file)) as connection:
        rows = connection.execute(
            "SELECT stream, seq, type, schema_version, recorded_at, trace_id, span_id,"
            " salt, payload, digest FROM events JOIN payloads USING (position)"
        )
        # Of each event a payload, a link of the chain, a leaf and a node of the tree.
        data = b"".join(
            b"".join((salt, payload, bytes(32), envelope(*head), digest, bytes(98)))
            for *head, salt, payload, digest in rows
        )
    begun = time.perf_counter()
    hashlib.sha256(data).digest()
    return time.perf_counter() - begun
