"""
Latency of one governed, durable call, compared with the bare SDK client.

Both sides use the same server program (`caxton_host.demo_server`; over HTTP the same
process), the same tool (``echo``) and the same 100-byte argument. A round is warm-up
calls and then measured calls, in sequence. The rounds of the two sides alternate, so
that a slow minute of the machine affects both. Reported are the median of the rounds'
medians, the spread, and the ratio.
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
    Medians in microseconds, one per round.

    Attributes:
        commits: Transactions per call of the governed side.

        synchronous: The value of SQLite's ``PRAGMA synchronous``.
    """

    bare: list[float]
    governed: list[float]
    commits: float
    synchronous: int


def section(folder: Path, options: argparse.Namespace, transport: str) -> Section:
    """Measure both sides and their ratio."""
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
        f"Sequential calls of the tool `echo` of `caxton_host.demo_server` over "
        f"{transport}, with 100 bytes: by the bare SDK client, and by an agent.",
        [
            Figure("bare SDK call", found.bare, "us"),
            Figure("governed, durable call", found.governed, "us"),
            Figure("ratio", ratios, "", (_MOST[transport], False)),
        ],
        [
            f"{found.commits:.3f} commits per call; PRAGMA synchronous: "
            + _SYNCHRONOUS[found.synchronous]
        ],
    )


async def measure(
    folder: Path, *, transport: str, rounds: int, calls: int, warm_up: int
) -> Measured:
    """Run both sides alternately and return the median of each round."""
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
    """Return the median time between the intents of consecutive calls."""
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
    """Return ``PRAGMA synchronous`` of a connection opened as the store's are."""
    engine = open_engine(f"sqlite:///{path}", write=True)
    with engine.connect() as connection:
        return int(connection.exec_driver_sql("PRAGMA synchronous").scalar_one())
