"""
Throughput of many concurrent agents, compared with as many tasks of the bare client.

Each side makes the same number of calls to ``echo`` (see `contestants`), divided among
agents or tasks that start together. The time of the governed side includes the start
and the end of its runs; every event of them is durable. The rounds of the two sides
alternate.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mcp import Client

from caxton_host.app.bootstrap import Running
from caxton_host.core.log.events import ToolCompleted
from caxton_host.runs.run_request import RunRequest

from .contestants import AT_ONCE, TEXT, contestants
from .page import Figure, Section

__all__ = ["Rates", "measure", "section", "transports_section"]

#: Concurrent agents, and the factor on the number of calls of each.
_LEVELS = ((1, 16), (16, 2), (AT_ONCE, 1))
_TRANSPORTS = ("stdio", "http", "sse")


@dataclass(frozen=True, slots=True)
class Rates:
    """
    Calls per second, one value per round.

    Attributes:
        commits: Transactions per call of the governed side.
    """

    bare: list[float]
    governed: list[float]
    commits: float

    @property
    def ratios(self) -> list[float]:
        """The governed rate divided by the bare one, per round."""
        return [b / a for a, b in zip(self.bare, self.governed, strict=True)]


def section(folder: Path, options: argparse.Namespace, transport: str) -> Section:
    """Measure both rates and their ratio."""
    found = asyncio.run(
        measure(folder, transport=transport, rounds=options.rounds, calls=options.each)
    )
    return Section(
        "many" if transport == "stdio" else f"many_{transport}",
        f"{AT_ONCE} concurrent agents over {transport}",
        f"{AT_ONCE} agents with {options.each} calls of `echo` each, compared with as "
        "many tasks of one bare SDK client.",
        [
            Figure("bare SDK client", found.bare, "calls/s"),
            Figure("governed, durable", found.governed, "calls/s"),
            Figure("ratio", found.ratios, "", (0.8, True)),
        ],
        [f"{found.commits:.3f} commits per call"],
    )


def transports_section(folder: Path, options: argparse.Namespace) -> Section:
    """Measure each transport at each level of concurrency."""
    figures: list[Figure] = []
    for transport in _TRANSPORTS:
        place = folder / transport
        place.mkdir()
        found = asyncio.run(_each(place, transport, options))
        for (agents, _), rates in zip(_LEVELS, found, strict=True):
            what = f"{transport}, {agents} at once"
            target = (0.9, True) if agents == AT_ONCE else None
            figures += [
                Figure(f"{what}, bare SDK client", rates.bare, "calls/s"),
                Figure(f"{what}, governed, durable", rates.governed, "calls/s"),
                Figure(f"{what}, ratio", rates.ratios, "", target),
            ]
    levels = ", ".join(f"{n} with {options.each * times} calls" for n, times in _LEVELS)
    return Section(
        "transports",
        "Calls per second over each transport",
        f"Concurrent agents that call `echo` ({levels} each), compared with as many "
        "tasks of one bare SDK client. Over streamable HTTP (`http`) and the SSE "
        "transport of 2024 (`sse`) both sides share one server process; over stdio "
        "each has its own, of the same program.",
        figures,
    )


async def measure(folder: Path, *, transport: str, rounds: int, calls: int) -> Rates:
    """Run both sides alternately, *calls* per agent, and return their rates."""
    async with contestants(folder, transport) as sides:
        return await _compare(*sides, agents=AT_ONCE, rounds=rounds, calls=calls)


async def _each(
    folder: Path, transport: str, options: argparse.Namespace
) -> list[Rates]:
    async with contestants(folder, transport) as sides:
        return [
            await _compare(
                *sides,
                agents=agents,
                rounds=options.rounds,
                calls=options.each * times,
            )
            for agents, times in _LEVELS
        ]


async def _compare(  # noqa: PLR0913 -- the two sides and the amount of work
    up: Running,
    client: Client,
    agent: Callable[[int], RunRequest],
    *,
    agents: int,
    rounds: int,
    calls: int,
) -> Rates:
    bare: list[float] = []
    governed: list[float] = []
    warm_up = min(calls, 10)
    await _bare(client, agents, warm_up)
    await _governed(up, agents, agent(warm_up))
    before = up.store.commits
    for _ in range(rounds):
        bare.append(await _bare(client, agents, calls))
        governed.append(await _governed(up, agents, agent(calls)))
    commits = up.store.commits - before
    return Rates(bare, governed, commits / (rounds * calls * agents))


async def _bare(client: Client, agents: int, calls: int) -> float:
    async def task() -> None:
        for _ in range(calls):
            await client.call_tool("echo", {"text": TEXT})

    started = time.perf_counter()
    await asyncio.gather(*(task() for _ in range(agents)))
    return calls * agents / (time.perf_counter() - started)


async def _governed(up: Running, agents: int, request: RunRequest) -> float:
    started = time.perf_counter()
    runs = await asyncio.gather(*(up.host.start(request) for _ in range(agents)))
    took = time.perf_counter() - started
    made = 0
    for run_id in runs:
        history = await up.store.reader.read(f"run/{run_id}")
        made += sum(isinstance(e.event, ToolCompleted) for e in history)
    calls = int(str(request.input["n"])) if isinstance(request.input, dict) else 0
    if made != calls * agents:
        sys.exit("Error: a governed call did not complete")
    return made / took
