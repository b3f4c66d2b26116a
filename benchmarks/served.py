"""
Measure a durable call of a served agent: network in, sandbox, tool, network out.

The peers are a plain SDK server whose handler calls the same tool with the SDK's
client, and FastMCP's proxy in front of the same tool. Each is a process of its own with
its own tool server over stdio; all are called by the SDK's client. A second host of
ours sends its spans to a local receiver. The sides alternate every few calls.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from mcp import Client

from caxton_host.building import find_shared

from .contestants import TEXT
from .page import Figure, Section

__all__ = ["ASKED", "CONFIG", "host", "section"]

_AT_ONCE = 32
#: Turns per round, so that other load on the machine affects all sides.
_TURNS = 10
CONFIG = """\
version = 1
[store]
url = "sqlite:///served.db"
{more}
[servers.demo]
command = "python"
args = ["-m", "caxton_host.demo_server"]
concurrency = 64
[agents.echo]
module = "echo.wasm"
expose = {{ mcp = true }}
[[agents.echo.allow]]
tools = ["demo/echo"]
"""
ASKED = {"tool": "mcp__demo__echo", "n": 1, "text": TEXT}
_OURS, _TRACED, _PLAIN, _FASTMCP = "served agent", "traced", "plain", "FastMCP"


def section(folder: Path, options: argparse.Namespace) -> Section:
    """Measure times, rates and their ratios."""
    times, rates = asyncio.run(
        _measured(folder, options.rounds, options.calls, options.each)
    )
    return Section(
        "serve",
        "A call of a served agent",
        "The agent calls the tool `echo` once. The peers are a plain SDK server whose "
        "handler does the same, and FastMCP's proxy in front of the tool. One SDK "
        f"client calls in sequence, then {_AT_ONCE} at a time. The sides alternate, "
        f"{_TURNS} turns per round.",
        [*_times(times), *_rates(rates)],
        ["The served agent checks a token, runs in a sandbox, is durable and logged."],
    )


def _times(times: dict[str, list[float]]) -> list[Figure]:
    return [
        Figure("plain SDK server", times[_PLAIN], "ms"),
        Figure("FastMCP proxy", times[_FASTMCP], "ms"),
        Figure("served agent", times[_OURS], "ms"),
        Figure("served / plain", _ratio(times, _OURS, _PLAIN), "", (1.6, False)),
        Figure("served / FastMCP", _ratio(times, _OURS, _FASTMCP), ""),
        Figure("traced / not", _ratio(times, _TRACED, _OURS), ""),
    ]


def _rates(rates: dict[str, list[float]]) -> list[Figure]:
    at = f"{_AT_ONCE} at once, "
    return [
        Figure(at + "plain SDK server", rates[_PLAIN], "calls/s"),
        Figure(at + "FastMCP proxy", rates[_FASTMCP], "calls/s"),
        Figure(at + "served agent", rates[_OURS], "calls/s"),
        Figure(at + "served / plain", _ratio(rates, _OURS, _PLAIN), "", (0.7, True)),
        Figure(at + "served / FastMCP", _ratio(rates, _OURS, _FASTMCP), ""),
        Figure(at + "traced / not", _ratio(rates, _TRACED, _OURS), "", (0.85, True)),
    ]


def _ratio(found: dict[str, list[float]], a: str, b: str) -> list[float]:
    return [one / other for one, other in zip(found[a], found[b], strict=True)]


async def _measured(
    folder: Path, rounds: int, calls: int, each: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    async with AsyncExitStack() as stack:
        sink = stack.enter_context(_peer("sink"))
        sides = {
            _OURS: await stack.enter_async_context(_ours(folder / "plain", "")),
            _TRACED: await stack.enter_async_context(
                _ours(folder / "traced", f'[telemetry]\nendpoint = "{sink}"')
            ),
        }
        for name, program in ((_PLAIN, "plain"), (_FASTMCP, "fastmcp")):
            url = stack.enter_context(_peer(program))
            sides[name] = await stack.enter_async_context(_client(url))
        times: dict[str, list[float]] = {name: [] for name in sides}
        rates: dict[str, list[float]] = {name: [] for name in sides}
        for name, client in sides.items():
            await _spent(client, name, min(each, 5))
        some, few = (max(1, number // _TURNS) for number in (calls, each))
        for _ in range(rounds):
            took = {name: list[float]() for name in sides}
            spent = dict.fromkeys(sides, 0.0)
            for _ in range(_TURNS):
                for name, client in sides.items():
                    took[name] += await _times_of(client, name, some)
            for _ in range(_TURNS):
                for name, client in sides.items():
                    spent[name] += await _spent(client, name, few)
            for name in sides:
                times[name].append(1e3 * statistics.median(took[name]))
                rates[name].append(_AT_ONCE * few * _TURNS / spent[name])
    return times, rates


async def _call(client: Client, name: str) -> None:
    asked: dict[str, Any] = {"text": TEXT} if name in {_PLAIN, _FASTMCP} else ASKED
    done = await client.call_tool("echo", asked)
    if done.is_error:
        sys.exit(f"Error: {name}: {done}")


async def _times_of(client: Client, name: str, calls: int) -> list[float]:
    took: list[float] = []
    for _ in range(calls):
        began = time.perf_counter()
        await _call(client, name)
        took.append(time.perf_counter() - began)
    return took


async def _spent(client: Client, name: str, each: int) -> float:
    """Return the seconds until all concurrent tasks made *each* calls."""

    async def task() -> None:
        for _ in range(each):
            await _call(client, name)

    began = time.perf_counter()
    await asyncio.gather(*(task() for _ in range(_AT_ONCE)))
    return time.perf_counter() - began


@contextmanager
def _peer(name: str) -> Generator[str]:
    command = [sys.executable, "-m", "benchmarks.peers", name]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as program:
        try:
            assert program.stderr is not None  # noqa: S101 -- as asked for
            yield program.stderr.readline().strip()
        finally:
            program.terminate()


@asynccontextmanager
async def _ours(folder: Path, more: str) -> AsyncGenerator[Client]:
    with host(folder, more) as (document, token, _):
        async with _client(document["mcp"], token) as client:
            yield client


@asynccontextmanager
async def _client(url: str, token: str = "") -> AsyncGenerator[Client]:
    import httpx2  # noqa: PLC0415 -- the SDK's HTTP client
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415

    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        await client.list_tools()
        yield client


@contextmanager
def host(
    folder: Path, more: str = ""
) -> Generator[tuple[dict[str, Any], str, subprocess.Popen[str]]]:
    """
    Serve the agent ``echo`` in a separate process.

    Yields:
        The document that it printed at start, a token with scope ``run``, the process.
    """
    folder.mkdir()
    shutil.copy(find_shared("agents/echo/echo.wasm"), folder)
    (folder / "caxton.toml").write_text(CONFIG.format(more=more), "utf-8")
    caxton = str(Path(sys.executable).with_name("caxton"))
    variables = ("CONFIG", "DATA", "STATE", "CACHE")
    environ = os.environ | {f"XDG_{name}_HOME": str(folder) for name in variables}
    words = ["serve", "token", "create", "--scope", "run", "--json"]
    made = subprocess.run(
        [caxton, *words], cwd=folder, env=environ, capture_output=True, check=True
    )
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            [caxton, "serve", "--port", "0", "--json"],
            cwd=folder,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as program,
    ):
        try:
            assert program.stdout is not None  # noqa: S101 -- as asked for
            said = program.stdout.readline()
            yield json.loads(said), json.loads(made.stdout)["token"], program
        finally:
            program.terminate()
