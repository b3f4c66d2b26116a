"""A clock that is told the time, countable randomness, and events to store."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import quote

import anyio

from caxton_host.core.log.events import Event, LogWritten, RunQueued, RunStarted
from caxton_host.ports.log import Trace
from caxton_host.store.sql import SqlStore


class FakeClock:
    def __init__(self, now: int = 1_000_000) -> None:
        self.time = now

    def now(self) -> int:
        return self.time

    def monotonic(self) -> float:
        return self.time / 1e6


class FakeEntropy:
    """Gives the same bytes in every test, and never the same twice."""

    def __init__(self) -> None:
        self.given = 0

    def __call__(self, size: int) -> bytes:
        self.given += 1
        return hashlib.sha256(str(self.given).encode()).digest()[:size]


def url(folder: Path) -> str:
    return f"sqlite:///{quote(str(folder))}/caxton.db"


def open_store(folder: Path, *, write: bool = True) -> SqlStore:
    return SqlStore.open(
        url(folder), clock=FakeClock(), entropy=FakeEntropy(), write=write
    )


def traced(trace_id: str, span_id: str | None = None) -> Trace:
    """Return what gives all events the same ids."""

    def trace(seq: int, events: Sequence[Event]) -> list[tuple[str | None, str | None]]:
        del seq
        return [(trace_id, span_id)] * len(events)

    return trace


def line(n: int, text: str = "hello") -> LogWritten:
    return LogWritten(n=n, level="info", text=text)


def run_queued(agent: str = "weather", host: str | None = None) -> RunQueued:
    return RunQueued(
        agent=agent,
        actor={"kind": "token", "id": "ann", "authenticated": True},
        module_sha256="00" * 32,
        input=None,
        context={},
        grants={},
        grants_sha256="00" * 32,
        trigger="api",
        host=host,
    )


def run_started(agent: str = "weather") -> RunStarted:
    return RunStarted(
        agent=agent,
        actor={"kind": "local", "id": "me", "authenticated": False},
        module_sha256="ab" * 32,
        abi="core/1",
        entry="run",
        input=None,
        context={},
        limits={},
        seed="00" * 32,
        grants={},
        grants_sha256="cd" * 32,
        catalogue={},
        servers={},
        host="host/1",
        engine="wasmtime",
    )


async def eventually(done: Callable[[], bool]) -> None:
    """Return once *done*. For what happens by a timer, which tells nobody."""
    with anyio.fail_after(30):
        while not done():  # noqa: ASYNC110
            await anyio.sleep(0.001)
