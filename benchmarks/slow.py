"""Many servers that are slow to start: how long until all of them can be called."""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import statistics
import sys
import time
from pathlib import Path

from caxton_host.core.text.redact import Redactor
from caxton_host.core.tools.servers import ServerConfig
from caxton_host.mcp import McpTools

from .page import Figure, Section

__all__ = ["measure", "section"]

_SLEEP = 1.0
_SLACK = 3.0
_SERVER = (
    f"import time, runpy; time.sleep({_SLEEP}); "
    "runpy.run_module('caxton_host.demo_server', run_name='__main__')"
)


def section(folder: Path, options: argparse.Namespace) -> Section:
    """Measure, and return the seconds and what they are to be compared with."""
    del folder
    rounds, number = options.rounds, options.servers
    alone = [asyncio.run(measure(1)) for _ in range(rounds)]
    cpu = [used for _, used in alone]
    together = [asyncio.run(measure(number)) for _ in range(rounds)]
    cores = len(os.sched_getaffinity(0))
    bound = _SLACK + number * statistics.median(cpu) / cores
    return Section(
        "slow",
        "Servers that are slow to start",
        f"{number} servers in Python (`caxton_host.demo_server`) that sleep "
        f"{_SLEEP:g} s first, started by one host, until the tools of all are listed. "
        f"The target is {_SLACK:g} s, and the processor time of as many starts, "
        f"measured one at a time, divided among {cores} cores.",
        [
            Figure("one, until it is ready", [took for took, _ in alone], "s"),
            Figure("processor time of one", cpu, "s"),
            Figure(
                f"all {number}, until they are ready",
                [took for took, _ in together],
                "s",
                (bound, False),
            ),
        ],
    )


async def measure(number: int) -> tuple[float, float]:
    """Start so many, and return the seconds and the processor time of one of them."""
    names = [f"slow{one}" for one in range(number)]
    configs = {
        name: ServerConfig(
            name=name, command=(sys.executable, "-c", _SERVER), start_timeout=300.0
        )
        for name in names
    }
    before = _used()
    async with McpTools(configs, redact=Redactor()) as tools:
        started = time.perf_counter()
        offered = await tools.offered(names)
        took = time.perf_counter() - started
    if {offer.server for offer in offered.offers} != {*names}:
        sys.exit("Error: a server did not start")
    return took, (_used() - before) / number


def _used() -> float:
    """Return the processor seconds of all children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
