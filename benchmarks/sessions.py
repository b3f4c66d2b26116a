"""
Measure a call of a session: client, host, tool server and back, durable.

The peers are the direct call, by the SDK's client, and FastMCP's proxy in front of the
same tool; over HTTP also ContextForge, if its program `mcpgateway` is in the path. Each
is a process of its own with its own tool server. The sides alternate every few calls.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

from mcp import Client

from caxton_host.app.maintenance import keeping
from caxton_host.config import load
from caxton_host.config.paths import Paths
from caxton_host.core.grants.principals import Token
from caxton_host.lib.machine import SystemClock
from caxton_host.ports.serving import TokenRow

from . import contextforge
from .contestants import TEXT
from .page import Figure, Section
from .peers import TOOLS
from .scale import pss
from .sides import (
    CAXTON,
    TURNS,
    Rounds,
    alternate,
    caller,
    environment,
    over_http,
    over_stdio,
    peer,
    ratio,
    served,
    token,
)

_AT_ONCE = 64
_CONFIG = """\
version = 1
[store]
url = "sqlite:///sessions.db"
[servers.demo]
command = "python"
args = ["-m", "caxton_host.demo_server"]
concurrency = 64
[sessions.bench]
limits = {{ total_calls = 100_000_000 }}
[[sessions.bench.allow]]
tools = ["demo/echo"]
{more}
"""
_DIRECT, _OURS, _FASTMCP = "direct", "session", "FastMCP's proxy"
_FORGE = "ContextForge"
_ECHO = {"text": TEXT}


def section(
    folder: Path, options: argparse.Namespace, *, transport: Literal["stdio", "HTTP"]
) -> Section:
    """Measure times, rates and their ratios."""
    times, rates = asyncio.run(
        _measured(folder, transport, options.rounds, options.calls, options.each)
    )
    at = f"{_AT_ONCE} at once, "
    least = (1.3, True) if transport == "HTTP" else None
    return Section(
        "sessions" if transport == "stdio" else "sessions_http",
        f"A call of a session over {transport}",
        "The client calls the tool `echo` of `caxton_host.demo_server` with 100 bytes: "
        f"directly, through a session, and through {' and '.join([*times][2:])}. It "
        f"calls in sequence, then {_AT_ONCE} at a time. The sides alternate, {TURNS} "
        "turns per round.",
        [
            *(Figure(name, times[name], "ms") for name in times),
            Figure("session / direct", ratio(times, _OURS, _DIRECT), ""),
            Figure("session / proxy", ratio(times, _OURS, _FASTMCP), "", (1.0, False)),
            *(Figure(at + name, rates[name], "calls/s") for name in rates),
            Figure(at + "session / direct", ratio(rates, _OURS, _DIRECT), ""),
            Figure(at + "session / proxy", ratio(rates, _OURS, _FASTMCP), "", least),
        ],
        ["The call of the session is judged, and durable before it is answered."],
    )


async def _measured(
    folder: Path, transport: str, rounds: int, calls: int, each: int
) -> tuple[Rounds, Rounds]:
    async with AsyncExitStack() as stack:
        opening = _piped(folder) if transport == "stdio" else _listening(folder)
        sides: dict[str, Callable[[], Awaitable[None]]] = {}
        for name, client, tool in await stack.enter_async_context(opening):
            sides[name] = caller(client, tool, _ECHO)
        return await alternate(
            sides, rounds=rounds, calls=calls, each=each, at_once=_AT_ONCE
        )


_Sides = list[tuple[str, Client, str]]


@asynccontextmanager
async def _piped(folder: Path) -> AsyncGenerator[_Sides]:
    (folder / "caxton.toml").write_text(_CONFIG.format(more=""), "utf-8")
    where: dict[str, Any] = {"cwd": folder, "env": environment(folder)}
    python = sys.executable
    async with (
        over_stdio(python, "-m", "caxton_host.demo_server") as direct,
        over_stdio(CAXTON, "mcp", "connect", "bench", **where) as ours,
        over_stdio(python, "-m", "benchmarks.peers", "proxy") as proxy,
    ):
        yield [
            (_DIRECT, direct, "echo"),
            (_OURS, ours, "mcp__demo__echo"),
            (_FASTMCP, proxy, "echo"),
        ]


@asynccontextmanager
async def _listening(folder: Path) -> AsyncGenerator[_Sides]:
    # A call counts toward the rate of its principal, which is no part of this.
    more = '[serve]\nconcurrency = 1_000\nrate = "1000000/s"'
    (folder / "caxton.toml").write_text(_CONFIG.format(more=more), "utf-8")
    key = token(folder, "--session", "bench")
    with (
        peer("direct") as direct,
        served(folder) as (said, _),
        peer("fastmcp") as proxy,
    ):
        async with AsyncExitStack() as stack:
            places = [
                (_DIRECT, direct, "", "echo"),
                (_OURS, f"{said['mcp']}/bench", key, "mcp__demo__echo"),
                (_FASTMCP, proxy, "", "echo"),
            ]
            if contextforge.is_installed():
                forge = stack.enter_context(contextforge.gateway(folder, direct))
                places.append((_FORGE, *forge, "demo-echo"))
            yield [
                (name, await stack.enter_async_context(over_http(url, secret)), tool)
                for name, url, secret, tool in places
            ]


_MANY_CONFIG = """\
version = 1
[store]
url = "sqlite:///sessions.db"
[servers.demo]
command = "python"
args = ["-m", "caxton_host.demo_server"]
[sessions.idle]
[[sessions.idle.allow]]
tools = ["demo/echo"]
[sessions.large]
search_above = 10_000
[[sessions.large.allow]]
tools = ["part*/*"]
"""
_SERVERS = 50


def many_section(folder: Path, options: argparse.Namespace) -> Section:
    """Measure the memory of idle sessions, and the list of a large catalogue."""
    memory, listed = asyncio.run(_many(folder, options.rounds, options.idle))
    return Section(
        "sessions_many",
        "Idle sessions, and a large catalogue",
        f"{options.idle} clients, each of a principal of its own, make one call over "
        "HTTP and stay connected. Another one lists all tools of its session, "
        f"{TOOLS} of each of {_SERVERS} servers over HTTP, which the host knows.",
        [
            Figure(f"memory of {options.idle} sessions", [memory], "MB", (100, False)),
            Figure("a list of all tools", listed, "ms", (100, False)),
        ],
        [],
    )


async def _many(folder: Path, rounds: int, idle: int) -> tuple[float, list[float]]:
    async with AsyncExitStack() as stack:
        catalogue = stack.enter_context(peer("catalogue"))
        parts = (f'[servers.part{n}]\nurl = "{catalogue}"\n' for n in range(_SERVERS))
        (folder / "caxton.toml").write_text(_MANY_CONFIG + "".join(parts), "utf-8")
        large = token(folder, "--session", "large")
        keys = await _tokens(folder, "idle", idle + 1)
        said, host = stack.enter_context(served(folder))
        first, *others = [over_http(f"{said['mcp']}/idle", key) for key in keys]
        clients = [await stack.enter_async_context(first)]
        await caller(clients[0], "mcp__demo__echo", _ECHO)()
        before = pss(host.pid) / 1e6
        for one in others:
            clients.append(await stack.enter_async_context(one))
            await caller(clients[-1], "mcp__demo__echo", _ECHO)()
        grown = pss(host.pid) / 1e6 - before
        client = await stack.enter_async_context(
            over_http(f"{said['mcp']}/large", large)
        )
        listed: list[float] = []
        found = 0
        for _ in range(rounds + 1):
            began = time.perf_counter()
            found, cursor = 0, None
            while found == 0 or cursor:
                page = await client.list_tools(cursor=cursor, cache_mode="bypass")
                found, cursor = found + len(page.tools), page.next_cursor
            listed.append(1e3 * (time.perf_counter() - began))
        if found != TOOLS * _SERVERS:
            sys.exit(f"Error: {found} tools are listed")
        return grown, listed[1:]


async def _tokens(folder: Path, session: str, count: int) -> list[str]:
    """Return new tokens of a session, each of a principal of its own."""
    environ = environment(folder)
    config = load(folder / "caxton.toml", environ=environ, cwd=folder)
    now = SystemClock().now()
    made = [Token.new(secrets.token_bytes) for _ in range(count)]
    async with keeping(config, Paths.of(environ)) as keeper:
        for n, one in enumerate(made):
            await keeper.add_token(
                TokenRow(
                    id=one.id,
                    name=f"client {n}",
                    digest=one.digest,
                    scopes=("session",),
                    agents=(session,),
                    roles=(),
                    created_at=now,
                    expires_at=None,
                )
            )
    return [one.text for one in made]
