"""
Measure the capacity of one host: runs per second, waiting agents, replayed calls.

Runs: guests that return at once, several in flight; the start and the end of each are
durable. Waiting: guests of `agents/echo` that wait in one tool of a stdio server,
which counts them; the memory is the PSS of all processes. Replay: a recorded run of
`agents/echo` executed again, with host and worker on one core.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Generator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from caxton_host.app.bootstrap import Running, running
from caxton_host.building import find_shared
from caxton_host.config import Paths, load
from caxton_host.core.calls import JSON, reply
from caxton_host.core.grants.grants import Grant
from caxton_host.core.log.events import RunCompleted, ToolCompleted, outcome_of
from caxton_host.lib import codec
from caxton_host.runs.replay import replay
from caxton_host.runs.run_request import RunRequest

from .page import Figure, Section

TEXT = "x" * 100
IN_FLIGHT = 16

#: ``(func (export "run") (result i32) (i32.const 0))``, and a memory.
TRIVIAL = bytes.fromhex(
    "0061736d01000000"
    "010501600001 7f"
    "03020100"
    "0503010001"
    "0710 02 066d656d6f7279 0200 0372756e 0000"
    "0a06010400 41000b"
)

_CONFIG = """\
version = 1
[store]
url = "sqlite:///bench.db"
[servers.demo]
command = "python"
args = ["-m", "caxton_host.demo_server"]
[servers.meeting]
command = "python"
args = ["{server}", "{count}", "{folder}"]
timeout = "5m"
concurrency = {count}
[agents.echo]
limits = {{ total_calls = 1_000_000, host_calls = 10_000_000 }}
[[agents.echo.allow]]
tools = ["demo/echo", "meeting/meet"]
"""


@dataclass(frozen=True, slots=True)
class Waiting:
    """
    Resources of agents that wait.

    Attributes:
        inside: Number of concurrent calls that the tool counted.

        ended: Number of runs that completed.

        processes: Number of processes.

        pss: Bytes of all processes.

        parts: Bytes by kind of process.

        threads: Threads of the host.

        seconds: From the first start until all calls were active, and from then
            until all runs had ended.
    """

    inside: int
    ended: int
    processes: int
    pss: int
    parts: dict[str, int]
    threads: int
    seconds: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Replays:
    """
    Replays of recorded calls.

    Attributes:
        reply: Bytes of one answer, as the guest receives it.

        seconds: Duration of each replay: read, decode, execute, compare.
    """

    calls: int
    reply: int
    seconds: list[float]


def runs_section(folder: Path, options: argparse.Namespace) -> Section:
    """Measure runs per second."""
    rates = asyncio.run(runs(folder, rounds=options.rounds, count=options.runs))
    return Section(
        "runs",
        "Runs of a trivial agent",
        f"{options.runs} runs per round, {IN_FLIGHT} in flight, of a module that "
        "returns at once. Start and end of each run are durable (SQLite, synchronous "
        "FULL).",
        [Figure("runs per second", rates, "", (500, True))],
    )


def waiting_section(folder: Path, options: argparse.Namespace) -> Section:
    """Measure the memory of agents that wait."""
    found = asyncio.run(waiting(folder, count=options.waiting))
    if found.inside != options.waiting or found.ended != options.waiting:
        sys.exit(f"Error: {found.inside} calls at once, {found.ended} runs completed")
    parts = [
        Figure(f"memory, {what}", [size / 1e6], "MB")
        for what, size in sorted(found.parts.items())
    ]
    return Section(
        "waiting",
        "Agents that wait in a tool",
        f"{found.inside:,} agents (`agents/echo`) wait in one tool of a stdio server "
        f"at the same time, counted by the tool; all {found.ended:,} completed. Memory "
        f"is the PSS of all {found.processes} processes: host, workers, compile "
        "children, server.",
        [
            Figure("memory", [found.pss / 1e6], "MB", (500, False)),
            *parts,
            Figure("threads of the host", [found.threads], ""),
            Figure("until all calls were active", [found.seconds[0]], "s"),
            Figure("from then until all had ended", [found.seconds[1]], "s"),
        ],
    )


def replay_section(folder: Path, options: argparse.Namespace) -> Section:
    """Measure recorded calls per second."""
    found = asyncio.run(replays(folder, rounds=options.rounds, calls=options.recorded))
    return Section(
        "replay",
        "Replay",
        f"A run of `agents/echo` (C, {len(_echo()):,} bytes) with {found.calls:,} "
        f"recorded calls and replies of {found.reply} bytes, read from SQLite, "
        "executed again and compared. Host and worker share one core. The first round "
        "includes the start of the worker.",
        [
            Figure(
                "recorded calls per second",
                [found.calls / one for one in found.seconds],
                "",
                (10_000, True),
            )
        ],
    )


async def runs(folder: Path, *, rounds: int, count: int) -> list[float]:
    """Return runs per second of each round."""
    rates: list[float] = []
    async with up(folder) as live:
        request = _request(live, TRIVIAL)
        await live.host.start(request)
        for _ in range(rounds):
            left = iter(range(count))
            began = time.perf_counter()
            await asyncio.gather(
                *(drain(live, request, left) for _ in range(IN_FLIGHT))
            )
            rates.append(count / (time.perf_counter() - began))
        ended = await completed(live)
    if ended != rounds * count + 1:
        sys.exit(f"Error: {ended} runs completed")
    return rates


async def drain(live: Running, request: RunRequest, left: Iterator[int]) -> None:
    """Start runs, one after the other, while any are left."""
    for _ in left:
        await live.host.start(request)


async def waiting(folder: Path, *, count: int) -> Waiting:
    """Return the resources of *count* agents that wait in one tool."""
    async with up(folder, count=count) as live:
        request = echo_request(live, "meeting", "meet", 1)
        began = time.perf_counter()
        started = [asyncio.create_task(live.host.start(request)) for _ in range(count)]
        while not (folder / "full").exists():  # noqa: ASYNC110 -- another process creates it
            await asyncio.sleep(0.05)
        inside_after = time.perf_counter() - began
        parts, processes = memory()
        threads = threading.active_count()
        began = time.perf_counter()
        (folder / "go").touch()
        ids = await asyncio.gather(*started)
        ended_after = time.perf_counter() - began
        history = await live.store.reader.read(f"run/{ids[-1]}")
        counted = [e.event for e in history if isinstance(e.event, ToolCompleted)]
        return Waiting(
            inside=int(counted[0].message),
            ended=await completed(live),
            processes=processes,
            pss=sum(parts.values()),
            parts=parts,
            threads=threads,
            seconds=(inside_after, ended_after),
        )


async def replays(folder: Path, *, rounds: int, calls: int) -> Replays:
    """Record one run, and measure its replays on one core."""
    with one_core():
        async with up(folder) as live:
            request = echo_request(live, "demo", "echo", calls)
            run_id = await live.host.start(request)
            seconds: list[float] = []
            for _ in range(rounds):
                began = time.perf_counter()
                found = await replay(
                    run_id,
                    store=live.store.reader,
                    sandbox=live.sandbox,
                    telemetry=live.telemetry,
                )
                seconds.append(time.perf_counter() - began)
                if found.divergence or found.calls != calls:
                    sys.exit(f"Error: {found}")
            return Replays(calls, await _reply_size(live, run_id), seconds)


@contextlib.contextmanager
def one_core() -> Generator[None]:
    """Pin this process and its children to one core."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


async def _reply_size(live: Running, run_id: str) -> int:
    history = await live.store.reader.read(f"run/{run_id}")
    first = next(e for r in history if isinstance(e := r.event, ToolCompleted))
    ended = outcome_of(first)
    return len(codec.encode(reply(ended[1])[1])) if ended else 0


@contextlib.asynccontextmanager
async def up(folder: Path, *, count: int = 1) -> AsyncGenerator[Running]:
    """Start a host on SQLite with the servers of this benchmark."""
    text = _CONFIG.format(
        server=Path(__file__).with_name("meeting_server.py"), count=count, folder=folder
    )
    (folder / "caxton.toml").write_text(text, encoding="utf-8")
    config = load(folder / "caxton.toml", environ={}, cwd=folder)
    state = Paths(config=folder, data=folder, state=folder, cache=folder)
    async with running(config, state) as live:
        yield live


def _echo() -> bytes:
    return find_shared("agents/echo/echo.wasm").read_bytes()


def _request(live: Running, module: bytes, **given: JSON) -> RunRequest:
    agent = live.tools.config.agents["echo"]
    return RunRequest(
        agent="echo",
        module=module,
        actor={"kind": "local", "id": "benchmark", "authenticated": False},
        input=given or None,
        grant=agent.grant if given else Grant(),
        limits=agent.limits,
    )


def echo_request(live: Running, server: str, tool: str, calls: int) -> RunRequest:
    """Return a request for a run of `agents/echo` with *calls* calls of one tool."""
    name = f"mcp__{server}__{tool}"
    request = _request(live, _echo(), tool=name, n=calls, text=TEXT)
    return replace(request, grant=only(request.grant, server))


def only(grant: Grant, server: str) -> Grant:
    """Return *grant* for one server, so that no other has to start."""
    rules = [
        replace(rule, tools=tuple(p for p in rule.tools if p.covers_server(server)))
        for rule in grant.allow
    ]
    return replace(grant, allow=tuple(rules))


async def completed(live: Running) -> int:
    """Return how many runs the log says are completed."""
    query = "SELECT count(*) FROM events WHERE type = ?"
    with live.store.engine.connect() as connection:
        rows = connection.exec_driver_sql(query, (RunCompleted.__name__,))
        return int(rows.scalar_one())


def memory() -> tuple[dict[str, int], int]:
    """Return PSS by kind of process, and the number: this one and descendants."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_text("utf-8").rpartition(")")[2].split()
                parents[int(entry.name)] = int(stat[1])
    family = {os.getpid()}
    while more := {pid for pid, above in parents.items() if above in family} - family:
        family |= more
    parts: Counter[str] = Counter()
    for pid in family:
        parts[_kind(pid)] += pss(pid)
    return dict(parts), len(family)


def _kind(pid: int) -> str:
    if pid == os.getpid():
        return "host"
    words = Path(f"/proc/{pid}/cmdline").read_text("utf-8").split("\0")
    for kind in ("worker", "compile", "server"):
        if any(kind in word for word in words):
            return kind
    return "other"


def pss(pid: int) -> int:
    """Return the proportional set size of a process, in bytes."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8")
    (line,) = [one for one in rollup.splitlines() if one.startswith("Pss:")]
    return int(line.split()[1]) * 1024
