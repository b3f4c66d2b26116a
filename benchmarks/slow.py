"""Measure the start of many slow servers, until all can be called."""

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
    """Measure the start of one server and of all together."""
    del folder
    rounds, number = options.rounds, options.servers
    alone = [asyncio.run(measure(1)) for _ in range(rounds)]
    cpu = [used for _, used in alone]
    together = [asyncio.run(measure(number)) for _ in range(rounds)]
    cores = len(os.sched_getaffinity(0))
    bound = _SLACK + number * statistics.median(cpu) / cores
    return Section(
        "slow",
        "Slow servers",
        f"One host starts {number} servers in Python (`caxton_host.demo_server`), each "
        f"of which sleeps {_SLEEP:g} s first; the time runs until the tools of all are "
        f"listed. The target is {_SLACK:g} s plus the processor time of as many "
        f"starts, measured one at a time, divided by {cores} cores.",
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
    """Start *number* servers; return the seconds and the processor time per server."""
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
    """Return the processor seconds of all ended children."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
