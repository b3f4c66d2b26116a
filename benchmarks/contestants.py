"""The two sides of a comparison: a running host and the bare SDK client."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client

from caxton_host.app.bootstrap import Running, running
from caxton_host.building import find_shared
from caxton_host.config import Paths, load
from caxton_host.runs.run_request import RunRequest

__all__ = ["AT_ONCE", "TEXT", "contestants"]

TEXT = "x" * 100

#: Concurrent calls of either side.
AT_ONCE = 64

_PROGRAM = ("-m", "caxton_host.demo_server")
_CONFIG = """\
version = 1
[store]
url = "sqlite:///bench.db"
[servers.demo]
concurrency = {at_once}
{server}
[agents.echo]
module = "echo.wasm"
[[agents.echo.allow]]
tools = ["demo/echo"]
"""

_Agent: TypeAlias = Callable[[int], RunRequest]
_Target: TypeAlias = str | StdioServerParameters | AbstractAsyncContextManager[Any]


@asynccontextmanager
async def contestants(
    folder: Path, transport: str
) -> AsyncGenerator[tuple[Running, Client, _Agent]]:
    """
    Start both sides in *folder*, with the same server program.

    Over stdio each side has a server process of its own; over HTTP (streamable, or
    the SSE transport of 2024) they share one. The third value yielded makes a request
    for an agent that calls ``echo`` a given number of times.
    """
    module = find_shared("agents/echo/echo.wasm").read_bytes()
    (folder / "echo.wasm").write_bytes(module)
    with _server(transport) as (server, target):
        text = _CONFIG.format(server=server, at_once=AT_ONCE)
        (folder / "caxton.toml").write_text(text, encoding="utf-8")
        config = load(folder / "caxton.toml", environ={}, cwd=folder)
        state = Paths(config=folder, data=folder, state=folder, cache=folder)

        def agent(calls: int) -> RunRequest:
            return RunRequest(
                agent="echo",
                module=module,
                actor={"kind": "local", "id": "benchmark", "authenticated": False},
                input={"tool": "mcp__demo__echo", "n": calls, "text": TEXT},
                grant=config.agents["echo"].grant,
                limits=config.agents["echo"].limits,
            )

        async with running(config, state) as up, Client(target) as client:
            await client.list_tools()
            yield up, client, agent


@contextmanager
def _server(transport: str) -> Generator[tuple[str, _Target]]:
    if transport == "stdio":
        words = ", ".join(f'"{word}"' for word in _PROGRAM)
        yield (
            f'command = "python"\nargs = [{words}]',
            StdioServerParameters(command=sys.executable, args=[*_PROGRAM]),
        )
        return
    command = [sys.executable, *_PROGRAM, f"--{transport}", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as program:
        try:
            assert program.stderr is not None  # noqa: S101 -- as asked for
            url = program.stderr.readline().strip()
            yield (
                f'url = "{url}"\ntransport = "{transport}"',
                sse_client(url) if transport == "sse" else url,
            )
        finally:
            program.kill()
