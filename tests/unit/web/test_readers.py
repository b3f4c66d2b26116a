"""Who reads much of the log waits for others who do, and nobody else does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from caxton_host.config import Serve
from caxton_host.core.log.runs import RunFilter, RunRow
from caxton_host.web.api.openapi import OPERATIONS
from tests.office import Office, calling, on_a_port

BOSS = {"authorization": "Bearer boss"}


class Held:
    """Holds back the lists of runs of a store until they are let go."""

    def __init__(self, office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
        self.agents: list[object] = []
        self.let = asyncio.Semaphore(0)
        found = office.scene.store.reader.runs

        async def runs(most: int, only: RunFilter, **more: Any) -> list[RunRow]:  # noqa: ANN401
            self.agents.append(only.agent)
            await self.let.acquire()
            return await found(most, only, **more)

        monkeypatch.setattr(office.scene.store.reader, "runs", runs)

    async def reached(self, count: int) -> None:
        async with asyncio.timeout(20):
            while len(self.agents) < count:  # noqa: ASYNC110 -- requests do
                await asyncio.sleep(0)


async def test_heavy_lists_of_one_caller_do_not_delay_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    office = Office(tmp_path)
    held = Held(office, monkeypatch)
    async with calling(office) as client, asyncio.TaskGroup() as tasks:
        for _ in range(20):
            tasks.create_task(client.get("/api/v1/runs?agent=ann"))
        await held.reached(2)
        tasks.create_task(client.get("/api/v1/runs?agent=boss", headers=BOSS))
        body = {"agent": "weather"}
        started = await client.post("/api/v1/runs?wait=20", json=body)
        assert started.json()["state"] == "completed"
        assert (await client.get("/healthz")).status_code == 200
        assert held.agents == ["ann", "ann"]

        for _ in range(2):
            held.let.release()
        await held.reached(4)
        assert held.agents == ["ann", "ann", "ann", "boss"]
        for _ in range(20):
            held.let.release()

    assert held.agents.count("ann") == 20


async def test_what_nobody_waits_for_any_more_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    office = Office(tmp_path)
    held = Held(office, monkeypatch)
    async with on_a_port(office) as client, asyncio.TaskGroup() as tasks:
        kept = [tasks.create_task(client.get("/api/v1/runs")) for _ in range(2)]
        await held.reached(2)
        async with httpx.AsyncClient(
            base_url=client.base_url, headers=client.headers
        ) as other:
            gone = [asyncio.create_task(other.get("/api/v1/runs")) for _ in range(5)]
            await asyncio.sleep(0.2)
            for one in gone:
                one.cancel()
            await asyncio.wait(gone)
        # What the host has heard by the time of this answer it has heard before.
        await client.get("/healthz")
        for _ in range(10):
            held.let.release()
        await asyncio.gather(*kept)
        await client.get("/api/v1/runs")

    assert len(held.agents) == 3


def test_all_that_reads_the_log_is_read_in_turns() -> None:
    # What only looks at the configuration, asks servers, or has turns of its own, would
    # hold a place in vain.
    others = {one.id for one in OPERATIONS if one.method == "GET" and not one.reads}
    assert others == {
        *("listAgents", "showAgent", "listTools", "showCaller"),
        *("compareTool", "serverLogs", "callingLines"),
        *("newestCheckpoint", "coveringCheckpoint", "showVerification", "listTokens"),
    }
    sent = {one.id for one in OPERATIONS if one.method != "GET" and one.reads}
    assert sent == {"judgeHistory"}


def test_a_caller_may_have_fewer_requests_under_way_than_the_host_has_places() -> None:
    assert Serve().each * 4 == Serve().runs
