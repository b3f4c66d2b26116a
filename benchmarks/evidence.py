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
import os
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

from caxton_host.core.log.events import LogWritten
from caxton_host.lib.machine import SystemClock
from caxton_host.lib.signing import Keyring
from caxton_host.store.sql import SqlStore
from caxton_host.store.sqlite import SqliteTree
from caxton_host.store.verify import verify

from .appends import Ours
from .page import Figure, Section

RUNS = (1, 64)
_STREAMS = 100
_EACH = 20
_LINE = LogWritten(n=1, level="info", text="x" * 200)


class _Bare(SqliteTree):
    def grow(self, driver: sqlite3.Cursor, first: int, hashes: Sequence[bytes]) -> None:
        """Do nothing."""


def section(folder: Path, options: argparse.Namespace) -> Section:
    """Measure the cost of evidence."""
    checked = asyncio.run(_verified(folder, options.rounds, options.events))
    return Section(
        "evidence",
        "Cost of evidence",
        "Durable appends per second with the Merkle tree and one checkpoint per "
        "second, as a percentage of the rate without them (in parentheses); then "
        "events per second of `caxton audit verify` over "
        f"{options.events:,} events, with the signature of every checkpoint.",
        [
            *_appended(folder, options.rounds, options.seconds),
            Figure("verified, SQLite", checked, "events/s", (300_000.0, True)),
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


async def _verified(folder: Path, rounds: int, events: int) -> list[float]:
    url = f"sqlite:///{folder}/verified.db"
    keys = Keyring(folder / "state")
    clock = SystemClock()
    async with SqlStore.open(
        url, clock=clock, entropy=os.urandom, signer=keys
    ) as store:
        logs = [store.create(f"run/{number}") for number in range(_STREAMS)]
        for _ in range(events // _STREAMS // _EACH):
            for log in logs:
                log.queue(*[_LINE] * _EACH)
            await asyncio.gather(*(log.append() for log in logs))
            await store.seal()
    found: list[float] = []
    async with SqlStore.open(
        url, clock=clock, entropy=os.urandom, write=False
    ) as store:
        for _ in range(rounds):
            begun = time.perf_counter()
            verdict = await verify(store.reader, trusted=keys.known())
            found.append(verdict.events / (time.perf_counter() - begun))
            assert verdict.verdict == "intact", verdict  # noqa: S101 -- or no figure
    return found
