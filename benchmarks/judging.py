"""
Measure `caxton grant what-if`: recorded calls, judged by other grants.

The command runs in a process of its own. The grants have fifty rules, and the last one
matches. Every fifth call would be decided differently.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from caxton_host.core.calls import Completed
from caxton_host.core.log.events import (
    Event,
    RunCompleted,
    RunStarted,
    ToolInvoked,
    settled,
)
from caxton_host.lib.machine import SystemClock
from caxton_host.store.sql import SqlStore

from .page import Figure, Section

_EACH = 1000
_AT_ONCE = 100
_RULES = 49
_DENIED_FROM = 4 * _EACH // 5
_ANSWER = Completed(message="x" * 100, data={"content": [{"text": "x" * 100}]})


def section(folder: Path, options: argparse.Namespace) -> Section:
    """Measure the calls judged per second."""
    calls = max(options.judged // _EACH, 1) * _EACH
    asyncio.run(_recorded(folder / "caxton.db", calls // _EACH))
    (folder / "caxton.toml").write_text("version = 1\n", encoding="utf-8")
    (folder / "new.toml").write_text(_grants(), encoding="utf-8")
    found = [_judged(folder, calls) for _ in range(options.rounds)]
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Section(
        "what_if",
        "Rejudging recorded calls",
        f"`caxton grant what-if` over {calls:,} recorded calls in {calls // _EACH:,} "
        f"runs, with {_RULES + 1} rules, the last with conditions on four parameters. "
        "Includes the start of the process.",
        [
            Figure("calls per second", found, "", (1_000_000 / 60, True)),
            Figure("a million calls, on one core", [_scaled(used, found, calls)], "s"),
            Figure("peak memory of the process", [used.ru_maxrss / 1024], "MiB"),
        ],
    )


def _scaled(used: resource.struct_rusage, found: list[float], calls: int) -> float:
    """Return the processor seconds for a million calls."""
    return (used.ru_utime + used.ru_stime) / len(found) / calls * 1_000_000


def _judged(folder: Path, calls: int) -> float:
    begun = time.perf_counter()
    done = subprocess.run(
        [Path(sys.executable).with_name("caxton"), "grant", "what-if", "new.toml"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    took = time.perf_counter() - begun
    said = f"{calls} calls of {calls // _EACH} run".encode()
    assert done.stderr.startswith(said), done.stderr  # noqa: S101 -- or no figure
    return calls / took


def _grants() -> str:
    lines = ["[agents.busy]"]
    for number in range(_RULES):
        lines += ["[[agents.busy.allow]]", f'tools = ["demo/tool_{number}_*"]']
    lines += ["[[agents.busy.allow]]", 'tools = ["demo/echo"]']
    lines += [
        f'calls = "{_DENIED_FROM}/run"',
        'params.city = { one_of = ["Oslo", "Seattle"] }',
        'params.days = { type = "integer", min = 1, max = 7 }',
        'params.tags = { max_items = 3, each = { pattern = "[a-z]+" } }',
        "params.text = { max_length = 80 }",
    ]
    return "\n".join(lines)


async def _recorded(file: Path, runs: int) -> None:
    async with SqlStore.open(
        f"sqlite:///{file}", clock=SystemClock(), entropy=os.urandom
    ) as store:
        for number in range(runs):
            log = store.create(f"run/{number:08}")
            log.queue(_STARTED)
            for first in range(1, _EACH, _AT_ONCE):
                log.queue(*_calls(first))
                await log.append()
            await log.append(RunCompleted(output=None, output_sha256="", fuel=1))


def _calls(first: int) -> Iterator[Event]:
    for number in range(first, first + _AT_ONCE):
        yield ToolInvoked(
            call=number,
            name="mcp__demo__echo",
            server="demo",
            tool="echo",
            params={"city": "Oslo", "days": 3, "tags": ["a", "b"], "text": "x" * 40},
            params_sha256="0" * 64,
            effect="read",
            rule="allow[1]",
            idempotency_key="0" * 64,
            fuel=number,
        )
        yield settled(number, _ANSWER)


_STARTED = RunStarted(
    agent="busy",
    actor={"kind": "local", "id": "bench", "authenticated": False},
    module_sha256="0" * 64,
    abi="core/1",
    entry="run",
    input=None,
    context={},
    limits={},
    seed="0" * 64,
    grants={},
    grants_sha256="0" * 64,
    catalogue={},
    servers={},
    host=None,
    engine="none",
)
