"""Freezing and thawing over the control API."""

from __future__ import annotations

from pathlib import Path

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.log.events import TokenCreated
from caxton_host.ports.serving import TokenRow
from caxton_host.runs.freezing import FreezeWatch
from tests.office import ANN, BOSS, Office, calling

BY_BOSS = {"authorization": "Bearer boss"}
FREEZES, THAW = "/api/v1/freezes", "/api/v1/freezes/thaw"


def office(folder: Path) -> Office:
    found = Office(folder)
    found.service.host.freezes = FreezeWatch(found.scene.store.reader)
    return found


def body(kind: str, name: str, reason: str = "odd") -> dict[str, JSON]:
    return {"kind": kind, "name": name, "reason": reason}


async def test_agent_is_frozen_listed_and_thawed(tmp_path: Path) -> None:
    async with calling(office(tmp_path)) as client:
        frozen = await client.post(
            FREEZES, json=body("agent", "weather"), headers=BY_BOSS
        )
        refused = await client.post("/api/v1/runs", json={"agent": "weather"})
        listed = await client.get(FREEZES, headers=BY_BOSS)
        thawed = await client.post(THAW, json=body("agent", "weather"), headers=BY_BOSS)
        begun = await client.post("/api/v1/runs?wait=20", json={"agent": "weather"})

    assert frozen.json() == listed.json()
    [one] = listed.json()["freezes"]
    assert (one["kind"], one["name"], one["reason"]) == ("agent", "weather", "odd")
    assert one["actor"] == BOSS.actor
    assert refused.status_code == 422
    assert "agent weather is frozen" in refused.json()["detail"]
    assert thawed.json()["freezes"] == []
    assert begun.json()["state"] == "completed"


async def test_frozen_token_is_refused_at_the_door(tmp_path: Path) -> None:
    here = office(tmp_path)
    row = TokenRow(id=ANN.id, name="", digest="", scopes=("run",), created_at=1)
    event = TokenCreated(id=ANN.id, name="", scopes=(), agents=(), actor=BOSS.actor)
    await here.scene.store.tokens.add(row, "host/1", event)
    async with calling(here) as client:
        await client.post(FREEZES, json=body("token", ANN.id), headers=BY_BOSS)
        refused = await client.get("/api/v1/runs")
        await client.post(THAW, json=body("token", ANN.id), headers=BY_BOSS)
        known = await client.get("/api/v1/runs")

    assert (refused.status_code, refused.json()["detail"]) == (
        403,
        "the token is frozen",
    )
    assert known.status_code == 200


@pytest.mark.parametrize(
    ("path", "sent", "status"),
    [
        (FREEZES, body("agent", "wether"), 404),
        (FREEZES, body("server", "none"), 404),
        (FREEZES, body("token", "none"), 404),
        (FREEZES, body("host", "weather"), 400),
        (FREEZES, {"kind": "agent", "name": "weather"}, 400),
        (THAW, body("agent", "weather"), 404),
    ],
)
async def test_what_does_not_exist_or_is_not_frozen_is_refused(
    path: str, sent: dict[str, JSON], status: int, tmp_path: Path
) -> None:
    here = office(tmp_path)
    async with calling(here) as client:
        answer = await client.post(path, json=sent, headers=BY_BOSS)
    assert answer.status_code == status
    assert here.scene.store.events == []


async def test_only_an_administrator_may_freeze(tmp_path: Path) -> None:
    here = office(tmp_path)
    async with calling(here) as client:
        answer = await client.post(FREEZES, json=body("agent", "weather"))
    assert answer.status_code == 403
    assert here.scene.store.events == []
