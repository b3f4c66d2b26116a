"""What is done to runs over the control API, and how their calls are explained."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from caxton_host.core.grants.approvals import Approve
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.text.globs import Pattern
from caxton_host.testing import FakeTools
from caxton_host.web.api import approvals
from tests.office import Office, Slow, calling
from tests.scene import ANSWERS

BOB, BOSS, EVE = (
    {"authorization": f"Bearer {name}"} for name in ("bob", "boss", "eve")
)

ASKING = Grant(
    allow=(Rule(id="allow[1]", tools=(Pattern.parse("demo/*"),), approve=Approve()),)
)


async def suspended(office: Office) -> tuple[str, int]:
    """Return a run with a call in doubt, and the event of that call."""
    assert isinstance(office.tools, Slow)
    run_id = await office.start()
    await office.tools.reached.wait()
    await office.service.background.drain(0)
    office.service.line.closed = False
    office.tools.let.set()
    recorded = await office.scene.store.reader.read(f"run/{run_id}")
    return run_id, recorded[-2].seq


async def test_a_run_is_cancelled_by_who_started_it(tmp_path: Path) -> None:
    tools = Slow()
    office = Office(tmp_path, tools=tools)
    run_id = await office.start()
    await tools.reached.wait()
    where = f"/api/v1/runs/{run_id}/cancel"

    async with calling(office) as client:
        foreign = await client.post(where, headers=BOB)
        looks_on = await client.post(where, headers=EVE)
        ended = await client.post(where, json={"reason": "enough"})
        again = await client.post(where)

    assert (foreign.status_code, looks_on.status_code) == (404, 403)
    assert ended.status_code == 200
    assert ended.json()["state"] == "cancelled"
    assert ended.json()["error"] == {"kind": "cancelled", "message": "enough"}
    assert again.status_code == 422


async def test_a_call_in_doubt_is_resolved_and_the_run_goes_on(tmp_path: Path) -> None:
    # law 7
    office = Office(tmp_path, tools=Slow())
    run_id, seq = await suspended(office)
    where = f"/api/v1/runs/{run_id}"

    async with calling(office) as client:
        asks = await client.post(f"{where}/resume?wait=20")
        waits = await client.post(f"{where}/resume")
        said = {"seq": seq, "choice": "retry", "reason": "nothing happened"}
        refused = await client.post(f"{where}/resolve", json=said)
        recorded = await client.post(f"{where}/resolve", json=said, headers=BOSS)
        ended = await client.post(f"{where}/resume?wait=20")

    assert asks.json()["state"] == "suspended"
    assert waits.status_code == 409
    assert waits.json()["type"] == "/problems/waiting"
    assert refused.status_code == 403
    assert recorded.status_code == 202
    assert recorded.json()["state"] == "suspended"
    assert ended.status_code == 200
    assert ended.json()["state"] == "completed"


async def test_an_answer_may_be_given_for_a_call_in_doubt(tmp_path: Path) -> None:
    office = Office(tmp_path, tools=Slow())
    run_id, seq = await suspended(office)
    where = f"/api/v1/runs/{run_id}/resolve"
    answer = {"content": [{"type": "text", "text": "rain"}]}
    said = {"seq": seq, "choice": "result", "reason": "seen"}

    async with calling(office) as client:
        client.headers.update(BOSS)
        without = await client.post(where, json=said)
        odd = await client.post(where, json={**said, "result": {"isError": 1}})
        given = await client.post(where, json={**said, "result": answer})
        await client.post(f"/api/v1/runs/{run_id}/resume?wait=20")

    assert (without.status_code, odd.status_code) == (400, 400)
    assert given.status_code == 202
    assert await office.done(run_id) == "completed"
    assert (await office.types(run_id)).count("ToolInvoked") == 1


async def test_a_fork_begins_with_what_the_run_did(tmp_path: Path) -> None:
    # law 9: who may not decide of a call does not say either what it answered
    office = Office(tmp_path)
    run_id = await office.start()
    await office.done(run_id)
    where = f"/api/v1/runs/{run_id}/fork?wait=20"
    answer = {"content": [{"type": "text", "text": "storm"}]}

    async with calling(office) as client:
        same = await client.post(where, json={"seq": 3})
        forged = await client.post(where, json={"seq": 3, "result": answer})
        edited = await client.post(
            where, json={"seq": 3, "result": answer}, headers=BOSS
        )
        nowhere = await client.post(where, json={"seq": 99})
        foreign = await client.post(where, json={"seq": 3}, headers=BOB)

    assert (same.status_code, edited.status_code) == (200, 200)
    assert forged.status_code == 403
    assert "decide" in forged.json()["detail"]
    assert same.json()["forked_from"]["run"] == run_id
    assert same.headers["location"] != edited.headers["location"]
    assert nowhere.status_code == 422
    assert foreign.status_code == 404


async def test_a_call_is_explained_as_things_stood(tmp_path: Path) -> None:
    office = Office(tmp_path)
    run_id = await office.start()
    await office.done(run_id)
    where = f"/api/v1/runs/{run_id}/explain"

    async with calling(office) as client:
        told = await client.get(where, params={"seq": 2})
        not_a_call = await client.get(where, params={"seq": 1})
        unsaid = await client.get(where)

    assert told.status_code == 200
    assert told.json()["$type"] == "caxton.explanation/v1"
    assert told.json()["verdict"] == "allowed"
    assert not_a_call.status_code == 422
    assert unsaid.status_code == 400


async def test_a_call_waits_until_somebody_approves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # law 4: nothing is sent before
    office = Office(tmp_path, grant=ASKING, tools=FakeTools(ANSWERS))
    run_id = await office.start()
    assert await office.done(run_id) == "suspended"
    waiting: list[str] = []
    office.service.decided = waiting.append

    async with calling(office) as client:
        (asked,) = (await client.get("/api/v1/approvals")).json()["approvals"]
        where = f"/api/v1/approvals/{run_id}/{asked['seq']}"
        shown = await client.get(where)
        foreign = await client.get(where, headers=BOB)
        other = await client.get("/api/v1/approvals", headers=BOB)
        monkeypatch.setattr(approvals, "_LOOKED_AT", 1)
        cut = await client.get("/api/v1/approvals", headers=BOB)
        mine = await client.post(f"{where}/approve")
        said = await client.post(
            f"{where}/approve", json={"reason": "she asked"}, headers=BOSS
        )
        again = await client.post(f"{where}/deny", headers=BOSS)
        await office.service.go_on(run_id, "weather", "decided")

    assert asked["$type"] == "caxton.approval/v1"
    assert asked["params"] == {"city": "Oslo"}
    assert shown.json() == asked
    assert (foreign.status_code, mine.status_code) == (404, 403)
    assert (other.json()["approvals"], other.json()["more"]) == ([], False)
    assert cut.json()["more"] is True
    assert said.status_code == 202
    assert waiting == [run_id]
    assert again.status_code == 422
    assert await office.done(run_id) == "completed"


async def test_who_denies_a_call_may_wait_for_what_the_run_does_then(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path, grant=ASKING)
    run_id = await office.start()
    await office.done(run_id)
    goes_on: list[object] = []

    def decided(run_id: str) -> None:
        going = office.service.go_on(run_id, "weather", "decided")
        goes_on.append(asyncio.create_task(going))

    office.service.decided = decided
    async with calling(office) as client:
        (asked,) = (await client.get("/api/v1/approvals")).json()["approvals"]
        ended = await client.post(
            f"/api/v1/approvals/{run_id}/{asked['seq']}/deny?wait=20", headers=BOSS
        )

    assert ended.status_code == 200
    assert ended.json()["calls"]["denied"] == 1
