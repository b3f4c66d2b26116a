"""``caxton schedule``, and hosts that start what is due: each tick once."""

from __future__ import annotations

import json
import signal
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from caxton_host.core.names import run_of, time_of
from tests import standin
from tests.served import served as served_here

from .guests import call, guest
from .serving import served, token
from .shell import Shell
from .test_cli_cancel import until

CONFIG = """\
version = 1
[store]
url = "{store}"
[servers.demo]
{demo}
[agents.report]
module = "report.wasm"
allow = [{{ tools = ["demo/*"] }}]
[schedules.often]
agent = "report"
cron = "{cron}"
input = {{ n = 1 }}
overlap = "allow"
"""
CHANGED = """
[schedules.yearly]
agent = "report"
cron = "0 0 29 2 *"
"""
#: A day on which no test is typed.
NEVER = "0 0 29 2 *"


@pytest.fixture
def desk(shell: Shell) -> Shell:
    weather = call("mcp__demo__get_weather", location="Oslo")
    shell.write("report.wasm", guest(weather, output={"sky": "clear"}))
    text = CONFIG.format(store="sqlite:///caxton.db", demo=standin.toml(), cron=NEVER)
    shell.write("caxton.toml", text)
    assert shell("db", "migrate").code == 0
    return shell


def gated(folder: Path) -> str:
    """Return a server that tells of its start, and answers once it may."""
    told, go = folder / "started.$$", folder / "go"
    wait = f"touch {told}; until [ -e {go} ]; do sleep 0.05; done; exec "
    words = ["-c", wait + standin.typed()]
    return f'command = "/bin/sh"\nargs = {json.dumps(words)}\nstart_timeout = "60s"'


def test_a_tick_has_one_start_whichever_host_is_killed_at_it(
    desk: Shell, postgres_url: str
) -> None:
    # laws 7 and 10
    text = CONFIG.format(store=postgres_url, demo=gated(desk.folder), cron="* * * * *")
    desk.write("caxton.toml", text)
    assert desk("db", "migrate").code == 0
    good = token(desk)
    with ExitStack() as stack:
        hosts = [stack.enter_context(served(desk, good=good)) for _ in range(3)]
        # All of them are about to start the same tick: it is in no log yet.
        until(lambda: len([*desk.folder.glob("started.*")]) >= len(hosts))
        assert runs(desk) == []
        hosts[0].stop(signal.SIGKILL)

        desk.write("go", "")

        until(lambda: {"completed"} == {run["state"] for run in runs(desk)})
        for host in hosts[1:]:
            assert "misses a tick" not in host.log.read_text()
    events = [
        json.loads(line)
        for line in desk("events", "export", "--all").out.splitlines()
        if '"RunStarted"' in line
    ]
    minutes = Counter(
        time_of(run_of(event["stream"])) // 60_000_000 for event in events
    )
    assert {*minutes.values()} == {1}
    assert {event["payload"]["host"] for event in events} <= {
        host.said["host"] for host in hosts[1:]
    }
    assert events[0]["payload"]["input"] == {"n": 1}
    assert desk("audit", "verify").code == 0


def runs(desk: Shell) -> list[dict[str, object]]:
    found: list[dict[str, object]] = desk("runs", "list", "--json").document
    return found


def test_a_schedule_is_listed_paused_resumed_and_run_now_here_and_there(
    desk: Shell,
) -> None:
    desk.set(CAXTON_TOKEN=token(desk))
    with served_here(desk.folder) as host:
        there = ("--host", host.url)
        for words in ((), there):
            (one,) = desk(*words, "schedule", "list", "--json").document
            assert (one["name"], one["agent"], one["cron"]) == (
                "often",
                "report",
                NEVER,
            )
            assert one["paused"] is None
            assert one["next"] > 0
            pause = desk(*words, "schedule", "pause", "often", "--reason", "odd")
            assert pause.code == 0
            listed = desk(*words, "schedule", "list")
            assert "paused" in listed.out
            assert "schedule often was frozen by" in listed.err
            assert ": odd" in listed.err
            (one,) = desk(*words, "schedule", "list", "--json").document
            assert (one["paused"]["reason"], one["next"]) == ("odd", None)
            ran = desk(*words, "schedule", "run-now", "often")
            assert (ran.code, ran.out) == (0, '{"sky": "clear"}\n')
            done = desk(*words, "schedule", "resume", "often", "--reason", "well")
            assert done.code == 0
            document = desk(*words, "schedule", "run-now", "often", "--json").document
            assert document["state"] == "completed"
            assert document["actor"]["kind"] == ("token" if words else "local")
            (one,) = desk(*words, "schedule", "list", "--json").document
            assert (one["last"], one["paused"]) == (None, None)


def test_a_schedule_is_changed_without_a_restart(desk: Shell) -> None:
    with served(desk) as host:
        desk.write("caxton.toml", (desk.folder / "caxton.toml").read_text() + CHANGED)
        assert desk("config", "reload").code == 0

        listed = host.get("/api/v1/schedules").json()["schedules"]

    assert [one["name"] for one in listed] == ["often", "yearly"]


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        (("schedule", "run-now", "oftn"), "write often"),
        (("schedule", "pause", "oftn", "--reason", "x"), "did you mean often?"),
        (("schedule", "resume", "often", "--reason", "x"), "caxton freeze list"),
    ],
)
def test_a_schedule_that_is_meant_is_named(
    desk: Shell, words: tuple[str, ...], fix: str
) -> None:
    done = desk(*words)

    assert done.code == 2
    assert done.fix == fix


def test_a_list_without_schedules_says_how_to_get_one(desk: Shell) -> None:
    text = (desk.folder / "caxton.toml").read_text("utf-8")
    desk.write("caxton.toml", text.partition("[schedules")[0])

    listed = desk("schedule", "list")

    assert listed.code == 0
    assert "describe one in [schedules.NAME]" in listed.err
