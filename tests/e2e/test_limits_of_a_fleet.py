"""What servers allow and callers may have is that of three hosts on one log."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.postgres import Server, name_of

from .guests import call, guest
from .serving import Host, served, token
from .shell import Shell
from .test_cli_cancel import until
from .test_queue import events, run_types

SERVER = Path(__file__).with_name("counting_server.py")
CONFIG = """\
version = 1
[store]
url = "{url}"
{serve}
[servers.shop]
command = {python}
args = ["-I", "-S", {server}, {folder}]
{limits}
tools.work.retry = {{ attempts = 1 }}
[agents.a]
module = "a.wasm"
allow = [{{ tools = ["shop/work"] }}]
[agents.three]
module = "three.wasm"
allow = [{{ tools = ["shop/work"] }}]
"""


@pytest.fixture
def desk(shell: Shell) -> Shell:
    work = call("mcp__shop__work")
    shell.write("a.wasm", guest(work))
    shell.write("three.wasm", guest(work, work, work))
    return shell


def configure(desk: Shell, url: str, limits: str = "", serve: str = "") -> None:
    texts = {
        "python": sys.executable,
        "server": str(SERVER),
        "folder": str(desk.folder),
    }
    quoted = {key: json.dumps(text) for key, text in texts.items()}
    desk.write(
        "caxton.toml", CONFIG.format(url=url, limits=limits, serve=serve, **quoted)
    )


def marks(desk: Shell) -> list[str]:
    """Return what the server did: a ``+`` where work began, a ``-`` where it ended."""
    found = desk.folder / "work"
    return found.read_text().split() if found.exists() else []


def go(desk: Shell) -> None:
    desk.write("go", "")


@contextmanager
def fleet(desk: Shell) -> Generator[list[Host]]:
    good = token(desk)
    with ExitStack() as stack:
        yield [stack.enter_context(served(desk, good=good)) for _ in range(3)]


def start(hosts: list[Host], agent: str, count: int) -> list[tuple[Host, str]]:
    return [(host, host.start(agent)) for host in hosts for _ in range(count)]


def run(host: Host, run_id: str) -> dict[str, Any]:
    found: dict[str, Any] = host.get(f"/api/v1/runs/{run_id}").json()
    return found


def end(runs: list[tuple[Host, str]]) -> None:
    until(lambda: all(run(*one)["state"] == "completed" for one in runs))


@pytest.mark.long
def test_three_hosts_have_one_rate_between_them(
    desk: Shell, postgres: Server, postgres_url: str
) -> None:
    configure(desk, postgres_url, 'rate = "5/h"')
    go(desk)
    with fleet(desk) as hosts:
        runs = start(hosts, "a", 3)
        end(runs)
        assert marks(desk).count("+") == 5
        failed = [one for _, one in runs if "ToolFailed" in run_types(desk, one)]
        assert len(failed) == 4

        hour = "UPDATE budgets SET since = since - 3600000000 WHERE key LIKE '!%'"
        postgres.execute(hour, name_of(postgres_url))
        end(start(hosts, "a", 2))
        assert marks(desk).count("+") == 10


@pytest.mark.long
def test_a_rate_of_seconds_lets_all_through_in_turn(
    desk: Shell, postgres: Server, postgres_url: str
) -> None:
    configure(desk, postgres_url, 'rate = "5/s"')
    go(desk)
    clock = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    ((began,),) = postgres.execute(clock)
    with fleet(desk) as hosts:
        end(start(hosts, "three", 2))
    assert marks(desk).count("+") == 18
    whole = "SELECT since FROM budgets WHERE key = '!server/shop/rate/5/1000000'"
    ((since,),) = postgres.execute(whole, name_of(postgres_url))
    # Each took its fifth of a second, whichever host it came from.
    assert since >= began + 18 * 200_000


@pytest.mark.long
def test_three_hosts_have_one_place_between_them(
    desk: Shell, postgres: Server, postgres_url: str
) -> None:
    configure(desk, postgres_url, "concurrency = 1")
    go(desk)
    with fleet(desk) as hosts:
        end(start(hosts, "three", 2))
    assert marks(desk) == ["+", "-"] * 18
    assert postgres.execute("SELECT * FROM slots", name_of(postgres_url)) == []


@pytest.mark.long
def test_a_place_outlives_its_host_until_its_call_is_resolved(
    desk: Shell, postgres_url: str
) -> None:
    # law 7: nobody knows whether the server still works on it
    configure(desk, postgres_url, 'concurrency = 1\ntimeout = "10s"')
    with fleet(desk) as hosts:
        dead, *living = hosts
        doubt = dead.start("a")
        until(lambda: marks(desk) == ["+"])
        dead.stop(signal.SIGKILL)
        refused = start(living, "a", 1)
        end(refused)
        for _, one in refused:
            assert "ToolFailed" in run_types(desk, one)
        until(lambda: run(living[0], doubt)["state"] == "suspended")
        assert marks(desk) == ["+"]

        go(desk)
        said = desk("runs", "resolve", doubt, "2", "--fail", "--reason", "seen")
        assert said.code == 0, said.err
        end(start(living, "a", 1))
    assert marks(desk) == ["+", "+", "-", "+", "-"]


def ask(host: Host, who: str) -> httpx.Response:
    return host.ask("POST", "/api/v1/runs", who, json={"agent": "a"})


@pytest.mark.long
def test_three_hosts_count_what_a_caller_and_a_tenant_have(
    desk: Shell, postgres_url: str
) -> None:
    serve = "[serve]\nconcurrency = 3\ntenant_concurrency = 4"
    configure(desk, postgres_url, serve=serve)
    ann, bob, carl = (
        token(desk, "--scope", "run", "--tenant", tenant)
        for tenant in ("acme", "acme", "bolt")
    )
    with fleet(desk) as hosts:
        answers = {
            who: [ask(host, one) for _ in range(2) for host in hosts]
            for who, one in (("ann", ann), ("bob", bob), ("carl", carl))
        }
        codes = {
            who: [one.status_code for one in all_] for who, all_ in answers.items()
        }
        assert codes == {
            "ann": [202, 202, 202, 429, 429, 429],
            "bob": [202, 429, 429, 429, 429, 429],
            "carl": [202, 202, 202, 429, 429, 429],
        }
        assert "you have 3 runs under way" in answers["ann"][3].text
        assert "your tenant has 4 runs under way" in answers["bob"][1].text
        go(desk)
        until(lambda: len(marks(desk)) == 14)
        until(lambda: ask(hosts[0], bob).status_code == 202)


@pytest.mark.long
def test_a_tenant_that_floods_the_queue_delays_itself(
    desk: Shell, postgres_url: str
) -> None:
    serve = '[placement]\nengine = "procrastinate"\n[serve]\nruns = 1'
    configure(desk, postgres_url, serve=serve)
    assert desk("db", "migrate").code == 0
    flood = [token(desk, "--scope", "run", "--tenant", "acme") for _ in range(12)]
    other = token(desk, "--scope", "run", "--tenant", "bolt")
    with fleet(desk) as hosts:
        runs = [
            ask(hosts[number % 3], one).json()["run_id"]
            for number, one in enumerate(flood)
        ]
        until(lambda: len(marks(desk)) == 3)
        late = ask(hosts[0], other).json()["run_id"]
        go(desk)
        until(lambda: len(marks(desk)) == 26)
        until(lambda: run(hosts[0], late)["state"] == "completed")
    order = sorted([*runs, late], key=lambda one: begun(desk, one))
    # Three were begun, and nine of the flood were in the queue before it.
    assert order.index(late) < 6


def begun(desk: Shell, run_id: str) -> str:
    (started,) = [one for one in events(desk, run_id) if one["type"] == "RunStarted"]
    at: str = started["recorded_at"]
    return at
