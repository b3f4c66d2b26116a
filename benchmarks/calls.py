"""
One call: governed and durable, against the bare client of the SDK.

The same server program (`caxton_host.demo_server`; over HTTP the same process), the
same tool (``echo``), the same 100-byte argument. A round is some warm-up calls and
then those that count, one after the other; rounds of the two sides alternate, so that
a slow minute of the machine is slow for both. Reported are the medians of the rounds'
medians, their spread, and the ratio.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from mcp import Client

from caxton_host.app.bootstrap import Running
from caxton_host.core.log.events import ToolCompleted, ToolInvoked
from caxton_host.runs.run_request import RunRequest
from caxton_host.store.engine import open_engine

from .contestants import TEXT, contestants
from .page import Figure, Section

_SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")
_MOST = {"stdio": 1.6, "http": 1.4}


@dataclass(frozen=True, slots=True)
class Measured:
    """
    Medians, one a round, in microseconds.

    Attributes:
        commits: Transactions of the governed side for each of its calls.

        synchronous: What SQLite said to ``PRAGMA synchronous``.
    """

    bare: list[float]
    governed: list[float]
    commits: float
    synchronous: int


def section(folder: Path, options: argparse.Namespace, transport: str) -> Section:
    """Measure, and return the ratio and what it is of."""
    found = asyncio.run(
        measure(
            folder,
            transport=transport,
            rounds=options.rounds,
            calls=options.calls,
            warm_up=options.warm_up,
        )
    )
    ratios = [b / a for a, b in zip(found.bare, found.governed, strict=True)]
    return Section(
        "calls" if transport == "stdio" else f"calls_{transport}",
        f"One call over {transport}, governed and durable",
        f"The tool `echo` of `caxton_host.demo_server` over {transport}, 100 bytes, "
        "called one after the other: by the SDK's client alone, and by an agent.",
        [
            Figure("bare SDK call", found.bare, "us"),
            Figure("governed, durable call", found.governed, "us"),
            Figure("ratio", ratios, "", (_MOST[transport], False)),
        ],
        [
            f"{found.commits:.3f} commits a call; PRAGMA synchronous: "
            + _SYNCHRONOUS[found.synchronous]
        ],
    )


async def measure(
    folder: Path, *, transport: str, rounds: int, calls: int, warm_up: int
) -> Measured:
    """Run both sides in turns and return what each round took."""
    bare: list[float] = []
    governed: list[float] = []
    commits = 0
    async with contestants(folder, transport) as (up, client, agent):
        request = agent(calls + warm_up)
        for _ in range(rounds):
            bare.append(await _bare_round(client, calls, warm_up))
            before = up.store.commits
            governed.append(await _governed_round(up, request, warm_up))
            commits += up.store.commits - before
    made = rounds * (calls + warm_up)
    return Measured(bare, governed, commits / made, _synchronous(folder / "bench.db"))


async def _bare_round(client: Client, calls: int, warm_up: int) -> float:
    took: list[float] = []
    for _ in range(calls + warm_up):
        started = time.perf_counter()
        await client.call_tool("echo", {"text": TEXT})
        took.append(time.perf_counter() - started)
    return statistics.median(took[warm_up:]) * 1e6


async def _governed_round(up: Running, request: RunRequest, warm_up: int) -> float:
    """Return the median time from one call's intent to the next one's."""
    run_id = await up.host.start(request)
    history = await up.store.reader.read(f"run/{run_id}")
    answered = sum(isinstance(e.event, ToolCompleted) for e in history)
    starts = [e.recorded_at for e in history if isinstance(e.event, ToolInvoked)]
    if answered != len(starts):
        sys.exit("Error: a governed call did not complete")
    gaps = [
        b - a for a, b in zip(starts[warm_up:], starts[warm_up + 1 :], strict=False)
    ]
    return statistics.median(gaps)


def _synchronous(path: Path) -> int:
    """Return what the store's own connections are set to."""
    engine = open_engine(f"sqlite:///{path}", write=True)
    with engine.connect() as connection:
        return int(connection.exec_driver_sql("PRAGMA synchronous").scalar_one())
