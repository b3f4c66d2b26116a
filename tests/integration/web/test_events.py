"""Events over the control API: page by page, and as they come."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from caxton_host.config import Serve
from caxton_host.core.calls import JSON
from caxton_host.core.log.events import LogWritten
from caxton_host.errors import StoreError
from caxton_host.service.run_service import Submission
from caxton_host.store.memory import MemoryReader
from caxton_host.web.api import events
from caxton_host.web.app import application
from caxton_host.web.edge import event_stream
from tests.office import BOB, BOSS, EVE, Names, Office, Slow, on_a_port, who

LIVE = {"accept": "text/event-stream"}


async def received(response: httpx.Response) -> AsyncIterator[tuple[str, str, Any]]:
    """Yield each event: its id, its type, its document."""
    assert response.headers["content-type"] == "text/event-stream"
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "data" in fields:
            yield fields["id"], fields["event"], json.loads(fields["data"])
            fields = {}


async def test_events_come_page_by_page(tmp_path: Path) -> None:
    office = Office(tmp_path)
    run_id = await office.start()
    await office.done(run_id)
    stored = await office.scene.store.reader.read(f"run/{run_id}")

    found: list[dict[str, JSON]] = []
    params = {"limit": "3"}
    async with on_a_port(office) as client:
        while True:
            page = (
                await client.get(f"/api/v1/runs/{run_id}/events", params=params)
            ).json()
            found += page["events"]
            if not page["more"]:
                break
            params["after"] = page["cursor"]
        wrong = await client.get(f"/api/v1/runs/{run_id}/events?after=p-1")
        live = await client.get(f"/api/v1/runs/{run_id}/events?after=x", headers=LIVE)
        head = await client.head(f"/api/v1/runs/{run_id}/events", headers=LIVE)

    assert [event["type"] for event in found] == [one.type for one in stored]
    assert [event["hash"] for event in found] == [one.hash.hex() for one in stored]
    assert all(event["$type"] == "caxton.event/v1" for event in found)
    assert (wrong.status_code, live.status_code) == (400, 400)
    assert head.status_code == 200


async def test_events_come_as_they_happen_until_the_run_ends(tmp_path: Path) -> None:
    tools = Slow()
    office = Office(tmp_path, tools=tools)
    run_id = await office.start()
    await tools.reached.wait()
    types: list[str] = []

    async with (
        on_a_port(office) as client,
        client.stream("GET", f"/api/v1/runs/{run_id}/events", headers=LIVE) as response,
    ):
        async for _, kind, _ in received(response):
            types.append(kind)
            if kind == "ToolInvoked":
                tools.let.set()

    assert types == await office.types(run_id)
    assert types[-1] == "RunCompleted"


async def test_who_follows_from_the_end_is_told_where_that_is(tmp_path: Path) -> None:
    tools = Slow()
    office = Office(tmp_path, tools=tools)
    run_id = await office.start()
    await tools.reached.wait()
    count = len(await office.types(run_id))
    where = f"/api/v1/runs/{run_id}/events?after=end"

    async with (
        on_a_port(office) as client,
        client.stream("GET", where, headers=LIVE) as response,
    ):
        lines = response.aiter_lines()
        first = await anext(lines)
        page = (await client.get(where)).json()
        tools.let.set()

    assert first == f"id: {page['cursor']}" == f"id: n-{count}"
    assert page["events"] == []


async def test_who_was_cut_off_goes_on_where_it_was(tmp_path: Path) -> None:
    office = Office(tmp_path)
    run_id = await office.start()
    await office.done(run_id)
    where = f"/api/v1/runs/{run_id}/events"

    async with on_a_port(office) as client:
        async with client.stream("GET", where, headers=LIVE) as response:
            first = [event async for event in received(response)]
        behind = {**LIVE, "last-event-id": first[1][0]}
        async with client.stream("GET", where, headers=behind) as response:
            rest = [event async for event in received(response)]
        ended = await client.get(where, headers={**LIVE, "last-event-id": first[-1][0]})

    assert rest == first[2:]
    assert ended.status_code == 204


async def test_everything_is_for_who_may_read_it(tmp_path: Path) -> None:
    # hosts are for admin; runs for whom they are of, and for readers
    office = Office(tmp_path)
    run_id = await office.start()
    await office.done(run_id)
    boss, eve = ({"authorization": f"Bearer {name}"} for name in ("boss", "eve"))

    async with on_a_port(office) as client:
        own = (await client.get("/api/v1/events")).json()
        all_ = (await client.get("/api/v1/events", headers=boss)).json()
        of_runs = (await client.get("/api/v1/events", headers=eve)).json()
        bob = {"authorization": "Bearer bob"}
        foreign = await client.get(f"/api/v1/runs/{run_id}/events", headers=bob)
        none = (await client.get("/api/v1/events", headers=bob)).json()

    assert none["events"] == []
    assert foreign.status_code == 404
    for seen in (own, of_runs):
        assert {event["stream"] for event in seen["events"]} == {f"run/{run_id}"}
    assert len(all_["events"]) >= len(of_runs["events"])


async def test_all_runs_are_followed_at_once(tmp_path: Path) -> None:
    office = Office(tmp_path)
    first = await office.start()
    await office.done(first)
    boss = {**LIVE, "authorization": "Bearer boss"}
    runs: list[str] = []
    second = ""

    async with on_a_port(office) as client:
        wrong = await client.get("/api/v1/events?after=n-1", headers=boss)
        async with client.stream("GET", "/api/v1/events", headers=boss) as response:
            async for _, kind, event in received(response):
                if kind == "RunCompleted":
                    runs.append(event["stream"])
                    if len(runs) == 2:
                        break
                    second = await office.start()

    assert wrong.status_code == 400
    assert runs == [f"run/{first}", f"run/{second}"]


async def test_a_page_looks_at_so_many_events_and_says_where_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_LOOKED_AT", 3)
    office = Office(tmp_path)
    for _ in range(2):
        await office.done(await office.start(BOB))
    mine = await office.start()
    await office.done(mine)
    nobody = who("dan", "read", agents=("bank*",))
    names = Names({"dan": nobody, "eve": EVE})

    app = application(office.service, names, Serve())
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://127.0.0.1"
    ) as client:
        client.headers["authorization"] = "Bearer dan"
        page = (await client.get("/api/v1/events")).json()
        client.headers["authorization"] = "Bearer eve"
        seen = (await client.get("/api/v1/events")).json()

    assert (page["events"], page["more"]) == ([], True)
    assert page["cursor"] != seen["cursor"]
    assert len(seen["events"]) == 3


async def test_a_reader_cannot_count_the_events_of_others(tmp_path: Path) -> None:
    office = Office(tmp_path)
    office.config = replace(
        office.config,
        agents={
            **office.config.agents,
            "bank": replace(office.config.agents["weather"], name="bank"),
        },
    )
    names = Names({"dan": who("dan", "read", "run", agents=("bank",)), "boss": BOSS})
    app = application(office.service, names, Serve())
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://127.0.0.1"
    ) as client:
        client.headers["authorization"] = "Bearer dan"
        empty = (await client.get("/api/v1/events?after=end")).json()["cursor"]
        await office.done(await office.start(BOB))
        mine = await office.service.submit(names.known["dan"], Submission(agent="bank"))
        await office.done(mine)
        behind = (await client.get(f"/api/v1/events?after={empty}&limit=2")).json()
        rest = (await client.get(f"/api/v1/events?after={behind['cursor']}")).json()
        own = (await client.get(f"/api/v1/runs/{mine}/events")).json()
        shown = behind["events"] + rest["events"]
        refused = [
            await client.get(f"/api/v1/events?after={after}", headers=headers)
            for after in ("p-3", "s-742-13", "n-1", "o-", f"{empty[:-4]}AAAA", "ö")
            for headers in ({}, LIVE)
        ]
        of_boss = await client.get(
            "/api/v1/events?after=p-3", headers={"authorization": "Bearer boss"}
        )

    assert [event["seq"] for event in shown] == [*range(1, len(shown) + 1)]
    assert [event["hash"] for event in own["events"]] == [one["hash"] for one in shown]
    assert {event["position"] for event in shown + own["events"]} == {None}
    told = [empty, behind["cursor"], rest["cursor"], *(one["cursor"] for one in shown)]
    assert {len(cursor) for cursor in told} == {len(empty)}
    assert len({*told}) == len(told)
    assert all(one.status_code == 400 for one in refused)
    assert all("without a cursor" in one.json()["fix"] for one in refused)
    assert of_boss.json()["events"][0]["position"] == 4


@pytest.mark.parametrize("headers", [{}, LIVE], ids=["page", "stream"])
async def test_a_false_cursor_is_refused_alike_for_every_token(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    office = Office(tmp_path)
    run = await office.start()
    paths = "/api/v1/events?after=x", f"/api/v1/runs/{run}/events?after=p-1"
    async with on_a_port(office) as client:
        refused = [
            await client.get(
                path, headers={**headers, "authorization": f"Bearer {one}"}
            )
            for one in ("boss", "eve")
            for path in paths
        ]

    for one in refused:
        assert (one.status_code, one.json()["type"]) == (400, "/problems/bad-request")
        assert "without a cursor" in one.json()["fix"]


async def test_a_sealed_cursor_is_good_at_every_host_of_the_log(tmp_path: Path) -> None:
    office = Office(tmp_path)
    store = office.scene.store
    await store.create("host/1").append(LogWritten(n=1, level="info", text="up"))
    eve = {"authorization": "Bearer eve"}
    async with on_a_port(office) as client:
        cursor = (await client.get("/api/v1/events", headers=eve)).json()["cursor"]
        run_id = await office.start()
        await office.done(run_id)
    async with on_a_port(office) as other:
        live = {**LIVE, **eve, "last-event-id": cursor}
        async with other.stream("GET", "/api/v1/events", headers=live) as response:
            async for last, _, event in received(response):  # noqa: B007 -- one is enough
                break

    assert last == event["cursor"]
    assert (event["stream"], event["seq"]) == (f"run/{run_id}", 1)


async def test_a_log_that_is_away_ends_the_stream(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Away(MemoryReader):
        async def tail(self, *_: object, **__: object) -> Any:  # noqa: ANN401 -- as it is
            raise StoreError("the database is away")
            yield

    office = Office(tmp_path)
    run_id = await office.start()
    await office.done(run_id)
    office.scene.store.reader.__class__ = Away

    async with on_a_port(office) as client:
        found = await client.get(f"/api/v1/runs/{run_id}/events", headers=LIVE)

    assert found.status_code == 200
    assert "ends early: the database is away" in caplog.text


async def test_who_hangs_up_leaves_nothing_behind(tmp_path: Path) -> None:
    tools = Slow()
    office = Office(tmp_path, tools=tools)
    run_id = await office.start()
    where = f"/api/v1/runs/{run_id}/events"

    async with on_a_port(office) as client:
        before = len(asyncio.all_tasks())
        for _ in range(40):
            async with client.stream("GET", where, headers=LIVE) as response:
                assert response.status_code == 200
        async with asyncio.timeout(20):
            while len(asyncio.all_tasks()) > before + 4:  # noqa: ASYNC110 -- nobody tells
                await asyncio.sleep(0.01)
        tools.let.set()
        await office.done(run_id)


async def test_nobody_follows_more_than_so_many(tmp_path: Path) -> None:
    tools = Slow()
    office = Office(tmp_path, tools=tools)
    run_id = await office.start()
    where = f"/api/v1/runs/{run_id}/events"

    async with on_a_port(office) as client, asyncio.TaskGroup() as tasks:
        followed = [
            tasks.create_task(client.get(where, headers=LIVE)) for _ in range(40)
        ]
        while sum(task.done() for task in followed) < 8:  # noqa: ASYNC110 -- nobody tells
            await asyncio.sleep(0.01)
        refused = [task.result().status_code for task in followed if task.done()]
        tools.let.set()

    assert refused == [429] * 8
    assert sum(task.result().status_code == 200 for task in followed) == 32


async def test_who_does_not_read_has_nothing_kept_for_it(tmp_path: Path) -> None:
    office = Office(tmp_path)
    run_id = await office.start()
    await office.done(run_id)
    read = 0
    stored = await office.scene.store.reader.read(f"run/{run_id}")

    class Endless(MemoryReader):
        async def tail(self, *_: object, **__: object) -> Any:  # noqa: ANN401 -- as it is
            nonlocal read
            while True:
                read += 1
                yield stored[0], f"n-{read}"

    office.scene.store.reader.__class__ = Endless
    async with on_a_port(office) as client:
        request = (
            f"GET /api/v1/runs/{run_id}/events HTTP/1.1\r\nHost: localhost\r\n"
            "Authorization: Bearer ann\r\nAccept: text/event-stream\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", client.base_url.port)) as silent:
            silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            silent.sendall(request.encode())
            seen = -1
            async with asyncio.timeout(30):
                while seen != read or not read:
                    seen = read
                    await asyncio.sleep(0.05)
            healthy = await client.get("/healthz")

    assert healthy.status_code == 200
    # What the kernel and the server take, at 1 kB or so an event, and no more.
    assert read < 20_000


async def test_silence_is_not_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "_TICK", 0.01)
    monkeypatch.setattr(event_stream, "_HEARTBEAT", 0.03)
    tools = Slow()
    office = Office(tmp_path, tools=tools)
    run_id = await office.start()
    lines: list[str] = []

    async with (
        on_a_port(office) as client,
        client.stream("GET", f"/api/v1/runs/{run_id}/events", headers=LIVE) as response,
    ):
        async for line in response.aiter_lines():
            lines.append(line)
            if line == ": still here":
                office.service.line.closed = True
        tools.let.set()

    assert ": still here" in lines
    await office.done(run_id)
