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
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Generator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

from caxton_host.building import find_shared

from .contestants import TEXT
from .page import Figure, Section
from .sides import (
    TURNS,
    Rounds,
    alternate,
    caller,
    over_http,
    peer,
    ratio,
    served,
    token,
)

__all__ = ["ASKED", "CONFIG", "host", "section"]

_AT_ONCE = 32
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
        f"{TURNS} turns per round.",
        [*_times(times), *_rates(rates)],
        ["The served agent checks a token, runs in a sandbox, is durable and logged."],
    )


def _times(times: dict[str, list[float]]) -> list[Figure]:
    return [
        Figure("plain SDK server", times[_PLAIN], "ms"),
        Figure("FastMCP proxy", times[_FASTMCP], "ms"),
        Figure("served agent", times[_OURS], "ms"),
        Figure("served / plain", ratio(times, _OURS, _PLAIN), "", (1.6, False)),
        Figure("served / FastMCP", ratio(times, _OURS, _FASTMCP), ""),
        Figure("traced / not", ratio(times, _TRACED, _OURS), ""),
    ]


def _rates(rates: dict[str, list[float]]) -> list[Figure]:
    at = f"{_AT_ONCE} at once, "
    return [
        Figure(at + "plain SDK server", rates[_PLAIN], "calls/s"),
        Figure(at + "FastMCP proxy", rates[_FASTMCP], "calls/s"),
        Figure(at + "served agent", rates[_OURS], "calls/s"),
        Figure(at + "served / plain", ratio(rates, _OURS, _PLAIN), "", (0.7, True)),
        Figure(at + "served / FastMCP", ratio(rates, _OURS, _FASTMCP), ""),
        Figure(at + "traced / not", ratio(rates, _TRACED, _OURS), "", (0.85, True)),
    ]


async def _measured(
    folder: Path, rounds: int, calls: int, each: int
) -> tuple[Rounds, Rounds]:
    async with AsyncExitStack() as stack:
        sink = stack.enter_context(peer("sink"))
        traced = f'[telemetry]\nendpoint = "{sink}"'
        sides: dict[str, Callable[[], Awaitable[None]]] = {}
        for name, more in ((_OURS, ""), (_TRACED, traced)):
            said, token, _ = stack.enter_context(host(folder / name, more))
            client = await stack.enter_async_context(over_http(said["mcp"], token))
            sides[name] = caller(client, "echo", ASKED)
        for name, program in ((_PLAIN, "plain"), (_FASTMCP, "fastmcp")):
            url = stack.enter_context(peer(program))
            client = await stack.enter_async_context(over_http(url))
            sides[name] = caller(client, "echo", {"text": TEXT})
        return await alternate(
            sides, rounds=rounds, calls=calls, each=each, at_once=_AT_ONCE
        )


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
    made = token(folder, "--scope", "run")
    with served(folder) as (said, program):
        yield said, made, program
