"""
Many agents at once: calls a second, against the bare client with as many tasks.

Each side makes the same number of calls to ``echo`` (see `contestants`), divided
among 64 agents or tasks that start together. The time of the governed side holds
the start and the end of its runs, every event of which is durable. The rounds of the
two sides alternate.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from mcp import Client

from caxton_host.bootstrap import Running
from caxton_host.core.events import ToolCompleted
from caxton_host.host import RunRequest

from .contestants import AT_ONCE, TEXT, contestants
from .page import Figure, Section

__all__ = ["Rates", "measure", "section"]


@dataclass(frozen=True, slots=True)
class Rates:
    """
    Calls a second, one a round.

    Attributes:
        commits: Transactions of the governed side for each of its calls.
    """

    bare: list[float]
    governed: list[float]
    commits: float


def section(folder: Path, options: argparse.Namespace, transport: str) -> Section:
    """Measure, and return both rates and their ratio."""
    found = asyncio.run(
        measure(folder, transport=transport, rounds=options.rounds, calls=options.each)
    )
    ratios = [b / a for a, b in zip(found.bare, found.governed, strict=True)]
    return Section(
        "many" if transport == "stdio" else f"many_{transport}",
        f"{AT_ONCE} agents at once over {transport}",
        f"{AT_ONCE} agents, {options.each} calls of `echo` each, against as many "
        "tasks of one bare client of the SDK.",
        [
            Figure("bare SDK client", found.bare, "calls/s"),
            Figure("governed, durable", found.governed, "calls/s"),
            Figure("ratio", ratios, "", (0.8, True)),
        ],
        [f"{found.commits:.3f} commits a call"],
    )


async def measure(folder: Path, *, transport: str, rounds: int, calls: int) -> Rates:
    """Run both sides in turns, *calls* an agent, and return what each reached."""
    bare: list[float] = []
    governed: list[float] = []
    async with contestants(folder, transport) as (up, client, agent):
        await _bare(client, 10)
        await _governed(up, agent(10))
        before = up.store.commits
        for _ in range(rounds):
            bare.append(await _bare(client, calls))
            governed.append(await _governed(up, agent(calls)))
        commits = up.store.commits - before
    return Rates(bare, governed, commits / (rounds * calls * AT_ONCE))


async def _bare(client: Client, calls: int) -> float:
    async def task() -> None:
        for _ in range(calls):
            await client.call_tool("echo", {"text": TEXT})

    started = time.perf_counter()
    await asyncio.gather(*(task() for _ in range(AT_ONCE)))
    return calls * AT_ONCE / (time.perf_counter() - started)


async def _governed(up: Running, request: RunRequest) -> float:
    started = time.perf_counter()
    runs = await asyncio.gather(*(up.host.start(request) for _ in range(AT_ONCE)))
    took = time.perf_counter() - started
    made = 0
    for run_id in runs:
        history = await up.store.read(f"run/{run_id}")
        made += sum(isinstance(e.event, ToolCompleted) for e in history)
    calls = int(str(request.input["n"])) if isinstance(request.input, dict) else 0
    if made != calls * AT_ONCE:
        sys.exit("Error: a governed call did not complete")
    return made / took
