"""Runs that wait for a place: they outlive their host, and another may start them."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests import standin

from .guests import call, guest
from .serving import Host, served, token
from .shell import Shell
from .test_cli_cancel import until

CONFIG = """\
version = 1
[serve]
runs = 1
{more}
[servers.demo]
{demo}
tools.slow.effect = "read"
[agents.quick]
module = "quick.wasm"
allow = [{{ tools = ["demo/*"] }}]
[agents.slow]
module = "slow.wasm"
allow = [{{ tools = ["demo/*"] }}]
"""


@pytest.fixture
def desk(shell: Shell) -> Shell:
    weather = call("mcp__demo__get_weather", location="Oslo")
    shell.write("quick.wasm", guest(weather, output={"sky": "clear"}))
    shell.write("slow.wasm", guest(call("mcp__demo__slow", seconds=3600)))
    return shell


def configure(desk: Shell, more: str = "") -> None:
    demo = standin.toml(f"of={desk.folder}")
    desk.write("caxton.toml", CONFIG.format(demo=demo, more=more))


def run(host: Host, run_id: str) -> dict[str, object]:
    found: dict[str, object] = host.get(f"/api/v1/runs/{run_id}").json()
    return found


def test_what_waits_outlives_its_host_and_one_may_cancel_it(desk: Shell) -> None:
    # law 3
    configure(desk)
    good = token(desk)
    with served(desk, good=good) as host:
        first, second, third = (host.start(name) for name in ("slow", "quick", "quick"))
        until(lambda: run(host, first)["state"] == "running")
        assert [run(host, one)["state"] for one in (second, third)] == ["queued"] * 2
        assert desk("runs", "cancel", third, "--reason", "no more").code == 0
        host.stop(signal.SIGKILL)

    with served(desk, good=good) as host:
        cancel = f"/api/v1/runs/{first}/cancel"
        until(lambda: host.post(cancel, {}).status_code == 200)  # Once it is resumed.
        until(lambda: run(host, second)["state"] == "completed")

    assert run_types(desk, second)[:2] == ["RunQueued", "RunStarted"]
    assert run_types(desk, third) == ["RunQueued", "RunCancelled"]
    assert desk("audit", "verify").code == 0
    assert desk("replay", second).code == 0
    refused = desk("replay", third)
    assert refused.code == 2
    assert "had not started" in refused.err
    shown = desk("runs", "show", third)
    assert "cancelled" in shown.out


def events(desk: Shell, run_id: str) -> list[dict[str, Any]]:
    found = desk("events", "export", run_id)
    return [json.loads(line) for line in found.out.splitlines()]


def run_types(desk: Shell, run_id: str) -> list[str]:
    return [event["type"] for event in events(desk, run_id)]


def test_a_host_hands_its_runs_over_at_their_next_call(desk: Shell) -> None:
    # law 6: the call under way ends first, so none is in doubt
    configure(desk, 'drain = "hand_over"')
    calls = [call("mcp__demo__slow", seconds=n) for n in (2, 0)]
    desk.write("slow.wasm", guest(*calls))
    good = token(desk)
    with served(desk, good=good) as host:
        run_id = host.start("slow")
        until(lambda: "ToolInvoked" in run_types(desk, run_id))
        code, said = host.stop(signal.SIGTERM)
    assert code == 0
    assert "suspended at their next call" in said
    assert run_types(desk, run_id)[-2:] == ["ToolCompleted", "RunSuspended"]

    with served(desk, good=good) as other:
        until(lambda: run(other, run_id)["state"] == "completed")

    last = run_types(desk, run_id)
    assert last.count("ToolInvoked") == 2
    assert "CallResolved" not in last
    assert desk("replay", run_id).code == 0


def test_a_full_host_leaves_work_to_one_that_is_not(
    desk: Shell, postgres_url: str
) -> None:
    engine = f'[store]\nurl = "{postgres_url}"\n[placement]\nengine = "procrastinate"'
    configure(desk, engine)
    assert desk("db", "migrate").code == 0
    good = token(desk)
    with served(desk, good=good) as full, served(desk, good=good) as idle:
        busy = full.start("slow")
        until(lambda: run(full, busy)["state"] == "running")

        moved = full.start("quick")

        until(lambda: run(full, moved)["state"] == "completed")
        started = next(
            event["payload"]
            for event in events(desk, moved)
            if event["type"] == "RunStarted"
        )
        assert started["host"] == idle.said["host"]
        assert full.post(f"/api/v1/runs/{busy}/cancel", {}).status_code == 200
