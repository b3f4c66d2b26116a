"""What a client of an older protocol is told, and that little is kept for it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from caxton_host.web.edge import event_stream
from caxton_host.web.mcp import server
from caxton_host.web.mcp.notices import notices
from caxton_host.web.mcp.server import Changes
from tests.office import ANN, BOB

ALL = "all"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "EVERY", 0.01)
    monkeypatch.setattr(event_stream, "_TICK", 0.01)


@dataclass
class Shown:
    """What two principals are shown, each for itself."""

    each: dict[str, object] = field(default_factory=lambda: {"ann": 1, "bob": 1})
    closed: bool = False

    def changes(self) -> Changes:
        return Changes(
            asking=lambda _: (ANN, ALL),
            shown=lambda: {ALL: {**self.each}},
            seen=lambda who, _: self.each[who.id],
            offered=lambda _: ("tools",),
            closed=lambda: self.closed,
        )


@dataclass
class Client:
    """Reads the lines of a stream that are not empty, if it may."""

    headers: dict[bytes, bytes] = field(default_factory=dict)
    lines: asyncio.Queue[str] = field(default_factory=asyncio.Queue[str])
    reads: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.reads.set()

    async def of(self, changes: Changes, who: Any = ANN) -> None:  # noqa: ANN401
        await notices(changes, who, ALL, self.headers)({}, self.receive, self.send)

    async def send(self, message: Any) -> None:  # noqa: ANN401 -- ASGI
        await self.reads.wait()
        for line in filter(None, message.get("body", b"").decode().splitlines()):
            self.lines.put_nowait(line)

    async def receive(self) -> Any:  # noqa: ANN401 -- ASGI
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def next(self, start: str) -> str:
        async with asyncio.timeout(30):
            while not (line := await self.lines.get()).startswith(start):
                pass
        return line.partition(": ")[2]


async def test_a_client_is_told_of_what_it_is_shown_and_not_of_other_things() -> None:
    shown, ann, bob = Shown(), Client(), Client()
    changes = shown.changes()
    async with changes.watched(), asyncio.TaskGroup() as tasks:
        tasks.create_task(ann.of(changes))
        tasks.create_task(bob.of(changes, BOB))
        await ann.next(": caxton")
        await bob.next(": caxton")
        shown.each["bob"] = 2
        told = '{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}'
        assert await bob.next("data") == told
        assert ann.lines.empty()
        shown.each["ann"] = 2
        assert await ann.next("data") == told
        ann.gone.set()
        bob.gone.set()


async def test_a_client_that_comes_back_is_told_of_what_it_missed() -> None:
    shown, first = Shown(), Client()
    changes = shown.changes()
    async with changes.watched(), asyncio.TaskGroup() as tasks:
        tasks.create_task(first.of(changes))
        await first.next(": caxton")
        shown.each["ann"] = 2
        last = await first.next("id")
        first.gone.set()

        again = Client({b"last-event-id": last.encode()})
        tasks.create_task(again.of(changes))
        await again.next(": caxton")
        for _ in range(50):
            await asyncio.sleep(0)
        assert again.lines.empty()  # It knows.
        again.gone.set()

        shown.each["ann"] = 3
        late = Client({b"last-event-id": last.encode()})
        tasks.create_task(late.of(changes))
        assert await late.next("id") not in {last, ""}
        assert "list_changed" in await late.next("data")
        late.gone.set()


async def test_a_foreign_event_id_is_only_another_one() -> None:  # law 9
    shown, client = Shown(), Client({b"last-event-id": b"\xff 0000_1"})
    changes = shown.changes()
    async with changes.watched(), asyncio.TaskGroup() as tasks:
        tasks.create_task(client.of(changes))
        assert "list_changed" in await client.next("data")
        client.gone.set()


async def test_a_newer_client_gets_an_id_before_the_first_change() -> None:
    shown, client = Shown(), Client({b"mcp-protocol-version": b"2025-11-25"})
    changes = shown.changes()
    async with changes.watched(), asyncio.TaskGroup() as tasks:
        tasks.create_task(client.of(changes))
        first = await client.next("id")
        assert await client.next("data") == ""
        shown.each["ann"] = 2
        assert await client.next("id") != first
        client.gone.set()


async def test_changes_that_a_client_does_not_read_are_one() -> None:  # law 9
    shown, client = Shown(), Client()
    changes = shown.changes()
    async with changes.watched(), asyncio.TaskGroup() as tasks:
        stream = tasks.create_task(client.of(changes))
        await client.next(": caxton")
        client.reads.clear()
        for number in range(2, 30):
            shown.each["ann"] = number
            await asyncio.sleep(0.011)
        client.reads.set()
        shown.closed = True
        await stream
    told: list[str] = []
    while not client.lines.empty():
        told.append(client.lines.get_nowait())
    # What it was being sent, and what came since.
    assert 1 <= len([line for line in told if line.startswith("data")]) <= 2


async def test_a_host_that_stops_ends_the_stream_and_a_silent_one_is_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_stream, "_HEARTBEAT", 0.02)
    shown, client = Shown(), Client()
    changes = shown.changes()
    async with changes.watched(), asyncio.timeout(30):
        stream = asyncio.create_task(client.of(changes))
        await client.next(": still here")
        shown.closed = True
        await stream
