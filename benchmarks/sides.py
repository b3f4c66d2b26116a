"""Programs that are measured side by side: their clients, and turns of each."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

#: By side: a measure of each round.
Rounds = dict[str, list[float]]

#: Turns per round, so that other load on the machine affects all sides.
TURNS = 10


async def alternate(
    sides: Mapping[str, Callable[[], Awaitable[None]]],
    *,
    rounds: int,
    calls: int,
    each: int,
    at_once: int,
) -> tuple[Rounds, Rounds]:
    """
    Measure the calls of sides, which alternate every few calls.

    Args:
        sides: Make one call.

        rounds: How often all is measured.

        calls: Calls in sequence, per round.

        each: Calls of each of the concurrent tasks, per round.

        at_once: Concurrent tasks.

    Returns:
        The median time of a call in milliseconds, and calls per second.
    """
    times: Rounds = {name: [] for name in sides}
    rates: Rounds = {name: [] for name in sides}
    for call in sides.values():
        await _spent(call, min(each, 5), at_once)
    some, few = (max(1, number // TURNS) for number in (calls, each))
    for _ in range(rounds):
        took: Rounds = {name: [] for name in sides}
        spent = dict.fromkeys(sides, 0.0)
        for _ in range(TURNS):
            for name, call in sides.items():
                took[name] += [await _time(call) for _ in range(some)]
        for _ in range(TURNS):
            for name, call in sides.items():
                spent[name] += await _spent(call, few, at_once)
        for name in sides:
            times[name].append(1e3 * statistics.median(took[name]))
            rates[name].append(at_once * few * TURNS / spent[name])
    return times, rates


def ratio(found: Rounds, a: str, b: str) -> list[float]:
    """Return the measure of one side as a multiple of another, for each round."""
    return [one / other for one, other in zip(found[a], found[b], strict=True)]


async def _time(call: Callable[[], Awaitable[None]]) -> float:
    began = time.perf_counter()
    await call()
    return time.perf_counter() - began


async def _spent(call: Callable[[], Awaitable[None]], each: int, at_once: int) -> float:
    """Return the seconds until all concurrent tasks made *each* calls."""

    async def task() -> None:
        for _ in range(each):
            await call()

    began = time.perf_counter()
    await asyncio.gather(*(task() for _ in range(at_once)))
    return time.perf_counter() - began


def caller(client: Client, tool: str, arguments: dict[str, Any]) -> Callable[[], Any]:
    """Return what makes a call of a tool, and ends the program if that fails."""

    async def call() -> None:
        done = await client.call_tool(tool, arguments)
        if done.is_error:
            sys.exit(f"Error: {tool}: {done}")

    return call


@asynccontextmanager
async def over_http(url: str, token: str = "") -> AsyncGenerator[Client]:
    """Yield a client of a server over HTTP, which has listed its tools."""
    import httpx2  # noqa: PLC0415 -- the SDK's HTTP client
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415

    headers = {"Authorization": f"Bearer {token}"} if token else {}
    # Less than the five seconds after which servers close a connection.
    limits = httpx2.Limits(keepalive_expiry=2)
    async with (
        httpx2.AsyncClient(headers=headers, limits=limits, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        await client.list_tools()
        yield client


@asynccontextmanager
async def over_stdio(*command: str, **options: Any) -> AsyncGenerator[Client]:  # noqa: ANN401
    """Yield a client of a program, which has listed its tools."""
    first, *args = command
    async with Client(
        StdioServerParameters(command=first, args=args, **options)
    ) as client:
        await client.list_tools()
        yield client


@contextmanager
def peer(name: str) -> Generator[str]:
    """Yield the address of a peer program; see `peers`."""
    command = [sys.executable, "-m", "benchmarks.peers", name]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as program:
        try:
            assert program.stderr is not None  # noqa: S101 -- as asked for
            yield program.stderr.readline().strip()
        finally:
            program.terminate()


CAXTON = str(Path(sys.executable).with_name("caxton"))


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a host that keeps its files in a folder."""
    variables = ("CONFIG", "DATA", "STATE", "CACHE")
    return os.environ | {f"XDG_{name}_HOME": str(folder) for name in variables}


def token(folder: Path, *words: str) -> str:
    """Return a new token of the host of a folder."""
    made = subprocess.run(
        [CAXTON, "serve", "token", "create", *words, "--json"],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        check=True,
    )
    return str(json.loads(made.stdout)["token"])


@contextmanager
def served(folder: Path) -> Generator[tuple[dict[str, Any], subprocess.Popen[str]]]:
    """
    Serve the configuration of a folder in a separate process.

    Yields:
        The document that it printed at start, and the process.
    """
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            [CAXTON, "serve", "--port", "0", "--json"],
            cwd=folder,
            env=environment(folder),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as program,
    ):
        try:
            assert program.stdout is not None  # noqa: S101 -- as asked for
            yield json.loads(program.stdout.readline()), program
        finally:
            program.terminate()
