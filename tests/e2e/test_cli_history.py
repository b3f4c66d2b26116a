"""``caxton replay --all``: a history as the test of a change."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path
from xml.etree.ElementTree import parse

import pytest

from caxton_host.app import history as app
from tests import standin

from .guests import SPINS, call, guest
from .shell import CAXTON, SOON, Shell, toml

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
#: Where no network is.
ALONE = ("unshare", "--map-root-user", "--net")
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


def has_worker(pid: int) -> bool:
    """Return whether a process has a child that executes guests."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return any(
        b"sandbox.worker" in Path(f"/proc/{one}/cmdline").read_bytes()
        for one in children
    )


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

    done = ran("replay", "--all", "--tool", "demo/echo=new.json")
    assert done.code == 2
    assert "it defines 'get_weather'" in done.err


@pytest.mark.skipif(
    subprocess.run([*ALONE, "true"], capture_output=True, check=False).returncode != 0,
    reason="needs a kernel that lets users make network namespaces",
)
def test_a_history_is_judged_where_no_network_is_and_no_server_starts(
    ran: Shell,
) -> None:
    # law 6
    server = {"servers.demo": {"command": "touch", "args": ["called"]}}
    ran.write("caxton.toml", toml(server, AGENTS))

    done = subprocess.run(
        [*ALONE, CAXTON, "replay", "--all", "--fresh", "--json"],
        cwd=ran.folder,
        env=ran.environ,
        capture_output=True,
        timeout=SOON,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verdicts"]["identical"] == 3
    assert not (ran.folder / "called").exists()


def test_budgets_that_runs_share_are_spent_as_by_what_if(ran: Shell) -> None:
    rule = 'tools = ["demo/get_weather"]'
    ran.write("new.toml", toml(DEMO, AGENTS.replace(rule, f'{rule}\ncalls = "1/day"')))

    found = ran("replay", "--all", "--grants", "new.toml", "--json").document

    assert (found["runs"], found["verdicts"]["identical"]) == (3, 2)
    (group,) = found["groups"]
    assert group["how"] == "allowed by allow[1] became denied (budget) by allow[1]"
    (line, _) = ran("grant", "what-if", "new.toml", "--json").out.splitlines()
    assert json.loads(line)["run_id"] == group["run_id"]


def test_many_runs_are_judged_in_processes_and_reported_in_files(
    ran: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "_WINDOW", 1)
    ran.write("new.wasm", guest(ASKS, output="<b>"))

    words = ("--against", "new.wasm", "--junit", "junit.xml", "--html", "page.html")
    done = ran("replay", "--all", "--agent", "weather", *words)

    assert done.code == 4
    suite = parse(ran.folder / "junit.xml").getroot()[0]  # noqa: S314 -- our own
    assert suite.attrib["name"] == "caxton replay: module new.wasm"
    counts = [suite.attrib[key] for key in ("tests", "failures", "errors", "skipped")]
    assert counts == ["2", "2", "0", "0"]
    assert [one.attrib["classname"] for one in suite] == ["weather", "weather"]
    page = (ran.folder / "page.html").read_text()
    assert "<b>2 diverged</b>" in page
    assert "<td>weather</td>" in page
    # A filter that is mistyped does not pass.
    done = ran("replay", "--all", "--agent", "wether", "--against", "new.wasm")
    assert (done.code, "no run was selected" in done.err) == (2, True)


def test_a_history_that_is_interrupted_says_so_and_writes_no_file(ran: Shell) -> None:
    ran.write("spins.wasm", guest(then=SPINS))
    words = ("--agent", "weather", "--against", "spins.wasm", "--junit", "junit.xml")
    with ran.started("replay", "--all", *words) as child:
        while not has_worker(child.pid):
            time.sleep(0.01)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=SOON)

    assert child.returncode == 130
    assert out == b"0 runs: none\n"
    assert b"interrupted: these runs were judged; no file is written\n" in err
    assert not (ran.folder / "junit.xml").exists()


def test_what_was_remembered_and_changed_counts_as_forgotten(ran: Shell) -> None:
    assert ran("replay", "--all", "--agent", "echo", "--fresh").code == 0
    folder = Path(ran.environ["XDG_CACHE_HOME"], "caxton", "history")
    assert folder.stat().st_mode & 0o777 == 0o700
    for file in folder.iterdir():
        assert file.stat().st_mode & 0o777 == 0o600
        file.write_bytes(file.read_bytes()[:-1] + b" ")

    done = ran("replay", "--all", "--agent", "echo", "--json")

    assert done.document["verdicts"]["identical"] == 1
    assert done.document["remembered"] == 0


def test_an_erased_run_is_named_and_hides_nothing(ran: Shell) -> None:
    change(
        ran,
        "DELETE FROM payloads WHERE position IN (SELECT position FROM events "
        "JOIN runs ON stream = 'run/' || run_id WHERE agent = 'echo')",
    )
    change(ran, "UPDATE runs SET actor = '{}' WHERE agent = 'echo'")

    done = ran("replay", "--all")

    assert done.code == 0
    assert "cannot be judged  1 run of echo  it is erased" in done.out
    alone = ran("replay", "--all", "--agent", "echo")
    assert (alone.code, alone.fix) == (2, "see the reasons above")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("@last", "--grants", "x.toml"), "need --all"),
        (("--all", "@last"), "Name RUN, --bundle and a file, or --all"),
        (("--all", "--grants", "a", "--against", "b"), "Change one thing"),
        (("--all", "--against", "echo.wasm"), "no agent is named"),
        (("--all", "--until", "soon"), "is no time"),
        (("--all", "--tool", "demo/echo=none.json"), "cannot read none.json"),
        (("--all", "--tool", "demo/echo=echo.wasm"), "is not the definition of a tool"),
        (("--all", "--junit", "none/x.xml"), "cannot write none/x.xml"),
    ],
)
def test_what_cannot_be_judged_is_refused(
    ran: Shell, words: tuple[str, ...], told: str
) -> None:
    done = ran("replay", *words)

    assert done.code == 2
    assert told in done.err
    assert done.fix


def test_a_damaged_run_ends_no_other(ran: Shell) -> None:
    broken = "UPDATE payloads SET payload = x'ff' WHERE position = (SELECT position"
    change(ran, f"{broken} FROM events WHERE type = 'ToolInvoked' LIMIT 1)")

    done = ran("replay", "--all", "--fresh", "--json")

    assert done.code == 1
    assert done.document["verdicts"]["failed"] == 1
    assert done.document["verdicts"]["identical"] == 2
    assert done.document["groups"][0]["how"].startswith("its log is damaged")
