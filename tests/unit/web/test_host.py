"""What the control API tells of the host: servers, tools, agents, proofs, health."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from caxton_host.config import OAuth, Serve
from caxton_host.core.calls import JSON
from caxton_host.core.log.checkpoint import Checkpoint, Note, Signature
from caxton_host.core.tools.schemas import bounded
from caxton_host.core.tools.servers import ServerConfig
from caxton_host.errors import (
    LeaseLost,
    LogMovedError,
    LogSetBackError,
    ReadOnlyError,
    StoreError,
)
from caxton_host.lib.json_schema import check
from caxton_host.testing import FakeTools
from caxton_host.web.api.openapi import OPERATIONS, document
from caxton_host.web.api.operations import IN_PATH
from caxton_host.web.edge.authentication import Challenge
from tests.office import Office, calling

BOSS, EVE = ({"authorization": f"Bearer {name}"} for name in ("boss", "eve"))
REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "openapi.json"


def with_server(office: Office) -> None:
    """Have the configuration name the server of the fake tools."""
    office.config = replace(
        office.config,
        servers={"demo": ServerConfig(name="demo", command=("x", "hunter2hunter2"))},
        origins={"demo": Path("caxton.toml")},
        secrets=frozenset({"hunter2hunter2"}),
    )


async def test_servers_are_told_without_their_secrets(tmp_path: Path) -> None:
    office = Office(tmp_path)
    with_server(office)
    async with calling(office) as client:
        refused = await client.get("/api/v1/servers", headers=EVE)
        listed = await client.get("/api/v1/servers", headers=BOSS)
        one = await client.get("/api/v1/servers/demo", headers=BOSS)
        none = await client.get("/api/v1/servers/demon", headers=BOSS)

    assert refused.status_code == 403
    (known,) = listed.json()["servers"]
    assert one.json() == known | {"failures": [], "login": None}
    assert one.json()["$type"] == "caxton.server/v1"
    assert "hunter2" not in listed.text
    assert none.status_code == 404
    assert "demo" in none.json()["fix"]


async def test_a_server_is_asked_what_it_has(tmp_path: Path) -> None:
    office = Office(tmp_path)
    with_server(office)
    async with calling(office) as client:
        refused = await client.post("/api/v1/servers/demo/test", headers=EVE)
        tested = await client.post("/api/v1/servers/demo/test", headers=BOSS)
        tools = await client.get("/api/v1/tools?server=demo", headers=BOSS)
        none = await client.get("/api/v1/tools?server=x", headers=BOSS)

    assert refused.status_code == 403
    assert tested.json()["$type"] == "caxton.server-test/v1"
    assert "get_weather" in tested.json()["tools"]
    assert {tool["server"] for tool in tools.json()["tools"]} == {"demo"}
    assert none.status_code == 404


async def test_a_server_that_is_down_says_why_when_it_is_tested(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path, tools=FakeTools({}, down=["demo"]))
    with_server(office)
    async with calling(office) as client:
        tested = await client.post("/api/v1/servers/demo/test", headers=BOSS)

    assert tested.json()["answers"] is False
    assert tested.json()["problem"] == (
        "the server demo is down: there is no such program"
    )


async def test_hosts_are_asked_to_reload_and_to_restart(tmp_path: Path) -> None:
    office = Office(tmp_path)
    with_server(office)
    store = office.scene.store
    await store.leases.join("host/1")
    await store.requests.answer(1, "generation 2")
    await store.requests.answer(2, "restarted")
    async with calling(office) as client:
        refused = await client.post("/api/v1/config/reload", headers=EVE)
        reloaded = await client.post(
            "/api/v1/config/reload", json={"reason": "a new key"}, headers=BOSS
        )
        restarted = await client.post("/api/v1/servers/demo/restart", headers=BOSS)
        nobody = await client.post("/api/v1/config/reload?host=x", headers=BOSS)

    assert refused.status_code == 403
    assert reloaded.json()["hosts"] == [
        {
            "$type": "caxton.reload/v1",
            "host": "host/1",
            "reloaded": True,
            "outcome": "generation 2",
        }
    ]
    assert restarted.json()["hosts"][0]["restarted"] is True
    assert nobody.status_code == 404


async def test_agents_are_those_that_the_token_is_for(tmp_path: Path) -> None:
    async with calling(Office(tmp_path)) as client:
        listed = (await client.get("/api/v1/agents")).json()["agents"]
        one = (await client.get("/api/v1/agents/weather")).json()
        whole = (await client.get("/api/v1/agents/weather", headers=BOSS)).json()
        broken = (await client.get("/api/v1/agents/broken")).json()
        none = await client.get("/api/v1/agents/..%2fweather")

    assert [agent["name"] for agent in listed] == ["broken", "weather"]
    assert one["card"]["description"] == "Says what the sky is like."
    assert one["module"] is None
    assert whole["module"].endswith("weather.wasm")
    assert broken["card"] is None
    assert none.status_code == 404


async def test_a_call_that_nobody_made_is_judged(tmp_path: Path) -> None:
    office = Office(tmp_path)
    with_server(office)
    asked = {"agent": "weather", "tool": "demo/get_weather", "params": {"city": "Oslo"}}
    async with calling(office) as client:
        where = "/api/v1/grants/explain"
        allowed = (await client.post(where, json=asked)).json()
        denied = (await client.post(where, json={**asked, "tool": "shell/rm"})).json()
        lost = [
            await client.post(where, json={**asked, "tool": tool}, headers=BOSS)
            for tool in ("shell/rm", "dmo/rm", "webhook/rm")
        ]
        after = await client.post(where, json={**asked, "after": ["demo/echo"]})
        unknown = await client.post(where, json={**asked, "agent": "x"})
        odd = await client.post(where, json={**asked, "tool": "shell"})

    assert allowed["$type"] == "caxton.judgement/v1"
    assert (allowed["verdict"], denied["verdict"]) == ("allowed", "not_granted")
    # Only an admin sees which servers there are.
    assert "shell/rm" in denied["remedy"]
    assert [one.json()["remedy"] for one in lost] == [
        "# there is no server shell; caxton server list shows all",
        "# there is no server dmo; did you mean demo/rm?",
        "# there is no server webhook; caxton server list shows all",
    ]
    assert after.status_code == 200
    assert (unknown.status_code, odd.status_code) == (404, 400)


async def test_checkpoints_are_there_for_who_keeps_them_elsewhere(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path)
    for size in (3, 9):
        signed = Checkpoint(origin="log", size=size, root=bytes(32))
        line = Signature(name="log", key_id=b"1234", raw=bytes(64))
        office.scene.store.reader.notes[size] = Note.of(signed, [line]).text()
    run_id = await office.start()
    await office.done(run_id)

    async with calling(office) as client:
        where = f"/api/v1/runs/{run_id}/place?seq="
        first, later = [
            (await client.get(f"{where}{seq}", headers=BOSS)).json() for seq in (2, 99)
        ]
        newest = (await client.get("/api/v1/checkpoints/latest", headers=BOSS)).json()
        covering = (await client.get("/api/v1/checkpoints/2", headers=BOSS)).json()
        none = await client.get("/api/v1/checkpoints/10", headers=BOSS)
        odd = await client.get("/api/v1/checkpoints/x", headers=BOSS)

    assert (newest["size"], covering["size"]) == (9, 3)
    assert (first["leaf"], first["checkpoint"]) == (1, 3)
    assert (later["leaf"], later["checkpoint"]) == (None, None)
    assert newest["note"] == office.scene.store.reader.notes[9]
    assert (none.status_code, odd.status_code) == (404, 404)


async def test_an_erased_run_says_who_erased_it(tmp_path: Path) -> None:
    office = Office(tmp_path)
    run_id = await office.start()
    await office.done(run_id)
    actor: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}
    await office.scene.store.erasure.erase(run_id, "host/2", actor=actor, reason="law")

    async with calling(office) as client:
        run = (await client.get(f"/api/v1/runs/{run_id}", headers=BOSS)).json()
        explained = await client.get(
            f"/api/v1/runs/{run_id}/explain?seq=2", headers=BOSS
        )

    assert run["erased"] is True
    assert run["erasure"]["reason"] == "law"
    assert explained.status_code == 410


async def test_health_waits_for_nothing_and_readiness_says_why(tmp_path: Path) -> None:
    found: dict[str, JSON] = {"sandbox": True, "running": 0}

    async def ready() -> Mapping[str, JSON]:
        return found

    office = Office(tmp_path)
    async with calling(office, ready=ready) as client:
        client.headers.pop("authorization")
        healthy = await client.get("/healthz")
        is_ready = await client.get("/readyz")
        found["sandbox"] = False
        no_sandbox = await client.get("/readyz")
        found["sandbox"], office.service.line.closed = True, True
        draining = await client.get("/readyz")

    assert healthy.json() == {"status": "ok"}
    assert is_ready.status_code == 200
    assert (no_sandbox.status_code, draining.status_code) == (503, 503)
    assert draining.json() == {
        "ready": False,
        "draining": True,
        "store": True,
        "sandbox": True,
        "running": 0,
    }


@pytest.mark.parametrize(
    ("raised", "reason"),
    [
        (
            StoreError("/data/log.db is away"),
            "the log cannot be read or written",
        ),
        (
            LogMovedError("/data/log.db is away"),
            "the file of the log was moved away or replaced",
        ),
        (
            LogSetBackError("the database lacks events"),
            "the database server lost committed events",
        ),
        (
            ReadOnlyError("db.example is read-only"),
            "the log's database is read-only, like a standby",
        ),
        (
            LeaseLost("host/1 has lapsed"),
            "the lease of this host has lapsed: other hosts may take its runs",
        ),
        (TimeoutError(), "the log does not answer"),
    ],
)
async def test_a_host_without_its_log_is_not_ready_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: Exception, reason: str
) -> None:
    asked: list[None] = []

    async def check() -> None:
        asked.append(None)
        raise raised

    office = Office(tmp_path)
    monkeypatch.setattr(office.scene.store.health, "check", check)
    async with calling(office) as client:
        client.headers.pop("authorization")
        not_ready = await client.get("/readyz")
        again = await client.get("/readyz")
        healthy = await client.get("/healthz")

    assert not_ready.status_code == 503
    # Anybody may ask, so no path is told.
    assert not_ready.json()["store"] is False
    assert not_ready.json()["reason"] == reason
    assert again.json() == not_ready.json()
    assert len(asked) == 1
    assert healthy.status_code == 200


async def test_metrics_are_for_readers_unless_they_are_open(tmp_path: Path) -> None:
    def scrape() -> tuple[str, bytes]:
        return "text/plain; version=0.0.4", b"caxton_up 1\n"

    office = Office(tmp_path)
    async with calling(office, scrape=scrape) as client:
        refused = await client.get("/metrics")
        told = await client.get("/metrics", headers=EVE)
    async with calling(office, Serve(metrics="open"), scrape=scrape) as client:
        client.headers.pop("authorization")
        everybody = await client.get("/metrics")
    async with calling(office) as client:
        none = await client.get("/metrics")

    assert (refused.status_code, none.status_code) == (403, 404)
    assert told.text == everybody.text == "caxton_up 1\n"
    assert told.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


async def test_whose_tokens_are_taken_is_told_to_everybody(tmp_path: Path) -> None:
    oauth = OAuth(issuer="https://id.example", audience="https://caxton.example/mcp")
    async with calling(Office(tmp_path), Serve(oauth=oauth)) as client:
        client.headers.pop("authorization")
        for path in ("", "/mcp"):
            told = await client.get(f"/.well-known/oauth-protected-resource{path}")
            assert told.json()["authorization_servers"] == ["https://id.example"]


async def test_whose_tokens_are_taken_is_told_where_a_refusal_says(
    tmp_path: Path,
) -> None:
    oauth = OAuth(issuer="https://id.test", audience="https://a.test/agents/mcp")
    known = Challenge(oauth).refusal().challenge
    path = known.partition("https://a.test")[2].partition('"')[0]
    async with calling(Office(tmp_path), Serve(oauth=oauth)) as client:
        client.headers.pop("authorization")
        found = await client.get(path)

    assert path.endswith("/agents/mcp")
    assert found.json()["resource"] == "https://a.test/agents/mcp"


async def test_without_the_api_there_is_none(tmp_path: Path) -> None:
    async with calling(Office(tmp_path), Serve(api=False)) as client:
        gone = await client.get("/api/v1/runs")

    assert gone.status_code == 404


async def test_the_document_that_is_served_is_the_one_in_the_docs(
    tmp_path: Path,
) -> None:
    # if it is not: python -m caxton_host.web.api.openapi > docs/reference/openapi.json
    async with calling(Office(tmp_path)) as client:
        client.headers.pop("authorization")
        served = (await client.get("/api/v1/openapi.json")).json()

    assert served == document()
    assert json.loads(REFERENCE.read_text()) == served


def test_each_operation_is_described_once() -> None:
    ids = [one.id for one in OPERATIONS]
    places = [(one.method, one.path) for one in OPERATIONS]

    assert len(set(ids)) == len(set(places)) == len(OPERATIONS)


def test_each_schema_can_be_used() -> None:
    for one in OPERATIONS:
        for schema in (one.body or {}, *(given.schema for given in one.parameters)):
            check(bounded({**schema}))
    for schema, _ in IN_PATH.values():
        check(bounded({**schema}))
