"""Runs over the control API."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.grants.approvals import Approve
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.grants.principals import Principal
from caxton_host.core.text.globs import Pattern
from caxton_host.testing import FakeTools
from caxton_host.web.api import runs
from tests.office import ANN, Office, Slow, calling
from tests.office import BOB as BOB_HIMSELF
from tests.scene import ANSWERS

BOB = {"authorization": "Bearer bob"}
BOSS = {"authorization": "Bearer boss"}


async def test_a_run_is_started_and_looked_at(tmp_path: Path) -> None:
    tools = Slow()
    office = Office(tmp_path, tools=tools)
    async with calling(office) as client:
        begun = await client.post("/api/v1/runs", json={"agent": "weather"})
        assert begun.status_code == 202
        where = begun.headers["location"]
        run_id = begun.json()["run_id"]
        assert where == f"/api/v1/runs/{run_id}"
        tools.let.set()
        await office.done(run_id)

        run = (await client.get(where)).json()
        result = await client.get(f"{where}/result")

    assert run["$type"] == "caxton.run/v1"
    assert (run["state"], run["output"]) == ("completed", {"sky": "clear"})
    assert run["actor"] == {"kind": "token", "id": "ann", "authenticated": True}
    assert result.status_code == 200
    assert result.json()["output"] == {"sky": "clear"}


async def test_who_asks_may_wait_for_the_end(tmp_path: Path) -> None:
    async with calling(Office(tmp_path)) as client:
        ended = await client.post("/api/v1/runs?wait=20", json={"agent": "weather"})

    assert ended.status_code == 200
    assert ended.json()["state"] == "completed"


async def test_a_run_that_takes_longer_is_told_as_it_is(tmp_path: Path) -> None:
    tools = Slow()
    async with calling(Office(tmp_path, tools=tools)) as client:
        begun = await client.post("/api/v1/runs?wait=0", json={"agent": "weather"})
        going_on = await client.get(f"{begun.headers['location']}/result")
        tools.let.set()

    assert begun.status_code == going_on.status_code == 202
    assert going_on.headers["retry-after"] == "1"
    assert going_on.json()["state"] == "running"


async def test_the_same_key_is_the_same_run(tmp_path: Path) -> None:
    key = {"idempotency-key": "k1"}
    async with calling(Office(tmp_path)) as client:
        asked = {"agent": "weather", "input": {"city": "Oslo"}}
        one = await client.post("/api/v1/runs?wait=20", json=asked, headers=key)
        same = await client.post("/api/v1/runs", json=asked, headers=key)
        other = await client.post(
            "/api/v1/runs", json={"agent": "weather"}, headers=key
        )

    assert one.headers["location"] == same.headers["location"]
    assert (one.status_code, same.status_code) == (200, 200)
    assert other.status_code == 422
    assert other.json()["type"] == "/problems/refused"


async def test_a_caller_narrows_its_run(tmp_path: Path) -> None:
    key = {"idempotency-key": "k1"}
    asked = {"agent": "weather", "narrow": {"allow": [{"tools": ["demo/echo"]}]}}
    async with calling(Office(tmp_path)) as client:
        run = await client.post("/api/v1/runs?wait=20", json=asked, headers=key)
        wide = await client.post("/api/v1/runs", json={"agent": "weather"}, headers=key)
        told = await client.get(f"{run.headers['location']}/explain?seq=2")

    (bound,) = run.json()["bounds"]
    assert (bound["name"], bound["grants"]["allow"][0]["tools"]) == (
        "narrow",
        ["demo/echo"],
    )
    assert (told.json()["verdict"], told.json()["rule"]) == ("not_granted", "narrow")
    # the same key with another narrowing is another request
    assert wide.status_code == 422


@pytest.mark.parametrize(
    ("narrow", "status", "detail"),
    [
        ({"allow": [{"tools": ["demo"]}]}, 422, "narrow: allow[1].tools.1: "),
        ({"allow": [{"tols": []}]}, 422, "narrow: allow[1].tols: unknown key"),
        ({"allow": [{"tools": ["${env:HOME}/x"]}]}, 422, "narrow: allow.1.tools.1: "),
        ({"deny": []}, 400, ""),
        ([], 400, ""),
    ],
)
async def test_what_is_no_narrowing_starts_no_run(
    tmp_path: Path, narrow: JSON, status: int, detail: str
) -> None:
    office = Office(tmp_path)
    async with calling(office) as client:
        asked = {"agent": "weather", "narrow": narrow}
        refused = await client.post("/api/v1/runs", json=asked)

    assert refused.status_code == status
    assert refused.json()["detail"].startswith(detail)
    assert refused.json()["fix"]
    assert await office.scene.store.reader.runs(10) == []


async def test_a_run_of_somebody_else_is_not_found(tmp_path: Path) -> None:
    # attack 43
    # a foreign id and one that nobody has look the same
    office = Office(tmp_path)
    run_id = await office.start()
    async with calling(office) as client:
        foreign = await client.get(f"/api/v1/runs/{run_id}", headers=BOB)
        guessed = await client.get(f"/api/v1/runs/{run_id[:-1]}f", headers=BOB)
        listed = (await client.get("/api/v1/runs", headers=BOB)).json()
        all_of_them = (await client.get("/api/v1/runs", headers=BOSS)).json()

    assert foreign.status_code == guessed.status_code == 404
    assert foreign.json()["detail"].startswith("no run ")
    assert listed["runs"] == []
    assert [run["run_id"] for run in all_of_them["runs"]] == [run_id]


async def test_runs_come_page_by_page(tmp_path: Path) -> None:
    office = Office(tmp_path)
    known = [await office.start() for _ in range(5)]
    for run_id in known:
        await office.done(run_id)

    found: list[str] = []
    params: dict[str, str] = {"limit": "2"}
    async with calling(office) as client:
        while True:
            page = (await client.get("/api/v1/runs", params=params)).json()
            found += [run["run_id"] for run in page["runs"]]
            if page["next"] is None:
                break
            params["cursor"] = page["next"]
        one = (await client.get("/api/v1/runs", params={"prefix": known[2]})).json()
        none = (await client.get("/api/v1/runs?state=failed")).json()

    assert sorted(found) == sorted(known)
    assert len(found) == 5
    assert [run["run_id"] for run in one["runs"]] == [known[2]]
    assert none["runs"] == []


async def test_what_is_not_as_it_has_to_be_is_refused(tmp_path: Path) -> None:
    async with calling(Office(tmp_path)) as client:
        for address in ("?limit=0", "?limit=x", "?limit=1&limit=2", "?color=red"):
            refused = await client.get(f"/api/v1/runs{address}")
            assert refused.status_code == 400, address
            assert refused.headers["content-type"] == "application/problem+json"
        bodies: tuple[JSON, ...] = ({}, {"agent": 1}, {"agent": "weather", "x": 1}, [])
        for body in bodies:
            refused = await client.post("/api/v1/runs", json=body)
            assert refused.status_code == 400, body
        nobody = await client.post("/api/v1/runs", json={"agent": "../weather"})

    assert nobody.status_code == 404


async def test_every_refusal_says_what_to_do_about_it(tmp_path: Path) -> None:
    office = Office(tmp_path)
    run = f"/api/v1/runs/{await office.start()}"
    json, text = ({"content-type": kind} for kind in ("application/json", "text/x"))
    async with calling(office) as client:
        refused = [
            await client.get("/api/v1/nothing"),
            await client.delete("/api/v1/runs"),
            await client.get("/api/v1/runs/x"),
            await client.get("/api/v1/runs?cursor=x"),
            await client.get("/api/v1/checkpoints/latest", headers=BOSS),
            await client.get(f"/api/v1/approvals/{run[13:]}/1", headers=BOSS),
            await client.post("/api/v1/runs", content=b"{}", headers=text),
            await client.post("/api/v1/runs", content=b"{", headers=json),
            await client.post("/api/v1/runs", content=b" " * 2**23, headers=json),
            await client.get(f"/api/v1/runs?{'x' * 9000}"),
            await client.get("/api/v1/runs", headers=[("x", "x")] * 101),
            await client.options("/api/v1/runs", headers={"origin": "https://a.b"}),
        ]

    found = [(one.json()["status"], one.json()["fix"]) for one in refused]
    statuses = [404, 405, 404, 400, 404, 404, 415, 400, 413, 414, 431, 403]
    assert [status for status, _ in found] == statuses
    assert all(fix for _, fix in found), found


async def test_a_module_that_is_gone_is_the_fault_of_the_host(tmp_path: Path) -> None:
    office = Office(tmp_path)
    (tmp_path / "weather.wasm").unlink()
    async with calling(office) as client:
        for name in ("weather", "broken"):
            failed = await client.post("/api/v1/runs", json={"agent": name})
            assert failed.status_code == 503
            assert str(tmp_path) not in failed.text
            assert ".wasm" not in failed.text


async def test_who_may_only_look_starts_nothing(tmp_path: Path) -> None:
    async with calling(Office(tmp_path)) as client:
        refused = await client.post(
            "/api/v1/runs",
            json={"agent": "weather"},
            headers={"authorization": "Bearer eve"},
        )

    assert refused.status_code == 403
    assert "scope run" in refused.json()["detail"]


async def test_a_cursor_says_nothing_of_the_runs_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # law 9
    monkeypatch.setattr(runs, "_PAGE", 2)
    monkeypatch.setattr(runs, "_LOOKED_AT", 2)
    office = Office(tmp_path)
    own, theirs = set[str](), set[str]()
    for n in range(9):
        theirs.add(await begun_later(office, ANN))
        if n % 3 == 0:
            own.add(await begun_later(office, BOB_HIMSELF))
    found, cursors, cursor = list[str](), list[str](), "9" * 18 + "-f"
    async with calling(office) as client:
        while cursor:
            params = {"cursor": cursor}
            page = (await client.get("/api/v1/runs", params=params, headers=BOB)).json()
            found += [run["run_id"] for run in page["runs"]]
            cursors.append(cursor := page["next"] or "")

    assert (len(found), {*found}) == (len(own), own)
    assert not [one for one in theirs for said in cursors if one in said]


async def begun_later(office: Office, principal: Principal) -> str:
    office.scene.clock.time += 1
    run_id = await office.start(principal)
    await office.done(run_id)
    return run_id


EVE = {"authorization": "Bearer eve"}

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


async def test_a_fork_can_be_narrowed(tmp_path: Path) -> None:
    # law 4
    office = Office(tmp_path)
    run_id = await office.start()
    await office.done(run_id)
    where = f"/api/v1/runs/{run_id}/fork?wait=20"

    async with calling(office) as client:
        less = await client.post(where, json={"seq": 1, "narrow": {"allow": []}})
        wrong = await client.post(
            where, json={"seq": 1, "narrow": {"allow": [{"tool": ["demo/*"]}]}}
        )

    assert less.json()["calls"]["denied"] == 1
    assert [one["name"] for one in less.json()["bounds"]] == ["narrow"]
    assert wrong.status_code == 422
    assert "narrow: allow[1].tool:" in wrong.json()["detail"]


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


async def test_calls_that_wait_are_listed_page_by_page(tmp_path: Path) -> None:
    office = Office(tmp_path, grant=ASKING, tools=FakeTools(ANSWERS))
    ids = [await office.start() for _ in range(2)]
    for run_id in ids:
        assert await office.done(run_id) == "suspended"

    async with calling(office) as client:
        first = (await client.get("/api/v1/approvals?limit=1")).json()
        where = f"/api/v1/approvals?limit=1&cursor={first['next']}"
        second = (await client.get(where)).json()
        wrong = await client.get("/api/v1/approvals?cursor=1-1")

    assert (first["more"], second["more"], second["next"]) == (True, False, None)
    assert (first["waiting"], second["waiting"]) == (2, 2)
    pages = first["approvals"] + second["approvals"]
    assert sorted(one["run_id"] for one in pages) == sorted(ids)
    assert wrong.status_code == 400


async def test_a_call_waits_until_somebody_approves_it(tmp_path: Path) -> None:
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
    assert said.status_code == 202
    assert waiting == [run_id]
    assert again.status_code == 422
    assert await office.done(run_id) == "completed"


async def test_a_token_is_no_sign_in_and_may_only_deny_what_wants_one(
    tmp_path: Path,
) -> None:
    # law 4
    fresh = replace(ASKING.allow[0], approve=Approve(fresh=300.0))
    office = Office(tmp_path, grant=Grant(allow=(fresh,)))
    run_id = await office.start()
    await office.done(run_id)
    where = f"/api/v1/approvals/{run_id}/2"
    async with calling(office) as client:
        shown = await client.get(where)
        refused = await client.post(f"{where}/approve", headers=BOSS)
        denied = await client.post(f"{where}/deny", headers=BOSS)

    problem = refused.json()
    assert shown.json()["fresh"] == 300.0
    assert refused.status_code == 403
    assert problem["type"].endswith("/stale-sign-in")
    assert "a token alone is no sign-in" in problem["detail"]
    assert "sign in to the console again" in problem["fix"]
    assert denied.status_code == 202


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
