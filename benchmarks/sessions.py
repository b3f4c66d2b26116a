"""
Measure a call of a session: client, host, tool server and back, durable.

The peers are the direct call, by the SDK's client, and FastMCP's proxy in front of the
same tool. Each is a process of its own with its own tool server over stdio. The sides
alternate every few calls.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from mcp import Client, StdioServerParameters

from .contestants import TEXT
from .page import Figure, Section

_AT_ONCE = 64
#: Turns per round, so that other load on the machine affects all sides.
_TURNS = 10
_CONFIG = """\
version = 1
[store]
url = "sqlite:///sessions.db"
[servers.demo]
command = "python"
args = ["-m", "caxton_host.demo_server"]
concurrency = 64
[sessions.bench]
limits = { total_calls = 100_000_000 }
[[sessions.bench.allow]]
tools = ["demo/echo"]
"""
_DIRECT, _OURS, _FASTMCP = "direct", "session", "FastMCP's proxy"
_NAMES = {_OURS: "mcp__demo__echo"}


def section(folder: Path, options: argparse.Namespace) -> Section:
    """Measure times, rates and their ratios."""
    (folder / "session").mkdir()
    (folder / "session" / "caxton.toml").write_text(_CONFIG, "utf-8")
    times, rates = asyncio.run(
        _measured(folder, options.rounds, options.calls, options.each)
    )
    at = f"{_AT_ONCE} at once, "
    return Section(
        "sessions",
        "A call of a session over stdio",
        "The client calls the tool `echo` of `caxton_host.demo_server` with 100 bytes: "
        "directly, through `caxton mcp connect`, and through FastMCP's proxy. It calls "
        f"in sequence, then {_AT_ONCE} at a time. The sides alternate, {_TURNS} turns "
        "per round.",
        [
            *(Figure(name, times[name], "ms") for name in times),
            Figure("session / direct", _ratio(times, _OURS, _DIRECT), ""),
            Figure("session / proxy", _ratio(times, _OURS, _FASTMCP), "", (1.0, False)),
            *(Figure(at + name, rates[name], "calls/s") for name in rates),
            Figure(at + "session / direct", _ratio(rates, _OURS, _DIRECT), ""),
            Figure(at + "session / proxy", _ratio(rates, _OURS, _FASTMCP), ""),
        ],
        ["The call of the session is judged, and durable before it is answered."],
    )


def _ratio(found: dict[str, list[float]], a: str, b: str) -> list[float]:
    return [one / other for one, other in zip(found[a], found[b], strict=True)]


async def _measured(
    folder: Path, rounds: int, calls: int, each: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    async with AsyncExitStack() as stack:
        sides = {
            _DIRECT: await stack.enter_async_context(
                _client(sys.executable, "-m", "caxton_host.demo_server")
            ),
            _OURS: await stack.enter_async_context(_ours(folder / "session")),
            _FASTMCP: await stack.enter_async_context(
                _client(sys.executable, "-m", "benchmarks.peers", "proxy")
            ),
        }
        times: dict[str, list[float]] = {name: [] for name in sides}
        rates: dict[str, list[float]] = {name: [] for name in sides}
        for name, client in sides.items():
            await _rate(client, name, min(each, 5))
        some, few = (max(1, number // _TURNS) for number in (calls, each))
        for _ in range(rounds):
            took = {name: list[float]() for name in sides}
            spent = dict.fromkeys(sides, 0.0)
            for _ in range(_TURNS):
                for name, client in sides.items():
                    took[name] += [await _time(client, name) for _ in range(some)]
            for _ in range(_TURNS):
                for name, client in sides.items():
                    spent[name] += await _rate(client, name, few)
            for name in sides:
                times[name].append(1e3 * statistics.median(took[name]))
                rates[name].append(_AT_ONCE * few * _TURNS / spent[name])
    return times, rates


async def _time(client: Client, name: str) -> float:
    """Return the seconds of one call."""
    began = time.perf_counter()
    done = await client.call_tool(_NAMES.get(name, "echo"), {"text": TEXT})
    if done.is_error:
        sys.exit(f"Error: {name}: {done}")
    return time.perf_counter() - began


async def _rate(client: Client, name: str, each: int) -> float:
    """Return the seconds until all concurrent tasks made *each* calls."""

    async def task() -> None:
        for _ in range(each):
            await _time(client, name)

    began = time.perf_counter()
    await asyncio.gather(*(task() for _ in range(_AT_ONCE)))
    return time.perf_counter() - began


@asynccontextmanager
async def _ours(folder: Path) -> AsyncGenerator[Client]:
    caxton = str(Path(sys.executable).with_name("caxton"))
    variables = ("CONFIG", "DATA", "STATE", "CACHE")
    environ = os.environ | {f"XDG_{name}_HOME": str(folder) for name in variables}
    words = ["mcp", "connect", "bench"]
    async with _client(caxton, *words, cwd=folder, env=environ) as client:
        yield client


@asynccontextmanager
async def _client(
    command: str,
    *args: str,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
) -> AsyncGenerator[Client]:
    program = StdioServerParameters(command=command, args=[*args], cwd=cwd, env=env)
    async with Client(program) as client:
        await client.list_tools()
        yield client
