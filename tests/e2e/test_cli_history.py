"""``caxton replay --all``: a history as the test of a change."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests import standin

from .guests import call, guest
from .shell import Shell, toml

DEMO = {"servers.demo": standin.command()}
AGENTS = """
[agents.weather]
module = "weather.wasm"
[[agents.weather.allow]]
tools = ["demo/get_weather"]
[agents.echo]
module = "echo.wasm"
[[agents.echo.allow]]
tools = ["demo/echo"]
"""
ASKS = call("mcp__demo__get_weather", location="Oslo")
DENIED = call("mcp__demo__fail", message="no")
ECHOES = call("mcp__demo__echo", text="hi")


@pytest.fixture(scope="module")
def kept() -> dict[str, bytes]:
    """Return the files of a folder in which agents ran once, when they did."""
    return {}


@pytest.fixture
def ran(shell: Shell, kept: dict[str, bytes]) -> Shell:
    """Return a shell in a folder with two runs of one agent, and one of another."""
    shell.write("caxton.toml", toml(DEMO, AGENTS))
    shell.write("weather.wasm", guest(ASKS, DENIED, output="done"))
    shell.write("echo.wasm", guest(ECHOES))
    signed = Path(shell.environ["XDG_STATE_HOME"], "caxton", "signed")
    if not kept:
        for agent in ("weather", "weather", "echo"):
            assert shell("run", agent, "-q").code == 0
        files = (*shell.folder.iterdir(), *signed.iterdir())
        kept |= {str(path): path.read_bytes() for path in files if path.is_file()}
    for name, data in kept.items():
        # The folder of the log, and what is remembered of it, as they were then.
        path = Path(name)
        (path if path.parent == signed else shell.folder / path.name).write_bytes(data)
    return shell


def change(shell: Shell, sql: str, *values: object) -> None:
    """Change the database behind the back of the host."""
    with closing(sqlite3.connect(shell.folder / "caxton.db")) as database, database:
        for (trigger,) in database.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall():
            database.execute(f"DROP TRIGGER {trigger}")
        database.execute(sql, values)


def test_a_history_is_executed_and_the_same_again_is_remembered(ran: Shell) -> None:
    done = ran("replay", "--all", "--fresh")

    assert (done.code, done.out) == (0, "3 runs: 3 identical\n")
    assert done.err == "5 calls from the log; nothing was called\n"
    again = ran("replay", "--all", "--json")
    assert again.code == 0
    assert again.document["remembered"] == 3
    assert again.document["verdicts"]["identical"] == 3
    assert ran("replay", "--all", "--agent", "echo").out == "1 run: 1 identical\n"


def test_another_module_diverges_in_groups(ran: Shell) -> None:
    other = call("mcp__demo__get_weather", location="Bergen")
    ran.write("new.wasm", guest(other, DENIED, output="done"))

    done = ran("replay", "--all", "--agent", "weather", "--against", "new.wasm")

    assert done.code == 4
    assert done.out.splitlines()[:2] == [
        "2 runs: 2 diverged",
        "diverged  2 runs of weather  demo/get_weather $.params.location",
    ]
    assert done.out.endswith(' event 2  "Oslo" became "Bergen"\n')
    assert done.fix == "look at one of each group: caxton events list RUN"


def test_grants_are_judged_as_what_if_judges_them(ran: Shell) -> None:
    other = AGENTS.replace("demo/get_weather", "demo/fail")
    ran.write("new.toml", toml(DEMO, other))

    done = ran("replay", "--all", "--grants", "new.toml", "--json")

    assert done.code == 4
    found = done.document
    assert found["verdicts"]["denied"] == 2
    assert found["verdicts"]["identical"] == 1
    (group,) = found["groups"]
    assert (group["at"], group["how"], group["count"], group["seq"]) == (
        "demo/get_weather",
        "allowed by allow[1] became denied (not_granted)",
        2,
        2,
    )
    lines = ran("grant", "what-if", "new.toml", "--json").out.splitlines()
    changed = [json.loads(line) for line in lines[:-1]]
    assert {one["run_id"] for one in changed} == {*group["runs"]}


def test_a_definition_is_held_against_the_calls_of_its_tool(ran: Shell) -> None:
    schema = {"type": "object", "required": ["days"]}
    definition = {"name": "get_weather", "inputSchema": schema}
    ran.write("new.json", json.dumps(definition))

    done = ran("replay", "--all", "--tool", "demo/get_weather=new.json")

    assert done.code == 4
    told = 'demo/get_weather: parameters, $: "days" is a required property'
    assert done.out.splitlines()[:2] == [
        "2 runs: 2 newly denied",
        f"newly denied  2 runs of weather  {told}",
    ]


def test_a_damaged_run_ends_no_other(ran: Shell) -> None:
    broken = "UPDATE payloads SET payload = x'ff' WHERE position = (SELECT position"
    change(ran, f"{broken} FROM events WHERE type = 'ToolInvoked' LIMIT 1)")

    done = ran("replay", "--all", "--fresh", "--json")

    assert done.code == 1
    assert done.document["verdicts"]["failed"] == 1
    assert done.document["verdicts"]["identical"] == 2
    assert done.document["groups"][0]["how"].startswith("its log is damaged")
