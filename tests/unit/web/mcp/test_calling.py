"""Calls of agents: what comes of them when their host or their client fails."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from mcp_types import CallToolResult

from caxton_host.core.log.events import Event, RunCompleted, ToolInvoked, ToolProgress
from caxton_host.errors import StoreError
from caxton_host.runs.admission import Ticket
from caxton_host.runs.agent_tools import AgentTool
from caxton_host.store.memory import MemoryLog
from caxton_host.web.mcp.agents import RUN_ID
from caxton_host.web.mcp.calling import Call, Calls, Tell
from tests.office import ANN, Office, Slow
from tests.unit.web.api.test_runs import suspended


def calling(
    office: Office,
    tell: Tell | None = None,
    meta: Mapping[str, object] | None = None,
    ticket: Ticket | None = None,
) -> asyncio.Task[CallToolResult]:
    agent = office.config.agents["weather"]
    call = Call(
        who=ANN,
        tool=AgentTool(office.service.library.card(agent)),
        arguments={},
        meta=meta or {},
        ticket=ticket,
        tell=tell,
    )
    return asyncio.create_task(Calls(office.service).make(call))


async def test_a_client_that_cannot_be_told_of_a_run_gets_its_result(
    tmp_path: Path,
) -> None:
    # law 9
    tools = Slow()
    office = Office(tmp_path, tools=tools)

    async def tell(number: float, said: str) -> None:
        raise ConnectionError(number, said)

    made = calling(office, tell)
    await tools.reached.wait()
    (row,) = await office.scene.store.reader.runs(1)
    for _ in range(3):
        office.scene.host.watch(row.run_id, ToolProgress(call=1, message="half"))
        await asyncio.sleep(0.01)
    tools.let.set()

    assert (await made).structured_content == {"sky": "clear"}


@pytest.mark.parametrize("kind", [None, ToolInvoked, RunCompleted])
async def test_no_result_leaves_a_host_that_could_not_record_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Event] | None
) -> None:
    # law 3: what was begun ahead of its start too; and nobody waits for ever
    tools = Slow()
    tools.let.set()
    office = Office(tmp_path, tools=tools)
    append = MemoryLog.append

    async def fails(log: MemoryLog, *events: Event, **how: Any) -> object:  # noqa: ANN401
        if kind is None or any(isinstance(event, kind) for event in events):
            raise StoreError("the disk is full")
        return await append(log, *events, **how)

    monkeypatch.setattr(MemoryLog, "append", fails)
    with pytest.raises(StoreError):
        async with asyncio.timeout(10):
            await calling(office)

    assert tools.reached.is_set() is (kind is RunCompleted)
    assert office.service.line.present == 0


async def test_a_run_that_goes_on_has_the_place_of_the_call(tmp_path: Path) -> None:
    office = Office(tmp_path, tools=Slow())
    run_id, _ = await suspended(office)
    line = office.service.line
    ticket = line.take("token/ann")
    line.each = 1

    made = calling(office, meta={RUN_ID: run_id}, ticket=ticket)

    assert (await made).meta == {RUN_ID: run_id, "io.caxton/state": "suspended"}
    assert ticket.kept
    assert line.present == 0
