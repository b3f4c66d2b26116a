"""The log cannot be written for a while: nothing is sent, and nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TypeAlias

import pytest

from caxton_host.core.calls import JSON, Completed
from caxton_host.core.grants.tool_catalog import Offered
from caxton_host.core.log.events import (
    Event,
    RunCompleted,
    RunSuspended,
    ToolCompleted,
    ToolInvoked,
)
from caxton_host.core.log.requests import GiveResult
from caxton_host.errors import StoreError
from caxton_host.lib.machine import SystemClock
from caxton_host.ports import RunScope, ToolRequest
from caxton_host.runs.host import Host
from caxton_host.runs.run_request import RunRequest
from caxton_host.sandbox import WasmSandbox
from caxton_host.store import postgres, sqlite
from caxton_host.store.sql import SqlStore
from caxton_host.store.verify import verify
from caxton_host.telemetry import NoTelemetry
from caxton_host.testing import offer
from tests.postgres import Server
from tests.scene import DEMO

from .hostile import calls

WHO: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}
HOST = "host/1"
_SOON = 30.0
#: Makes a log that cannot be written as long as the block lasts.
Breaks: TypeAlias = Callable[[SqlStore], AbstractContextManager[None]]


@dataclass(slots=True)
class Tools:
    """One unsafe tool, that remembers how often each call was made."""

    seen: Counter[tuple[str, int]] = field(default_factory=Counter)

    def open(self, _scope: RunScope) -> nullcontext[Self]:
        return nullcontext(self)

    async def offered(self, servers: Collection[str]) -> Offered:
        del servers
        return Offered(offers=(offer("demo", "echo"),))

    async def resources(self, _servers: Collection[str], _scope: RunScope) -> tuple[()]:
        return ()

    async def call_tool(self, request: ToolRequest) -> Completed:
        self.seen[request.run_id, request.call] += 1
        await asyncio.sleep(0.001)
        return Completed(message="said")


@dataclass(slots=True)
class House:
    """A real log, a real sandbox, and what makes the log fail."""

    store: SqlStore
    sandbox: WasmSandbox
    breaks: Breaks
    tools: Tools = field(default_factory=Tools)
    started: list[str] = field(default_factory=list)

    @property
    def host(self) -> Host:
        return Host(
            store=self.store,
            tools=self.tools,
            sandbox=self.sandbox,
            clock=SystemClock(),
            entropy=os.urandom,
            telemetry=NoTelemetry(),
            servers=["demo"],
            stream=HOST,
        )

    async def start(self, count: int) -> str:
        request = RunRequest(agent="one", module=calls(count), actor=WHO, grant=DEMO)
        async with asyncio.timeout(_SOON):
            return await self.host.start(request, on_started=self.started.append)

    async def events(self, run_id: str) -> list[Event]:
        return [
            e.event for e in await self.store.reader.read(f"run/{run_id}") if e.event
        ]

    async def nobody_computes(self) -> None:
        async with asyncio.timeout(_SOON):
            while any(one.guests for one in self.sandbox._workers):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@contextlib.contextmanager
def full(store: SqlStore) -> Iterator[None]:
    """Give the file no more pages than it has."""
    assert store._writer is not None
    thread, committer = store._writer._thread, store._writer._committer
    assert isinstance(committer, sqlite.SqliteCommitter)

    def pragma(text: str) -> int:
        found = committer._connection.exec_driver_sql(f"PRAGMA {text}").scalar()
        assert isinstance(found, int)
        return found

    pages = thread.submit(pragma, "page_count").result()
    assert thread.submit(pragma, f"max_page_count = {pages}").result() == pages
    yield
    thread.submit(pragma, "max_page_count = 1000000000").result()


@contextlib.contextmanager
def locked(store: SqlStore) -> Iterator[None]:
    """Hold the file as another process would that never ends."""
    with store.engine.connect() as connection:
        name = connection.exec_driver_sql("PRAGMA database_list").one()[2]
    with contextlib.closing(sqlite3.connect(name, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


@pytest.fixture(params=["full", "locked", "away"])
async def house(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[House]:
    # Who waits this long for another writer, or for a server, has waited enough.
    monkeypatch.setattr(sqlite, "_PATIENCE_MS", 200)
    monkeypatch.setattr(postgres, "_PATIENCE_S", 0.5)
    url = f"sqlite:///{tmp_path / 'log.db'}"
    breaks: Breaks = {"full": full, "locked": locked}.get(request.param, full)
    if request.param == "away":
        server: Server = request.getfixturevalue("postgres")
        url, breaks = server.make(), lambda _: away(server)
    async with (
        SqlStore.open(url, clock=SystemClock(), entropy=os.urandom) as store,
        WasmSandbox(tmp_path / "cache", b"k" * 32) as sandbox,
    ):
        await store.leases.join(HOST)
        yield House(store, sandbox, breaks)


@contextlib.contextmanager
def away(server: Server) -> Iterator[None]:
    """Stop the server of the database."""
    server.stop()
    try:
        yield
    finally:
        server.start()


async def test_log_that_cannot_be_written_stops_its_runs_and_loses_nothing(
    house: House,
) -> None:  # laws 3, 7 and 10
    run = asyncio.create_task(house.start(100_000))
    while house.tools.seen.total() < 50 and not run.done():  # noqa: ASYNC110 -- of another task
        await asyncio.sleep(0.001)

    with house.breaks(house.store):
        with pytest.raises(StoreError, match="cannot be written"):
            await run
        await house.nobody_computes()
        with pytest.raises(StoreError):
            await house.start(3)
        if house.breaks is not full:  # That has room for others.
            with pytest.raises(StoreError, match="cannot be"):
                await house.store.health.check()
        sent = dict(house.tools.seen)
        await asyncio.sleep(0.05)

    await house.store.health.check()
    (run_id,) = house.started
    assert sent == dict(house.tools.seen)
    events = await house.events(run_id)
    invoked = {event.call for event in events if isinstance(event, ToolInvoked)}
    answered = {event.call for event in events if isinstance(event, ToolCompleted)}
    # What was sent is recorded; what was recorded last may have been kept back.
    assert {call for _, call in sent} <= invoked
    assert set(sent.values()) == {1}
    assert len(invoked) >= 50
    assert len(invoked - answered) <= 1
    assert (await verify(house.store.reader)).first_bad is None

    again = await house.start(3)
    assert isinstance((await house.events(again))[-1], RunCompleted)


async def test_run_goes_on_when_its_log_is_back(house: House) -> None:  # laws 7, 10
    run = asyncio.create_task(house.start(400))
    while house.tools.seen.total() < 50 and not run.done():  # noqa: ASYNC110 -- of another task
        await asyncio.sleep(0.001)
    with house.breaks(house.store), pytest.raises(StoreError):
        await run
    (run_id,) = house.started

    await house.host.resume(run_id, actor=WHO, grant=DEMO)
    history = await house.store.reader.read(f"run/{run_id}")
    if isinstance(history[-1].event, RunSuspended):
        call = history[-1].event.call
        assert call is not None
        (seq,) = [
            one.seq
            for one in history
            if isinstance(one.event, ToolInvoked) and one.event.call == call
        ]
        assert house.tools.seen[run_id, call] == 1
        word = GiveResult(Completed(message="said"))
        await house.host.resolve(run_id, seq, word, actor=WHO, reason="I saw it")
        await house.host.resume(run_id, actor=WHO, grant=DEMO)

    assert isinstance((await house.events(run_id))[-1], RunCompleted)
    assert house.tools.seen == Counter({(run_id, n): 1 for n in range(1, 401)})
    assert (await verify(house.store.reader)).first_bad is None
