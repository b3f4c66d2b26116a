"""What rules did, and what changed ones would have done, over the control API."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from caxton_host.config.changed_rules import rule_texts
from caxton_host.core.calls import JSON
from caxton_host.core.grants.approvals import Approve
from caxton_host.core.grants.budgets import CallCount
from caxton_host.core.grants.grants import Grant
from caxton_host.core.tools.servers import ServerConfig
from caxton_host.web.api import grants
from tests.office import ANN, Names, Office, calling, who
from tests.scene import rule

EVE = {"authorization": "Bearer eve"}
BOSS = {"authorization": "Bearer boss"}
GRANTS = "/api/v1/agents/weather/grants"
WHAT_IF = "/api/v1/agents/weather/what-if"
NONE: dict[str, JSON] = {"rule": "allow[1]", "toml": ""}
OTHER = '[[agents.weather.allow]]\ntools = ["demo/*"]\nparams.city = { min_length = 1 }'
STRICT = OTHER.replace("min_length = 1", 'one_of = ["Rome"]')


async def ran(office: Office, runs: int = 1) -> list[str]:
    """Return the ids of runs that called the weather of Oslo."""
    found: list[str] = []
    for _ in range(runs):
        office.scene.clock.time += 60_000_000
        found.append(await office.start(ANN))
        await office.done(found[-1])
    return found


async def judged(client: httpx.AsyncClient, **body: JSON) -> dict[str, Any]:
    answer = await client.post(WHAT_IF, json=body, headers=EVE)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_rule_is_counted_by_what_it_decided(tmp_path: Path) -> None:
    office = Office(tmp_path)
    await ran(office, 2)
    async with calling(office) as client:
        found = await judged(client)

    assert found["$type"] == "caxton.judged-history/v1"
    assert (found["runs"], found["calls"], found["changed"]) == (2, 2, 0)
    assert found["complete"]
    assert found["uses"] == {
        "allow[1]": {"allowed": 2, "denied": 0, "asked": 0},
        "none": {"allowed": 0, "denied": 0, "asked": 0},
        "others": {"allowed": 0, "denied": 0, "asked": 0},
    }


async def test_a_stricter_rule_shows_the_calls_that_it_would_deny(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path)
    (run,) = await ran(office)
    before = await office.types(run)
    async with calling(office) as client:
        strict = await judged(client, rule="allow[1]", toml=STRICT)
        none = await judged(client, **NONE)
        same = await judged(client, rule="allow[1]", toml=OTHER)

    (change,) = strict["changes"]
    assert change["$type"] == "caxton.changed-decision/v1"
    assert (change["run_id"], change["seq"], change["params"]) == (
        run,
        2,
        {"city": "Oslo"},
    )
    assert change["was"] == {"verdict": "allowed", "rule": "allow[1]"}
    assert change["now"] == {"verdict": "params", "rule": "allow[1]"}
    assert none["changes"][0]["now"] == {"verdict": "not_granted", "rule": None}
    assert same["changed"] == 0
    assert await office.types(run) == before  # law 6


async def test_an_added_rule_shows_the_calls_that_it_would_allow(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path, grant=Grant(allow=(rule("demo/echo"),)))
    await ran(office)
    async with calling(office) as client:
        found = await judged(client, toml=OTHER)

    assert found["changes"][0]["was"]["verdict"] == "not_granted"
    assert found["changes"][0]["now"] == {"verdict": "allowed", "rule": "allow[2]"}
    assert found["uses"]["none"] == {"allowed": 0, "denied": 1, "asked": 0}


async def test_only_runs_that_began_in_the_time_are_judged(tmp_path: Path) -> None:
    office = Office(tmp_path)
    first, second = await ran(office, 2)
    row = await office.scene.store.reader.row(second)
    assert row is not None
    async with calling(office) as client:
        late = await judged(client, **NONE, since=row.started_at)
        early = await judged(client, **NONE, until=row.started_at)

    assert [one["run_id"] for one in late["changes"]] == [second]
    assert [one["run_id"] for one in early["changes"]] == [first]


async def test_the_look_ends_and_says_that_it_did_not_see_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # law 9
    office = Office(tmp_path)
    runs = await ran(office, 4)
    async with calling(office) as client:
        few = await judged(client, **NONE, events=3)
        monkeypatch.setattr(grants, "_CHANGES", 1)
        cut = await judged(client, **NONE)
        monkeypatch.setattr(grants, "_RUNS", 2)
        newest = await judged(client)
        monkeypatch.setattr(grants, "_SECONDS", -1.0)
        late = await judged(client)

    assert (few["complete"], few["calls"]) == (False, 1)
    assert (cut["complete"], cut["changed"], len(cut["changes"])) == (True, 4, 1)
    assert (newest["complete"], newest["since"] is not None) == (False, True)
    assert newest["runs"] < len(runs)
    assert (late["complete"], late["calls"], late["until"]) == (False, 0, None)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"toml": "tools = ["}, "the rule: "),
        ({"toml": "[agents.weather]\nmodule = 'x'"}, "agents.weather.module"),
        ({"toml": "[servers.x]\ncommand = 'rm'"}, "holds more than rules"),
        (
            {"toml": OTHER + "\n[serve]"},
            "begin each rule with [[agents",
        ),
        ({"toml": OTHER.replace("weather.allow", "other.allow")}, "holds more"),
        ({"toml": OTHER + "\nparam.x = 1"}, "unknown key"),
        ({"toml": OTHER.replace("demo", "${env:HOME}")}, "contains a variable"),
        ({"toml": OTHER.replace("demo", "${file:/etc/passwd}")}, "a variable"),
        ({"toml": "agents = 1"}, "agents"),
        ({"rule": "allow[9]"}, "agents.weather has no rule allow[9]"),
        ({"rule": "allow"}, "rule"),
        ({"toml": "x" * 70_000}, "toml"),
        ({"toml": "\ud800"}, ""),
        ({"events": 0}, "events"),
        ({"more": 1}, "more"),
    ],
)
async def test_a_bad_rule_is_refused_with_its_place(
    tmp_path: Path, body: dict[str, JSON], says: str
) -> None:
    # law 4
    async with calling(Office(tmp_path)) as client:
        found = await client.post(WHAT_IF, content=json.dumps(body), headers=EVE)

    assert found.status_code in {400, 404, 422}, found.text
    assert says in found.json()["detail"] + found.json()["fix"]
    assert found.json()["fix"]
    assert "root:" not in found.text


async def test_a_history_is_for_those_who_may_read_the_runs(tmp_path: Path) -> None:
    # law 4
    office = Office(tmp_path)
    (run,) = await ran(office)
    acme = replace(who("tess", "read"), tenant="acme")
    payer = who("pat", "read", agents=("payer",))
    known = Names({"tess": acme, "pat": payer, "ann": ANN})
    async with calling(office, names=known) as client:
        found = {
            name: await client.post(
                WHAT_IF, json=NONE, headers={"authorization": f"Bearer {name}"}
            )
            for name in known.known
        }
        spent = await client.get(GRANTS, headers={"authorization": "Bearer tess"})

    assert found["ann"].status_code == 403
    assert found["pat"].status_code == 404
    assert found["tess"].json()["runs"] == 0
    assert run not in found["tess"].text
    assert spent.json()["budgets"] is None


async def test_the_rules_of_an_agent_are_shown_as_the_file_has_them(
    tmp_path: Path,
) -> None:
    allow = replace(
        rule("demo/*"), budgets=(CallCount(limit=5, per="day"),), name="all"
    )
    ask = replace(rule("mail/send", name="allow[2]"), approve=Approve())
    deny = rule("demo/fail", name="deny[1]")
    office = Office(tmp_path, grant=Grant(allow=(allow, ask), deny=(deny,)))
    agent = office.config.agents["weather"]
    said = {"allow": [{"tools": ["demo/*"], "calls": ["5/day"], "name": "all"}]}
    texts = rule_texts("agents.weather", said)
    office.config = replace(
        office.config, agents={"weather": replace(agent, rule_texts=texts)}
    )
    await ran(office)
    async with calling(office) as client:
        found = (await client.get(GRANTS, headers=EVE)).json()
        own = (await client.get(GRANTS)).json()
        missing = await client.get(GRANTS.replace("weather", "other"))

    assert found["$type"] == "caxton.agent-grants/v1"
    assert [one["id"] for one in found["rules"]] == ["deny[1]", "allow[1]", "allow[2]"]
    assert found["rules"][1]["toml"].splitlines() == [
        "[[agents.weather.allow]]",
        'tools = ["demo/*"]',
        'calls = ["5/day"]',
        'name = "all"',
    ]
    assert found["tools"] == [
        {
            "agent": "weather",
            "tool": "mail/send",
            "may": "if",
            "rule": "allow[2]",
            "asks": True,
        }
    ]
    (budget,) = found["budgets"]
    assert (budget["spent"], budget["limit"], budget["budget"]) == (
        "1",
        "5",
        "calls per day",
    )
    assert own["budgets"] is None
    assert missing.status_code == 404


async def test_who_sees_the_servers_sees_the_tools_that_no_rule_names(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path)
    definitions = {("demo", "echo"): b"x", ("demo", "rm"): b"y"}
    office.config = replace(
        office.config, servers={"demo": ServerConfig(name="demo", command=("x",))}
    )
    await office.scene.store.definitions.accept(definitions, {})
    async with calling(office) as client:
        boss = (await client.get(GRANTS, headers=BOSS)).json()["tools"]
        eve = (await client.get(GRANTS, headers=EVE)).json()["tools"]

    assert [(one["tool"], one["may"]) for one in boss] == [
        ("demo/echo", "yes"),
        ("demo/rm", "yes"),
    ]
    assert eve == []
