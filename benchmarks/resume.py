"""
Measure resuming: the replay of a long prefix, and the memory of suspended runs.

Resume: a run of `agents/echo` whose host died before it recorded the end; a new host
takes it over. Each round has its own database. Suspended: runs with an unsafe call in
doubt, each taken over and suspended again; measured is the memory that they leave.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from caxton_host.app.bootstrap import Running
from caxton_host.core.calls import JSON
from caxton_host.core.log.events import Event, RunCompleted, RunStarted, ToolInvoked
from caxton_host.core.log.runs import RunFilter
from caxton_host.core.names import uuid7

from .page import Figure, Section
from .scale import echo_request, memory, up

_ACTOR: dict[str, JSON] = {"kind": "local", "id": "benchmark", "authenticated": False}
_AT_ONCE = 32


def section(folder: Path, options: argparse.Namespace) -> Section:
    """Measure the time of resuming and the memory of suspended runs."""
    seconds = asyncio.run(_resumed(folder, options.rounds, options.prefix))
    apart = folder / "suspended"
    apart.mkdir()
    grown = asyncio.run(_suspended(apart, options.suspended))
    return Section(
        "resume",
        "Resuming after a crash",
        f"A run of `agents/echo` with {options.prefix:,} recorded calls, read from "
        "SQLite and executed again by a new host; includes the start of the worker. "
        f"Then {options.suspended:,} runs taken over and suspended: the difference in "
        "PSS of all processes, per run.",
        [
            Figure("resumed and completed", seconds, "s", (3.0, False)),
            Figure("memory of one suspended run", [grown / 1000], "kB"),
        ],
    )


async def _resumed(folder: Path, rounds: int, calls: int) -> list[float]:
    async with up(folder) as live:
        run_id = await live.host.start(echo_request(live, "demo", "echo", calls))
        history = await live.store.reader.read(f"run/{run_id}")
        events = [item.event for item in history if item.event is not None]
        blobs = await _blobs(live, events)
    seconds: list[float] = []
    for number in range(rounds):
        place = folder / str(number)
        place.mkdir()
        async with up(place) as live:
            await _write(live, run_id, events[:-1], blobs)
            grant = echo_request(live, "demo", "echo", calls).grant
            began = time.perf_counter()
            await live.host.resume(run_id, actor=_ACTOR, grant=grant)
            seconds.append(time.perf_counter() - began)
            after = await live.store.reader.read(f"run/{run_id}")
            if not isinstance(after[-1].event, RunCompleted):
                sys.exit(f"Error: the run ended with {after[-1].event}")
    return seconds


async def _suspended(folder: Path, count: int) -> float:
    async with up(folder) as live:
        request = echo_request(live, "demo", "echo", 1)
        first = await live.host.start(request)
        history = await live.store.reader.read(f"run/{first}")
        events = [item.event for item in history if item.event is not None]
        cut = [e for e in events if isinstance(e, RunStarted | ToolInvoked)]
        ids = [
            uuid7(time.time_ns() // 1000, bytes([n >> 8, n & 255] * 5))
            for n in range(count)
        ]
        for run_id in ids:
            await _write(live, run_id, cut, {})
        places = asyncio.Semaphore(_AT_ONCE)

        async def one(run_id: str) -> None:
            async with places:
                await live.host.resume(run_id, actor=_ACTOR, grant=request.grant)

        await one(ids[0])
        gc.collect()
        before = sum(memory()[0].values())
        await asyncio.gather(*map(one, ids[1:]))
        gc.collect()
        after = sum(memory()[0].values())
        only = RunFilter(state="suspended")
        if len(await live.store.reader.runs(count + 1, only)) != count:
            sys.exit("Error: a run is not suspended")
    return (after - before) / (count - 1)


async def _blobs(live: Running, events: Sequence[Event]) -> dict[str, bytes]:
    started = events[0]
    assert isinstance(started, RunStarted)  # noqa: S101 -- the first event
    entries = [entry for entry in started.catalogue.values() if isinstance(entry, dict)]
    names = {str(one["definition_sha256"]) for one in entries if one.get("visible")}
    return {
        name: await live.store.reader.blob(name)
        for name in {*names, started.module_sha256}
    }


async def _write(
    live: Running, run_id: str, events: Sequence[Event], blobs: dict[str, bytes]
) -> None:
    """Write the log of a run whose host has died."""
    log = live.store.create(f"run/{run_id}")
    first = events[0]
    assert isinstance(first, RunStarted)  # noqa: S101 -- the first event
    await log.append(replace(first, host=None), *events[1:], blobs=blobs)
