"""
A host as a process: it drives one run, or claims some, and says how that went.

    python -m tests.integration.leases.driver drive URL HOST FOLDER
    python -m tests.integration.leases.driver claim URL HOST STREAM...
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from caxton_host.core.calls import Completed
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.grants.tool_catalog import Offered
from caxton_host.core.log.events import RunResumed
from caxton_host.core.text.globs import Pattern
from caxton_host.errors import BusyError, LeaseLost
from caxton_host.lib.machine import SystemClock
from caxton_host.ports.tools import RunScope, ToolRequest
from caxton_host.runs.cancellation import watching
from caxton_host.runs.host import Host
from caxton_host.runs.run_request import RunRequest
from caxton_host.sandbox import WasmSandbox
from caxton_host.store.sql import SqlStore
from caxton_host.telemetry import NoTelemetry
from caxton_host.testing import offer
from tests.e2e.guests import call, guest

#: Seconds.
LEASE = 1.0

CALLS = 900

_SERVER = [sys.executable, "-c", "import time; time.sleep(60)"]


@dataclass(slots=True)
class Effects:
    """A tool whose effects are lines of a file, one a call, each at once."""

    path: Path

    def open(self, _scope: RunScope) -> nullcontext[Self]:
        return nullcontext(self)

    async def offered(self, servers: Collection[str]) -> Offered:
        del servers
        return Offered(offers=(offer("demo", "echo"),))

    async def resources(self, _servers: Collection[str], _scope: RunScope) -> tuple[()]:
        return ()

    async def call_tool(self, request: ToolRequest) -> Completed:
        with self.path.open("a") as file:
            file.write(f"{request.call}\n")
        await asyncio.sleep(0.02)
        return Completed(message="said")


def tell(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def opened(url: str, lease: float = LEASE) -> SqlStore:
    return SqlStore.open(url, clock=SystemClock(), entropy=os.urandom, lease=lease)


async def drive(url: str, name: str, folder: Path) -> None:
    request = RunRequest(
        agent="a",
        module=guest(*[call("mcp__demo__echo", text="")] * CALLS),
        actor={"kind": "local", "id": "ann", "authenticated": False},
        grant=Grant(allow=(Rule(id="allow[1]", tools=(Pattern.parse("demo/*"),)),)),
    )
    async with (
        opened(url) as store,
        WasmSandbox(folder / "cache", b"k" * 32) as sandbox,
    ):
        await store.leases.join(name)
        host = Host(
            store=store,
            tools=Effects(folder / "effects"),
            sandbox=sandbox,
            clock=SystemClock(),
            entropy=os.urandom,
            telemetry=NoTelemetry(),
            stream=name,
            servers=["demo"],
        )
        # As a tool server would: it outlives a host that is killed.
        with subprocess.Popen(_SERVER) as child:  # noqa: ASYNC220
            tell("server", child.pid)
            async with watching(store, name, host.under_way):
                try:
                    run_id = await host.start(request, on_started=tell)
                except LeaseLost as exc:
                    tell("lost:", exc)
                else:
                    history = await store.reader.read(f"run/{run_id}")
                    tell("ended:", history[-1].type)
            child.kill()


async def claim(url: str, name: str, streams: Collection[str]) -> None:
    # Longer than it waits for the other one on a busy machine.
    async with opened(url, 60.0) as store:
        await store.leases.join(name)
        tell("ready")
        sys.stdin.readline()
        for stream in streams:
            resumed = RunResumed(
                actor={}, host=name, epoch=2, reason="requested", grants_sha256="00"
            )
            try:
                log = await store.claim(stream, resumed, after=1)
            except BusyError:
                continue
            assert log.holds()
            tell(stream)
        tell("done")
        sys.stdin.readline()


if __name__ == "__main__":
    kind, where, who, *rest = sys.argv[1:]
    if kind == "drive":
        asyncio.run(drive(where, who, Path(rest[0])))
    else:
        asyncio.run(claim(where, who, rest))
